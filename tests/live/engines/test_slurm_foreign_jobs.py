"""What of Slurm's nodes is not for berth: jobs of others, and what Slurm charges ours beyond what they asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from berth.files.quantities import MILLI
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Cancel, Failed, ServerChanged, ServerJoined, Start, Started, Submitted
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.engines.slurm.foreign_jobs import Taken, asked_for, shares
from berth.live.engines.slurm.parsing import SlurmJob, read_jobs
from berth.live.engines.slurm.spool import Spool
from berth.live.engines.slurm.submission import MIB
from berth.testing.engines.site import Script
from tests.live.engines.slurm_site import LIMIT, NODES, Driver, SlurmSite, driven, needs_slurm

OLDER = {
    "job_id": 7,
    "job_state": "RUNNING",
    "nodes": "n[3-4]",
    "cpus": 6,
    "memory_per_cpu": 64,
    "gres_detail": ["gpu:a100:1(IDX:0),lic(CNT:2)", "gpu:a100:2(IDX:0-1)"],
    "job_resources": {
        "nodes": "n[3-4]",
        "allocated_cores": 3,
        "allocated_nodes": [
            {
                "sockets": {"0": {"cores": {"0": "allocated"}}, "1": {"cores": {"0": "allocated_and_in_use"}}},
                "nodename": "n3",
                "cpus_used": 0,
                "memory_used": 0,
                "memory_allocated": 256,
            },
            {"sockets": {"0": {"cores": {"0": "allocated"}}}, "nodename": "n4", "memory_allocated": 128},
        ],
    },
}
"""As 22.05 writes it, of two CPUs a core; that of 24.11 is made after data_parser/v0.0.42 of slurmrestd's OpenAPI."""
NEWER = {
    **OLDER,
    "job_state": ["RUNNING"],
    "job_resources": {
        "cpus": 6,
        "nodes": {
            "list": "n[3-4]",
            "count": 2,
            "allocation": [
                {"name": "n3", "cpus": {"count": 4, "used": 0}, "memory": {"used": 0, "allocated": 256}},
                {"name": "n4", "cpus": {"count": 2, "used": 0}, "memory": {"used": 0, "allocated": 128}},
            ],
        },
    },
}
WHOLE = {
    "n3": {"cpu": 4 * MILLI, "memory": 256 * MIB, "gpu": MILLI, "lic": 2 * MILLI},
    "n4": {"cpu": 2 * MILLI, "memory": 128 * MIB, "gpu": 2 * MILLI},
}


def read(job: dict[str, Any], **changes: Any) -> SlurmJob:
    (found,) = read_jobs(json.dumps({"jobs": [{**job, **changes}]}))
    return found


@pytest.mark.parametrize("job", [OLDER, NEWER], ids=["22.05", "24.11"])
def test_both_shapes_tell_each_nodes_share(job: dict[str, Any]) -> None:
    assert shares(read(job)) == WHOLE
    cleaned = read(job, nodes="n4", job_state=["FAILED", "COMPLETING"], gres_detail=[])
    assert cleaned.holding
    assert shares(cleaned) == {"n4": {"cpu": 2 * MILLI, "memory": 128 * MIB}}


@pytest.mark.parametrize("resources", [None, {"allocated_nodes": None}, {"nodes": {"count": 2, "list": "n[3-4]"}}, "?"])
def test_where_slurm_does_not_say_it_is_shared_out_evenly(resources: object) -> None:
    job = read(OLDER, job_resources=resources, gres_detail=[], tres_per_node="gres:gpu:1")
    share = {"cpu": 3 * MILLI, "memory": 192 * MIB, "gpu": MILLI}
    assert shares(job) == {"n3": share, "n4": share}


@pytest.mark.parametrize(
    ("state", "holds"),
    [("RUNNING", True), ("SUSPENDED", True), ("COMPLETING", True), ("PENDING", False), ("COMPLETED", False)],
)
def test_who_holds_something(state: str, holds: bool) -> None:
    assert read(OLDER, job_state=state).holding is holds


def test_ours_count_only_beyond_what_they_asked_for() -> None:
    taken = Taken()
    asked = asked_for((Place("n3", "w", 2), Place("n4", "w", 1)), {"w": {"cpu": 2 * MILLI, "gpu": MILLI}})
    taken.add(read(OLDER), asked)
    capacity = {"cpu": 8 * MILLI, "memory": 1000 * MIB, "gpu": 4 * MILLI}
    assert taken.of(Server("n3", capacity)).taken == {"memory": 256 * MIB}
    assert taken.of(Server("n4", capacity)).taken == {"memory": 128 * MIB, "gpu": MILLI}
    taken.add(read(OLDER))
    assert taken.of(Server("n3", capacity)).taken == {"memory": 512 * MIB, "cpu": 4 * MILLI, "gpu": MILLI}
    same = Server("n9", capacity)
    assert taken.of(same) is same


def test_what_was_asked_for_is_known_after_a_restart(tmp_path: Path) -> None:
    """A spool that an older berth wrote says nothing of it."""
    job = Job("j", "t", (Role("w", 1, {"cpu": MILLI}),))
    first = Spool(tmp_path)
    first.asked(("j", 1), (Place("n1", "w", 1),), job=job)
    first.close()
    path = tmp_path / "attempts.jsonl"
    again = Spool(tmp_path)
    assert again.records["j", 1].demands == {"w": {"cpu": MILLI}}
    again.close()
    line = json.loads(path.read_text())
    del line["demands"]
    path.write_text(json.dumps(line) + "\n")
    older = Spool(tmp_path)
    assert older.records["j", 1].demands is None
    older.close()


# ---------------------------------------------------------------------------- a real cluster


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
        async with asyncio.timeout(LIMIT):
            while not good(self.taken()):
                await asyncio.sleep(0.05)

    async def start(self, job: Job) -> Start:
        """Submit it, and do what is decided: it starts at once."""
        self.dispatcher.handle(Submitted(1.0, job))
        decided = self.dispatcher.decide(1.0)
        assert decided is not None
        (start,) = decided.starts
        self.dispatcher.handle(decided)
        await self._driver.execute(start, job)
        return start


@needs_slurm
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


@needs_slurm
def test_memory_that_slurm_gives_by_itself_is_not_given_twice(site: SlurmSite) -> None:
    """Each node has 4096 MiB, and jobs that ask for none get 64 for each CPU (DefMemPerCPU)."""

    async def run() -> None:
        async with driven(site) as driver:
            made = Scheduled(driver)
            small = site.job("small", (Role("w", len(NODES), {"cpu": MILLI}, per_server=1),), Script(600.0))
            await made.start(small)
            await driver.until(Started)
            await made.until(lambda taken: len(taken) == len(NODES))
            assert set(map(str, made.taken().values())) == {str({"memory": 64 * MIB})}
            role = Role("w", 1, {"cpu": MILLI, "memory": 4096 * MIB})
            made.dispatcher.handle(Submitted(2.0, site.job("large", (role,), Script(600.0))))
            decided = made.dispatcher.decide(2.0)
            assert decided is None or not decided.starts  # Slurm would have it wait
            await driver.execute(Cancel("small", 1), None)
            await driver.ended("small")
            await made.until(lambda taken: not taken)
            decided = made.dispatcher.decide(3.0)
            assert decided is not None
            assert [start.job for start in decided.starts] == ["large"]

    asyncio.run(run())


@needs_slurm
def test_berth_that_comes_later_sees_the_same(site: SlurmSite) -> None:
    """Jobs of others and what ours were charged are in the first snapshot of a new process."""

    async def run() -> None:
        async with driven(site) as driver:
            words = ["-N1", "-n1", "-w", "n1", "--gres=gpu:1,licence:2", "--mem=500", "-o", "/dev/null"]
            site.cluster.ask("sbatch", *words, "--wrap", "sleep 600")
            await driver.execute(*site.simple("ours", 600.0, Place("n2", "w", 2)))
            await driver.until(Started)
            made = Scheduled(driver)
            await made.until(lambda taken: len(taken) == 2)
            await driver.close()
            await driver.open()
            there = {server.name: server.taken for server in driver.spells[-1].snapshot.servers if server.taken}
            assert there == {
                "n1": {"cpu": MILLI, "memory": 500 * MIB, "gpu": MILLI, "licence": 2 * MILLI},
                "n2": {"memory": 128 * MIB},
            }
            await driver.execute(Cancel("ours", 1), None)
            await driver.ended("ours")

    asyncio.run(run())
