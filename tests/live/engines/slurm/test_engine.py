"""Slurm's engine on what real Slurms of two versions answered: no cluster is needed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from berth.errors import InvalidInput
from berth.files.quantities import MILLI
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Cancel, Event, Failed, Finished, ServerJoined, Start, Started, Submitted
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines import EngineError
from berth.live.engines.slurm import SlurmEngine, SlurmSettings, read_settings
from berth.live.engines.slurm.commands import Away, Refused
from berth.live.engines.slurm.outputs import mark_of
from berth.live.engines.slurm.partitions import MARGIN
from berth.live.engines.slurm.submission import MIB, Submission
from tests.harness.waiting import eventually_async
from tests.live.engines.slurm.recorded import INSTANCE, VERSIONS, RecordedSlurm, engine_on

HOUR = 3600.0
ONE = (Role("w", 1, {"cpu": MILLI}),)
RUNNING = ("gang", "small", "uneven", "foreign", "components")
both_versions = pytest.mark.parametrize("version", VERSIONS)


def a_job(name: str = "j", roles: tuple[Role, ...] = ONE, **more: Any) -> Job:
    return Job(name, "t", roles, payload={"command": ["true"], "workdir": "/"}, **more)


def run(engine: SlurmEngine, play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test of an engine, and close it."""

    async def played() -> None:
        try:
            await play()
        finally:
            await engine.close()

    asyncio.run(played())


async def told(engine: SlurmEngine, *commands: tuple[Start, Job], until: type[Event] = Failed) -> list[Event]:
    """What is told after these commands, up to the first event of a kind."""
    for start, job in commands:
        await engine.execute(start, job)
    found: list[Event] = []
    async for event in engine.events():
        found.append(event)
        if isinstance(event, until):
            break
    return found


# ---------------------------------------------------------------------------- what is there


@both_versions
def test_a_snapshot_has_attempts_servers_and_what_waits(version: str, tmp_path: Path) -> None:
    engine, _ = engine_on(tmp_path, version, [*RUNNING, "held", "busy", "good", "refused"], companion="shared")

    async def play() -> None:
        with pytest.raises(EngineError, match="not answered yet"):
            await engine.recalled()
        found = await engine.snapshot()
        assert sorted(
            (a.job, a.attempt, sorted(place.server for place in a.places), a.end) for a in found.attempts
        ) == [
            ("components", 1, ["n2", "n4"], None),
            ("small", 1, ["n3"], None),
            ("train-7", 2, ["n1", "n2"], None),
            ("uneven", 1, ["n3", "n4"], None),
        ]
        assert [server.name for server in found.servers] == [f"n{i}" for i in range(1, 9)]
        assert found.servers[0].capacity == {
            "cpu": 4 * MILLI,
            "memory": 4096 * MIB,
            "gpu": 2 * MILLI,
            "licence": 3 * MILLI,
        }
        (job,) = found.waiting
        assert (job.type, job.work, job.roles[0].count, job.roles[0].demand["cpu"]) == ("resnet", HOUR, 2, 2 * MILLI)
        assert await engine.recalled() == {"components", "small", "train-7", "uneven", job.id}

    run(engine, play)


@both_versions
def test_reservations_close_nodes_now_or_at_their_start(version: str, tmp_path: Path) -> None:
    """One that holds some cores of a node leaves the rest to other jobs, whatever state Slurm shows for the node."""
    engine, slurm = engine_on(tmp_path, version)

    async def play() -> None:
        found = {server.name: server for server in (await engine.snapshot()).servers}
        assert {name for name, server in found.items() if server.closed} == {"n5", "n7"}
        assert found["n5"].closed.startswith("in Slurm reservation today until ")
        assert found["n7"].closed == "drain in Slurm: a fan is loud"
        assert {name for name, server in found.items() if server.until is not None} == {"n3", "n4", "n8"}
        assert found["n3"].until_reason.startswith("Slurm reservation later begins at ")
        until, moving = found["n3"].until, found["n8"].until
        assert until is not None
        assert moving is not None
        assert until + MARGIN == pytest.approx((slurm.now + timedelta(hours=1)).timestamp(), abs=5)
        assert (moving + MARGIN) % 300 == 0  # so that it does not change at each look

    run(engine, play)


@both_versions
def test_jobs_of_others_and_what_ours_are_charged_beyond_what_they_asked_for(version: str, tmp_path: Path) -> None:
    """Jobs that ask for no memory are charged 64 MiB for each CPU (DefMemPerCPU)."""
    engine, slurm = engine_on(tmp_path, version, ["foreign"])

    async def play() -> None:
        await engine.snapshot()
        await engine.execute(Start("ours", 1, (Place("n3", "w", 2),)), a_job("ours", (Role("w", 2, {"cpu": MILLI}),)))
        servers = (await engine.snapshot()).servers
        assert {server.name: server.taken for server in servers if server.taken} == {
            "n1": {"cpu": MILLI, "memory": 500 * MIB, "gpu": MILLI, "licence": 2 * MILLI},
            "n3": {"memory": 128 * MIB},
        }
        slurm.there.clear()
        assert not [server.name for server in (await engine.snapshot()).servers if server.taken]

    run(engine, play)


def test_memory_that_slurm_gives_by_itself_is_not_given_twice(tmp_path: Path) -> None:
    """Each node has 4096 MiB, of which a job that asked for none was charged some."""
    engine, _ = engine_on(tmp_path)

    async def play() -> None:
        await engine.snapshot()
        await engine.execute(Start("small", 1, (Place("n3", "w", 2),)), a_job("small", (Role("w", 2, {"cpu": MILLI}),)))
        dispatcher = Dispatcher()
        for server in (await engine.snapshot()).servers:
            closed = "" if server.name == "n3" else "not for this"
            dispatcher.handle(ServerJoined(0.0, replace(server, closed=closed, until=None)))
        large = Role("w", 1, {"cpu": MILLI, "memory": 4096 * MIB})
        dispatcher.handle(Submitted(1.0, a_job("large", (large,))))
        decided = dispatcher.decide(1.0)
        assert decided is None or not decided.starts  # Slurm would have it wait
        rest = Role("w", 1, {"cpu": MILLI, "memory": (4096 - 128) * MIB})
        dispatcher.handle(Submitted(2.0, a_job("rest", (rest,))))
        decided = dispatcher.decide(2.0)
        assert decided is not None
        assert [start.job for start in decided.starts] == ["rest"]

    run(engine, play)


# ---------------------------------------------------------------------------- limits


@both_versions
def test_slurm_gets_a_minute_more_than_berth_and_refuses_what_is_longer_than_its_partition_allows(
    version: str, tmp_path: Path
) -> None:
    """A job that has just the longest limit starts, without the grace; one without a limit gets Slurm's default."""
    engine, slurm = engine_on(tmp_path, version)

    async def play() -> None:
        await engine.snapshot()
        for name, limit, minutes in (("limited", 90.0, 3), ("unlimited", None, None), ("just", HOUR, 60)):
            job = a_job(name, limit=limit)
            assert engine.refusal(job) is None
            await engine.execute(Start(name, 1, (Place("n1", "w", 1),)), job)
            assert slurm.submissions[-1].minutes == minutes
        said = engine.refusal(a_job(limit=2 * HOUR)) or ""
        assert "its time limit of 2.0 h is longer than partition main of Slurm allows" in said
        late = Start("late", 1, (Place("n1", "w", 1),)), a_job("late", limit=2 * HOUR)
        end = (await told(engine, late))[-1]
        assert isinstance(end, Failed)
        assert end.fault == "job"
        assert "MaxTime" in end.reason
        assert len(slurm.submissions) == 3

    run(engine, play)


# ---------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("conf: {folder}/none.conf", "conf: got {folder}/none.conf: No such file or directory, expected a slurm.conf"),
        (
            "partition: mian",
            "partition: got 'mian', expected a partition of Slurm (main, shared); did you mean 'main'?",
        ),
        ("companion: nope", "companion: got 'nope', expected a partition of Slurm (main, shared)"),
        ("output: {folder}/file/below", "output: got {folder}/file/below: Not a directory, expected a directory"),
        ("spool: {folder}/file", "spool: got '{folder}/file', expected a directory that can be written"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "file").touch()
    settings = tmp_path / "slurm.yaml"
    lines = {"spool": str(tmp_path / "spool")} | dict([line.format(folder=tmp_path).split(": ")])
    settings.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))

    async def play() -> None:
        given = read_settings(settings)
        engine = SlurmEngine(given, RecordedSlurm(given), file=settings)
        try:
            await engine.snapshot()
        finally:
            await engine.close()

    with pytest.raises(InvalidInput) as error:
        asyncio.run(play())
    assert said.format(folder=tmp_path) in str(error.value)
    if line.startswith(("partition", "companion")):  # the others are known where the file was read
        assert str(error.value).startswith(f"{settings}: ")


def test_where_slurm_does_not_answer_partitions_are_asked_for_again(tmp_path: Path) -> None:
    """An engine cannot refuse what nobody has denied."""
    engine, slurm = engine_on(tmp_path, partition="mian")
    answer = slurm.partitions

    async def away() -> Any:
        raise Away("scontrol: Unable to contact slurm controller", heard=False)

    async def play() -> None:
        slurm.partitions = away  # type: ignore[method-assign]
        with pytest.raises(EngineError, match="Unable to contact"):
            await engine.snapshot()
        slurm.partitions = answer  # type: ignore[method-assign]
        with pytest.raises(InvalidInput, match="partition: got 'mian'"):
            await engine.snapshot()

    run(engine, play)


def test_a_partition_without_nodes(tmp_path: Path) -> None:
    """It may get some, so it is asked for again."""
    engine, slurm = engine_on(tmp_path, partition="empty")
    slurm.texts["partitions"] += slurm.texts["partitions"].splitlines()[1].replace("=shared", "=empty")

    async def play() -> None:
        with pytest.raises(EngineError, match="no nodes in partition empty"):
            await engine.snapshot()

    run(engine, play)


def test_short_memory_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine, slurm = engine_on(tmp_path)
    slurm.texts["config"] = re.sub(r"(MinJobAge\s*= )\d+", r"\g<1>5", slurm.texts["config"])

    async def play() -> None:
        await engine.snapshot()

    run(engine, play)
    assert "Slurm forgets jobs 5 s after their end" in caplog.text


def test_programs_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = SlurmEngine(SlurmSettings(spool=tmp_path))

    async def play() -> None:
        with pytest.raises(EngineError, match="cannot be run"):
            await engine.snapshot()

    run(engine, play)


# ---------------------------------------------------------------------------- starts and ends


@both_versions
def test_the_command_says_why_slurm_refused_a_job(version: str, tmp_path: Path) -> None:
    """Slurm keeps a job that it refuses: it is seen before the command has failed, and after an answer that is lost."""
    engine, slurm = engine_on(tmp_path, version)

    async def refuse(submission: Submission) -> int:
        slurm.add("refused", name=submission.name, comment=submission.tag)
        await engine.snapshot()
        raise Refused("sbatch: Requested node configuration is not available")

    async def play() -> None:
        await engine.snapshot()
        slurm.submit = refuse  # type: ignore[method-assign]
        events = await told(engine, (Start("huge", 1, (Place("n1", "w", 1),)), a_job("huge")))
        (end,) = [event for event in events if isinstance(event, Started | Finished | Failed)]
        assert isinstance(end, Failed)
        assert end.reason == "Slurm refused it: sbatch: Requested node configuration is not available"

    run(engine, play)


@both_versions
def test_a_job_that_slurm_took_and_then_refused_did_not_run(version: str, tmp_path: Path) -> None:
    engine, slurm = engine_on(tmp_path, version)

    async def play() -> None:
        await engine.snapshot()
        slurm.submitted_as = "refused"
        events = await told(engine, (Start("huge", 1, (Place("n1", "w", 1),)), a_job("huge")))
        end = events[-1]
        assert isinstance(end, Failed)
        assert (end.fault, end.reason) == ("engine", "Slurm could not launch it: BadConstraints")
        assert not [event for event in events if isinstance(event, Started)]

    run(engine, play)


@both_versions
@pytest.mark.parametrize(
    ("like", "fault", "reason"),
    [
        ("bad", "job", "it ended with exit code 3"),
        ("late", "job", "it reached its time limit of 1 min in Slurm"),
        ("cancelled", "cancelled", "cancelled in Slurm, not by berth"),
    ],
)
def test_ends(version: str, like: str, fault: str, reason: str, tmp_path: Path) -> None:
    engine, slurm = engine_on(tmp_path, version)

    async def play() -> None:
        await engine.snapshot()
        start = Start("j", 1, (Place("n3", "w", 1),))
        await told(engine, (start, a_job()), until=Started)
        slurm.there[0]["time_limit"] = {"set": True, "infinite": False, "number": 1}
        slurm.end("j", like)
        end = (await told(engine))[-1]
        assert isinstance(end, Failed)
        assert (end.fault, end.reason) == (fault, reason)

    run(engine, play)


def test_an_attempt_that_was_cancelled_before_it_began_never_begins(tmp_path: Path) -> None:
    """Neither in the process that cancelled it, nor in the next one."""

    async def play() -> None:
        for _ in range(2):
            engine, slurm = engine_on(tmp_path)
            try:
                await engine.snapshot()
                await engine.execute(Cancel("j", 1), a_job())
                await engine.execute(Start("j", 1, (Place("n3", "w", 1),)), a_job())
                ((job, attempt, end),) = [(a.job, a.attempt, a.end) for a in (await engine.snapshot()).attempts]
                assert (job, attempt) == ("j", 1)
                assert isinstance(end, Failed)
                assert (end.fault, end.reason) == ("cancelled", "cancelled before it began")
                assert not slurm.submissions
            finally:
                await engine.close()

    asyncio.run(play())


@both_versions
def test_a_gang_of_components_starts_when_all_of_them_run_and_ends_with_one_of_them(
    version: str, tmp_path: Path
) -> None:
    """Slurm starts and ends the components of a job one by one."""
    engine, slurm = engine_on(tmp_path, version, ["components"])
    first, second = slurm.there

    async def play() -> None:
        slurm.give(second, "busy")
        assert [a.began for a in (await engine.snapshot()).attempts] == [False]
        slurm.give(second, "components")
        assert [a.began for a in (await engine.snapshot()).attempts] == [True]
        assert not slurm.asked
        slurm.give(first, "bad")
        await engine.snapshot()
        assert slurm.asked == [("scancel", "--quiet", str(second["job_id"]))]

    run(engine, play)


@both_versions
def test_a_job_whose_comment_was_changed_is_still_ours(version: str, tmp_path: Path) -> None:
    engine, slurm = engine_on(tmp_path, version)

    async def play() -> None:
        await engine.snapshot()
        await told(engine, (Start("j", 1, (Place("n3", "w", 1),)), a_job()), until=Started)
        slurm.there[0]["comment"] = {"job": "nothing"} if isinstance(slurm.there[0]["comment"], dict) else "nothing"
        assert [a.end for a in (await engine.snapshot()).attempts] == [None]
        slurm.end("j", "good")
        assert isinstance((await told(engine, until=Finished))[-1], Finished)

    run(engine, play)


@pytest.mark.parametrize("begun", [True, False])
def test_a_job_whose_script_slurmd_removed_is_not_to_blame(tmp_path: Path, begun: bool) -> None:
    """Slurmd may take the script of a job that it is about to start for an old one; then nothing of it has begun."""
    engine, slurm = engine_on(tmp_path)
    said = "slurmstepd-n1: error: execve(): /spool/job00023/slurm_script: No such file or directory"

    async def play() -> None:
        await engine.snapshot()
        await engine.execute(Start("lost", 1, (Place("n3", "w", 1),)), a_job("lost"))
        folder = engine.settings.outputs
        (folder / "lost.1.out").write_text(f"{said}\n")
        if begun:
            secret = engine._spool.records["lost", 1].secret
            mark_of(folder, INSTANCE, "lost", 1, secret).write_text("began 1.5\n")
        slurm.end("lost", "bad")
        end = (await told(engine))[-1]
        assert isinstance(end, Failed)
        assert end.fault == ("job" if begun else "engine")

    run(engine, play)


@pytest.mark.parametrize(
    ("roles", "payload", "reason"),
    [
        ((Role("w", 1, {}),), {"command": ["true"]}, "at least one CPU"),
        (ONE, {}, "nothing to run"),
        (ONE, {"command": ["true"], "workdir": "relative"}, "absolute path"),
        (ONE, {"command": ["true"], "environment": {"A=B": "c"}}, "cannot be a variable"),
        (ONE, {"command": ["true"], "environment": {"SLURM_MPI_TYPE": "; x"}}, "srun --mpi=list"),
        (ONE, {"script": "true\r\n"}, "Unix line breaks"),
        (ONE, {"command": ["x" * 200_000]}, "a command of at most"),
        ((Role("w", 1, {"cpu": 1500}),), {"command": ["true"]}, "whole units of cpu"),
    ],
)
def test_what_slurm_could_never_run_is_refused_before_it_is_accepted(
    tmp_path: Path, roles: tuple[Role, ...], payload: dict[str, Any], reason: str
) -> None:
    engine, _ = engine_on(tmp_path)

    async def play() -> None:
        await engine.snapshot()
        assert reason in (engine.refusal(Job("j", "t", roles, payload=payload)) or "")
        good = {"command": ["true"], "workdir": "/tmp", "environment": {"A": "b"}}
        assert engine.refusal(Job("j", "t", (Role("w", 9, {"cpu": MILLI}),), payload=good)) is None

    run(engine, play)


def test_scripts_that_no_single_allocation_can_run_are_refused(tmp_path: Path) -> None:
    engine, slurm = engine_on(tmp_path)
    licences = (Place("n1", "w", 2), Place("n2", "w", 1))
    roles = (Role("head", 1, {"cpu": MILLI}), Role("worker", 2, {"cpu": MILLI}))
    apart = (Place("n3", "head", 1), Place("n4", "worker", 2))
    amounts = (Role("w", 3, {"cpu": MILLI, "licence": MILLI}),)

    async def play() -> None:
        await engine.snapshot()
        for name, places, asked, said in (
            ("licences", licences, amounts, "different amounts of licence"),
            ("roles", apart, roles, "roles (head, worker)"),
        ):
            job = Job(name, "t", asked, payload={"script": "srun true\n", "workdir": "/"})
            end = (await told(engine, (Start(name, 1, places), job)))[-1]
            assert isinstance(end, Failed)
            assert end.fault == "job"
            assert said in end.reason
        assert not slurm.submissions

    run(engine, play)


def test_a_slow_start_is_logged_with_slurms_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else has the node; after `patience` the job is cancelled and told to have failed."""
    monkeypatch.setattr("berth.live.engines.slurm.attempts.SLOW", 0.0)
    engine, slurm = engine_on(tmp_path, patience=0.3)
    slurm.submitted_as = "busy"

    async def play() -> None:
        await engine.snapshot()
        await engine.execute(Start("late", 1, (Place("n3", "w", 1),)), a_job("late"))

        async def asked() -> list[tuple[str, ...]]:
            await engine.snapshot()
            return [words for words in slurm.asked if words[0] == "scancel"]

        assert await eventually_async(asked, what="it is not cancelled") == [("scancel", "--quiet", "101")]
        slurm.end("late", "cancelled")
        end = (await told(engine))[-1]
        assert isinstance(end, Failed)
        assert (end.fault, end.reason) == ("engine", "Slurm did not start it in 0.3 s (Resources)")

    run(engine, play)
    assert "Slurm has not started job late yet: Resources" in caplog.messages
