"""Drives Ray's engine in tests: jobs that leave word, and waiting for what happens."""

from __future__ import annotations

import json
import operator
import sys
import uuid
from pathlib import Path
from typing import Any

from berth.live.clusters.ray import LocalRay
from berth.live.core.events import Cancel, Failed, Finished, Start
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines import Engine
from berth.live.engines.ray.engine import RayEngine
from berth.testing.engines.listener import Listener
from berth.testing.engines.witness import birth
from tests.harness.waiting import DEADLINE, eventually_async

TELL = """
import json, os, sys, time
file = os.path.join(sys.argv[1], f"{os.environ['BERTH_ROLE']}-{os.environ['BERTH_RANK']}")
told = {"pid": os.getpid(), "birth": open("/proc/self/stat").read().rpartition(")")[2].split()[19],
    "environment": dict(os.environ), "here": os.getcwd()}
with open(file + ".new", "w") as out:
    json.dump(told, out)
os.rename(file + ".new", file + ".json")
time.sleep(float(sys.argv[2]))
"""
"""Leaves word of what it is, and runs for some seconds."""


class Attempted:
    """An attempt of a job, and what its tasks left."""

    def __init__(self, driver: Listener, folder: Path, job: Job, places: tuple[Place, ...]) -> None:
        self.driver, self.folder, self.job = driver, folder, job
        self.command = Start(job.id, 1, places)
        self.key = job.id, 1

    async def start(self) -> Attempted:
        await self.driver.execute(self.command, self.job)
        return self

    async def cancel(self) -> None:
        await self.driver.execute(Cancel(*self.key), self.job)

    def told(self) -> dict[str, dict[str, Any]]:
        """What each task said of itself."""
        return {file.stem: json.loads(file.read_text()) for file in self.folder.glob("*.json")}

    def alive(self) -> set[str]:
        """Tasks that run."""
        return {name for name, told in self.told().items() if birth(told["pid"]) == told["birth"]}

    async def runs(self) -> None:
        """Wait until all of its tasks run."""
        tasks = sum(place.count for place in self.command.places)

        def look() -> tuple[set[str], object]:
            return self.alive(), self.driver.end(self.key)

        alive, end = await eventually_async(
            look, lambda seen: len(seen[0]) == tasks or seen[1] is not None, f"tasks of {self.job.id} that run, its end"
        )
        assert len(alive) == tasks, end

    async def is_over(self) -> None:
        """Wait until none of its tasks runs."""
        await eventually_async(self.alive, operator.not_, f"tasks of {self.job.id} go on")

    async def ended(self) -> Finished | Failed:
        """Wait until its end was told."""
        end = await eventually_async(lambda: self.driver.end(self.key), what=f"{self.job.id} does not end")
        assert end is not None
        return end

    async def finished(self) -> Finished:
        end = await self.ended()
        assert isinstance(end, Finished), end
        return end

    async def failed(self, fault: str) -> str:
        """Wait until it has failed, by this fault; the reason, and what the job itself said last."""
        end = await self.ended()
        assert isinstance(end, Failed)
        assert end.fault == fault, end
        return f"{end.reason}: {end.last_output}" if end.last_output else end.reason


class Driver:
    """A scheduler's end of a cluster."""

    def __init__(self, cluster: LocalRay, folder: Path) -> None:
        async def make() -> Engine:
            return RayEngine(cluster.address)

        self.cluster, self.listener, self.folder = cluster, Listener(make, DEADLINE), folder
        self.made: list[Attempted] = []

    async def ready(self) -> None:
        """Connect, where it is not, and wait until the agent of every node is heard."""
        if not self.listener.is_open:
            await self.listener.open()
        await self.complete()

    async def complete(self) -> None:
        """Wait until every node is heard: on a busy machine their agents begin late."""
        nodes = {name for name in self.cluster.daemons() if not name.startswith("head-")}

        def missing() -> list[str]:
            return [name for name in nodes if not self.listener.there(name)]

        await eventually_async(missing, operator.not_, "nothing is heard of nodes")

    async def is_there(self, name: str, there: bool = True) -> None:
        """Wait until a node is told to be there, or to be lost."""

        def told() -> tuple[bool, object]:
            return self.listener.there(name), self.listener.spells[-1].events[-5:]

        await eventually_async(told, lambda seen: seen[0] is there, f"{name} {'is back' if there else 'is lost'}")

    async def clear(self) -> None:
        """End what still runs."""
        left = [one for one in self.made if self.listener.end(one.key) is None]
        self.made.clear()
        for one in left:
            await one.cancel()
            await one.ended()

    def job(self, *places: tuple[str, str, int] | str, seconds: float = 600.0, **given: Any) -> Attempted:
        """A job on these places (server, role, tasks), whose tasks leave word, or do what `payload` says."""
        there = tuple(Place(*p) if isinstance(p, tuple) else Place(p, "task", 1) for p in places)
        name = given.pop("id", f"j{uuid.uuid4().hex[:12]}")
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        demand = given.pop("demand", {"cpu": 1000})
        counts: dict[str, int] = {}
        for place in there:
            counts[place.role] = counts.get(place.role, 0) + place.count
        payload = given.pop("payload", {"command": [sys.executable, "-c", TELL, str(folder), str(seconds)]})
        assert not given
        roles = tuple(Role(role, count, demand) for role, count in counts.items())
        self.made.append(Attempted(self.listener, folder, Job(name, "test", roles, payload=payload), there))
        return self.made[-1]
