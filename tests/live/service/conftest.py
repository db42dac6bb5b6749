"""Stores for tests: an SQLite file, and a real PostgreSQL server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from scripts.postgres import binaries, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a server."""
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed: python3 scripts/postgres.py install")
    with postgres_server() as address:
        yield address


@pytest.fixture
def postgres_database(postgres: str) -> Iterator[str]:
    """The address of an empty database of that server."""
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield postgres.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store, of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "berth.db")
    return str(request.getfixturevalue("postgres_database"))
