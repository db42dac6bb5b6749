"""A service on a real cluster under load, while parts of it are killed at random; then it is left in peace to the end.

Jobs are submitted over HTTP, again with the same key until they are acknowledged. Their tasks are witnesses
(`kill_witness`), so what really ran is known from them alone. `kill_checks` looks whether anything was lost or doubled.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from berth.live.clusters import alive
from tests.live.service.live import ask
from tests.real.kills import kill_witness

__all__ = ["Fault", "Kill", "Load", "Service", "Task", "run", "tasks_in"]

MARK = "KILLS"
"""The environment of all that a service and its jobs start has this with their folder."""
TYPES = {"quick": (0.3, 0.6), "short": (0.5, 1.2), "middle": (1.0, 2.0), "long": (1.5, 3.0)}
AHEAD = 24
"""Jobs that are accepted and of which no task has ended."""
LONGEST_GAP = 2.0
"""Seconds from the moment at which the cluster works until the next kill, at most."""
EARLY = 0.25
"""The part of kills for which nobody waits until the cluster works."""
LIMIT, LAST_LIMIT = 180.0, 300.0
"""Seconds that something may take which has to happen, and the end of all jobs."""
ENDED = ("finished", "failed", "cancelled")


@dataclass(frozen=True)
class Task:
    """A task that began; `ended` where it came to its end. Times are those of its files."""

    job: str
    attempt: int
    rank: int
    pid: int
    birth: str
    began: float
    ended: float | None
    beside: str

    @property
    def runs(self) -> bool:
        """Whether its process is alive."""
        return kill_witness.birth(str(self.pid)) == self.birth


def tasks_in(folder: Path) -> list[Task]:
    """All that began."""
    found = []
    for path in folder.glob("*.begun"):
        job, attempt, rank, pid, birth = path.stem.split("~")
        end, beside = path.with_suffix(".ended"), path.with_suffix(".beside")
        ended = end.stat().st_mtime if end.exists() else None
        said = beside.read_text() if beside.exists() else ""
        found.append(Task(job, int(attempt), int(rank), int(pid), birth, path.stat().st_mtime, ended, said))
    return found


@dataclass(frozen=True)
class Fault:
    """Something that can be killed, and is healed some seconds later."""

    kill: Callable[[str], None]
    heal: Callable[[str], None]
    targets: Sequence[str]
    pause: tuple[float, float]


@dataclass(frozen=True)
class Kill:
    """What was killed, and when."""

    kind: str
    target: str
    time: float


class Service:
    """`berth serve`, started again and again on the same store."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.store, self._log = folder / "berth.db", folder / "service.log"
        self._command = [sys.executable, "-m", "berth", "serve", "--port", "0", "--store", str(self.store), "--open"]
        self._command += arguments
        self._environment = {**os.environ, MARK: str(folder)}
        self._process: subprocess.Popen[bytes] | None = None
        self._at = 0

    def start(self) -> None:
        self._at = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """End it in good order."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(LIMIT)
            finally:
                self.kill()

    def said(self) -> str:
        """What this life has said."""
        return self._log.read_bytes()[self._at :].decode(errors="replace")

    def ask(self, method: str, path: str, body: Any = None, key: str = "") -> Any:
        """One request; an OSError where nobody answers."""
        found = re.search(r"serving at (http://\S+)", self.said())
        if found is None:
            raise ConnectionError("not yet")
        return ask(found[1], method, path, body, {"Idempotency-Key": key} if key else None, timeout=15)

    def answers(self) -> bool:
        try:
            self.ask("GET", "/v1/jobs?limit=1")
        except (OSError, ValueError):
            return False
        return True


class Load(threading.Thread):
    """Submits jobs, a few ahead of what the cluster does, until it is stopped and all were acknowledged."""

    def __init__(self, service: Service, folder: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.accepted: dict[str, int] = {}
        """How many tasks each job has."""
        self.tries = 0
        self.trouble: BaseException | None = None
        self._service, self._folder, self._draw = service, folder, random.Random(seed)
        self._stopping = threading.Event()

    def run(self) -> None:
        try:
            number = 0
            while not self._stopping.wait(self._draw.uniform(0.05, 0.4)):
                ended = {path.name.partition("~")[0] for path in self._folder.glob("*.ended")}
                if len(self.accepted) - len(ended) < AHEAD:
                    number += 1
                    self._submit(f"b{number}", [self._job(f"b{number}-{i}") for i in range(self._draw.randint(1, 4))])
        except BaseException as error:  # told by `stop`
            self.trouble = error

    def _job(self, name: str) -> dict[str, Any]:
        kind = self._draw.choice(list(TYPES))
        command = [sys.executable, "-IS", kill_witness.__file__, str(self._folder)]
        return {
            "name": name,
            "type": kind,
            "tasks": self._draw.randint(1, 4),
            "resources": {"cpu": 1},
            "command": [*command, f"{self._draw.uniform(*TYPES[kind]):.2f}"],
            "environment": {MARK: str(self._folder.parent)},
        }

    def _submit(self, key: str, jobs: list[dict[str, Any]]) -> None:
        until = time.monotonic() + LAST_LIMIT
        while True:
            self.tries += 1
            try:
                self._service.ask("POST", "/v1/jobs", jobs, key)
                break
            except (OSError, ValueError) as error:
                if (isinstance(error, HTTPError) and error.code < 500) or time.monotonic() > until:
                    raise
                time.sleep(0.1)
        self.accepted.update({job["name"]: job["tasks"] for job in jobs})

    def stop(self) -> None:
        """All that was begun is acknowledged."""
        self._stopping.set()
        self.join(LAST_LIMIT)
        assert self.trouble is None, self.trouble
        assert not self.is_alive(), "a submission is not acknowledged"


@dataclass
class Trial:
    """What happened."""

    load: Load
    service: Service
    folder: Path
    kills: list[Kill] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def tasks(self) -> list[Task]:
        return tasks_in(self.folder)

    def killed(self, kind: str, targets: Collection[str], since: float, until: float) -> bool:
        """Whether one of these targets was killed in a time."""
        return any(one.kind == kind and one.target in targets and since <= one.time <= until for one in self.kills)


def run(folder: Path, service: Service, faults: Mapping[str, Fault], kills: int, seed: int) -> Trial:
    """Kill each kind so often while jobs run, heal everything, and wait until all accepted jobs have ended."""
    witness = folder / "witness"
    witness.mkdir()
    began = time.monotonic()
    trial = Trial(Load(service, witness, seed), service, witness)
    with _ended_at_last(folder, service):
        service.start()
        trial.load.start()
        _wait(lambda: bool(trial.tasks), "the first task", service)
        _kill(trial, {**faults, "service": _service_fault(service)}, kills, random.Random(seed))
        trial.load.stop()
        _wait(lambda: _all_ended(trial), "the end of all jobs", service, LAST_LIMIT)
        service.close()
        _wait(lambda: not left(folder), "the end of all processes", service)
    trial.seconds = time.monotonic() - began
    return trial


def _service_fault(service: Service) -> Fault:
    return Fault(lambda _: service.kill(), lambda _: service.start(), ("berth",), (0.0, 1.0))


def _kill(trial: Trial, faults: Mapping[str, Fault], kills: int, draw: random.Random) -> None:
    """Kill in random order; what is down is healed first where nothing else is left to be killed."""
    plan = [kind for kind in faults for _ in range(kills)]
    draw.shuffle(plan)
    down: dict[tuple[str, str], float] = {}

    def heal(everything: bool = False) -> None:
        for (kind, target), at in sorted(down.items(), key=lambda item: item[1]):
            if everything or time.monotonic() >= at:
                del down[kind, target]
                faults[kind].heal(target)

    for kind in plan:
        fault, works = faults[kind], draw.random() >= EARLY
        gap, target = draw.uniform(0.0, LONGEST_GAP), draw.choice(list(fault.targets))
        before = len(trial.tasks)
        until = time.monotonic() + LIMIT
        while (kind, target) in down or (works and not (len(trial.tasks) > before and trial.service.answers())):
            heal()
            if time.monotonic() > until:
                raise AssertionError(f"nothing begins any more: {trial.service.said()[-3000:]}")
            time.sleep(0.05)
        until = time.monotonic() + gap
        while time.monotonic() < until:
            heal()
            time.sleep(0.02)
        trial.kills.append(Kill(kind, target, time.time()))
        fault.kill(target)
        down[kind, target] = time.monotonic() + draw.uniform(*fault.pause)
    heal(everything=True)


def _all_ended(trial: Trial) -> bool:
    try:
        phases = Counter[str]()
        after = ""
        while True:
            page = trial.service.ask("GET", f"/v1/jobs?limit=1000{after}")
            phases.update(job["phase"] for job in page["jobs"])
            if page["after"] is None:
                break
            after = f"&after={page['after']}"
    except OSError:
        return False
    return sum(phases[phase] for phase in ENDED) == phases.total() >= len(trial.load.accepted)


def left(folder: Path) -> list[int]:
    """Processes that a service or its jobs have started and that are still there."""
    found = []
    for path in Path("/proc").iterdir():
        with suppress(OSError):  # it is gone, or somebody else's
            if path.name.isdigit() and f"{MARK}={folder}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return [pid for pid in found if alive(pid)]


@contextmanager
def _ended_at_last(folder: Path, service: Service) -> Iterator[None]:
    """Whatever happens, nothing of it stays."""
    try:
        yield
    finally:
        service.kill()
        for pid in left(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _wait(ready: Callable[[], bool], what: str, service: Service, seconds: float = LIMIT) -> None:
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until, f"{what} did not come: {service.said()[-3000:]}"
        time.sleep(0.1)
