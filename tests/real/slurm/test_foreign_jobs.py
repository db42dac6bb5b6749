"""Jobs of others on Slurm's nodes, and what Slurm charges ours beyond what they asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from berth.files.quantities import MILLI
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Cancel, Failed, ServerChanged, ServerJoined, Start, Started, Submitted
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines.slurm.submission import MIB
from berth.testing.engines.site import Script
from tests.harness.waiting import eventually_async
from tests.real.slurm.shared import NODES
from tests.real.slurm.site import Driver, SlurmSite, driven


class Scheduled:
    """A dispatcher that hears what the engine tells, and has its decisions done."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._heard = driver, 0
        self.dispatcher = Dispatcher()
        for server in driver.spells[0].snapshot.servers:
            self.dispatcher.handle(ServerJoined(0.0, server))

    def taken(self) -> dict[str, dict[str, int]]:
        """What is taken of servers, as the dispatcher has it."""
        for event in self._driver.events[self._heard :]:
            self.dispatcher.handle(event)
            self._heard += 1
        return {name: dict(r.server.taken) for name, r in self.dispatcher.state.servers.items() if r.server.taken}

    async def until(self, good: Callable[[dict[str, dict[str, int]]], bool]) -> None:
        await eventually_async(self.taken, good, "what is taken")

    async def start(self, job: Job) -> Start:
        """Submit it, and do what is decided: it starts at once."""
        self.dispatcher.handle(Submitted(1.0, job))
        decided = self.dispatcher.decide(1.0)
        assert decided is not None
        (start,) = decided.starts
        self.dispatcher.handle(decided)
        await self._driver.execute(start, job)
        return start


def test_a_gang_goes_where_others_are_not(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            made = Scheduled(driver)
            others = [node.name for node in NODES if node.name != "n4"]
            words = [f"-N{len(others)}", "--ntasks-per-node=4", "-w", ",".join(others), "-o", "/dev/null"]
            number = site.cluster.ask("sbatch", "--parsable", *words, "--wrap", "sleep 600").strip()
            await made.until(lambda taken: len(taken) == len(others))
            assert made.taken() == {name: {"cpu": 4 * MILLI, "memory": 256 * MIB} for name in others}
            start = await made.start(site.job("gang", (Role("w", 4, {"cpu": MILLI}),), Script(600.0)))
            assert start.places == (Place("n4", "w", 4),)
            await driver.until(Started)
            await made.until(lambda taken: taken.get("n4") == {"memory": 256 * MIB})  # DefMemPerCPU, and no CPU
            site.cluster.ask("scancel", number)
            await made.until(lambda taken: taken.keys() == {"n4"})
            await driver.execute(Cancel("gang", 1), None)
            assert isinstance(await driver.ended("gang"), Failed)
            await made.until(lambda taken: not taken)
            told = [e.server for e in driver.events if isinstance(e, ServerChanged) and e.server.name == "n4"]
            assert [server.taken for server in told] == [{"memory": 256 * MIB}, {}]  # it never was another's

    asyncio.run(run())
