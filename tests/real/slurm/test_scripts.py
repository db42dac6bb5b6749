"""Batch scripts and MPI on a real Slurm cluster: the number of ranks does not depend on where berth places a gang."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from berth.files.quantities import MILLI
from berth.live.clusters import NODE
from berth.live.core.events import Cancel, Finished, Start, Started
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines.slurm.foreign_jobs import shares
from berth.live.engines.slurm.parsing import read_jobs
from berth.live.engines.slurm.submission import MIB
from tests.harness.waiting import eventually_async
from tests.real.slurm.site import Driver, SlurmSite, driven

EVEN = (Place("n3", "w", 2), Place("n4", "w", 2))
LARGE_FIRST = (Place("n3", "w", 4), Place("n4", "w", 3))
SMALL_FIRST = (Place("n3", "w", 1), Place("n4", "w", 3))
"""Slurm puts as many tasks on n3 as it can, so it runs 3 there and 1 on n4."""
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
    found, numbers = read_jobs(site.cluster.ask("squeue", "--json", "--states=all")), site.ids(job, 1)
    return {name: amounts for one in found if one.id in numbers for name, amounts in shares(one).items()}


def cpus(found: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {name: amounts["cpu"] // MILLI for name, amounts in found.items()}


async def until_it_runs(driver: Driver, job: str) -> None:
    event = await driver.until(Started)
    assert isinstance(event, Started)
    assert event.job == job


@pytest.mark.parametrize("places", [EVEN, LARGE_FIRST, SMALL_FIRST], ids=["even", "large first", "small first"])
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


@pytest.mark.parametrize(
    "places",
    [pytest.param(EVEN, marks=pytest.mark.slow), pytest.param(LARGE_FIRST, marks=pytest.mark.slow), SMALL_FIRST],
    ids=["even", "large first", "small first"],
)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_mpi_in_a_script_has_all_ranks_on_their_nodes(
    site: SlurmSite, programs: dict[str, Path], places: tuple[Place, ...], launcher: str
) -> None:
    kind, command = LAUNCHERS[launcher]
    total = sum(place.count for place in places)

    async def run() -> None:
        async with driven(site) as driver:
            script = f"#!/bin/bash\n{command} {programs[kind]}\n"
            job = gang("mpi", places, script=script, environment=OPENMPI)
            lines = await printed(driver, job, places)
            ranks = [re.fullmatch(r"rank (\d+) of (\d+) on (\S+), sum (\d+)", line) for line in lines]
            found = sorted((int(r[1]), int(r[2]), int(r[4])) for r in ranks if r)
            assert found == [(rank, total, total * (total - 1) // 2) for rank in range(total)], lines
            assert Counter(r[3] for r in ranks if r) == cpus(held(site, "mpi"))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("places", "jobs"),
    [(LARGE_FIRST, 1), ((Place("n3", "w", 3), Place("n5", "w", 1)), 1), (SMALL_FIRST, 2)],
    ids=["full first node", "one task on the last node", "small first"],
)
def test_a_command_gets_the_counts_that_berth_chose(site: SlurmSite, places: tuple[Place, ...], jobs: int) -> None:
    """In one Slurm job where Slurm chooses the same counts, and in a heterogeneous job where it does not."""

    async def run() -> None:
        async with driven(site) as driver:
            words = ["sh", "-c", "echo $BERTH_RANK of $BERTH_TASKS, $BERTH_ROLE on $BERTH_SERVER; exec sleep 600"]
            await driver.execute(
                Start("counts", 1, places), gang("counts", places, {"memory": 20 * MIB}, command=words)
            )
            await until_it_runs(driver, "counts")
            counts = {place.server: place.count for place in places}
            assert len(site.numbers("counts", 1)) == jobs
            expected = {node: {"cpu": n * MILLI, "memory": 20 * n * MIB} for node, n in counts.items()}
            assert held(site, "counts") == expected
            output = site.settings.outputs / "counts.1.out"
            lines = await eventually_async(
                lambda: output.read_text().splitlines(), lambda found: len(found) >= sum(counts.values()), "its output"
            )
            assert Counter(line.split()[-1] for line in lines) == counts
            assert sorted(line.split()[0] for line in lines) == [str(rank) for rank in range(len(lines))]
            await driver.execute(Cancel("counts", 1), None)
            await driver.ended("counts")

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
            taken = (await driver.changed("n3", lambda server: server.taken)).taken
            assert taken["cpu"] == 2 * MILLI

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
