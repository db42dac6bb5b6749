"""Connections to SQLite or PostgreSQL: one that writes, others that read, and the lock of the scheduling process.

SQLite runs in WAL mode and syncs every transaction to disk. The lock is a file lock beside the database, or an
advisory lock of the writing connection, which ends with the connection.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

from berth.errors import BerthError, InvalidInput, MissingExtra

try:
    import sqlalchemy as sa
    from sqlalchemy import event as sa_event
    from sqlalchemy import exc
except ImportError as error:
    raise MissingExtra("berth serve", "serve") from error

__all__ = ["Database", "InUse", "StoreDamaged", "StoreError", "is_new"]

ADVISORY = 0x6265727468
"""The number of the advisory lock: one scheduler a database."""
READ_ONLY = "25006"
"""PostgreSQL's code for a write on a server that takes none, as after a failover."""
LOCK_SECONDS = 2.0
BUSY_MILLISECONDS = 20_000
T = TypeVar("T")


class StoreError(BerthError):
    """The store cannot be reached now; nothing was written, or it is not known whether something was."""


class StoreDamaged(BerthError):
    """The store answers, but its content is invalid."""


class InUse(BerthError):
    """Another process schedules with this store."""


class Database:
    """Runs transactions. `write` and `read` run a function in a transaction, from any thread."""

    def __init__(self, where: str) -> None:
        self.sqlite, url = _url(where)
        self.where = url.render_as_string(hide_password=True) if not self.sqlite else str(url.database)
        self._lock_file: IO[str] | None = None
        self._locked = False
        self._connection: sa.Connection | None = None
        if self.sqlite:
            path = Path(self.where)
            try:
                _make_file(path)
            except OSError as error:
                raise InvalidInput(
                    "a file that can be written", key="store", found=f"{self.where} ({error.strerror})"
                ) from None
            self.writer = sa.create_engine(url, pool_size=1, max_overflow=0)
            self.reader = sa.create_engine(url, pool_size=4)
            sa_event.listen(self.writer, "connect", _sqlite_writes)
            sa_event.listen(self.writer, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
            sa_event.listen(self.reader, "connect", _sqlite_reads)
        else:
            waiting = {"connect_timeout": 10}
            self.writer = sa.create_engine(url, pool_size=1, max_overflow=0, connect_args=waiting)
            self.reader = sa.create_engine(url, pool_size=4, connect_args=waiting, pool_pre_ping=True)

    def write(self, run: Callable[[sa.Connection], T]) -> T:
        """Run in the one writing transaction; all of it is durable afterwards, or none."""
        try:
            connection = self._writing()
            with connection.begin():
                return run(connection)
        except exc.DBAPIError as error:
            raise self._error(error) from error

    def read(self, run: Callable[[sa.Connection], T]) -> T:
        """Run in a read-only transaction."""
        try:
            with self.reader.connect() as connection:
                return run(connection)
        except exc.DBAPIError as error:
            raise self._error(error) from error

    def _writing(self) -> sa.Connection:
        """The one connection that writes; if the store was locked, a new connection must take the lock again."""
        if self._connection is None or self._connection.invalidated or self._connection.closed:
            self._connection = self.writer.connect()
            if self._locked and not self.sqlite:
                self._advise(self._connection)
        return self._connection

    def _error(self, error: exc.DBAPIError) -> BerthError:
        words = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        read_only = getattr(error.orig, "sqlstate", None) == READ_ONLY
        if self._connection is not None and (error.connection_invalidated or read_only):
            if read_only:  # a new connection may lead to the server that takes writes now
                self._connection.invalidate()
            self._connection.close()
            self._connection = None
        if isinstance(error, exc.OperationalError | exc.InterfaceError) or read_only:
            return StoreError(f"the store {self.where}: {words[0]}")
        return StoreDamaged(f"the store {self.where} is damaged or not a berth store: {words[0]}")

    def lock(self) -> None:
        """Take the lock that lets only one scheduler use this store, until `close`."""
        if self.sqlite:
            self._lock_file = _locked_file(Path(self.where + ".lock"), self.where)
        else:
            try:
                self._advise(self._writing())
            except exc.DBAPIError as error:
                raise self._error(error) from error
        self._locked = True

    def _advise(self, connection: sa.Connection) -> None:
        """Take the advisory lock; the server may need a moment to notice that its last holder is dead."""
        end = time.monotonic() + LOCK_SECONDS
        while True:
            with connection.begin():
                if connection.execute(sa.select(sa.func.pg_try_advisory_lock(ADVISORY))).scalar():
                    return
            if time.monotonic() > end:
                raise InUse(f"the store {self.where} is in use by another scheduler")
            time.sleep(0.05)

    def close(self) -> None:
        """Close all connections and release the lock."""
        if self._connection is not None:
            self._connection.close()
        self.writer.dispose()
        self.reader.dispose()
        if self._lock_file is not None:
            self._lock_file.close()


def _url(where: str) -> tuple[bool, sa.URL]:
    """Whether it is SQLite, and the address in SQLAlchemy's form."""
    expected = "the path of a file, or postgresql://user@host/database"
    if "://" not in where:
        if not where or Path(where).is_dir():
            raise InvalidInput(expected, value=where, key="store")
        return True, sa.URL.create("sqlite", database=where)
    try:
        url = sa.make_url(where)
    except (exc.ArgumentError, ValueError):
        raise InvalidInput(expected, found="something else", key="store") from None
    if url.drivername == "sqlite" and url.database:
        return _url(url.database)
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return False, url.set(drivername="postgresql+psycopg")
    raise InvalidInput(expected, value=url.render_as_string(hide_password=True), key="store")


def is_new(where: str) -> bool:
    """Whether the store does not exist yet, as far as can be told without creating it."""
    sqlite, url = _url(where)
    return sqlite and not Path(str(url.database)).exists()


def _make_file(path: Path) -> None:
    """Create an empty file if there is none; other users may not read it, nor the files that SQLite keeps beside it.

    An existing file must not be opened: closing it would release the locks that SQLite holds on it in this process,
    and another process would then delete the journal that this one writes.
    """
    if not path.exists():
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    for file in (path, *(path.with_name(f"{path.name}{end}") for end in ("-wal", "-shm"))):
        _make_private(file)
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _make_private(path: Path) -> None:
    """Remove other users' access to a file, if it is ours."""
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        if os.name != "nt" and found.st_uid == os.geteuid() and found.st_mode & 0o077:
            path.chmod(0o600)


def _sqlite_writes(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions begin explicitly
    for pragma in ("journal_mode=WAL", "synchronous=FULL", f"busy_timeout={BUSY_MILLISECONDS}"):
        connection.execute(f"PRAGMA {pragma}")


def _sqlite_reads(connection: Any, _: object) -> None:
    connection.isolation_level = None
    for pragma in (f"busy_timeout={BUSY_MILLISECONDS}", "query_only=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _locked_file(path: Path, where: str) -> IO[str]:
    """A file locked by this process; the lock ends with the process."""
    file = open(path, "a+", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600))  # noqa: SIM115
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise InUse(f"the store {where} is in use by process {holder or '(unknown)'}") from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
