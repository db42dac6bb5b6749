"""Ray's engine when things break: nodes that hang, agents and keepers that die."""

from __future__ import annotations

import operator
import os
import signal
from pathlib import Path

from berth.live.clusters import alive, marked
from berth.live.clusters.ray import LocalRay
from berth.live.core.events import Failed
from tests.harness.invariants import InvariantBroken
from tests.harness.waiting import eventually_async
from tests.real.ray.conftest import Drive
from tests.real.ray.driver import Driver


def process_of(cluster: LocalRay, node: str, name: str) -> int:
    """The process of an actor on a node."""
    there = marked(cluster.directory, node)
    (found,) = [pid for pid in there if Path(f"/proc/{pid}/cmdline").read_text().startswith(f"ray::{name}")]
    return found


def test_a_node_that_hangs_is_lost_and_runs_nothing_when_it_comes_back(drive: Drive, ray_cluster: LocalRay) -> None:
    async def play(driver: Driver) -> None:
        gang = await driver.job("n2", "n3").start()
        beside = await driver.job("n2").start()
        await gang.runs()
        await beside.runs()
        ray_cluster.hang("n3")
        try:
            await driver.is_there("n3", False)
            assert await gang.failed("server") == "server n3 was lost"
            assert gang.alive() == {"task-1"}  # it hangs with its node, and the other one was ended
            refused = await driver.job("n1", "n3").start()
            assert await refused.failed("server") == "server n3 is away"
            if refused.told():
                raise InvariantBroken("a part of a gang began whose other node was away")
        finally:
            ray_cluster.wake("n3")
        await gang.is_over()
        assert beside.alive()
        assert driver.listener.end(beside.key) is None
        ray_cluster.start_node("n3")
        await driver.is_there("n3")
        again = await driver.job("n2", "n3", seconds=0.0).start()
        await again.finished()

    drive(play)


def test_an_agent_that_hangs_alone_loses_its_tasks_to_their_guards(drive: Drive, ray_cluster: LocalRay) -> None:
    """Ray holds the node for alive all the time: it is the lease that ends what runs there."""

    async def play(driver: Driver) -> None:
        gang = await driver.job("n1", "n2").start()
        await gang.runs()
        agent = process_of(ray_cluster, "n2", "Agent")
        os.kill(agent, signal.SIGSTOP)
        try:
            await driver.is_there("n2", False)
            assert await gang.failed("server") == "server n2 was lost"
            if gang.alive():
                raise InvariantBroken("the end of a gang was told while it ran")
            await driver.is_there("n2")  # with another agent
            again = await driver.job("n2", seconds=0.0).start()
            await again.finished()
        finally:
            if alive(agent):
                os.kill(agent, signal.SIGCONT)
        await eventually_async(lambda: alive(agent), operator.not_, "the old agent goes on")

    drive(play)


def test_a_keeper_that_dies_takes_its_gangs_along_but_forgets_nothing(drive: Drive, ray_cluster: LocalRay) -> None:
    async def play(driver: Driver) -> None:
        done = await driver.job("n1", seconds=0.0).start()
        before = await done.finished()
        gang = await driver.job("n1", "n2", "n3").start()
        await gang.runs()
        os.kill(process_of(ray_cluster, "head", "Keeper"), signal.SIGKILL)
        reason = await gang.failed("engine")
        assert reason == "the keeper of gangs on the Ray cluster was lost"
        if gang.alive():
            raise InvariantBroken("the end of a gang was told while it ran")
        ends = {(each.job, each.attempt): each.end for each in (await driver.listener.look()).attempts}
        assert ends[done.key] == before
        assert isinstance(ends[gang.key], Failed)
        told = gang.told()
        await gang.start()
        await driver.complete()  # the next keeper has heard of every node
        later = await driver.job("n1", "n2", "n3", seconds=0.0).start()  # the places are free again
        await later.finished()
        if gang.told() != told:
            raise InvariantBroken("an attempt that had ended began again")

    drive(play)
