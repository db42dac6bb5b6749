"""Refusals of Slurm that are not the job's fault: no job fails, submissions pause, and all go on afterwards."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from berth.live.core.events import Failed, Start
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines import Paused
from berth.live.engines.slurm import SlurmEngine, SlurmSettings
from berth.live.engines.slurm.commands import Away, Refused, failure
from berth.live.engines.slurm.pauses import FIRST, LONGEST, Pauses, fault_of
from tests.live.engines.slurm_in_memory import SlurmInMemory

FAILED = "sbatch: error: Batch job submission failed: "
TRANSIENT = [
    "I/O error writing script/environment to file",
    "No space left on device",
    "Resource temporarily unavailable",
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
    "Requested partition configuration not available now",
    "Required partition not available (inactive or drain)",
    "Partition in DOWN state",
    "Unspecified error",
    "Unable to create job record, try again",
    "MaxJobCount limit reached",
    "Rate limit exceeded, please retry momentarily",
    "System submissions disabled",
    "Invalid account or account/partition combination specified",
    "Invalid qos specification",
    "Invalid user id",
    "Access/permission denied",
    "Licenses currently unavailable",
    "Slurm internal error, contact system administrator",
    "Something that no version of Slurm has said so far",
]
ROLE = (Role("w", 1, {"cpu": 1000}),)


class Clock:
    """A clock that stands still until it is set on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def start(name: str) -> tuple[Start, Job]:
    return Start(name, 1, (Place("n1", "w", 1),)), Job(name, "t", ROLE, payload={"command": ["true"]})


@asynccontextmanager
async def engine(slurm: SlurmInMemory, folder: Path, clock: Clock) -> AsyncIterator[SlurmEngine]:
    made = SlurmEngine(SlurmSettings(spool=folder / "spool"), slurm)
    made._pauses = Pauses(clock)
    await made.snapshot()
    try:
        yield made
    finally:
        await made.close()


async def ends(one: SlurmEngine) -> dict[str, str]:
    """By whose fault attempts have failed, by job."""
    attempts = (await one.snapshot()).attempts
    return {each.job: each.end.fault for each in attempts if isinstance(each.end, Failed)}


@pytest.mark.parametrize("said", TRANSIENT)
def test_a_refusal_that_may_not_be_the_jobs_fault_pauses_submissions(said: str, tmp_path: Path) -> None:
    async def run() -> None:
        slurm, clock = SlurmInMemory(getpass.getuser()), Clock()
        slurm.errors = [failure("sbatch", f"{FAILED}{said}")]
        async with engine(slurm, tmp_path, clock) as one:
            await one.execute(*start("a"))
            assert await ends(one) == {"a": "engine"}
            with pytest.raises(Paused) as paused:
                await one.execute(*start("b"))
            assert paused.value.seconds == FIRST
            assert slurm.submitted == ["a"]
            assert said in (one.paused or "")
            clock.now += FIRST
            await one.execute(*start("b"))
            await one.execute(*start("c"))
            assert slurm.submitted == ["a", "b", "c"]
            assert await ends(one) == {"a": "engine"}
            assert one.paused is None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("sbatch: error: Batch script is empty!", "job"),
        ("sbatch: error: Batch script contains DOS line breaks (\\r\\n)", "job"),
        (f"{FAILED}Pathname of a file, directory or other parameter too long", "job"),
        (f"{FAILED}Requested node configuration is not available", "server"),
        (f"{FAILED}Memory required by task is not available", "server"),
        (f"{FAILED}Invalid generic resource (gres) specification", "server"),
    ],
)
def test_other_refusals_do_not_pause_submissions(said: str, fault: str, tmp_path: Path) -> None:
    async def run() -> None:
        slurm = SlurmInMemory(getpass.getuser())
        slurm.errors = [failure("sbatch", said)]
        async with engine(slurm, tmp_path, Clock()) as one:
            await one.execute(*start("a"))
            await one.execute(*start("b"))
            assert await ends(one) == {"a": fault}
            assert one.paused is None

    asyncio.run(run())


def test_a_time_limit_is_the_jobs_fault_only_if_it_has_one() -> None:
    said = "Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)"
    assert (fault_of(said, True), fault_of(said, False)) == ("job", "engine")


def test_an_outage_costs_one_attempt_a_pause_and_pauses_grow_up_to_a_bound(tmp_path: Path) -> None:
    async def run() -> None:
        slurm, clock = SlurmInMemory(getpass.getuser()), Clock()
        slurm.always = Refused("sbatch: Batch job submission failed: No space left on device")
        async with engine(slurm, tmp_path, clock) as one:
            pauses = []
            for i in range(8):
                for j in range(50):  # all of the queue tries
                    try:
                        await one.execute(*start(f"j{i}-{j}"))
                    except Paused as error:
                        pauses.append(error.seconds)
                        last = error.seconds
                clock.now += last
            assert len(slurm.submitted) == 8
            assert sorted(set(pauses)) == [1.0, 2.0, 4.0, 8.0, 16.0, LONGEST]
            slurm.always = None
            for j in range(50):
                await one.execute(*start(f"k-{j}"))
            assert set((await ends(one)).values()) == {"engine"}
            assert len(await ends(one)) == 8

    asyncio.run(run())


def test_a_submission_without_an_answer_pauses_the_others(tmp_path: Path) -> None:
    """Its attempt is not over: Slurm may have taken it."""

    async def run() -> None:
        slurm, clock = SlurmInMemory(getpass.getuser()), Clock()
        slurm.errors = [Away("sbatch did not end in 20 s", heard=True)]
        async with engine(slurm, tmp_path, clock) as one:
            with pytest.raises(Away):
                await one.execute(*start("a"))
            with pytest.raises(Paused):
                await one.execute(*start("b"))
            assert await ends(one) == {}

    asyncio.run(run())


def test_one_submission_at_a_time_shows_whether_slurm_takes_jobs_again() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    with pauses.turn("") as first, pauses.turn("") as second:  # sent before anything was refused
        first.refusal = second.refusal = "no"
    clock.now += FIRST
    with pauses.turn("") as turn:
        with pytest.raises(Paused), pauses.turn(""):
            pass
        turn.refusal = "no"
    with pytest.raises(Paused) as paused:
        pauses.check("")
    assert paused.value.seconds == 2 * FIRST
    clock.now += 2 * FIRST
    with pauses.turn("") as turn:  # neither: it was the job's fault
        pass
    with pauses.turn("") as turn:
        turn.taken = True
    with pauses.turn(""), pauses.turn(""):
        assert pauses.said is None


def test_users_pause_apart() -> None:
    pauses = Pauses(Clock())
    with pauses.turn("ann") as turn:
        turn.refusal = "QOSMaxSubmitJobPerUserLimit"
    with pauses.turn("bob") as turn:
        turn.taken = True
    with pytest.raises(Paused, match="as ann pause, and one is tried in 1 s: QOSMaxSubmitJobPerUserLimit"):
        pauses.check("ann")


def test_a_pause_ends_by_itself_if_nothing_is_submitted_any_more() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    with pauses.turn("") as turn:
        turn.refusal = "no"
    clock.now += FIRST
    assert pauses.said == "submissions to Slurm pause, and one is tried now: no"
    clock.now += LONGEST
    assert pauses.said is None
    pauses.check("")
    with pauses.turn("") as turn:
        turn.refusal = "no"
    with pytest.raises(Paused) as paused:
        pauses.check("")
    assert paused.value.seconds == FIRST
