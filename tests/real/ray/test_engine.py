"""What Ray's engine runs, and how: servers, commands, scripts, environments, devices, and what is refused."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from berth.live.clusters.ray import LocalRay
from berth.live.core.events import Cancel, Failed, Finished, Start
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines import EngineError, Owner, Snapshot
from berth.live.engines.ray.engine import RayEngine
from tests.harness.invariants import InvariantBroken
from tests.harness.waiting import eventually_async
from tests.real.ray.conftest import Drive
from tests.real.ray.driver import Attempted, Driver

HOSTILE = "'; touch /hostile \" $(id) `id` \\ \n\t \u00e9\u4e2d\U0001f6a2 %s {} &"
LEAVER = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read():
    time.sleep(0.01)
"""
"""Leaves a process behind that nobody waits for."""


def test_nodes_are_servers_with_their_labels_and_resources(drive: Drive, ray_cluster: LocalRay, tmp_path: Path) -> None:
    async def play(driver: Driver) -> None:
        servers = {server.name: server for server in (await driver.listener.look()).servers}
        assert sorted(servers) == ["n1", "n2", "n3"]  # and not the head, which has no processors
        assert servers["n2"].capacity["cpu"] == servers["n2"].capacity["gpu"] == 4000
        assert servers["n2"].capacity["licence"] == 2000
        assert servers["n2"].labels == {"name": "n2", "class": "fast"}
        assert set(servers["n3"].capacity) == {"cpu", "memory", "licence"}

    drive(play)


def test_tasks_know_what_they_are_and_get_what_their_owner_gave(
    drive: Drive, ray_cluster: LocalRay, tmp_path: Path
) -> None:
    async def play(driver: Driver) -> None:
        gang = driver.job(("n3", "worker", 2), ("n1", "server", 1), ("n1", "worker", 1), seconds=0.5)
        gang.job.payload["environment"] = {"GIVEN": HOSTILE, "BERTH_RANK": "7", "RAY_ADDRESS": "mine"}  # type: ignore[index]
        gang.job.payload["workdir"] = str(tmp_path)  # type: ignore[index]
        await gang.start()
        end = await gang.finished()
        assert end.seconds is not None
        assert end.seconds >= 0.5
        told = gang.told()
        assert sorted(told) == ["server-0", "worker-0", "worker-1", "worker-2"]
        where = {name: one["environment"]["BERTH_SERVER"] for name, one in told.items()}
        assert where == {"worker-0": "n3", "worker-1": "n3", "worker-2": "n1", "server-0": "n1"}
        for one in told.values():
            environment = one["environment"]
            assert environment["GIVEN"] == HOSTILE
            assert environment["RAY_ADDRESS"] == "mine"
            assert environment["BERTH_JOB"] == gang.job.id
            assert environment["BERTH_ATTEMPT"] == "1"
            assert environment["BERTH_TASKS"] == "4"
            assert environment["BERTH_SERVERS"] == "n3,n1"
            assert len(environment["BERTH_ADDRESSES"].split(",")) == 2
            assert one["here"] == str(tmp_path)

    drive(play)


def test_scripts_run_by_their_first_line_or_by_a_shell_and_leave_their_output(
    drive: Drive, ray_cluster: LocalRay, tmp_path: Path
) -> None:
    async def play(driver: Driver) -> None:
        shell = driver.job("n1", payload={"script": "echo to $BERTH_SERVER\necho 'in vain' >&2\n"})
        text = f"#!{sys.executable} -u\nimport os\nprint(os.environ['BERTH_JOB'])\n"
        python = driver.job("n2", payload={"script": text})
        for one in (shell, python):
            await one.start()
        for one in (shell, python):
            await one.finished()
        assert logged(ray_cluster, shell) == {"task-0.out": "to n1\n", "task-0.err": "in vain\n"}
        assert logged(ray_cluster, python) == {"task-0.out": f"{python.job.id}\n", "task-0.err": ""}

    drive(play)


def logged(cluster: LocalRay, attempted: Attempted) -> dict[str, str]:
    """What lies in Ray's log directory for an attempt."""
    (folder,) = cluster.directory.glob(f"ray/session_2*/logs/berth/{attempted.job.id}-1")
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_what_cannot_run_fails_by_its_own_fault_with_a_reason(
    drive: Drive, ray_cluster: LocalRay, tmp_path: Path
) -> None:
    cases = [
        ({"command": ["/bin/sh", "-c", "echo one >&2; echo two >&2; exit 5"]}, "on n1 ended with exit code 5: two"),
        ({"command": ["/bin/sh", "-c", "kill -9 $$"]}, "task 0 on n1 was killed by signal 9"),
        ({"command": ["/no/such/program"]}, "task 0 on n1 could not be run: [Errno 2] No such file or directory"),
        ({"command": ["true"], "workdir": "/no/such/folder"}, "there is no directory /no/such/folder on this node"),
        ({"script": "#!/no/such/interpreter\n"}, "could not be run: [Errno 2] No such file or directory"),
        ({"command": ["true"], "environment": {"A=B": "c"}}, "could not be run: illegal environment variable name"),
        ({"command": ["true"], "environment": {"A": "\ud800"}}, "could not be run: "),
        ({}, "there is nothing to run: a command, a script or a callable"),
    ]  # fmt: skip

    async def play(driver: Driver) -> None:
        tried = [(await driver.job("n1", payload=payload).start(), reason) for payload, reason in cases]
        for attempted, reason in tried:
            assert reason in await attempted.failed("job")
        part = await driver.job("n1", "n2", demand={"gpu": 1500}).start()
        assert "Ray refused it" in await part.failed("job")
        assert not part.told()

    drive(play)


def test_devices_are_numbered_and_nobody_shares_one(drive: Drive, ray_cluster: LocalRay, tmp_path: Path) -> None:
    async def play(driver: Driver) -> None:
        one = driver.job(("n1", "task", 2), ("n2", "task", 1), demand={"cpu": 500, "gpu": 1000})
        two = driver.job("n1", demand={"gpu": 2000})
        neither = driver.job("n1", demand={})
        for each in (one, two, neither):
            await each.start()
        for each in (one, two, neither):
            await each.runs()
        used = Counter(
            (told["environment"]["BERTH_SERVER"], device)
            for each in (one, two)
            for told in each.told().values()
            for device in told["environment"]["CUDA_VISIBLE_DEVICES"].split(",")
        )
        assert [server for server, _ in sorted(used)] == ["n1", "n1", "n1", "n1", "n2"]
        assert set(used.values()) == {1}

    drive(play)


def test_resources_of_any_name_are_held(drive: Drive, ray_cluster: LocalRay, tmp_path: Path) -> None:
    async def play(driver: Driver) -> None:
        first = await driver.job("n3", demand={"licence": 1000}).start()
        await first.runs()
        second = await driver.job("n3", demand={"licence": 500}, seconds=0.0).start()
        await first.cancel()
        assert await first.failed("cancelled") == "cancelled"
        await second.finished()
        (began,) = [file.stat().st_mtime for file in second.folder.glob("*.json")]
        if began < (await first.ended()).time - 0.1:  # clocks of files are coarse
            raise InvariantBroken("two jobs held a licence at the same time")

    drive(play)


@pytest.mark.parametrize("how", ["ends", "is cancelled"])
def test_what_a_task_leaves_behind_ends_with_it(drive: Drive, ray_cluster: LocalRay, tmp_path: Path, how: str) -> None:
    async def play(driver: Driver) -> None:
        file = tmp_path / "left"
        text = LEAVER + ("time.sleep(600)" if how == "is cancelled" else "")
        leaver = await driver.job("n1", payload={"command": [sys.executable, "-c", text, str(file)]}).start()
        await eventually_async(lambda: file.exists() and file.read_text(), what="nothing was left")
        if how == "is cancelled":
            await leaver.cancel()
            await leaver.failed("cancelled")
        else:
            await leaver.finished()
        assert not os.path.exists(f"/proc/{file.read_text()}")

    drive(play)


def test_two_schedulers_that_start_the_same_attempt_begin_it_once(
    drive: Drive, ray_cluster: LocalRay, tmp_path: Path
) -> None:
    async def play(driver: Driver) -> None:
        other = Driver(ray_cluster, tmp_path)
        await other.listener.open()
        try:
            line = {"command": ["/bin/sh", "-c", 'echo "$BERTH_RANK" >> "$0"', str(tmp_path / "lines")]}
            jobs = [driver.job("n1", "n2", payload=line, id=f"same-{i}") for i in range(5)]
            both = driver.listener, other.listener
            await asyncio.gather(*(each.execute(one.command, one.job) for one in jobs for each in both))
            for one in jobs:
                await one.finished()
            await eventually_async(lambda: all(other.listener.end(one.key) for one in jobs), what="one was not told")
        finally:
            await other.listener.close()
        if (began := Counter((tmp_path / "lines").read_text().split())) != {"0": 5, "1": 5}:
            raise InvariantBroken(f"5 gangs of two tasks; began: {dict(began)}")

    drive(play)


def test_another_store_has_the_cluster_only_when_the_first_is_through(alone: None, ray_cluster: LocalRay) -> None:
    def job(name: str, seconds: float) -> tuple[Start, Job]:
        made = Job(name, "t", (Role("w", 1, {"cpu": 1000}),), payload={"command": ["sleep", str(seconds)]})
        return Start(name, 1, (Place("n1", "w", 1),)), made

    async def refused(engine: RayEngine) -> str:
        with pytest.raises(
            EngineError, match=r"this Ray cluster belongs to another berth service, with the store"
        ) as it:
            await engine.snapshot()
        return str(it.value)

    async def claimed(engine: RayEngine) -> Snapshot:
        async def claim() -> tuple[Snapshot | None, str]:
            try:
                return await engine.snapshot(), ""
            except EngineError as error:
                return None, str(error)

        def free(seen: tuple[Snapshot | None, str]) -> bool:
            return seen[0] is not None

        found, _ = await eventually_async(claim, free, "the cluster is not free")
        assert found is not None
        return found

    async def play() -> None:
        first = RayEngine(ray_cluster.address, Owner("aa", "first.db"))
        second = RayEngine(ray_cluster.address, Owner("bb", "second.db"))
        try:
            await claimed(first)
            start, made = job("same", 600.0)
            await first.execute(start, made)
            assert await refused(second) == (
                "this Ray cluster belongs to another berth service, with the store first.db: "
                "1 of its gangs run, such as same"
            )
            await first.execute(Cancel("same", 1), made)
            async for event in first.events():
                if isinstance(event, Failed):
                    assert (event.job, event.fault) == ("same", "cancelled")
                    break
            await first.close()
            found = await claimed(second)
            assert found.attempts == ()
            start, made = job("same", 0.1)  # the name of a job of the first one
            await second.execute(start, made)
            async for event in second.events():
                if isinstance(event, Finished | Failed):
                    assert (event.job, type(event)) == ("same", Finished)
                    break
        finally:
            await first.close()
            await second.close()

    asyncio.run(play())
