"""Slurm's engine on a real cluster: what goes wrong there, and what Slurm gives."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from berth.files.quantities import MILLI
from berth.live.core.events import Cancel, Failed, Finished, ServerChanged, ServerLost, Start, Started
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines import EngineError, Owner
from berth.live.engines.slurm import SlurmEngine, SlurmSettings
from berth.live.engines.slurm.commands import Away, SlurmCommands
from berth.live.engines.slurm.submission import MIB, Submission
from berth.testing.engines.site import Script
from tests.harness.invariants import InvariantBroken
from tests.harness.waiting import eventually_async
from tests.real.slurm.shared import SharedSlurm
from tests.real.slurm.site import LIMIT, SlurmSite, driven, settled


def test_settings_that_cannot_be_right_are_refused_at_the_start(cluster: SharedSlurm, tmp_path: Path) -> None:
    """The service ends at once, with one error that names file, key and value."""
    settings = tmp_path / "slurm.yaml"
    settings.write_text(f"conf: {cluster.conf}\nspool: {tmp_path / 'spool'}\npartition: mian\n")
    words = ["--engine", f"slurm:{settings}", "--store", str(tmp_path / "store.db"), "--port", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "berth", "serve", *words], capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    said = "partition: got 'mian', expected a partition of Slurm (main, narrow, shared); did you mean 'main'?"
    assert f"{settings}: {said}" in " ".join(done.stderr.split())


def test_drained_nodes_are_closed(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            assert all(not server.closed for server in driver.spells[0].snapshot.servers)
            site.cluster.ask("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=a fan is loud")
            event = await driver.until(ServerChanged)
            assert isinstance(event, ServerChanged)
            assert (event.server.name, event.server.closed) == ("n3", "drain in Slurm: a fan is loud")
            assert {s.name: s.closed for s in (await driver.look()).servers}["n3"]
            site.cluster.ask("scontrol", "update", "NodeName=n3", "State=RESUME")
            while event.server.closed:  # it does not respond at first
                event = await driver.until(ServerChanged, ServerLost)
                assert isinstance(event, ServerChanged)  # and is not taken for lost
            assert event.server.name == "n3"

    asyncio.run(run())


def test_a_requeued_job_is_ended_and_told(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(*site.simple("again", 600.0, Place("n1", "w", 1)))
            await driver.until(Started)
            (number,) = site.numbers("again", 1)
            site.cluster.ask("scontrol", "update", f"JobId={number}", "Requeue=1")
            site.cluster.ask("scontrol", "requeue", number)
            end = await driver.ended("again")
            assert isinstance(end, Failed)
            assert (end.fault, end.reason) == ("engine", "Slurm wanted to run it again")
            assert site.cluster.ask("squeue", "-h", "-j", number, "-o", "%T").strip() == ""

    asyncio.run(run())


def test_what_slurm_does_not_start_fails(site: SlurmSite) -> None:
    """Somebody else has the node, and it is to start there all the same."""
    site.settings = site.settings.replace(patience=1.0)

    async def run() -> None:
        async with driven(site) as driver:
            site.cluster.ask("sbatch", "-w", "n4", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600")
            await driver.execute(*site.simple("late", 1.0, Place("n4", "w", 1)))
            end = await driver.ended("late")
            assert isinstance(end, Failed)
            assert end.fault == "engine"
            assert end.reason.startswith("Slurm did not start it in 1 s (")

    asyncio.run(run())


def test_gang_gets_what_it_asked_for(site: SlurmSite) -> None:
    """Uneven roles, GRES and memory: what Slurm allocates on each node is what the tasks there ask for."""
    head = Role("head", 1, {"cpu": 2 * MILLI, "memory": 100 * MIB})
    worker = Role("worker", 3, {"cpu": MILLI, "memory": 300 * MIB, "gpu": MILLI, "licence": MILLI})
    places = (Place("n1", "head", 1), Place("n1", "worker", 2), Place("n2", "worker", 1))

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(Start("gang", 1, places), site.job("gang", (head, worker), Script(600.0)))
            await driver.until(Started)
            begun = await eventually_async(site.ledger.begun, lambda found: len(found) >= 4, "four tasks")
            seen = sorted((s.role, s.server) for s in begun)
            assert seen == [("head", "n1"), ("worker", "n1"), ("worker", "n1"), ("worker", "n2")]
            number = site.numbers("gang", 1)[0].partition("+")[0]
            said = site.cluster.ask("scontrol", "-d", "-o", "show", "job", number)
            given = re.findall(r"Nodes=(n\d) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)", said)
            text = {name: (ids, memory, gres) for name, ids, memory, gres in given}
            assert text.keys() == {"n1", "n2"}
            assert _count(text["n1"][0]) == 4
            assert _count(text["n2"][0]) == 1
            assert (text["n1"][1], text["n2"][1]) == ("700", "300")
            assert "gpu:2" in text["n1"][2]
            assert "gpu:1" in text["n2"][2]
            assert "licence:2" in text["n1"][2]
            await driver.execute(Cancel("gang", 1), None)
            assert isinstance(await driver.ended("gang"), Failed)

    asyncio.run(run())


def _count(ids: str) -> int:
    ranges = (part.split("-") for part in ids.split(","))
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)


def test_words_that_slurm_would_read_otherwise(site: SlurmSite) -> None:
    hostile = (":", "x : y", "a\r\nb", "#SBATCH --array=1-9", "%j%N", "'\"\\", "$(id)`id`;|&", "\u00e9\u4e2d")
    roles = (Role("w", 3, {"cpu": MILLI}),)
    places = (Place("n5", "w", 2), Place("n6", "w", 1))

    async def run() -> None:
        async with driven(site) as driver:
            script = Script(0.2, arguments=hostile, environment={"TEXT": "a,b=c\nd\r\n$x", "SBATCH_PARTITION": "no"})
            await driver.execute(Start("odd", 1, places), site.job("odd", roles, script))
            assert isinstance(await driver.ended("odd"), Finished)
            seen = site.ledger.begun()
            assert len(seen) == 3
            assert {sight.arguments for sight in seen} == {hostile}
            assert {sight.environment["TEXT"] for sight in seen} == {"a,b=c\nd\r\n$x"}

    asyncio.run(run())


def test_a_script_runs_once_on_the_first_server(site: SlurmSite) -> None:
    script = (
        "#!/bin/bash\n#SBATCH --array=1-4\necho $BERTH_JOB $BERTH_ATTEMPT $BERTH_TASKS $BERTH_SERVERS\nsrun echo task\n"
    )
    job = Job("script", "t", (Role("w", 2, {"cpu": MILLI}),), payload={"script": script, "workdir": "/"})

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(Start("script", 1, (Place("n3", "w", 1), Place("n4", "w", 1))), job)
            assert isinstance(await driver.ended("script"), Finished)
            printed = (site.settings.spool / "output" / "script.1.out").read_text().splitlines()
            assert printed == ["script 1 2 n3,n4", "task", "task"]

    asyncio.run(run())


def test_what_cannot_run_is_the_jobs_fault_and_what_a_node_lacks_is_the_servers(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            start, job = site.simple("half", 1.0, Place("n1", "w", 1))
            await driver.execute(start, job.replace(roles=(Role("w", 1, {"cpu": 500}),)))
            start, job = site.simple("huge", 1.0, Place("n1", "w", 1), memory=10**6 * MIB)
            await driver.execute(start, job)
            half, huge = await driver.ended("half"), await driver.ended("huge")
            assert isinstance(half, Failed)
            assert isinstance(huge, Failed)
            assert (half.fault, huge.fault) == ("job", "server")
            assert "whole units of cpu" in half.reason
            assert "Slurm refused it" in huge.reason

    asyncio.run(run())


class Deaf(SlurmCommands):
    """Submits, and does not hear the answer."""

    async def submit(self, submission: Submission) -> int:
        await super().submit(submission)
        raise Away("sbatch: no answer", heard=True)


def test_an_answer_that_is_lost_does_not_begin_it_twice(site: SlurmSite) -> None:
    """Neither in the same process nor in the next one."""

    async def run() -> None:
        first = SlurmEngine(site.settings, Deaf(site.settings))
        await settled(first)
        one, two = site.simple("same", 1.0, Place("n1", "w", 1)), site.simple("next", 1.0, Place("n2", "w", 1))
        for start in (one, two):
            with pytest.raises(EngineError, match="no answer"):
                await first.execute(*start)
        await first.execute(*one)
        await first.close()
        async with driven(site) as driver:
            await driver.execute(*two)
            for name in ("same", "next"):
                assert isinstance(await driver.ended(name), Finished)
        if (begun := sorted(sight.job for sight in site.ledger.begun())) != ["next", "same"]:
            raise InvariantBroken(f"each job was to begin once, and there began {begun}")

    asyncio.run(run())


def test_other_instances_are_left_alone(site: SlurmSite, tmp_path: Path) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(*site.simple("ours", 600.0, Place("n1", "w", 1)))
            await driver.until(Started)
            other = SlurmEngine(site.settings.replace(spool=tmp_path / "other"))
            assert (await settled(other)).attempts == ()
            await other.execute(Cancel("ours", 1), None)
            await other.close()
            if [a.job for a in (await driver.look()).attempts if a.end is None] != ["ours"]:
                raise InvariantBroken(f"another instance ended it: {driver.end(('ours', 1))}")

    asyncio.run(run())


def test_what_another_store_started_goes_on(site: SlurmSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    settings = SlurmSettings(conf=site.settings.conf, poll=0.2)

    async def run() -> None:
        first = SlurmEngine(settings, owner=Owner("aa"))
        await settled(first)
        await first.execute(*site.simple("first", 1.0, Place("n1", "w", 1)))
        await first.close()
        second = SlurmEngine(settings, owner=Owner("bb"))
        assert (await settled(second)).attempts == ()
        await second.close()
        again = SlurmEngine(settings, owner=Owner("aa"))
        ended = await eventually_async(
            lambda: settled(again), lambda found: [a.job for a in found.attempts if a.end] == ["first"], "its end"
        )
        assert isinstance(ended.attempts[0].end, Finished)
        await again.close()

    asyncio.run(run())


def test_people_are_told_where_to_look(site: SlurmSite) -> None:
    """Where the output of a job is, its number in Slurm, and the last line that it printed."""
    roles = (Role("w", 1, {"cpu": MILLI}),)
    words = ["sh", "-c", "echo first; echo no such model >&2; exit 3"]

    async def run() -> None:
        async with driven(site) as driver:
            job = Job("told", "t", roles, payload={"command": words})
            await driver.execute(Start("told", 1, (Place("n1", "w", 1),)), job)
            end = await driver.ended("told")
            assert isinstance(end, Failed)
            assert (end.reason, end.last_output) == ("it ended with exit code 3", "no such model")
            attempt = next(a for a in (await driver.look()).attempts if a.job == "told")
            assert "no such model" in Path(attempt.details["output"]).read_text()
            assert int(attempt.details["slurm job"]) > 0
            started = [e for spell in driver.spells for e in spell.starts(("told", 1))]
            assert all(event.details == attempt.details for event in started)

    asyncio.run(run())


UNEVEN = (Place("n1", "w", 3), Place("n2", "w", 1))


SMALL_FIRST = (Place("n1", "w", 1), Place("n2", "w", 3))
"""A layout that Slurm does not choose by itself, so that it takes a heterogeneous job."""


@pytest.mark.parametrize(
    ("places", "spanning", "worlds"),
    [(UNEVEN, False, [4] * 4), (SMALL_FIRST, True, [4] * 4), (SMALL_FIRST, False, [1, 3, 3, 3])],
    ids=["one allocation", "one step over two components", "a step for each component"],
)
def test_an_uneven_gang_is_one_world_where_slurm_lets_it(
    site: SlurmSite, monkeypatch: pytest.MonkeyPatch, places: tuple[Place, ...], spanning: bool, worlds: list[int]
) -> None:
    """All of its tasks are one step, as MPI wants it, even where Slurm has them in two components."""

    class Set(SlurmCommands):
        async def config(self):  # type: ignore[no-untyped-def]
            return replace(await super().config(), spanning=spanning)

    words = ["sh", "-c", "echo task $BERTH_RANK of $PMI_SIZE"]
    payload = {"command": words, "environment": {"SLURM_MPI_TYPE": "pmi2"}}

    async def engine() -> SlurmEngine:
        return SlurmEngine(site.settings, Set(site.settings))

    monkeypatch.setattr(site, "engine", engine)

    async def run() -> None:
        async with driven(site) as driver:
            job = Job("world", "t", (Role("w", 4, {"cpu": MILLI}),), payload=payload)
            await driver.execute(Start("world", 1, places), job)
            assert isinstance(await driver.ended("world"), Finished)
            (attempt,) = [a for a in (await driver.look()).attempts if a.job == "world"]
            printed = Path(attempt.details["output"]).read_text().splitlines()
            tasks = sorted(line for line in printed if line.startswith("task"))
            assert tasks == [f"task {rank} of {size}" for rank, size in enumerate(worlds)]

    asyncio.run(run())


@pytest.mark.parametrize(
    "places", [(Place("n3", "w", 4),), UNEVEN, SMALL_FIRST], ids=["one node", "one allocation", "two components"]
)
def test_the_code_of_the_task_that_failed_is_told(site: SlurmSite, places: tuple[Place, ...]) -> None:
    """Not that of those which Slurm ended with it."""
    words = ["sh", "-c", "[ $BERTH_RANK = 2 ] || exec sleep 600; echo no such model; exit 7"]

    async def run() -> None:
        async with driven(site) as driver:
            job = Job("code", "t", (Role("w", 4, {"cpu": MILLI}),), payload={"command": words})
            await driver.execute(Start("code", 1, places), job)
            end = await driver.ended("code")
            assert isinstance(end, Failed)
            assert (end.fault, end.reason, end.last_output) == ("job", "it ended with exit code 7", "no such model")

    asyncio.run(run())


def test_slurmctld_is_killed_while_a_job_runs_and_right_after_it_took_others(site: SlurmSite) -> None:
    """Commands fail while it is away. It forgets some jobs, or that they ran, and uses their numbers again.

    What ended meanwhile is told, and each job runs once to its end, whatever happened.
    """

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(*site.simple("brief", 0.5, Place("n1", "w", 1)))
            await driver.until(Started)
            await eventually_async(site.ledger.begun, what="its task does not begin")
            attempts = {f"job-{i}": 1 for i in range(4)}
            starts = {name: site.simple(name, 0.5, Place(f"n{i + 3}", "w", 1)) for i, name in enumerate(attempts)}
            await asyncio.gather(*(driver.execute(*each) for each in starts.values()))
            site.cluster.kill("slurmctld")
            with pytest.raises(EngineError, match=r"Unable to contact slurm controller"):
                await driver.engine.execute(*site.simple("later", 0.2, Place("n2", "w", 1)))
            with pytest.raises(EngineError, match=r"slurmctld|Unable to contact"):
                await driver.engine.snapshot()

            def brief() -> set[str]:
                return {sight.state for sight in site.ledger.begun() if sight.job == "brief"}

            await eventually_async(brief, {"ended"}.__eq__, "its task does not end")
            site.cluster.begin("slurmctld")
            starts["later"], attempts["later"] = site.simple("later", 0.2, Place("n2", "w", 1)), 1
            await driver.execute(*starts["later"])
            for name in attempts:
                while not isinstance(end := await driver.ended(name, attempts[name]), Finished):
                    assert end.fault == "engine"
                    if [s for s in site.ledger.begun() if s.job == name and s.state == "runs"]:
                        raise InvariantBroken(f"{name} runs, and was told to have failed: {end}")
                    attempts[name] += 1
                    assert attempts[name] < 10
                    start, job = starts[name]
                    site.cluster.resume()  # Slurm drains a node that still has the first of two jobs with one id
                    await driver.execute(replace(start, attempt=attempts[name]), job)
            assert isinstance(await driver.ended("brief"), Finished)
            seen = site.ledger.begun()
            if len({(sight.job, sight.attempt) for sight in seen}) < len(seen):
                raise InvariantBroken(f"an attempt began twice: {seen}")
            if (whole := sorted(s.job for s in seen if s.state == "ended")) != sorted(["brief", *attempts]):
                raise InvariantBroken(f"each job was to come to its end once, and these did: {whole}")

    asyncio.run(run())
