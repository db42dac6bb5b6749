"""Batch scripts and MPI on a real Slurm cluster: the number of ranks does not depend on where berth places a gang."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from berth.files.quantities import MILLI
from berth.live.clusters import NODE
from berth.live.core.events import Cancel, Failed, Finished, ServerChanged, Start, Started
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines.slurm.foreign_jobs import shares
from berth.live.engines.slurm.parsing import read_jobs
from berth.live.engines.slurm.submission import MIB
from tests.live.engines.slurm_site import LIMIT, Driver, SlurmSite, driven, needs_slurm
from tests.live.service.live import Live, serving

pytestmark = needs_slurm
EVEN = (Place("n3", "w", 2), Place("n4", "w", 2))
LARGE_FIRST = (Place("n3", "w", 4), Place("n4", "w", 3))
SMALL_FIRST = (Place("n3", "w", 1), Place("n4", "w", 3))
"""Slurm puts as many tasks on n3 as it can, so it runs 3 there and 1 on n4."""
LAYOUTS = pytest.mark.parametrize(
    "places", [EVEN, LARGE_FIRST, SMALL_FIRST], ids=["even", "large first", "small first"]
)
PROGRAM = (
    """
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* All nodes are one host, and mpirun hands on its own environment: the daemon above this process knows the node. */
static const char *node(void) {
    static char text[1 << 17];
    char path[64];
    for (int pid = getppid(); pid > 1;) {
        snprintf(path, sizeof path, "/proc/%d/environ", pid);
        FILE *file = fopen(path, "r");
        size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file) fclose(file);
        text[size] = 0;
        for (char *at = text; at < text + size; at += strlen(at) + 1)
            if (!strncmp(at, "BERTH_NODE=", strlen("BERTH_NODE="))) return at + strlen("BERTH_NODE=");
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        file = fopen(path, "r");
        if (!file || fscanf(file, "%*d (%*[^)]) %*c %d", &pid) != 1) pid = 0;
        if (file) fclose(file);
    }
    return "?";
}
int main(int argc, char **argv) {
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d on %s, sum %d\\n", rank, size, node(), sum);
    MPI_Finalize();
    return 0;
}
"""
).replace("BERTH_NODE", NODE)
OPENMPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "self,tcp",  # its shared memory takes nodes on one host for one node
}
LAUNCHERS = {
    "srun with PMI-2": ("mpich", "srun --mpi=pmi2"),
    "mpirun of MPICH": ("mpich", "mpirun.mpich"),
    "mpirun of Open MPI": ("openmpi", "mpirun.openmpi"),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A program for each MPI."""
    folder = tmp_path_factory.mktemp("mpi")
    (folder / "ranks.c").write_text(PROGRAM)
    for kind in ("mpich", "openmpi"):
        if shutil.which(f"mpicc.{kind}") is None:
            pytest.skip(f"mpicc.{kind} is not installed (python3 scripts/slurm.py install)")
        subprocess.run([f"mpicc.{kind}", "-o", f"ranks.{kind}", "ranks.c"], cwd=folder, check=True)
    return {kind: folder / f"ranks.{kind}" for kind in ("mpich", "openmpi")}


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """An id of a job that no other test of this cluster uses: Slurm remembers jobs of other tests."""
    return re.sub(r"\W+", "-", request.node.name).strip("-")


def gang(id: str, places: tuple[Place, ...], demand: Mapping[str, int] | None = None, **payload: object) -> Job:
    count = sum(place.count for place in places)
    return Job(id, "t", (Role("w", count, {"cpu": MILLI, **(demand or {})}),), payload={"workdir": "/", **payload})


async def printed(driver: Driver, job: Job, places: tuple[Place, ...]) -> list[str]:
    """What a job prints."""
    await driver.execute(Start(job.id, 1, places), job)
    end = await driver.ended(job.id)
    (attempt,) = [a for a in (await driver.look()).attempts if a.job == job.id]
    lines = Path(attempt.details["output"]).read_text().splitlines()
    assert isinstance(end, Finished), (end, lines)
    return lines


def held(site: SlurmSite, job: str) -> dict[str, dict[str, int]]:
    """What Slurm gives a job of each node."""
    found = read_jobs(site.cluster.ask("squeue", "--json", "--states=all"))
    return {name: amounts for one in found if f":{job}:1" in one.comment for name, amounts in shares(one).items()}


def cpus(found: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {name: amounts["cpu"] // MILLI for name, amounts in found.items()}


async def until_it_runs(driver: Driver, job: str) -> None:
    event = await driver.until(Started)
    assert isinstance(event, Started)
    assert event.job == job


@LAYOUTS
def test_srun_in_a_script_runs_all_tasks(site: SlurmSite, places: tuple[Place, ...]) -> None:
    total = sum(place.count for place in places)

    async def run() -> None:
        async with driven(site) as driver:
            script = "echo tasks $BERTH_TASKS $SLURM_NTASKS\nsrun sh -c 'echo $SLURM_PROCID on $SLURMD_NODENAME'\n"
            lines = await printed(driver, gang("script", places, script=script), places)
            assert lines[0] == f"tasks {total} {total}"
            assert sorted(line.split()[0] for line in lines[1:]) == [str(rank) for rank in range(total)]
            assert {line.split()[2] for line in lines[1:]} == {place.server for place in places}

    asyncio.run(run())


@LAYOUTS
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_mpi_in_a_script_has_all_ranks_on_their_nodes(
    site: SlurmSite, name: str, programs: dict[str, Path], places: tuple[Place, ...], launcher: str
) -> None:
    kind, command = LAUNCHERS[launcher]
    total = sum(place.count for place in places)

    async def run() -> None:
        async with driven(site) as driver:
            script = f"#!/bin/bash\n{command} {programs[kind]}\n"
            job = gang(name, places, script=script, environment=OPENMPI)
            lines = await printed(driver, job, places)
            ranks = [re.fullmatch(r"rank (\d+) of (\d+) on (\S+), sum (\d+)", line) for line in lines]
            found = sorted((int(r[1]), int(r[2]), int(r[4])) for r in ranks if r)
            assert found == [(rank, total, total * (total - 1) // 2) for rank in range(total)], lines
            assert Counter(r[3] for r in ranks if r) == cpus(held(site, name))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("places", "jobs"),
    [(LARGE_FIRST, 1), ((Place("n3", "w", 3), Place("n5", "w", 1)), 1), (SMALL_FIRST, 2)],
    ids=["full first node", "one task on the last node", "small first"],
)
def test_a_command_gets_the_counts_that_berth_chose(
    site: SlurmSite, name: str, places: tuple[Place, ...], jobs: int
) -> None:
    """In one Slurm job where Slurm chooses the same counts, and in a heterogeneous job where it does not."""

    async def run() -> None:
        async with driven(site) as driver:
            words = ["sh", "-c", "echo $BERTH_RANK of $BERTH_TASKS, $BERTH_ROLE on $BERTH_SERVER; exec sleep 600"]
            await driver.execute(Start(name, 1, places), gang(name, places, {"memory": 20 * MIB}, command=words))
            await until_it_runs(driver, name)
            counts = {place.server: place.count for place in places}
            assert len(site.numbers(name, 1)) == jobs
            expected = {node: {"cpu": n * MILLI, "memory": 20 * n * MIB} for node, n in counts.items()}
            assert held(site, name) == expected
            output = site.settings.outputs / f"{name}.1.out"
            while len(lines := output.read_text().splitlines()) < sum(counts.values()):
                await asyncio.sleep(0.05)
            assert Counter(line.split()[-1] for line in lines) == counts
            assert sorted(line.split()[0] for line in lines) == [str(rank) for rank in range(len(lines))]
            await driver.execute(Cancel(name, 1), None)
            await driver.ended(name)

    asyncio.run(run())


def test_what_a_neighbour_holds_decides_how_slurm_fills_nodes(site: SlurmSite) -> None:
    """With one CPU of n3 taken, 3 tasks on n3 and 4 on n4 are what Slurm chooses."""
    places = (Place("n3", "w", 3), Place("n4", "w", 4))

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(*site.simple("first", 600.0, Place("n3", "w", 1)))
            await until_it_runs(driver, "first")
            await driver.execute(Start("beside", 1, places), gang("beside", places, command=["sleep", "600"]))
            await until_it_runs(driver, "beside")
            assert len(site.numbers("beside", 1)) == 1
            assert cpus(held(site, "beside")) == {"n3": 3, "n4": 4}

    asyncio.run(run())


def test_counts_that_slurm_chose_otherwise_are_seen(site: SlurmSite) -> None:
    """Slurm runs 3 tasks of a script on n3, where berth chose 1: the other 2 are not offered to other jobs."""

    async def run() -> None:
        async with driven(site) as driver:
            job = gang("chosen", SMALL_FIRST, script="sleep 600\n")
            await driver.execute(Start("chosen", 1, SMALL_FIRST), job)
            await until_it_runs(driver, "chosen")
            assert cpus(held(site, "chosen")) == {"n3": 3, "n4": 1}
            while True:
                event = await driver.until(ServerChanged)
                assert isinstance(event, ServerChanged)
                if event.server.name == "n3" and event.server.taken:
                    break
            assert event.server.taken["cpu"] == 2 * MILLI

    asyncio.run(run())


def test_an_uneven_script_gets_memory_and_gpus_for_each_task(site: SlurmSite) -> None:
    """Memory per CPU is rounded up to whole MiB."""
    places = (Place("n1", "w", 2), Place("n2", "w", 1))
    demand = {"cpu": 2 * MILLI, "memory": 301 * MIB, "gpu": MILLI}

    async def run() -> None:
        async with driven(site) as driver:
            await driver.execute(Start("large", 1, places), gang("large", places, demand, script="sleep 600\n"))
            await until_it_runs(driver, "large")
            assert held(site, "large") == {
                "n1": {"cpu": 4 * MILLI, "memory": 604 * MIB, "gpu": 2 * MILLI},
                "n2": {"cpu": 2 * MILLI, "memory": 302 * MIB, "gpu": MILLI},
            }

    asyncio.run(run())


def test_scripts_that_no_single_allocation_can_run_are_refused(site: SlurmSite) -> None:
    licences = (Place("n1", "w", 2), Place("n2", "w", 1))
    roles = (Role("head", 1, {"cpu": MILLI}), Role("worker", 2, {"cpu": MILLI}))
    apart = (Place("n3", "head", 1), Place("n4", "worker", 2))

    async def run() -> None:
        async with driven(site) as driver:
            job = gang("licences", licences, {"licence": MILLI}, script="srun true\n")
            await driver.execute(Start("licences", 1, licences), job)
            await driver.execute(Start("roles", 1, apart), Job("roles", "t", roles, payload={"script": "srun true\n"}))
            for name, said in (("licences", "different amounts of licence"), ("roles", "roles (head, worker)")):
                end = await driver.ended(name)
                assert isinstance(end, Failed)
                assert end.fault == "job"
                assert said in end.reason

    asyncio.run(run())


SBATCH = "#!/bin/sh\n#SBATCH --time=90\n#SBATCH -c 2 --mem=4G\n#SBATCH --array=1-9\n"
ROLES = """
roles: {head: {resources: {cpu: 1}}, worker: {count: 2, resources: {cpu: 1}}}
script: srun hostname
"""


def submit(live: Live, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Give a file to `berth submit -f`."""
    (folder / "job").write_text(text)
    words = [sys.executable, "-m", "berth", "submit", "--url", live.url, "--name", "seven", "-f", "job"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=LIMIT)


def test_a_script_submitted_to_the_service(site: SlurmSite, tmp_path: Path) -> None:
    """What Slurm or berth would not do as the script says is refused at once or warned of; the rest runs."""
    settings = tmp_path / "slurm.yaml"
    settings.write_text(f"conf: {site.cluster.conf}\nspool: {tmp_path / 'spool'}\npoll: 0.5\n")
    with serving(tmp_path, "--engine", f"slurm:{settings}") as live:
        roles = submit(live, tmp_path, ROLES)
        assert roles.returncode == 2
        assert "several roles (head, worker)" in " ".join(roles.stderr.split())
        sbatch = submit(live, tmp_path, SBATCH + "srun hostname\n")
        assert sbatch.returncode == 2
        assert "job:2: got '#SBATCH --time=90', expected #BERTH lines" in " ".join(sbatch.stderr.split())
        assert live.ask("GET", "/v1/jobs")["jobs"] == []
        both = submit(live, tmp_path, SBATCH + "#BERTH -n 7 --resources=cpu=1\nsrun echo task\n")
        assert both.returncode == 0, both.stderr
        said = " ".join(both.stderr.split())
        assert "line 2 of its script, #SBATCH --time=90, is not read: #BERTH has --time too" in said
        assert "line 3 of its script, #SBATCH -c 2 --mem=4G, is not read: say what each task needs" in said
        assert "line 4 of its script, #SBATCH --array=1-9, is not read: berth has no option like --array" in said
        job = live.wait_for("/v1/jobs/seven", lambda found: found["phase"] in ("finished", "failed"))
        assert job["phase"] == "finished", job
        assert Path(job["details"]["output"]).read_text().splitlines() == ["task"] * 7
