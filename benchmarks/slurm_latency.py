"""What berth adds to Slurm: `python -m benchmarks.slurm_latency`.

One local cluster of 8 nodes, one `berth serve` on it. Gangs go through berth, and then the same gangs, with the nodes
and the tasks on each that berth chose, straight to `sbatch`; in turns, block by block, so that both meet the same
machine. Times are those that the tasks themselves write down. Where nodes have different numbers of tasks, both ways
make heterogeneous jobs: only these hold on each node what was asked (`--distribution=arbitrary` places tasks, and Slurm
22.05 may still allocate the CPUs of another node).

* From decision to start: gangs come one by one to a cluster with room. Through berth from the time of the decision in
  the journal to the first task, and straight from the call of `sbatch` to the first task.
* Gangs a minute: many gangs at once, more than fit. Through berth from the request to the end of the last, and straight
  from the first of the calls of `sbatch`, eight at a time, to the end of the last.
* From one end to the next start: gangs that take a whole node each, several for every node, submitted together. From
  the end of each gang to the start of the next one on its node. Through berth this has two parts: until the decision
  (Slurm's report, berth's reading of it), and from there to the start. Straight, all gangs wait inside Slurm.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.real_clusters import CPUS, Place, cluster, lines, served, wait_until_all
from berth.live.twin.runs import Runner
from berth.live.twin.streams import Gang
from berth.random import stream
from tests.live.service.live import Live

__all__ = ["main"]

NODES = 8
PATIENCE = 600.0
GAP = (5**0.5 - 1) / 2
"""Seconds between gangs that come one by one. Slurm starts jobs once a second, so that most of the time is spent with
waiting for that; after golden sections of a second, gangs come at all times within it alike."""
Nodes = list[tuple[str, int]]
"""Nodes and how many tasks each has."""


def some_gangs(seed: int, block: str, count: int, seconds: float) -> list[Gang]:
    """Gangs of 1 to 4 tasks that run for so long wherever they are."""
    rng = stream(seed, "slurm-latency", block)
    sizes = rng.integers(1, 5, count).tolist()
    return [Gang(f"{block}-{i}", "t", tasks, 0.0, 1.0, dict.fromkeys("abc", seconds)) for i, tasks in enumerate(sizes)]


def spec(place: Place, gang: Gang) -> dict[str, object]:
    """A gang as a job for berth."""
    return {"name": gang.name, "tasks": gang.tasks, "resources": {"cpu": 1}, "command": place.command(gang)}


def straight(place: Place, gang: Gang, name: str, nodes: Nodes) -> None:
    """Submit a gang to Slurm with these nodes."""
    line = " ".join(place.command(gang)).replace(f" {gang.name} ", f" {name} ")
    alike: dict[int, list[str]] = {}
    for node, count in nodes:
        alike.setdefault(count, []).append(node)
    command = ["sbatch", "-Q"]
    for i, (count, names) in enumerate(alike.items()):
        command += [":"] if i else []
        command += ["-c", "1", "-o", "/dev/null", "-N", str(len(names)), "-w", ",".join(names)]
        command += ["--ntasks-per-node", str(count)]
    groups = f"--het-group={','.join(str(i) for i in range(len(alike)))} " if len(alike) > 1 else ""
    subprocess.run([*command, "--wrap", f"srun {groups}{line}"], env=place.environment, check=True)


def began(place: Place) -> dict[str, float]:
    """When the first task of each gang began."""
    found: dict[str, float] = {}
    for gang, _, begin, _ in lines(place):
        found[gang] = min(float(begin), found.get(gang, float("inf")))
    return found


def ended(place: Place, names: set[str]) -> float:
    """When the last task of these gangs ended."""
    return max(float(end) for gang, _, _, end in lines(place) if gang in names)


def chosen(live: Live, gangs: Sequence[Gang]) -> dict[str, tuple[float, Nodes]]:
    """When berth decided about each gang, and on which nodes."""
    found: dict[str, tuple[float, Nodes]] = {}
    wanted = {gang.name for gang in gangs}
    for decided in live.ask("GET", "/v1/decisions?limit=1000"):
        for start in decided["starts"]:
            if start["job"] in wanted:
                nodes = [(place["server"], place["tasks"]) for place in start["places"]]
                found[start["job"]] = datetime.fromisoformat(decided["time"]).timestamp(), nodes
    return found


def now_and_then(gangs: Sequence[Gang]) -> Iterator[Gang]:
    """Gangs, each when it is time for it."""
    began = time.time()
    for i, gang in enumerate(gangs):
        time.sleep(max(began + i * GAP - time.time(), 0.0))
        yield gang


def one_by_one(place: Place, live: Live, seed: int, block: int, count: int) -> tuple[list[float], list[float]]:
    """Seconds from decision to start, through berth and straight."""
    gangs = some_gangs(seed, f"lone{block}", count, 0.3)
    before = len(lines(place))
    for gang in now_and_then(gangs):
        live.ask("POST", "/v1/jobs", spec(place, gang))
    wait_for(place, before + sum(gang.tasks for gang in gangs))
    where = chosen(live, gangs)
    called = {}
    for gang in now_and_then(gangs):
        name = f"s{gang.name}"
        called[name] = time.time()
        straight(place, gang, name, where[gang.name][1])
    wait_for(place, before + 2 * sum(gang.tasks for gang in gangs))
    first = began(place)
    return (
        [first[gang.name] - where[gang.name][0] for gang in gangs],
        [first[name] - at for name, at in called.items()],
    )


def all_at_once(place: Place, live: Live, seed: int, block: int, count: int) -> tuple[float, float]:
    """Seconds that many gangs take, through berth and straight."""
    gangs = some_gangs(seed, f"many{block}", count, 1.0)
    before, tasks = len(lines(place)), sum(gang.tasks for gang in gangs)
    at = time.time()
    live.ask("POST", "/v1/jobs", [spec(place, gang) for gang in gangs])
    wait_for(place, before + tasks)
    through = ended(place, {gang.name for gang in gangs}) - at
    where = chosen(live, gangs)
    order = sorted(gangs, key=lambda gang: where[gang.name][0])
    at = time.time()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda gang: straight(place, gang, f"s{gang.name}", where[gang.name][1]), order))
    wait_for(place, before + 2 * tasks)
    return through, ended(place, {f"s{gang.name}" for gang in gangs}) - at


def handovers(place: Place, names: set[str]) -> list[tuple[float, float, str]]:
    """On each node the end of a gang, the start of the next, and the name of that."""
    on: dict[str, dict[str, tuple[float, float]]] = {}
    for gang, node, begin, end in lines(place):
        if gang in names:
            first, last = on.setdefault(node, {}).get(gang, (float("inf"), 0.0))
            on[node][gang] = min(first, float(begin)), max(last, float(end))
    found = []
    for gangs in on.values():
        order = sorted(gangs, key=lambda gang: gangs[gang])
        found += [(gangs[one][1], gangs[two][0], two) for one, two in itertools.pairwise(order)]
    return found


def in_turn(place: Place, live: Live, block: int, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Seconds between gangs on a node: until berth's decision, from there to the start, and straight."""
    gangs = [Gang(f"turn{block}-{i}", "t", CPUS, 0.0, 1.0, dict.fromkeys("abc", 1.0)) for i in range(rounds * NODES)]
    before, tasks = len(lines(place)), CPUS * len(gangs)
    live.ask("POST", "/v1/jobs", [spec(place, gang) for gang in gangs])
    wait_for(place, before + tasks)
    where = chosen(live, gangs)
    through = handovers(place, {gang.name for gang in gangs})
    for gang in gangs:
        straight(place, gang, f"s{gang.name}", where[gang.name][1])
    wait_for(place, before + 2 * tasks)
    alone = handovers(place, {f"s{gang.name}" for gang in gangs})
    return (
        [where[name][0] - end for end, _, name in through],
        [begin - where[name][0] for _, begin, name in through],
        [begin - end for end, begin, _ in alone],
    )


def wait_for(place: Place, tasks: int) -> None:
    """Wait until so many tasks have ended."""
    wait_until_all(place, [Gang("", "", tasks, 0.0, 0.0, {})], PATIENCE)


def main() -> None:
    """Measure, and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--lone", type=int, default=40, help="gangs of a block that come one by one")
    parser.add_argument("--many", type=int, default=80, help="gangs of a block that come together")
    parser.add_argument("--rounds", type=int, default=5, help="gangs of a block for each node, in turn")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    console = Console()
    lone: tuple[list[float], list[float]] = ([], [])
    many: list[tuple[float, float]] = []
    turns: tuple[list[float], list[float], list[float]] = ([], [], [])
    with cluster("slurm", NODES) as place, served(place, Runner("best-fit")) as live:
        for block in range(given.blocks):
            for all_, mine in zip(lone, one_by_one(place, live, given.seed, block, given.lone), strict=True):
                all_ += mine
            many.append(all_at_once(place, live, given.seed, block, given.many))
            for all_, mine in zip(turns, in_turn(place, live, block, given.rounds), strict=True):
                all_ += mine
            medians = [float(np.median(times)) for times in lone]
            console.print(
                f"block {block}: {medians[0]:.3f} and {medians[1]:.3f} s; {many[-1][0]:.1f} and {many[-1][1]:.1f} s"
            )
    table = Table("", "through berth", "straight to Slurm", "ratio")
    for name, of in (("median", np.median), ("mean", np.mean), ("95 %", lambda times: np.percentile(times, 95))):
        through, alone = (float(of(times)) for times in lone)
        table.add_row(f"decision to start, {name} (s)", f"{through:.3f}", f"{alone:.3f}", f"{through / alone:.2f}")
    through, alone = (60.0 * given.many * len(many) / sum(pair[i] for pair in many) for i in (0, 1))
    table.add_row("gangs a minute", f"{through:.0f}", f"{alone:.0f}", f"{alone / through:.2f} times as long")
    decided, started, alone_ = (float(np.mean(times)) for times in turns)
    whole = decided + started
    table.add_row("end to next start, mean (s)", f"{whole:.3f}", f"{alone_:.3f}", f"{whole / alone_:.2f}")
    table.add_row("  end to decision", f"{decided:.3f}", "", "")
    table.add_row("  decision to start", f"{started:.3f}", "", "")
    console.print(table)


if __name__ == "__main__":
    main()
