"""Both kinds of store keep what they are given, all of a batch or none, and know what they may not touch."""

from __future__ import annotations

import multiprocessing
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import BerthError, InvalidInput
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Decided, ServerJoined, Submitted
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.records import JobRecord
from berth.live.service import store as store_module
from berth.live.service.schema import SCHEMA, migrate
from berth.live.service.store import DAY, HOUR, Batch, InUse, Key, Store, StoreError, Token, _thinned, packed
from tests.harness.waiting import DEADLINE


def job(name: str, **changes: Any) -> Job:
    """A small job."""
    return Job(name, "x", (Role("w", 1, {"cpu": 1000}),), **changes)


def submitted(first: int, jobs: list[Job]) -> Batch:
    """A batch in which these jobs come."""
    batch = Batch(first)
    for number, one in enumerate(jobs, first - 1):
        batch.events.append(Submitted(float(number), one))
        batch.records[one.id] = JobRecord(one, number, float(number), since=float(number))
    return batch


def test_events_come_back_in_order(where: str) -> None:
    store = Store(where)
    first = submitted(1, [job(f"j{i}", payload={"text": "ünï\x00"}) for i in range(3)])
    second = Batch(4, [ServerJoined(4.0, Server("n", {"cpu": 1})), Decided(5.0, "x", ()), Decided(6.0, "x", ())])
    store.write(first)
    store.write(second)
    assert list(store.events()) == list(enumerate([*first.events, *second.events], 1))
    assert list(store.events(2, 2)) == list(store.events())[2:4]
    assert [seq for seq, _ in store.events(kind="decided", limit=1)] == [5]
    assert [seq for seq, _ in store.events(kind="decided", limit=5, latest=True)] == [5, 6]
    assert [seq for seq, _ in store.events(kind="decided", limit=1, latest=True)] == [6]
    assert store.last() == 6
    store.close()


def test_pages_of_events(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.live.service.store.PAGE", 3)
    store = Store(where)
    store.write(submitted(1, [job(f"j{i}") for i in range(10)]))
    assert [seq for seq, _ in store.events(after=1)] == list(range(2, 11))
    assert [seq for seq, _ in store.events(after=1, limit=7)] == list(range(2, 9))
    store.close()


def test_all_of_a_batch_or_none(where: str) -> None:
    store = Store(where)
    store.write(submitted(1, [job("a")]))
    bad = submitted(2, [job("b"), job("c")])
    bad.first = 1  # the number is taken
    with pytest.raises(BerthError):
        store.write(bad)
    assert store.last() == 1
    assert store.record("b") is None
    store.close()


def test_jobs_by_filter_and_page(where: str) -> None:
    store = Store(where)
    jobs = [job(f"j{i}", user=f"u{i % 2}", team=f"t{i % 3}") for i in range(9)]
    store.write(submitted(1, jobs))
    ended = JobRecord(jobs[0], 0, 0.0, "finished", 1, ended=9.0)
    store.write(Batch(10, [ServerJoined(9.0, Server("n", {}))], {"j0": ended}))
    assert store.record("j0") == ended
    assert store.record("none") is None
    assert store.taken(["j0", "j8", "none"]) == {"j0", "j8"}
    assert store.records(["j0", "j3", "none"]) == {"j0": ended, "j3": JobRecord(jobs[3], 3, 3.0, since=3.0)}
    page = store.list_jobs({"owner": "u0"}, limit=3)
    assert [record.job.id for record in page] == ["j8", "j6", "j4"]
    page = store.list_jobs({"owner": "u0"}, before=page[-1].number, limit=3)
    assert [record.job.id for record in page] == ["j2", "j0"]
    assert [record.job.id for record in store.list_jobs({"team": "t0"}, ["waiting"])] == ["j6", "j3"]
    store.close()


def test_keys(where: str) -> None:
    store = Store(where)
    key = Key("u", "k", "digest", ("a", "b"), 1.0)
    store.write(Batch(1, [ServerJoined(1.0, Server("n", {}))], keys=[key]))
    assert store.keys([("u", "k"), ("v", "k"), ("u", "l")]) == {("u", "k"): key}
    store.close()


def test_snapshots_and_retention(where: str) -> None:
    store = Store(where)
    dispatcher = Dispatcher()
    assert store.snapshot() is None
    for round_ in range(3):
        batch = submitted(10 * round_ + 1, [job(f"j{round_}.{i}") for i in range(10)])
        dispatcher.replay(batch.events)
        store.write(batch)
        store.write_snapshot(batch.last, dispatcher.state.time, packed(dispatcher.dump()))
    assert store.snapshot() == (30, dispatcher.dump())
    assert [seq for seq, _ in store.events()] == list(range(1, 31))
    before = store.snapshot(19.5)
    assert before is not None
    assert before[0] == 20
    store.write_snapshot(30, dispatcher.state.time, packed(dispatcher.dump()), retention=9.5)
    assert [seq for seq, _ in store.events()] == list(range(21, 31))
    assert store.record("j0.0") is not None
    store.close()


def test_few_events_are_deleted_at_a_time_and_all_in_the_end(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MOST_DROPPED", 4)
    store = Store(where)
    store.write(submitted(1, [job(f"j{i}") for i in range(10)]))
    for first in (5, 9, 10):
        store.write_snapshot(10, DAY, b"", retention=1.0)
        assert [seq for seq, _ in store.events()] == list(range(first, 11))
    store.close()


@given(st.lists(st.floats(0, 40 * DAY), max_size=60), st.one_of(st.none(), st.floats(0, 40 * DAY)))
def test_thinned(times: list[float], retention: float | None) -> None:
    there = list(enumerate(sorted(times)))
    now = max(times, default=0.0)
    gone = set(_thinned(there, now, retention))
    kept = [time for seq, time in there if seq not in gone]
    assert kept[-2:] == [time for _, time in there][-2:]
    assert len(kept) <= 2 + 25 + 41
    if retention is None:  # of every hour of the last day there is one, or the latest are of it
        young = {int(time // HOUR) for time in times if now - time < DAY}
        assert young == {int(time // HOUR) for time in kept if now - time < DAY}


def test_one_snapshot_of_each_hour_is_kept_for_a_day_and_then_one_of_each_day() -> None:
    there = [(i, i * HOUR / 2) for i in range(2 * 24 * 40 + 1)]
    gone = set(_thinned(there, 40 * DAY, None))
    days = [day * DAY - HOUR / 2 for day in range(1, 40)]
    hours = [39 * DAY + hour * HOUR + HOUR / 2 for hour in range(24)]
    assert [time for i, time in there if i not in gone] == [*days, 39 * DAY, *hours, 40 * DAY]


def test_tokens(where: str) -> None:
    store = Store(where)
    token = Token("laptop", "ab" * 32, "submit", "ada", 1.0)
    store.add_token(token)
    with pytest.raises(BerthError, match="'laptop' already"):
        store.add_token(token)
    assert store.tokens() == store.tokens("ab" * 32) == [token]
    assert store.revoke_token("laptop", 2.0)
    assert not store.revoke_token("laptop", 3.0)
    assert store.tokens("ab" * 32)[0].revoked == 2.0
    assert store.tokens("cd" * 32) == []
    store.close()


def _try_lock(where: str, answer: Any) -> None:
    store = Store(where)
    try:
        store.lock()
        answer.put("locked")
    except InUse as error:
        answer.put(str(error))
    finally:
        store.close()


def test_second_process_is_refused(where: str) -> None:
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    store, next_ = Store(where), Store(where)
    store.lock()
    other = context.Process(target=_try_lock, args=(where, answers))
    other.start()
    assert "is in use by" in answers.get(timeout=DEADLINE)
    other.join()
    store.close()
    next_.lock()
    next_.close()


def test_second_process_may_add_tokens(where: str) -> None:
    store, other = Store(where), Store(where)
    store.lock()
    other.add_token(Token("a", "ab" * 32, "read", "ada", 1.0))
    store.write(submitted(1, [job("a")]))
    assert len(store.tokens()) == other.last() == 1
    store.close()
    other.close()


def test_newer_schema_is_refused(where: str) -> None:
    store = Store(where)
    store._database.write(lambda c: c.execute(sa.text(f"UPDATE meta SET value = '{SCHEMA + 1}'")))
    store.close()
    with pytest.raises(BerthError, match=f"has schema {SCHEMA + 1}, and this version of berth knows {SCHEMA}"):
        Store(where)


def test_migrations_run_once_and_in_order(where: str) -> None:
    store = Store(where)
    ran: list[str] = []
    old: Any = [lambda _: ran.append("old")] * SCHEMA
    steps = (*old, lambda _: ran.append("one more"), lambda _: ran.append("another"))
    for _ in range(2):
        store._database.write(lambda c: migrate(c, "here", steps))
    assert ran == ["one more", "another"]
    store.close()


def test_tokens_of_an_older_store_are_kept(where: str) -> None:
    store = Store(where)
    token = Token("laptop", "ab" * 32, "submit", "ada", 1.0)
    store.add_token(token)

    def age(connection: sa.Connection) -> None:
        for column in ("expires", "rotated", "previous", "previous_until"):
            connection.execute(sa.text(f"ALTER TABLE tokens DROP COLUMN {column}"))
        connection.execute(sa.text("UPDATE meta SET value = '1' WHERE name = 'schema'"))

    store._database.write(age)
    store.close()
    newer = Store(where)
    assert newer.tokens() == [token]
    newer.replace_token(replace(token, expires=9.0, rotated=3.0, previous="cd" * 32, previous_until=4.0))
    assert newer.tokens()[0].lifetime == 6.0
    newer.close()


def test_failed_migration_leaves_nothing(where: str) -> None:
    store = Store(where)

    def fails(connection: sa.Connection) -> None:
        connection.execute(sa.text("CREATE TABLE half (a INTEGER)"))
        raise BerthError("no")

    with pytest.raises(BerthError, match="no"):
        store._database.write(lambda c: migrate(c, "here", (fails,) * (SCHEMA + 1)))
    assert not sa.inspect(store._database.reader).has_table("half")
    store.close()


def test_written_again_when_it_is_not_known_whether_it_was(where: str) -> None:
    store = Store(where)
    batch = submitted(1, [job("a")])
    store.write(batch)
    store._doubtful = True
    store.write(batch)
    assert store.last() == 1
    store._doubtful = True
    with pytest.raises(InUse, match="another process has written"):
        store.write(submitted(5, [job("b")]))
    store.close()


def test_connection_that_is_cut_is_made_again_with_its_lock(postgres_database: str) -> None:
    store = Store(postgres_database)
    store.lock()
    store.write(submitted(1, [job("a")]))
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    with pytest.raises(StoreError):
        store.write(submitted(2, [job("b")]))
    store.write(submitted(2, [job("b")]))
    assert store.last() == 2
    other = Store(postgres_database)
    with pytest.raises(InUse):
        other.lock()
    other.close()
    store.close()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "expected the path of a file, or postgresql://"),
        ("mysql://root:secret@h/db", r"got 'mysql://root:\*\*\*@h/db'"),
        ("/nowhere/at/all/berth.db", "No such file"),
        ("sqlite://", "expected the path of a file"),
    ],
)
def test_bad_addresses(address: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Store(address)


def test_unreachable_server_is_told_without_the_password() -> None:
    with pytest.raises(StoreError) as error:
        Store("postgresql://ada:secret@127.0.0.1:1/db")
    assert "secret" not in str(error.value)
    assert "127.0.0.1" in str(error.value)


def test_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database at all, but long enough to be read as one " * 20)
    with pytest.raises(BerthError, match="damaged or not a berth store"):
        Store(str(path))


def test_sqlite_waits_for_the_disk(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "berth.db"))
    for pragma, value in (("journal_mode", "wal"), ("synchronous", 2)):
        found = store._database.write(lambda c, pragma=pragma: c.exec_driver_sql(f"PRAGMA {pragma}").scalar())  # type: ignore[misc]
        assert found == value
    assert (tmp_path / "berth.db").stat().st_mode & 0o077 == 0
    store.close()


def test_another_process_that_opens_and_closes_it_takes_nothing_away(tmp_path: Path) -> None:
    where = str(tmp_path / "berth.db")
    ours, beside = Store(where), Store(where)
    once = "import sys; from berth.live.service.store import Store; s = Store(sys.argv[1]); {}; s.close()"
    subprocess.run([sys.executable, "-c", once.format("s.tokens()"), where], check=True)
    ours.add_token(Token("a", "hash", "read", "ann", 0.0))
    shown = subprocess.run(
        [sys.executable, "-c", once.format("print([t.name for t in s.tokens()])"), where],
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.strip() == "['a']"
    beside.close()
    ours.close()


def test_a_store_of_another_program_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()
    with pytest.raises(BerthError, match="another program"):
        Store(str(file))
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("t",)]
    connection.close()


def test_a_store_keeps_its_name(where: str, tmp_path: Path) -> None:
    store = Store(where)
    name = store.name
    store.close()
    again = Store(where)
    assert again.name == name
    again.close()
    other = Store(str(tmp_path / "another.db"))
    assert other.name != name
    other.close()
