"""The store: the journal of all events, the record of every job, snapshots, idempotency keys and tokens.

The journal is authoritative. The table of jobs is written in the same transactions, so they always agree. A snapshot
holds the state after an event, so that a restart need not read the whole journal.
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.dialects import postgresql, sqlite

from berth.errors import BerthError
from berth.live.core.dispatcher import Dumped, read_dump, write_dump
from berth.live.core.events import Event, read_event, write_event
from berth.live.core.records import JobRecord
from berth.live.service.database import Database, InUse, StoreError
from berth.live.service.schema import idempotency, jobs, journal, meta, migrate, snapshots, tokens

__all__ = ["Batch", "InUse", "Key", "Store", "StoreError", "Token", "packed", "read_record", "row_of"]

PAGE = 5_000
"""The number of rows read at once."""
MANY = 500
"""The most values in one query."""
MOST_DROPPED = 50_000
"""The most jobs, and the most events, that are deleted with one snapshot: no event can be written meanwhile."""
HOUR, DAY = 3600.0, 86400.0
KEY_SECONDS = 7 * DAY
"""How long idempotency keys are remembered; jobs stay at least as long, so that a repeated submission finds them."""
_RECORD = TypeAdapter(JobRecord)


@dataclass(frozen=True)
class Key:
    """What was accepted under an idempotency key: a digest of it, and the jobs."""

    owner: str
    key: str
    digest: str
    ids: tuple[str, ...]
    time: float


@dataclass(frozen=True)
class Token:
    """A token: `hash` is the SHA-256 of a secret that is not stored.

    A rotated token has a new secret; the previous one, whose hash is `previous`, is valid until `previous_until`.
    """

    name: str
    hash: str
    role: str
    user: str
    created: float
    revoked: float | None = None
    expires: float | None = None
    rotated: float | None = None
    previous: str | None = None
    previous_until: float | None = None

    @property
    def lifetime(self) -> float | None:
        """Seconds from its creation or latest rotation to its expiry; None if it does not expire."""
        return None if self.expires is None else self.expires - (self.rotated or self.created)


@dataclass
class Batch:
    """One transaction: events from number `first` on, changed records, and keys."""

    first: int
    events: list[Event] = field(default_factory=list)
    records: dict[str, JobRecord] = field(default_factory=dict)
    keys: list[Key] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.first + len(self.events) - 1


class Store:
    """Access to the tables. All methods block on the database: call them in a thread."""

    def __init__(self, where: str) -> None:
        self._database = Database(where)
        self._doubtful = False
        try:
            self._database.write(lambda connection: migrate(connection, self.where))
        except BaseException:
            self._database.close()
            raise
        upsert = (sqlite if self._database.sqlite else postgresql).insert(jobs)
        changes = {name: upsert.excluded[name] for name in ("phase", "body", "ended")}
        self._upsert = upsert.on_conflict_do_update(index_elements=["id"], set_=changes)

    @property
    def where(self) -> str:
        """The address, without a password."""
        return self._database.where

    @cached_property
    def name(self) -> str:
        """A unique name of this store, which stays the same when the store is moved."""
        return self._database.write(_named)

    def lock(self) -> None:
        """Take the lock that lets only one scheduler use this store."""
        self._database.lock()

    def close(self) -> None:
        """Close the database and release the lock."""
        self._database.close()

    def _rows(self, asked: Any) -> Sequence[Any]:
        return self._database.read(lambda connection: connection.execute(asked).all())

    # ------------------------------------------------------------------ the journal

    def write(self, batch: Batch) -> None:
        """Write all of a batch, or none. After a `StoreError` the same batch may be written again."""
        lines = [
            {"seq": seq, "time": event.time, "kind": event.kind, "body": write_event(event)}
            for seq, event in enumerate(batch.events, batch.first)
        ]
        rows = [row_of(record) for record in batch.records.values()]
        keys = [{**vars(key), "ids": json.dumps(key.ids)} for key in batch.keys]

        def run(connection: sa.Connection) -> None:
            if self._doubtful:
                asked = sa.select(journal.c.seq, journal.c.body).where(journal.c.seq >= batch.first - 1)
                there = connection.execute(asked.order_by(journal.c.seq)).all()
                mine = [(line["seq"], line["body"]) for line in lines]
                if [(seq, body) for seq, body in there if seq >= batch.first] == mine:
                    return  # only the answer to the commit was lost
                if (there[-1][0] if there else 0) != batch.first - 1:
                    raise InUse(f"another process has written to the store {self.where}")
            for statement, values in (
                (sa.insert(journal), lines),
                (self._upsert, rows),
                (sa.insert(idempotency), keys),
            ):
                if values:
                    connection.execute(statement, values)

        try:
            self._database.write(run)
        except StoreError:
            self._doubtful = True
            raise
        self._doubtful = False

    def last(self) -> int:
        """The number of the last event; 0 if there is none."""
        return self._rows(sa.select(sa.func.max(journal.c.seq)))[0][0] or 0

    def events(
        self, after: int = 0, limit: int | None = None, kind: str | None = None, latest: bool = False
    ) -> Iterator[tuple[int, Event]]:
        """Events after a number, in order; optionally only the first or the `latest` of them."""
        asked = sa.select(journal.c.seq, journal.c.body)
        if kind is not None:
            asked = asked.where(journal.c.kind == kind)
        order = journal.c.seq.desc() if latest else journal.c.seq
        while limit is None or limit > 0:
            size = PAGE if limit is None or latest else min(limit, PAGE)
            page = asked.where(journal.c.seq > after).order_by(order).limit(limit if latest else size)
            rows = self._rows(page)
            yield from ((seq, read_event(body)) for seq, body in (reversed(rows) if latest else rows))
            if latest or len(rows) < size:
                return
            after = rows[-1][0]
            limit = None if limit is None else limit - len(rows)

    # ------------------------------------------------------------------ jobs

    def record(self, job_id: str) -> JobRecord | None:
        """The record of a job."""
        asked = sa.select(jobs.c.body).where(jobs.c.id == job_id)
        return next((read_record(body) for (body,) in self._rows(asked)), None)

    def records(self, ids: Sequence[str]) -> dict[str, JobRecord]:
        """The records of those of these jobs that exist."""
        records = {}
        for i in range(0, len(ids), MANY):
            asked = sa.select(jobs.c.id, jobs.c.body).where(jobs.c.id.in_(ids[i : i + MANY]))
            records.update({job: read_record(body) for job, body in self._rows(asked)})
        return records

    def list_jobs(
        self, filters: dict[str, str], phases: Sequence[str] = (), before: int | None = None, limit: int = 100
    ) -> list[JobRecord]:
        """Jobs whose columns have these values, latest first, from those before a number."""
        asked = sa.select(jobs.c.body).order_by(jobs.c.number.desc()).limit(limit)
        for name, value in filters.items():
            asked = asked.where(jobs.c[name] == value)
        if phases:
            asked = asked.where(jobs.c.phase.in_(phases))
        if before is not None:
            asked = asked.where(jobs.c.number < before)
        return [read_record(body) for (body,) in self._rows(asked)]

    def taken(self, ids: Sequence[str]) -> set[str]:
        """Those of these ids that are in use: whose jobs have not been deleted."""
        asked = (sa.select(jobs.c.id).where(jobs.c.id.in_(ids[i : i + MANY])) for i in range(0, len(ids), MANY))
        return {job for question in asked for (job,) in self._rows(question)}

    def keys(self, wanted: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Key]:
        """What was accepted under these keys (owner, key)."""
        keys = {}
        for i in range(0, len(wanted), MANY):
            pairs = sa.tuple_(idempotency.c.owner, idempotency.c.key).in_(wanted[i : i + MANY])
            for owner, key, digest, ids, time in self._rows(sa.select(idempotency).where(pairs)):
                keys[owner, key] = Key(owner, key, digest, tuple(json.loads(ids)), time)
        return keys

    # ------------------------------------------------------------------ snapshots

    def write_snapshot(
        self,
        seq: int,
        now: float,
        body: bytes,
        retention: float | None = None,
        recalled: Collection[str] | None = None,
    ) -> None:
        """Keep the state after event `seq`, as `packed` gave it, and delete what is too old.

        `recalled` are the jobs that the engine still knows, which stay; if that is not known (None), all jobs stay.
        """

        def run(connection: sa.Connection) -> None:
            connection.execute(sa.delete(snapshots).where(snapshots.c.seq == seq))
            connection.execute(sa.insert(snapshots).values(seq=seq, time=now, body=body))
            there = connection.execute(sa.select(snapshots.c.seq, snapshots.c.time).order_by(snapshots.c.seq)).all()
            gone = _thinned([(s, t) for s, t in there], now, retention)
            connection.execute(sa.delete(snapshots).where(snapshots.c.seq.in_(gone)))
            connection.execute(sa.delete(idempotency).where(idempotency.c.time < now - KEY_SECONDS))
            if retention is not None:
                _drop_events(connection, now - retention, seq)
                if recalled is not None:
                    _drop_jobs(connection, now - max(retention, KEY_SECONDS), recalled)

        self._database.write(run)

    def begin_of(self, time: float) -> tuple[int, Dumped | None]:
        """Where a replay from `time` on begins: after the newest snapshot before it that the journal goes on from.

        If there is none, it begins with the journal (0 and None), or, if that has lost its beginning, after the oldest
        such snapshot.
        """
        first = self._rows(sa.select(sa.func.min(journal.c.seq)))[0][0] or 1
        asked = sa.select(snapshots.c.seq, snapshots.c.time).where(snapshots.c.seq >= first - 1)
        there = self._rows(asked.order_by(snapshots.c.seq.desc()))
        before = next((seq for seq, taken in there if taken <= time), None)
        if before is None and first > 1 and there:
            before = there[-1][0]
        found = None if before is None else self.snapshot(seq=before)
        return found or (0, None)

    def snapshot(self, time: float | None = None, *, seq: int | None = None) -> tuple[int, Dumped] | None:
        """The latest snapshot, the latest not after `time`, or that after event `seq`."""
        asked = sa.select(snapshots.c.seq, snapshots.c.body).order_by(snapshots.c.seq.desc()).limit(1)
        if time is not None:
            asked = asked.where(snapshots.c.time <= time)
        if seq is not None:
            asked = asked.where(snapshots.c.seq == seq)
        for seq, body in self._rows(asked):
            try:
                return seq, read_dump(zlib.decompress(body))
            except (zlib.error, BerthError) as error:
                raise BerthError(f"the store {self.where}: snapshot {seq} cannot be read: {error}") from error
        return None

    # ------------------------------------------------------------------ tokens

    def add_token(self, token: Token) -> None:
        """Keep a token; its name must be new."""
        row = _renamed(vars(token), "user", "owner")

        def run(connection: sa.Connection) -> None:
            if connection.execute(sa.select(tokens.c.name).where(tokens.c.name == token.name)).first():
                raise BerthError(f"there is a token {token.name!r} already")
            connection.execute(sa.insert(tokens).values(**row))

        self._database.write(run)

    def tokens(self, hash_: str | None = None) -> list[Token]:
        """All tokens, or the one with this hash."""
        asked = sa.select(tokens).order_by(tokens.c.name)
        if hash_ is not None:
            asked = asked.where(tokens.c.hash == hash_)
        return [Token(**_renamed(dict(row._mapping), "owner", "user")) for row in self._rows(asked)]

    def replace_token(self, token: Token) -> None:
        """Store a token, replacing one of the same name."""
        row = _renamed(vars(token), "user", "owner")

        def run(connection: sa.Connection) -> None:
            connection.execute(sa.delete(tokens).where(tokens.c.name == token.name))
            connection.execute(sa.insert(tokens).values(**row))

        self._database.write(run)

    def revoke_token(self, name: str, time: float) -> bool:
        """Revoke a token; whether there was a valid one."""
        change = sa.update(tokens).where(tokens.c.name == name, tokens.c.revoked.is_(None)).values(revoked=time)
        return bool(self._database.write(lambda connection: connection.execute(change).rowcount))


def _drop_events(connection: sa.Connection, before: float, last: int) -> None:
    """Delete events before a time and before event `last`, oldest first."""
    first = connection.execute(sa.select(sa.func.min(journal.c.seq))).scalar() or 0
    end = min(first + MOST_DROPPED, last)
    connection.execute(sa.delete(journal).where(journal.c.time < before, journal.c.seq < end))


def _drop_jobs(connection: sa.Connection, before: float, recalled: Collection[str]) -> None:
    """Delete jobs that ended before a time, oldest first."""
    asked = sa.select(jobs.c.id).where(jobs.c.ended < before).order_by(jobs.c.ended)
    there = connection.execute(asked.limit(MOST_DROPPED + len(recalled))).scalars()
    gone = [job for job in there if job not in recalled][:MOST_DROPPED]
    for i in range(0, len(gone), MANY):
        connection.execute(sa.delete(jobs).where(jobs.c.id.in_(gone[i : i + MANY])))


def _named(connection: sa.Connection) -> str:
    name = connection.execute(sa.select(meta.c.value).where(meta.c.name == "name")).scalar()
    if name is None:
        name = secrets.token_hex(8)
        connection.execute(sa.insert(meta).values(name="name", value=name))
    return str(name)


def packed(dumped: Dumped) -> bytes:
    """A snapshot in the format of the store."""
    return zlib.compress(write_dump(dumped), 1)


def _renamed(row: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """Rename a key: `user` is a reserved word of SQL, so the column is `owner`."""
    return {new if name == old else name: value for name, value in row.items()}


def _thinned(there: Sequence[tuple[int, float]], now: float, retention: float | None) -> list[int]:
    """Which of these (number, time) to delete: the latest two stay, one an hour of the last day, and one a day."""
    gone = []
    seen: set[tuple[str, int]] = set()
    for place, (seq, time) in enumerate(reversed(there)):
        unit = ("hour", int(time // HOUR)) if now - time < DAY else ("day", int(time // DAY))
        old = retention is not None and now - time > retention
        if place >= 2 and (old or unit in seen):
            gone.append(seq)
        if place >= 1:
            seen.add(unit)
    return gone


def row_of(record: JobRecord) -> dict[str, Any]:
    """The row of a job."""
    job = record.job
    return {
        "id": job.id,
        "number": record.number,
        "phase": record.phase,
        "owner": job.user,
        "team": job.team,
        "queue": job.queue,
        "type": job.type,
        "body": _RECORD.dump_json(record).decode(),
        "ended": record.ended,
    }


def read_record(body: str) -> JobRecord:
    """The record of a row."""
    return _RECORD.validate_json(body)
