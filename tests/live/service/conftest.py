"""Stores for tests: an SQLite file, and a real PostgreSQL server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg
import pytest

from scripts.postgres import binaries
from tests.harness.postgres import shared_server

Database = Callable[[], AbstractContextManager[str]]


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Gives addresses of empty databases, on one server for the whole run."""
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed: python3 scripts/postgres.py install")
    folder = tmp_path_factory.getbasetemp()
    with shared_server(folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as server:

        @contextmanager
        def database() -> Iterator[str]:
            name = f"t{uuid.uuid4().hex}"
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f'CREATE DATABASE "{name}"')
            yield server.replace("/postgres?", f"/{name}?")
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

        yield database


@pytest.fixture
def postgres_database(postgres: Database) -> Iterator[str]:
    """The address of an empty database."""
    with postgres() as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store, of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "berth.db")
    return str(request.getfixturevalue("postgres_database"))
