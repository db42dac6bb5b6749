"""The tables of a store, and the numbered migrations that lead to them.

A released migration never changes: a change of the schema is a new migration at the end of the list.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from berth.errors import BerthError, MissingExtra

try:
    import sqlalchemy as sa
except ImportError as error:
    raise MissingExtra("berth serve", "serve") from error

__all__ = ["SCHEMA", "idempotency", "jobs", "journal", "meta", "migrate", "snapshots", "tokens"]

PAGE = 5_000
"""The number of jobs that a migration reads at once."""

tables = sa.MetaData()

journal = sa.Table(
    "journal",
    tables,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
)
sa.Index("journal_kind", journal.c.kind, journal.c.seq)
sa.Index("journal_time", journal.c.time)

jobs = sa.Table(
    "jobs",
    tables,
    sa.Column("id", sa.String(128), primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False, unique=True),
    sa.Column("phase", sa.String(16), nullable=False),
    sa.Column("owner", sa.String(128), nullable=False),
    sa.Column("team", sa.String(128), nullable=False),
    sa.Column("queue", sa.String(128), nullable=False),
    sa.Column("type", sa.String(128), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("ended", sa.Double),
)
sa.Index("jobs_ended", jobs.c.ended)
for _column in (jobs.c.phase, jobs.c.owner, jobs.c.team, jobs.c.queue, jobs.c.type):
    sa.Index(f"jobs_{_column.name}", _column, jobs.c.number)

idempotency = sa.Table(
    "idempotency",
    tables,
    sa.Column("owner", sa.String(128), primary_key=True),
    sa.Column("key", sa.String(256), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("ids", sa.Text, nullable=False),
    sa.Column("time", sa.Double, nullable=False),
)
sa.Index("idempotency_time", idempotency.c.time)

tokens = sa.Table(
    "tokens",
    tables,
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("owner", sa.String(128), nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("revoked", sa.Double),
    sa.Column("expires", sa.Double),
    sa.Column("rotated", sa.Double),
    sa.Column("previous", sa.String(64)),
    sa.Column("previous_until", sa.Double),
)

snapshots = sa.Table(
    "snapshots",
    tables,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
)

meta = sa.Table(
    "meta", tables, sa.Column("name", sa.String(64), primary_key=True), sa.Column("value", sa.Text, nullable=False)
)


def _first(connection: sa.Connection) -> None:
    tables.create_all(connection)


def _token_lifetimes(connection: sa.Connection) -> None:
    """Expiry and rotation of tokens. A new store has these columns from the first step on."""
    there = {column["name"] for column in sa.inspect(connection).get_columns(tokens.name)}
    for name, kind in (
        ("expires", "DOUBLE PRECISION"),
        ("rotated", "DOUBLE PRECISION"),
        ("previous", "VARCHAR(64)"),
        ("previous_until", "DOUBLE PRECISION"),
    ):
        if name not in there:
            connection.execute(sa.text(f"ALTER TABLE tokens ADD COLUMN {name} {kind}"))


def _ends_of_jobs(connection: sa.Connection) -> None:
    """The times at which jobs ended, so that the oldest can be found."""
    if "ended" in {column["name"] for column in sa.inspect(connection).get_columns(jobs.name)}:
        return
    connection.execute(sa.text("ALTER TABLE jobs ADD COLUMN ended DOUBLE PRECISION"))
    connection.execute(sa.text("CREATE INDEX jobs_ended ON jobs (ended)"))
    change = sa.update(jobs).where(jobs.c.id == sa.bindparam("job")).values(ended=sa.bindparam("time"))
    at = -1
    while True:
        asked = sa.select(jobs.c.number, jobs.c.id, jobs.c.body).where(jobs.c.number > at)
        rows = connection.execute(asked.order_by(jobs.c.number).limit(PAGE)).all()
        if not rows:
            return
        connection.execute(change, [{"job": job, "time": json.loads(body).get("ended")} for _, job, body in rows])
        at = rows[-1][0]


MIGRATIONS: tuple[Callable[[sa.Connection], None], ...] = (_first, _token_lifetimes, _ends_of_jobs)
SCHEMA = len(MIGRATIONS)
"""The number of the last migration."""


def migrate(connection: sa.Connection, where: str, steps: tuple[Callable[[Any], None], ...] = MIGRATIONS) -> None:
    """Migrate a store to this version, in the open transaction; refuse a store of a newer version."""
    others = sorted(set(sa.inspect(connection).get_table_names()) - set(meta.metadata.tables))
    if others and not sa.inspect(connection).has_table(meta.name):
        raise BerthError(
            f"the store {where} belongs to another program: it has a table {others[0]!r} and none of berth's"
        )
    meta.create(connection, checkfirst=True)
    found = connection.execute(sa.select(meta.c.value).where(meta.c.name == "schema")).scalar()
    version = int(found or 0)
    if version > len(steps):
        raise BerthError(
            f"the store {where} has schema {version}, and this version of berth knows {len(steps)}: use a newer berth"
        )
    for step in steps[version:]:
        step(connection)
    if version < len(steps):
        connection.execute(sa.delete(meta).where(meta.c.name == "schema"))
        connection.execute(sa.insert(meta).values(name="schema", value=str(len(steps))))
