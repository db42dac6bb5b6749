"""The attempts that the engine remembers when Slurm or berth is restarted: a file of lines in a directory.

Slurm forgets jobs some minutes after their end, and an attempt must never begin twice. So each attempt is recorded
before it is submitted, when Slurm has accepted it, and when it has ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from berth.errors import BerthError, InvalidInput
from berth.files.quantities import Amounts
from berth.live.core.events import Failed, Finished, read_event, write_event
from berth.live.core.jobs import Job, Place
from berth.live.engines import ADOPTED, Owner
from berth.live.engines.slurm.parsing import SlurmJob

__all__ = ["AttemptRecord", "Key", "Spool"]

Key = tuple[str, int]
REMEMBERED = 10_000
"""The number of ended attempts that are remembered, besides those whose ends the journal may not have."""


@dataclass
class AttemptRecord:
    """An attempt: its places, when it is submitted, Slurm's job id once Slurm has accepted it, and its end."""

    key: Key
    places: tuple[Place, ...] = ()
    asked: float = 0.0
    steps: bool = False
    """Whether all of its work runs in steps of Slurm."""
    demands: Mapping[str, Amounts] | None = None
    """The demand of a task of each role; None if unknown."""
    user: str = ""
    """The system user as whom it runs; empty for the user that runs berth, and in records of older versions."""
    secret: str = ""
    """Part of the name of its mark, so that only its batch script can create the mark."""
    theirs: bool = False
    """Whether it is an attempt of a job that a user submitted to Slurm itself."""
    slurm: int | None = None
    end: Finished | Failed | None = None
    verdict: Finished | Failed | None = None
    """The end to report when Slurm has ended it for berth."""
    # the following fields are not stored
    settled: bool = False
    """Whether the journal has its end."""
    asked_clock: float = field(default_factory=time.monotonic)
    """When it was submitted, by a clock that cannot be set."""
    lines: list[str] = field(default_factory=list)
    """Its lines in the file."""
    sending: bool = False
    """Whether it is being submitted."""
    ours: bool = False
    """Whether it was submitted by this process."""
    since: float = 0.0
    """When Slurm accepted it, or began to end it, by a clock that does not jump."""
    parts: tuple[SlurmJob, ...] = ()
    began: bool = False
    waited: float = 0.0
    """When it was last seen waiting."""
    ran: float = 0.0
    """When it was last seen running."""
    started: float = 0.0
    complete: float = 0.0
    """The latest start of a Slurm daemon after which all of its tasks were present."""
    parted: float | None = None
    """Since when some tasks are missing."""
    doubted: bool = False
    """Whether it was seen cancelled, and its nodes must be checked first."""
    hooked: dict[str, float] = field(default_factory=dict)
    """When hooks reported its begin and end."""
    kept: str = ""
    """Why Slurm does not start it, as last logged."""


class Spool:
    """The records in a directory, which belongs to one process at a time, and to one owner.

    Another owner may take it over when all attempts of the first have ended; their records are then dropped. The
    file is written anew, without the attempts that are no longer remembered, when most of its lines are of no use.
    """

    def __init__(self, directory: Path, owner: Owner | None = None) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = (directory / "lock").open("a")
        except OSError as error:
            raise InvalidInput("a directory that can be written", value=str(directory), key="spool") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise InvalidInput(
                "a directory that no other berth service uses: set `spool` to another one",
                value=str(directory),
                key="spool",
            ) from None
        self.records: dict[Key, AttemptRecord] = {}
        self._open: dict[Key, AttemptRecord] = {}
        self._on: dict[str, dict[Key, AttemptRecord]] = {}
        """Open attempts by the servers of their places."""
        self._path = directory / "attempts.jsonl"
        try:
            self._load(self._path)
            if owner is not None:
                self._claim(directory / "owner", owner)
            self.instance = self._named(directory / "instance")
            for record in self.records.values():
                record.asked_clock -= max(time.time() - record.asked, 0.0)
                if record.end is None:
                    self._opened(record)
            self._file = self._compacted()
        except BaseException:
            self._lock.close()
            raise

    def _claim(self, path: Path, owner: Owner) -> None:
        name, _, where = path.read_text(encoding="utf-8").strip().partition(" ") if path.exists() else ("", "", "")
        if name in ("", owner.name):
            if not name:
                _written(path, f"{owner.name} {owner.where}")
            return
        left = [record for record in self.records.values() if record.end is None]
        if left:
            jobs = ", ".join(record.key[0] for record in left[:3])
            raise InvalidInput(
                "a directory of its own: there are jobs of another store in this one, which it would have to end "
                f"({len(left)}, such as {jobs}; of {where}). Serve that store, or remove the directory if they "
                "are over",
                value=str(self.directory),
                key="spool",
            )
        self.records.clear()
        (self.directory / "instance").unlink(missing_ok=True)
        _written(path, f"{owner.name} {owner.where}")

    def _named(self, path: Path) -> str:
        if not path.exists():
            _written(path, secrets.token_hex(4))
        return path.read_text(encoding="ascii").strip()

    def _load(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            try:
                self._take(json.loads(line), line)
            except (ValueError, KeyError, TypeError, BerthError):
                if number == len(lines):  # cut off when the process was killed
                    break
                raise InvalidInput("a line about an attempt", found=line[:80], file=path, line=number) from None

    def _take(self, found: dict[str, Any], line: str) -> None:
        key = str(found["job"]), int(found["attempt"])
        record = self.records.setdefault(key, AttemptRecord(key))
        match found["what"]:
            case "asked":
                record.asked = float(found["at"])
                record.places = tuple(Place(str(s), str(r), int(c)) for s, r, c in found["places"])
                record.steps = bool(found.get("steps"))
                record.demands = found.get("demands")
                record.user, record.secret = str(found.get("user", "")), str(found.get("secret", ""))
                # older versions only had its name
                record.theirs = bool(found.get("theirs", ADOPTED["slurm"].fullmatch(key[0])))
            case "taken":
                record.slurm = int(found["slurm"])
            case "stopped":
                end = read_event(json.dumps(found["end"]))
                assert isinstance(end, Finished | Failed)
                record.verdict = end
            case "forgotten":
                self.records.pop(key)
            case "ended":
                end = read_event(json.dumps(found["end"]))
                assert isinstance(end, Finished | Failed)
                record.end, record.began, record.verdict = end, True, None
            case other:
                raise ValueError(other)
        record.lines.append(f"{line}\n")

    def _compacted(self) -> TextIO:
        """Write the file anew, with the lines of the remembered attempts."""
        self._forget_old()
        beside = self._path.with_name(f"{self._path.name}.new")
        with beside.open("w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)  # it has the secrets of marks
            for record in self.records.values():
                file.writelines(record.lines)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
        self._lines = sum(len(record.lines) for record in self.records.values())
        self._compact_at = 2 * (self._lines + REMEMBERED)
        return self._path.open("a", encoding="utf-8")

    def _forget_old(self) -> None:
        many = len(self.records) - len(self._open) - REMEMBERED
        if many > 0:
            ended = (key for key, record in self.records.items() if record.settled)
            for key in list(islice(ended, many)):
                del self.records[key]

    def _write(self, record: AttemptRecord, line: str) -> None:
        record.lines.append(line)
        self._file.write(line)
        self._file.flush()
        self._lines += 1
        if self._lines > self._compact_at:
            before, self._file = self._file, self._compacted()
            before.close()

    def _opened(self, record: AttemptRecord) -> None:
        self._open[record.key] = record
        for place in record.places:
            self._on.setdefault(place.server, {})[record.key] = record

    def _closed(self, record: AttemptRecord) -> None:
        self._open.pop(record.key, None)
        for place in record.places:
            there = self._on.get(place.server, {})
            there.pop(record.key, None)
            if not there:
                self._on.pop(place.server, None)

    @staticmethod
    def sent(record: AttemptRecord) -> None:
        """Note that the submission has just been tried."""
        record.asked, record.asked_clock = time.time(), time.monotonic()

    @property
    def open(self) -> list[AttemptRecord]:
        """Attempts whose end is unknown."""
        return list(self._open.values())

    def open_on(self, servers: Iterable[str]) -> list[AttemptRecord]:
        """Attempts whose end is unknown, with places on some of these servers."""
        found: dict[Key, AttemptRecord] = {}
        for server in servers:
            found.update(self._on.get(server, {}))
        return list(found.values())

    def asked(
        self,
        key: Key,
        places: tuple[Place, ...],
        steps: bool = False,
        job: Job | None = None,
        user: str = "",
        secret: str = "",
        theirs: bool = False,
    ) -> AttemptRecord:
        """Record an attempt before its submission as a user."""
        demands = None if job is None else {role.name: role.demand for role in job.roles}
        if key in self.records:
            self._closed(self.records[key])
        record = AttemptRecord(key, places, time.time(), steps, demands, user, secret, theirs, ours=True)
        self.records[key] = record
        self._opened(record)
        given = [[p.server, p.role, p.count] for p in places]
        asked = demands and {role: dict(demand) for role, demand in demands.items()}
        more: dict[str, Any] = {"theirs": theirs}
        more |= {name: value for name, value in (("user", user), ("secret", secret)) if value}
        self._write(record, _line(key, "asked", at=record.asked, places=given, steps=steps, demands=asked, **more))
        return record

    def taken(self, record: AttemptRecord, slurm: int) -> None:
        """Record that Slurm has accepted it."""
        if record.slurm != slurm:
            record.slurm = slurm
            self._write(record, _line(record.key, "taken", slurm=slurm))

    def stopped(self, record: AttemptRecord, verdict: Finished | Failed) -> None:
        """Record that Slurm is to end it."""
        record.verdict = verdict
        self._write(record, _line(record.key, "stopped", end=json.loads(write_event(verdict))))

    def forgotten(self, record: AttemptRecord) -> None:
        """Drop an attempt that was not submitted after all."""
        self.records.pop(record.key, None)
        self._closed(record)
        self._write(record, _line(record.key, "forgotten"))

    def ended(self, record: AttemptRecord, end: Finished | Failed) -> None:
        """Record its end."""
        record.end, record.parts, record.verdict = end, (), None
        self._closed(record)
        self._write(record, _line(record.key, "ended", end=json.loads(write_event(end))))
        if len(self.records) - len(self._open) > 2 * REMEMBERED:
            self._forget_old()

    def settled(self, ended: Iterable[Key]) -> None:
        """Note that the journal has the ends of these attempts: they may be forgotten."""
        for key in ended:
            record = self.records.get(key)
            if record is not None and record.end is not None:
                record.settled = True

    def close(self) -> None:
        """Close the file and release the directory."""
        self._file.close()
        self._lock.close()


def _written(path: Path, text: str) -> None:
    """Write a line atomically."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(f"{text}\n", encoding="utf-8")
    beside.replace(path)


def _line(key: Key, what: str, **more: Any) -> str:
    return json.dumps({"what": what, "job": key[0], "attempt": key[1], **more}) + "\n"
