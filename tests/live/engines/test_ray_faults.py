"""Ray's engine when things break: nodes that hang, agents and keepers that die, the head that is gone."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from berth.live.clusters import alive, marked
from berth.live.clusters.ray import LocalRay
from berth.live.core.events import Failed
from berth.live.engines import EngineError
from berth.live.engines.ray.engine import RayEngine
from tests.live.engines.ray_driver import driven, until


def process_of(cluster: LocalRay, node: str, name: str) -> int:
    """The process of an actor on a node."""
    there = marked(cluster.directory, node)
    (found,) = [pid for pid in there if Path(f"/proc/{pid}/cmdline").read_text().startswith(f"ray::{name}")]
    return found


def test_a_node_that_hangs_is_lost_and_runs_nothing_when_it_comes_back(ray_cluster: LocalRay, tmp_path: Path) -> None:
    async def play() -> None:
        async with driven(ray_cluster, tmp_path) as driver:
            gang = await driver.job("n3", "n4").start()
            beside = await driver.job("n3").start()
            await gang.runs()
            await beside.runs()
            ray_cluster.hang("n4")
            try:
                await until(lambda: not driver.listener.there("n4"), "n4 is not told to be lost")
                assert await gang.failed("server") == "server n4 was lost"
                assert gang.alive() == {"task-1"}  # it hangs with its node, and the other one was ended
                refused = await driver.job("n1", "n4").start()
                assert await refused.failed("server") == "server n4 is away"
                assert not refused.told()
            finally:
                ray_cluster.wake("n4")
            await until(lambda: not gang.alive(), "a part of a lost gang goes on")
            assert beside.alive()
            assert driver.listener.end(beside.key) is None
            ray_cluster.start_node("n4")
            await until(lambda: driver.listener.there("n4"), "n4 is not told to be back")
            again = await driver.job("n3", "n4", seconds=0.0).start()
            await again.finished()

    asyncio.run(play())


def test_an_agent_that_hangs_alone_loses_its_tasks_to_their_guards(ray_cluster: LocalRay, tmp_path: Path) -> None:
    """Ray holds the node for alive all the time: it is the lease that ends what runs there."""

    async def play() -> None:
        async with driven(ray_cluster, tmp_path) as driver:
            gang = await driver.job("n1", "n2").start()
            await gang.runs()
            agent = process_of(ray_cluster, "n2", "Agent")
            os.kill(agent, signal.SIGSTOP)
            try:
                await until(lambda: not driver.listener.there("n2"), "n2 is not told to be lost")
                assert await gang.failed("server") == "server n2 was lost"
                assert not gang.alive()  # when its end is told, all of it has ended
                await until(lambda: driver.listener.there("n2"), "n2 gets no other agent")
                again = await driver.job("n2", seconds=0.0).start()
                await again.finished()
            finally:
                if alive(agent):
                    os.kill(agent, signal.SIGCONT)
            await until(lambda: not alive(agent), "the old agent goes on")

    asyncio.run(play())


def test_a_keeper_that_dies_takes_its_gangs_along_but_forgets_nothing(ray_cluster: LocalRay, tmp_path: Path) -> None:
    async def play() -> None:
        async with driven(ray_cluster, tmp_path) as driver:
            done = await driver.job("n1", seconds=0.0).start()
            before = await done.finished()
            gang = await driver.job("n1", "n2", "n3").start()
            await gang.runs()
            os.kill(process_of(ray_cluster, "head", "Keeper"), signal.SIGKILL)
            reason = await gang.failed("engine")
            assert reason == "the keeper of gangs on the Ray cluster was lost"
            assert not gang.alive()
            ends = {(each.job, each.attempt): each.end for each in (await driver.listener.look()).attempts}
            assert ends[done.key] == before
            assert isinstance(ends[gang.key], Failed)
            told = gang.told()
            await gang.start()
            await driver.complete()  # the next keeper has heard of every node
            later = await driver.job("n1", "n2", "n3", seconds=0.0).start()  # the places are free again
            await later.finished()
            assert gang.told() == told  # and nothing that ended began again

    asyncio.run(play())


def test_without_its_head_a_cluster_is_an_error_and_runs_nothing(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    cluster = LocalRay(folder, 1)

    async def play() -> None:
        async with driven(cluster, tmp_path) as driver:
            job = await driver.job("n1").start()
            await job.runs()
            cluster.kill_head()
            await until(lambda: not job.alive(), "it goes on without a head")
            driver.made.clear()  # there is nobody who could cancel it
            await until(lambda: driver.listener.trouble != "it was not asked yet", "nobody noticed")
            with pytest.raises(EngineError, match=f"no Ray cluster at {cluster.address}: Connection refused"):
                await RayEngine(cluster.address).snapshot()

    try:
        cluster.start()
        asyncio.run(play())
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
    assert not marked(folder)
