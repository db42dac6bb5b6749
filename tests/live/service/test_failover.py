"""What a store may meet after a failover: a server that takes no writes, and another process that wrote meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from berth.live.core.events import ServerLost
from berth.live.service.store import Batch, InUse, Store, StoreError
from scripts.postgres import binaries, postgres_server
from tests.harness.waiting import eventually


@contextmanager
def read_only(address: str) -> Iterator[None]:
    """All sessions of a server are read-only, as on one that is no longer, or not yet, the primary."""

    def set_to(value: str) -> None:
        options = "-c default_transaction_read_only=off"
        with psycopg.connect(address, autocommit=True, options=options) as connection:
            connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            connection.execute("SELECT pg_reload_conf()")

    set_to("on")
    try:
        yield
    finally:
        set_to("off")


@pytest.fixture
def own_server() -> Iterator[str]:
    """The address of a database on a server that no other test uses."""
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed: python3 scripts/postgres.py install")
    with postgres_server() as address:
        yield address


def test_a_server_that_takes_no_writes_is_waited_for(own_server: str) -> None:
    store = Store(own_server)
    store.lock()
    store.write(Batch(1, [ServerLost(1.0, "a")]))
    second = Batch(2, [ServerLost(2.0, "b")])
    with read_only(own_server):

        def refused() -> str:
            with psycopg.connect(own_server) as connection:
                return str(connection.execute("SHOW default_transaction_read_only").fetchone())

        eventually(refused, lambda said: "on" in said, "the server is read-only")
        for _ in range(3):
            with pytest.raises(StoreError, match="read-only transaction"):
                store.write(second)
    eventually(refused, lambda said: "off" in said, "the server takes writes again")
    store.write(second)
    assert store.last() == 2
    other = Store(own_server)
    with pytest.raises(InUse):  # the lock was taken again
        other.lock()
    other.close()
    store.close()


def test_as_many_events_of_another_process_are_not_taken_for_ones_own(where: str) -> None:
    """The first lost its connection, and with it the lock, in the middle of a commit; a standby went on."""
    store, standby = Store(where), Store(where)
    store.write(Batch(1, [ServerLost(1.0, "a")]))
    standby.write(Batch(2, [ServerLost(2.0, "b"), ServerLost(3.0, "c")]))
    store._doubtful = True
    with pytest.raises(InUse, match="another process has written"):
        store.write(Batch(2, [ServerLost(2.0, "b"), ServerLost(3.0, "d")]))
    store.write(Batch(2, [ServerLost(2.0, "b"), ServerLost(3.0, "c")]))
    assert store.last() == 3
    store.close()
    standby.close()
