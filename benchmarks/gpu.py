"""Time of an allocation slot on a GPU, beside the CPU kernel: `python -m benchmarks.gpu` (`--quick`: three sizes).

A slot is that of `benchmarks.slot`: the reward of the decision, its gradient, and the exact projection of the step,
here with AdaGrad's step size. Both sides play the same scenario (1,000 ports at ten a server, fewer below 10,000
servers) and the largest difference of their rewards is printed. Traffic is what a slot must read and write, each
number once; its limit is a copy measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.slot import median_time
from berth.cuda import CudaDevice, open_device
from berth.families.allocation.cuda.batch import Batch
from berth.families.allocation.cuda.slots import SlotRuns
from berth.families.allocation.policies.ogasched import OGASched
from berth.families.allocation.problem import AllocationOutcome, AllocationSlot
from berth.families.allocation.world import AllocationWorld
from berth.scenario import load_scenario

SIZES = [128, 1_024, 10_000, 30_000, 100_000, 300_000, 1_000_000]
GOALS = {10_000: (20.0, 40.0), 100_000: (60.0, 150.0), 1_000_000: (600.0, 1500.0)}
CPU_SLOTS = {128: 400, 1_024: 200, 10_000: 30, 30_000: 12, 100_000: 5}
SECONDS = 0.15  # of one timed round


def world_of(servers: int, slots: int = 400) -> AllocationWorld:
    """A scenario of this size; arrivals are hidden."""
    ports, density = (10, 3) if servers <= 128 else (100, 3) if servers <= 1_024 else (1000, 10)
    changes = {
        "cluster.servers": servers,
        "ports.count": ports,
        "channels.density": density,
        "channels.listed": True,
        "horizon": slots,
    }
    return load_scenario("ogasched-default", changes).build(0, False)  # type: ignore[no-any-return]


def on_gpu(device: CudaDevice, world: AllocationWorld, dtype: Any) -> tuple[float, float, NDArray[np.float64], Batch]:
    """Microseconds of a slot (best of five rounds), and those of building; the rewards of the first slots."""
    began = time.perf_counter()
    batch = Batch(device, [world.problem], dtype)
    runs = SlotRuns(batch, "ascend")
    device.wait()
    built = time.perf_counter() - began
    first = runs.play(world.arrivals[None, :64])
    slots = 64
    while True:  # enough slots that a round is long against the clock's steps
        arrivals = np.resize(world.arrivals, (1, slots, world.problem.jobs))
        runs.play(arrivals)
        began = time.perf_counter()
        runs.play(arrivals)
        spent = time.perf_counter() - began
        if spent > SECONDS:
            break
        slots = int(slots * min(max(1.3 * SECONDS / spent, 1.5), 8.0))
    rounds = [spent]
    for _ in range(4):
        began = time.perf_counter()
        runs.play(arrivals)
        rounds.append(time.perf_counter() - began)
    return min(rounds) / slots * 1e6, built, first.gain[0] - first.overhead[0], batch


def on_cpu(world: AllocationWorld, slots: int, threads: int = 1) -> tuple[float, NDArray[np.float64]]:
    """Median microseconds of the compiled slot in this number of threads, and the rewards of the slots."""
    numba.set_num_threads(threads)
    policy = OGASched(world.problem)

    def step(arrivals: NDArray[Any]) -> None:
        policy.observe(AllocationOutcome(0, arrivals, 0.0, 0.0, 0.0))

    rewards = []
    everything = AllocationSlot(0, world.problem.instance.capacity, None)
    for arrivals in world.arrivals[: min(slots, 8)]:
        gain, overhead = world.problem.reward(arrivals, policy.decide(everything))
        rewards.append(gain - overhead)
        step(arrivals)
    return median_time(step, world.arrivals[8 : 8 + slots], min(slots // 4, 20)), np.array(rewards)


def traffic(batch: Batch) -> int:
    """Bytes that a slot must move: y twice and cells once for each element, and four numbers of each segment."""
    size, lanes = batch.dtype.itemsize, int(batch.first_tile[-1]) * 32
    return int(batch.elements * (2 * size + batch.tiles[0].cell.itemsize) + lanes * 4 * size)


def copy_rate(device: CudaDevice) -> float:
    """Bytes a second of a large copy on the device, read and written."""
    import cupy

    a, b = cupy.ones(1 << 29, cupy.float64), cupy.empty(1 << 29, cupy.float64)
    best = 0.0
    for _ in range(5):
        cupy.cuda.runtime.deviceSynchronize()
        began = time.perf_counter()
        for _ in range(4):
            b[:] = a
        cupy.cuda.runtime.deviceSynchronize()
        best = max(best, 4 * 2 * a.nbytes / (time.perf_counter() - began))
    return best


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number == number else ""


def seeds_table(device: CudaDevice, counts: list[int]) -> Table:
    """Seeds of the default scenario side by side."""
    table = Table(title=f"ogasched-default, seeds side by side on {device.name} (float64)")
    for name in ("seeds", "µs a slot", "µs a slot and seed", "CPU core µs", "× CPU"):
        table.add_column(name, justify="right")
    scenario = load_scenario("ogasched-default", {"horizon": 2000})
    worlds = [scenario.build(seed, False) for seed in range(max(counts))]
    cpu, _ = on_cpu(worlds[0], 400)
    for count in counts:
        runs = SlotRuns(Batch(device, [world.problem for world in worlds[:count]]), "ascend")
        arrivals = np.stack([world.arrivals for world in worlds[:count]])
        spent = []
        for _ in range(3):
            began = time.perf_counter()
            runs.play(arrivals)
            spent.append((time.perf_counter() - began) / arrivals.shape[1] * 1e6)
        own = min(spent) / count
        table.add_row(f"{count}", f"{min(spent):.1f}", f"{own:.2f}", f"{cpu:.1f}", f"{cpu / own:,.1f}")
    return table


def draw(rows: list[dict[str, Any]], file: Path) -> None:
    """The curves of a slot's time over the number of servers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, label in (("float32", "GPU, float32"), ("float64", "GPU, float64")):
        points = [(row["servers"], row["microseconds"]) for row in rows if row["precision"] == name]
        axes.loglog(*zip(*points, strict=True), "o-", label=label)
    for name, label, style in (("cpu", "one CPU core", "s--"), ("threads", "all cores of that machine", "v:")):
        key = f"{name}_microseconds"
        cpu = sorted({(row["servers"], row[key]) for row in rows if row[key] is not None})
        axes.loglog(*zip(*cpu, strict=True), style, color="0.4", label=f"{label}, float64")
    for row in rows:
        if row["goal"] is not None:
            axes.plot(row["servers"], row["goal"], "_", color="C0" if row["precision"] == "float32" else "C1", ms=14)
    axes.set_xlabel("servers")
    axes.set_ylabel("µs a slot (bars: goals)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the three smallest sizes")
    parser.add_argument("--sizes", type=int, nargs="*", help="numbers of servers")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    parser.add_argument("--plot", type=Path, help="draw the curve over the number of servers here")
    parser.add_argument("--read", type=Path, help="draw the numbers of an earlier --json; measure nothing")
    arguments = parser.parse_args()
    if arguments.read is not None:
        draw(json.loads(arguments.read.read_text(encoding="utf-8")), arguments.plot or Path("gpu-slot.svg"))
        return
    device = open_device("cuda")
    limit, cores = copy_rate(device), numba.config.NUMBA_NUM_THREADS
    console = Console(width=170)
    table = Table(title=f"One slot on {device.name}; a copy moves {limit / 1e12:.2f} TB/s")
    names = (
        "servers",
        "elements",
        "precision",
        "µs",
        "goal",
        "reached",
        "one core µs",
        "×",
        f"{cores} threads µs",
        "×",
    )
    for name in (*names, "difference", "MB moved", "of the copy"):
        table.add_column(name, justify="right")
    rows = []
    for servers in arguments.sizes or (SIZES[:3] if arguments.quick else SIZES):
        world = world_of(servers)
        cpu, threads, expected = float("nan"), float("nan"), np.zeros(0)
        if servers in CPU_SLOTS:
            cpu, expected = on_cpu(world, CPU_SLOTS[servers])
            threads, _ = on_cpu(world, 2 * CPU_SLOTS[servers], cores)
        for place, dtype in enumerate((np.float32, np.float64)):
            spent, built, rewards, batch = on_gpu(device, world, dtype)
            apart = np.abs(rewards[: len(expected)] / expected - 1.0).max(initial=0.0)
            goal = GOALS.get(servers, (None, None))[place]
            moved = traffic(batch)
            row = {
                "servers": servers,
                "elements": batch.elements,
                "precision": np.dtype(dtype).name,
                "microseconds": spent,
                "goal": goal,
                "cpu_microseconds": cpu if cpu == cpu else None,
                "threads_microseconds": threads if threads == threads else None,
                "difference": float(apart),
                "bytes": moved,
                "share_of_copy": moved / limit / (spent / 1e6),
                "built_seconds": built,
            }
            rows.append(row)
            table.add_row(
                f"{servers:,}",
                f"{batch.elements:,}",
                np.dtype(dtype).name,
                f"{spent:,.1f}",
                "" if goal is None else f"{goal:,.0f}",
                "" if goal is None else "yes" if spent <= goal else "no",
                *(_shown(cpu), _shown(cpu / spent), _shown(threads), _shown(threads / spent)),
                f"{apart:.1e}" if len(expected) else "",
                f"{moved / 1e6:,.1f}",
                f"{row['share_of_copy']:.0%}",
            )
            console.print(f"{servers:,} {np.dtype(dtype).name}: {spent:,.1f} µs", highlight=False)
    console.print(table)
    if not arguments.sizes:
        console.print(seeds_table(device, [1, 16] if arguments.quick else [1, 16, 64, 256]))
    if arguments.plot is not None:
        draw(rows, arguments.plot)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
