"""Jobs that people give to Slurm with sbatch, in a partition that berth serves: a real cluster with the Lua snippet."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from berth.files.quantities import MILLI
from berth.live.core.events import Cancel, Cancelled, Failed, Finished, Start, Started, Submitted
from berth.live.core.jobs import Job, Place
from berth.live.engines.slurm.parsing import NUMBER
from berth.live.engines.slurm.submission import MIB, write_tag
from berth.traces.formats.slurm import expand_hosts
from tests.harness.invariants import InvariantBroken
from tests.harness.waiting import eventually_async
from tests.real.slurm.shared import COMPANION, SharedSlurm
from tests.real.slurm.site import Driver, SlurmSite, driven


@pytest.fixture
def site(cluster: SharedSlurm, tmp_path: Path) -> SlurmSite:
    found = SlurmSite(cluster, tmp_path)
    found.settings = found.settings.replace(companion=COMPANION, poll=0.3)
    return found


def sbatch(site: SlurmSite, *words: str, command: str = "sleep 600") -> str:
    """Submit as a person does; Slurm's number."""
    given = ["-p", "shared", "-o", "/dev/null", *words, "--wrap", command]
    return site.cluster.ask("sbatch", "--parsable", *given).strip()


async def submitted(driver: Driver) -> Job:
    event = await driver.until(Submitted)
    assert isinstance(event, Submitted)
    return event.job


def state(site: SlurmSite, number: str) -> str:
    return site.cluster.ask("squeue", "-h", "-t", "all", "-j", number, "-o", "%T %r").strip()


def test_from_sbatch_to_its_end(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            words = ["-N2", "--ntasks-per-node=2", "-c1", "--mem=300", "--gres=gpu:1", "-C", "fast", "-t", "10"]
            number = sbatch(site, *words, "--comment", "berth:type=resnet,work=2h", command="srun sleep 1")
            job = await submitted(driver)
            assert state(site, number).startswith("PENDING JobHeld")  # by the snippet: nobody said --hold
            assert (job.type, job.work, job.limit, job.origin) == ("resnet", 7200.0, 600.0, "slurm")
            assert (job.needs, job.user) == ({"fast": "yes", "partition.shared": "yes"}, "root")
            (role,) = job.roles
            assert (role.count, role.per_server) == (2, 1)
            assert role.demand == {"cpu": 2 * MILLI, "memory": 300 * MIB, "gpu": MILLI}
            assert [each.id for each in (await driver.look()).waiting] == [job.id]
            start = Start(job.id, 1, (Place("n2", "node", 1), Place("n1", "node", 1)))
            await driver.execute(start, job)
            await driver.execute(start, job)
            assert isinstance(await driver.until(Started), Started)
            assert site.cluster.ask("squeue", "-h", "-j", number, "-o", "%N").strip() == "n[1-2]"
            snapshot = await driver.look()
            assert snapshot.waiting == ()
            assert [(a.job, a.attempt, a.end) for a in snapshot.attempts] == [(job.id, 1, None)]
            assert isinstance(await driver.ended(job.id), Finished)
            assert not [event for event in driver.events if isinstance(event, Cancelled)]

    asyncio.run(run())


def test_people_and_berth_cancel(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            theirs = sbatch(site, "-n1")
            job = await submitted(driver)
            site.cluster.ask("scancel", theirs)
            event = await driver.until(Cancelled)
            assert isinstance(event, Cancelled)
            assert (event.job, event.by) == (job.id, "slurm")
            ours = sbatch(site, "-n1")
            job = await submitted(driver)
            await driver.execute(Cancel(job.id, 0), job)
            await driver.until(Cancelled)
            assert state(site, ours).startswith("CANCELLED")
            runs = sbatch(site, "-n1")
            job = await submitted(driver)
            await driver.execute(Start(job.id, 1, (Place("n3", "node", 1),)), job)
            await driver.until(Started)
            await driver.execute(Cancel(job.id, 1), job)
            end = await driver.ended(job.id)
            assert isinstance(end, Failed)
            assert end.fault == "cancelled"
            assert state(site, runs).startswith("CANCELLED")

    asyncio.run(run())


def test_a_job_that_only_used_up_a_number_is_never_taken(site: SlurmSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A berth that was killed may leave one behind, held as jobs of users are; it is cancelled in the end."""

    async def run() -> None:
        number = sbatch(site, "--hold", "-n1", f"--job-name={NUMBER}")
        async with driven(site) as driver:
            assert driver.spells[0].snapshot.waiting == ()
            sbatch(site, "-n1", "--job-name=theirs")
            job = await submitted(driver)
            assert job.type == "theirs"
            assert [each.id for each in (await driver.look()).waiting] == [job.id]
            assert state(site, number).startswith("PENDING")
            monkeypatch.setattr("berth.live.engines.slurm.watch.FORGOTTEN", 0.0)
            await eventually_async(lambda: state(site, number), lambda said: said.startswith("CANCELLED"))
            assert not [e for e in driver.events if isinstance(e, Submitted) and e.job.id != job.id]

    asyncio.run(run())


def test_a_comment_that_names_a_job_of_another(site: SlurmSite) -> None:
    """Users write the comments of their jobs: none becomes an attempt of another job."""

    async def run() -> None:
        async with driven(site) as driver:
            first = sbatch(site, "-n1")
            job = await submitted(driver)
            instance = (site.settings.spool / "instance").read_text().strip()
            forged = sbatch(site, "--hold", "-n1", f"--comment={write_tag(instance, job.id, 1)}")
            await driver.look()
            await driver.execute(Start(job.id, 1, (Place("n3", "node", 1),)), job)
            await driver.until(Started)
            assert state(site, first).startswith("RUNNING")
            if not (said := state(site, forged)).startswith("PENDING JobHeld"):
                raise InvariantBroken(f"a job that only names another one was touched: {said}")
            assert (await driver.look()).waiting == ()

    asyncio.run(run())


def test_a_job_that_is_requeued_waits_again(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            number = sbatch(site, "-n1", "--requeue", command="test $SLURM_RESTART_COUNT || exec sleep 600")
            job = await submitted(driver)
            await driver.execute(Start(job.id, 1, (Place("n4", "node", 1),)), job)
            await driver.until(Started)
            site.cluster.ask("scontrol", "requeue", number)
            end = await driver.ended(job.id)
            assert isinstance(end, Failed)
            assert (end.fault, end.reason) == ("engine", "Slurm put it back into its queue")
            again = await submitted(driver)
            assert again.id == job.id
            assert state(site, number).startswith("PENDING JobHeld")
            assert [each.id for each in (await driver.look()).waiting] == [job.id]
            await driver.execute(Start(job.id, 2, (Place("n5", "node", 1),)), job)
            assert isinstance(await driver.ended(job.id, 2), Finished)
            assert site.cluster.ask("squeue", "-h", "-t", "all", "-j", number, "-o", "%N").strip() == "n5"

    asyncio.run(run())


def test_a_job_that_slurm_does_not_start_waits_again(site: SlurmSite) -> None:
    site.settings = site.settings.replace(patience=4.0)

    async def run() -> None:
        async with driven(site) as driver:
            site.cluster.ask(
                "sbatch", "-p", "main", "-w", "n6", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 600"
            )
            sbatch(site, "-n1", command="true")
            job = await submitted(driver)
            await driver.execute(Start(job.id, 1, (Place("n6", "node", 1),)), job)
            end = await driver.ended(job.id)
            assert isinstance(end, Failed)
            assert end.fault == "engine"
            await driver.execute(Start(job.id, 2, (Place("n3", "node", 1),)), job)
            assert isinstance(await driver.ended(job.id, 2), Finished)

    asyncio.run(run())


def test_a_new_driver_knows_what_waits_and_runs(site: SlurmSite) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            sbatch(site, "-n1")
            runs = await submitted(driver)
            await driver.execute(Start(runs.id, 1, (Place("n3", "node", 1),)), runs)
            await driver.until(Started)
            sbatch(site, "-n1")
            waits = await submitted(driver)
            await driver.close()
            found = await driver.open()
            assert [job.id for job in found.waiting] == [waits.id]
            assert [(a.job, a.attempt) for a in found.attempts] == [(runs.id, 1)]

    asyncio.run(run())


def test_a_job_is_taken_when_it_may_run(site: SlurmSite) -> None:
    """One with a time to begin at is held, and taken when that has come; it is another job to berth each time."""

    async def run() -> None:
        async with driven(site) as driver:
            number = sbatch(site, "-n1", "--begin=now+1hour", command="true")
            other = sbatch(site, "-n1")
            assert state(site, number).startswith("PENDING JobHeld")
            assert (await submitted(driver)).id.startswith(f"slurm-{other}-")
            assert [job.id.split("-")[1] for job in (await driver.look()).waiting] == [other]
            site.cluster.ask("scontrol", "update", f"JobId={number}", "StartTime=now")
            job = await submitted(driver)
            assert job.id.startswith(f"slurm-{number}-")
            site.cluster.ask("scontrol", "update", f"JobId={number}", "StartTime=now+1hour")
            await driver.until(Cancelled)
            site.cluster.ask("scontrol", "update", f"JobId={number}", "StartTime=now+1")
            again = await submitted(driver)
            assert again.id != job.id
            await driver.execute(Start(again.id, 1, (Place("n3", "node", 1),)), again)
            assert isinstance(await driver.ended(again.id), Finished)

    asyncio.run(run())


LEFT = {
    "an array": ["--array=1-3"],
    "several components": ["-n1", ":", "-p", "shared", "-n2"],
    "a dependency": ["--dependency=afterany:1"],
    "nodes of its own": ["-w", "n3"],
    "nodes to avoid": ["-x", "n3"],
    "--exclusive": ["-N2", "--exclusive"],
    "--exclusive or": ["--exclusive=user"],
    "or --oversubscribe": ["-s"],
    "a fixed number of nodes": ["-N", "1-3"],
    "features that each node must have": ["-C", "fast|class=big"],
    "with & between": ["-C", "fast*1"],
    "a reservation": ["--reservation=kept"],
    "licences": ["-L", "matlab:1"],
    "nodes side by side": ["-N2", "--contiguous"],
    "features to prefer": ["--prefer=fast"],
    "all memory": ["--mem=0"],
    "one node (-N 1) where GPUs": ["--gpus=2"],
    "where GPUs are asked for per job or task": ["-N2", "-n2", "--gpus-per-task=1"],
    "memory per GPU": ["-N1", "--gpus=1", "--mem-per-gpu=100"],
    "CPUs per GPU": ["-N1", "--gpus=1", "--cpus-per-gpu=1"],
    "threads of a core": ["--hint=nomultithread"],
    "sockets": ["-B", "1:1"],
    "tasks per core": ["--ntasks-per-core=1"],
}
"""What berth has no words for, with words of its warning."""


def test_what_berth_has_no_words_for_is_left_to_slurm(site: SlurmSite, caplog: pytest.LogCaptureFixture) -> None:
    """The snippet does not hold it, and where somebody else does, it stays held, with one warning."""
    later = "--begin=now+1hour"  # so that nothing of it runs
    words = ["ReservationName=kept", "StartTime=now", "Duration=60", "Users=root", "Nodes=n6"]
    site.cluster.ask("scontrol", "create", "reservation", *words)

    async def run() -> None:
        async with driven(site) as driver:
            # a list that Slurm holds itself would prove nothing
            free = {said: sbatch(site, later, *_each(words, later)) for said, words in LEFT.items()}
            held = {said: sbatch(site, "--hold", *_each(words, "--hold")) for said, words in LEFT.items()}
            taken = sbatch(site, "-n1")
            assert (await submitted(driver)).id.startswith(f"slurm-{taken}-")
            assert [job.id.split("-")[1] for job in (await driver.look()).waiting] == [taken]
            assert {said for said, number in free.items() if "JobHeld" in state(site, number)} == set()
            assert {said for said, number in held.items() if "JobHeld" not in state(site, number)} == set()
            for said, number in held.items():
                lines = [
                    line for line in caplog.messages if line.startswith(f"job {number} waits in Slurm and is ignored")
                ]
                assert len(lines) == 1, said
                assert said in lines[0]

    asyncio.run(run())


def _each(words: list[str], option: str) -> list[str]:
    """An option for every component of a job."""
    return [part for word in words for part in ([":", option] if word == ":" else [word])]


@pytest.mark.parametrize(
    ("words", "places", "booked"),
    [
        (["-N2", "-n4"], ["n3", "n4"], 2),  # by itself Slurm gives three of one and one of the other
        (["-N2", "-n5"], ["n3", "n4"], 3),
        (["-n2"], ["n5"], 2),
        (["-N1", "--mincpus=2"], ["n5"], 2),
        (["-n8", "--overcommit", "-N2"], ["n1", "n2"], 1),
        (["-N1", "-n2", "--gpus-per-task=1"], ["n2"], 2),
        (["-N1", "--gpus=2"], ["n1"], 1),
    ],
)
def test_slurm_gives_what_was_booked(site: SlurmSite, words: list[str], places: list[str], booked: int) -> None:
    async def run() -> None:
        async with driven(site) as driver:
            number = sbatch(site, *words)
            job = await submitted(driver)
            (role,) = job.roles
            assert (role.count, role.demand["cpu"]) == (len(places), booked * MILLI)
            await driver.execute(Start(job.id, 1, tuple(Place(name, "node", 1) for name in places)), job)
            await driver.until(Started)
            said = site.cluster.ask("scontrol", "-d", "-o", "show", "job", number)
            given = {
                name: (cpus, memory, gres)
                for names, ids, memory, gres in re.findall(r"Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)", said)
                for name in expand_hosts(names)
                for cpus in [len(expand_hosts(f"[{ids}]"))]
            }
            assert {name: cpus for name, (cpus, _, _) in given.items()} == dict.fromkeys(places, booked)
            assert {memory for _, memory, _ in given.values()} == {str(role.demand["memory"] // MIB)}
            gpus = [sum(map(int, re.findall(r"gpu:(\d+)", gres))) for _, _, gres in given.values()]
            assert gpus == [role.demand.get("gpu", 0) // MILLI] * len(places)

    asyncio.run(run())


def test_what_is_not_taken(site: SlurmSite) -> None:
    """Jobs of other partitions and jobs of berth itself run as ever."""

    async def run() -> None:
        async with driven(site) as driver:
            other = site.cluster.ask("sbatch", "--parsable", "-p", "main", "-o", "/dev/null", "--wrap", "true").strip()
            await driver.execute(*site.simple("own", 0.5, Place("n1", "w", 1)))
            assert isinstance(await driver.ended("own"), Finished)
            await eventually_async(lambda: state(site, other), lambda said: said.startswith("COMPLETED"))
            assert (await driver.look()).waiting == ()

    asyncio.run(run())


def test_jobs_of_the_default_partition_are_held_where_it_is_the_one(site: SlurmSite) -> None:
    def given() -> str:
        return state(site, site.cluster.ask("sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true").strip())

    async def run() -> None:
        async with driven(site) as driver:
            assert "JobHeld" not in given()
            site.cluster.ask("scontrol", "update", "PartitionName=shared", "Default=YES")
            assert given().startswith("PENDING JobHeld")
            await submitted(driver)

    asyncio.run(run())


def test_own_jobs_in_the_same_partition_are_not_held(site: SlurmSite) -> None:
    site.settings = site.settings.replace(partition="shared")

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(*site.simple("own-2", 0.5, Place("n1", "w", 1)))
            assert isinstance(await driver.ended("own-2"), Finished)
            assert not [event for event in driver.events if isinstance(event, Submitted)]

    asyncio.run(run())


def test_nodes_on_which_own_jobs_could_not_run_are_no_servers(
    site: SlurmSite, caplog: pytest.LogCaptureFixture
) -> None:
    site.settings = site.settings.replace(partition="narrow")

    async def run() -> None:
        async with driven(site) as driver:
            assert sorted(server.name for server in (await driver.look()).servers) == ["n3", "n4"]
            number = sbatch(site, "-N1", command="sleep 0.1")
            job = await submitted(driver)
            await driver.execute(Start(job.id, 1, (Place("n4", "node", 1),)), job)
            assert isinstance(await driver.ended(job.id), Finished)
            assert site.cluster.ask("squeue", "-h", "-t", "all", "-j", number, "-o", "%N").strip() == "n4"

    asyncio.run(run())
    said = (
        "nodes of partition shared that are not in partition narrow (`partition`) are not used: n1, n2, n5, n6, n7, …"
    )
    assert said in caplog.messages
