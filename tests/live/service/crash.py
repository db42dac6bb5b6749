"""Kills a scheduler again and again under load, and then looks whether anything was lost or done twice.

`python -m tests.live.service.crash --store ADDRESS --kills N`: the simulated cluster is a process that is never killed,
and logs what really begins. A scheduler lives for a random fraction of a second while batches of gangs are submitted
and some cancelled, and is killed with SIGKILL, at any moment or at one where it hurts most (`POINTS`). Whatever was not
acknowledged is submitted again in its next life, with the same idempotency key. At last one lives until every job has
ended. Prints what was counted, or fails.

Lives are forks of this process, which has everything imported; so most of their time is spent working.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Command, Decided, Submitted
from berth.live.core.jobs import Job, Place, Role
from berth.live.core.records import ENDED, JobRecord
from berth.live.engines.remote import RemoteEngine
from berth.live.engines.simulated.engine import example_cluster
from berth.live.service.database import Database
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import ServiceSettings
from berth.live.service.store import Store

FASTER = 100.0
LONGEST_LIFE = 0.6
"""Seconds that a life lasts at most, from its first answer on; of those that are to die early, from their birth on."""
EARLY = 0.25
"""The part of lives that may be killed while they begin."""
OUTSTANDING = 6
POINTED, MOST_PASSES = 0.6, 40
"""The part of lives that die at one of the points below, and how often they pass it at most."""
LAST_SECONDS = 120.0


def job_of(name: str) -> Job:
    """The gang of this name: one or two roles, a few tasks, some seconds of work."""
    draw = random.Random(name)
    workers = Role("worker", draw.randint(1, 6), {"cpu": 2000}, 1)
    servers = Role("server", draw.randint(1, 2), {"cpu": 1000})
    roles = (workers, servers) if draw.random() < 0.5 else (workers,)
    return Job(name, draw.choice("xyz"), roles, work=draw.uniform(2.0, 40.0))


# ---------------------------------------------------------------------- a life


async def live(store: str, socket: Path) -> None:
    """Schedule: each line of standard input is a request, each line of standard output an acknowledgement."""
    scheduler = await Scheduler.open(
        ServiceSettings(
            store=store, engine=f"simulated:unix:{socket}", faster=FASTER, tick=0.1, soon=0.005, snapshot_every=60
        )
    )
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    doing: set[asyncio.Task[None]] = set()

    async def do(asked: dict[str, Any]) -> None:
        if "jobs" in asked:
            await scheduler.submit([job_of(name) for name in asked["jobs"]], asked["key"], "crash")
        elif "cancel" in asked:
            await scheduler.cancel(asked["cancel"], "crash")
        elif "left" in asked:
            asked["left"] = len(scheduler.dispatcher.state.jobs)
        os.write(1, json.dumps(asked).encode() + b"\n")

    while line := await reader.readline():
        task = asyncio.create_task(do(json.loads(line)))
        doing.add(task)
        task.add_done_callback(doing.discard)
    await scheduler.close()


async def warm(store: str) -> None:
    """Live once without being killed, so that all that is imported or compiled late is there before the first fork."""
    scheduler = await Scheduler.open(ServiceSettings(store=store, faster=1e4, tick=0.01, soon=0.0, budget=60.0))
    await scheduler.submit([job_of("warm")], "key")
    while scheduler.dispatcher.state.jobs:
        await asyncio.sleep(0.01)
    await scheduler.close()


POINTS = ("before writing", "before the commit", "after writing", "before acting", "after acting")
"""Where a life may end by its own hand, beside those that are killed at some time."""


def die_at(point: str, passes: int) -> None:
    """Arrange for this process to be killed when it comes to a point for the `passes`-th time."""
    left = itertools.count(passes - 1, -1)

    def passed(here: str) -> None:
        if here == point and not next(left):
            os.kill(os.getpid(), signal.SIGKILL)

    write, execute = Database.write, RemoteEngine.execute

    def writing(database: Database, run: Callable[[Any], Any]) -> Any:
        def inside(connection: Any) -> Any:
            found = run(connection)
            passed("before the commit")
            return found

        passed("before writing")
        found = write(database, inside)
        passed("after writing")
        return found

    async def executing(engine: RemoteEngine, command: Command, job: Job | None, /) -> None:
        passed("before acting")
        await execute(engine, command, job)
        passed("after acting")

    Database.write = writing  # type: ignore[method-assign,assignment]
    RemoteEngine.execute = executing  # type: ignore[method-assign]


class Life:
    """A forked scheduler with pipes to it, which may die at a point."""

    def __init__(self, store: str, socket: Path, point: str = "", passes: int = 0) -> None:
        into, self._to = os.pipe()
        self._from, out = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.dup2(into, 0)
            os.dup2(out, 1)
            for other in (into, out, self._to, self._from):
                os.close(other)
            status = 1
            try:
                die_at(point, passes)
                asyncio.run(live(store, socket))
                status = 0
            except BaseException as error:
                print(f"a life ended by {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        os.close(into)
        os.close(out)
        os.set_blocking(self._from, False)
        self._rest = b""

    def ask(self, what: dict[str, Any]) -> None:
        """Send a request; it may be dead already."""
        with suppress(BrokenPipeError):
            os.write(self._to, json.dumps(what).encode() + b"\n")

    def heard(self, seconds: float) -> list[dict[str, Any]]:
        """What it said, after waiting for it at most so long."""
        with selectors.DefaultSelector() as ready:
            ready.register(self._from, selectors.EVENT_READ)
            if not ready.select(max(seconds, 0.0)):
                return []
        try:
            found = os.read(self._from, 2**20)
        except BlockingIOError:
            return []
        if not found:
            raise EOFError
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [json.loads(line) for line in lines]

    def end(self, how: signal.Signals | None) -> int:
        """Kill it, or let it close; its exit status."""
        if how is not None:
            os.kill(self.pid, how)  # where it is dead already, it is still there to be waited for
        os.close(self._to)
        status = os.waitpid(self.pid, 0)[1]
        os.close(self._from)
        return os.waitstatus_to_exitcode(status)


# ---------------------------------------------------------------------- many lives


class Load:
    """What was asked for and what was acknowledged."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.waiting: dict[str, dict[str, Any]] = {}
        """Requests that were not acknowledged, by key."""
        self.accepted: list[str] = []
        self.cancelled: set[str] = set()
        self.keys = 0

    def more(self, room: int) -> list[dict[str, Any]]:
        """New requests."""
        found: list[dict[str, Any]] = []
        for _ in range(room):
            self.keys += 1
            key = f"k{self.keys}"
            if self.accepted and self.draw.random() < 0.15:
                name = self.draw.choice(self.accepted[-50:])
                self.cancelled.add(name)
                found.append({"key": key, "cancel": name})
            else:
                found.append({"key": key, "jobs": [f"{key}.{i}" for i in range(self.draw.randint(1, 3))]})
            self.waiting[key] = found[-1]
        return found

    def acknowledged(self, answers: list[dict[str, Any]]) -> None:
        for answer in answers:
            if self.waiting.pop(answer["key"], None) is not None:
                self.accepted.extend(answer.get("jobs", ()))


def run(store: str, kills: int, seed: int, folder: Path) -> dict[str, int]:
    """Kill so often, then let all jobs end, and check."""
    socket, log = folder / "engine", folder / "log"
    command = [sys.executable, "-m", "berth.live.engines.simulated.server", "--socket", str(socket), "--log", str(log)]
    engine = subprocess.Popen([*command, "--faster", str(FASTER)], stdout=subprocess.PIPE)
    try:
        pipe: BinaryIO | Any = engine.stdout
        if not pipe.readline():
            raise RuntimeError("the engine did not start")
        load = Load(seed)
        silent, points = 0, 0
        for _ in range(kills):
            chosen = load.draw.choice(POINTS) if load.draw.random() < POINTED else ""
            life = Life(store, socket, chosen, load.draw.randint(1, MOST_PASSES))
            early = load.draw.random() < EARLY
            end = time.monotonic() + (load.draw.uniform(0.0, LONGEST_LIFE) if early else LAST_SECONDS)
            for asked in list(load.waiting.values()):
                life.ask(asked)
            heard = 0
            while (left := end - time.monotonic()) > 0:
                for asked in load.more(OUTSTANDING - len(load.waiting)):
                    life.ask(asked)
                try:
                    answers = life.heard(left)
                except EOFError:
                    points += 1
                    break
                if answers and not heard and not early:
                    end = time.monotonic() + load.draw.uniform(0.0, LONGEST_LIFE)
                heard += len(answers)
                load.acknowledged(answers)
            silent += not heard
            if life.end(signal.SIGKILL) != -signal.SIGKILL:
                raise RuntimeError("a scheduler ended before it was killed")
        life = Life(store, socket)
        for asked in load.waiting.values():
            life.ask(asked)
        until = time.monotonic() + LAST_SECONDS
        left_over = -1
        while load.waiting or left_over:
            if time.monotonic() > until:
                raise RuntimeError(f"{len(load.waiting)} requests and {left_over} jobs did not end")
            if not load.waiting:
                life.ask({"key": "", "left": 0})
            answers = life.heard(0.2)
            load.acknowledged(answers)
            left_over = next((answer["left"] for answer in answers if "left" in answer), left_over)
        if life.end(None):
            raise RuntimeError("the last scheduler did not close well")
    finally:
        engine.terminate()
        engine.wait()
    return {"kills": kills, "of them at a point": points, "before any answer": silent} | checked(store, load, log)


def checked(store_at: str, load: Load, log: Path) -> dict[str, int]:
    """What is in the store and the engine's log, after checking that it is as it must be."""
    store = Store(store_at)
    replayed = Dispatcher()
    records: dict[str, JobRecord] = {}
    ends: Counter[str] = Counter()
    submitted: Counter[str] = Counter()
    ordered: dict[tuple[str, int], tuple[Place, ...]] = {}
    events = 0
    for events, (_, event) in enumerate(store.events(), 1):  # noqa: B007
        if isinstance(event, Submitted):
            submitted[event.job.id] += 1
        if isinstance(event, Decided):
            ordered.update({(start.job, start.attempt): start.places for start in event.starts})
        for record in replayed.note(event).changed:
            records[record.job.id] = record
            ends[record.job.id] += record.phase in ENDED
    table = {record.job.id: record for record in store.list_jobs({}, limit=10**9)}
    snapshot = store.snapshot()
    store.close()
    assert len(load.accepted) == len(set(load.accepted))
    assert set(load.accepted) == set(submitted) == set(table), "a job was lost, or came from nowhere"
    assert set(submitted.values()) == {1}, "a job was submitted twice"
    assert set(ends.values()) == {1}, "a job did not end exactly once"
    assert table == records, "journal and table differ"
    assert snapshot is not None
    begun: Counter[tuple[str, int]] = Counter()
    capacity = {name: server.capacity["cpu"] for name, server in example_cluster().servers.items()}
    used: dict[str, int] = defaultdict(int)
    running: dict[tuple[str, int], list[Any]] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        note = json.loads(line)
        key = note["job"], note["attempt"]
        if note["what"] == "ended":
            for server, cpu in running.pop(key, ()):
                used[server] -= cpu
            continue
        assert note["what"] == "began", f"commands contradict each other: {note}"
        begun[key] += 1
        places = tuple(Place(*place) for place in note["places"])
        assert places == ordered[key], "not what was decided"
        job = table[key[0]].job
        tasks = Counter({role.name: sum(p.count for p in places if p.role == role.name) for role in job.roles})
        assert all(role.minimum <= tasks[role.name] <= role.count for role in job.roles), "a part of a gang"
        demand = {role.name: role.demand["cpu"] for role in job.roles}
        running[key] = [(place.server, demand[place.role] * place.count) for place in places]
        for server, cpu in running[key]:
            used[server] += cpu
            assert used[server] <= capacity[server], f"more than {server} has"
    assert set(begun.values()) == {1}, "an attempt began twice"
    times = Counter(job for job, _ in begun)
    assert set(times.values()) == {1}, "a gang began twice"
    finished = {name for name, record in table.items() if record.phase == "finished"}
    assert finished <= set(times), "a job finished that never began"
    assert {name for name in table if name not in finished} <= load.cancelled, "a job was cancelled by nobody"
    return {
        "requests": load.keys,
        "jobs acknowledged": len(load.accepted),
        "finished": len(finished),
        "cancelled": len(table) - len(finished),
        "gangs begun": len(begun),
        "events": events,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        asyncio.run(warm(f"{folder}/warm.db"))
        print(json.dumps(run(given.store, given.kills, given.seed, Path(folder))))


if __name__ == "__main__":
    main()
