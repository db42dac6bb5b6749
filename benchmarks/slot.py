"""Time of one allocation slot: `python -m benchmarks.slot` (`--quick` for a few seconds).

A slot is what online gradient ascent does each time: the reward of the decision, its gradient (with the
sums and dominant resources they need), and the exact projection of the step. Side by side in one run: the
compiled kernels in float64 and float32, a vectorised NumPy version, and the papers' algorithm as printed in
plain Python.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from berth.families.allocation.kernels import slot as kernel
from berth.families.allocation.kernels.lanes import WIDTH, build_lanes, limits
from berth.families.allocation.kernels.threads import SlotThreads
from tests.reference import allocation as twin
from tests.reference.allocation import Graph, NumpySlot

ETA = 0.3
PRESENT = 0.7  # probability that a port has a job
WARM = 50  # slots before timing starts: the decision fills up over the first ones


class Size(NamedTuple):
    jobs: int
    servers: int
    density: int | None  # ports a server, give or take one; None: all
    slots: int
    goal: float  # microseconds

    def __str__(self) -> str:
        return f"{self.jobs} × {self.servers} × 6, {'dense' if self.density is None else f'density {self.density}'}"


SIZES = [
    Size(10, 128, 3, 1000, 25.0),
    Size(10, 128, None, 1000, 60.0),
    Size(100, 1024, 3, 400, 175.0),
    Size(100, 1024, None, 60, 3000.0),
    Size(1000, 10_000, 10, 40, 4500.0),
]


def instance(jobs: int, servers: int, density: int | None, resources: int = 6, seed: int = 0) -> Graph:
    """Alibaba-like nodes and requests at contention 10. One unit is 12 cores, 64 GB or one device."""
    rng = np.random.default_rng(seed)
    if density is None:
        degree = np.full(servers, jobs)
    else:
        degree = np.minimum(rng.integers(density - 1, density + 2, servers), jobs)
    ports = [np.sort(rng.permutation(jobs)[:d]) for d in degree]
    node = rng.choice(3, servers, p=[0.35, 0.35, 0.3])
    capacity = np.column_stack(
        [
            np.array([96.0, 96.0, 64.0])[node] / 12.0,
            np.array([256.0, 512.0, 512.0])[node] / 64.0,
            np.array([0.0, 8.0, 2.0])[node],
            rng.choice([0.0, 4.0, 8.0], servers, p=[0.4, 0.3, 0.3]),
            rng.choice([0.0, 4.0, 8.0], servers, p=[0.5, 0.25, 0.25]),
            rng.choice([0.0, 2.0, 4.0], servers, p=[0.4, 0.3, 0.3]),
        ]
    )
    request = 10.0 * np.column_stack(
        [
            rng.choice([0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 12.0], jobs) / 12.0,
            rng.choice([2.0, 4.0, 8.0, 16.0, 29.0, 32.0, 64.0], jobs) / 64.0,
            rng.choice([0.0, 0.25, 0.5, 1.0, 2.0], jobs),
            rng.choice([0.0, 0.25, 0.5, 1.0], jobs),
            rng.choice([0.0, 0.25, 0.5, 1.0], jobs),
            rng.choice([0.0, 0.25, 0.5], jobs),
        ]
    )
    columns = np.arange(resources) % 6
    channel_job = np.concatenate(ports).astype(np.int64)
    return Graph(
        np.concatenate([[0], np.cumsum(degree)]).astype(np.int64),
        channel_job,
        request[channel_job][:, columns],
        capacity[:, columns],
        rng.integers(0, 4, (servers, resources)),
        rng.uniform(1.0, 1.5, (servers, resources)),
        np.tile(rng.uniform(0.3, 0.5, resources), (jobs, 1)),
    )


def arrivals(graph: Graph, slots: int, dtype: Any = np.float64) -> NDArray[Any]:
    return (np.random.default_rng(1).random((slots, len(graph.beta))) < PRESENT).astype(dtype)


class Berth:
    """The compiled slot and the arrays it holds."""

    def __init__(self, graph: Graph, dtype: Any) -> None:
        tables = (np.zeros((1, 2)), np.zeros((1, 2)), np.ones(1))
        start, job, cap, capacity, kind, alpha, beta = graph
        self.lanes = build_lanes(start, job, cap, capacity, kind, alpha, len(beta), tables, dtype)
        self.limit = limits(self.lanes, capacity)
        self.beta = beta.astype(dtype)
        self.eta = dtype(ETA)
        self.scratch = np.zeros((kernel.scratch_rows(self.lanes), WIDTH), dtype)
        self.price = np.zeros((beta.size + 1, 2), dtype)
        self.sums = np.zeros(beta.size + 1, dtype)
        self.tau = np.zeros(self.limit.shape, dtype)
        self.y = np.zeros(self.lanes.cap.shape, dtype)

    def step(self, x: NDArray[Any]) -> float:
        gain, overhead, _ = kernel.slot_step(
            self.lanes,
            self.limit,
            x,
            self.beta,
            self.eta,
            self.scratch,
            self.price,
            self.sums,
            self.tau,
            self.y,
        )
        return float(gain - overhead)

    def held(self) -> int:
        own = (self.limit, self.beta, self.scratch, self.price, self.sums, self.tau, self.y)
        return sum(array.nbytes for array in (*self.lanes, *own))


def median_time(step: Callable[[NDArray[Any]], object], xs: NDArray[Any], warm: int) -> float:
    """Median microseconds of a slot."""
    times = []
    for t, x in enumerate(xs):
        begin = time.perf_counter()
        step(x)
        if t >= warm:
            times.append(time.perf_counter() - begin)
    return float(np.median(times)) * 1e6


def time_berth(graph: Graph, slots: int, dtype: Any) -> float:
    return median_time(Berth(graph, dtype).step, arrivals(graph, slots + WARM, dtype), WARM)


def time_printed(graph: Graph, most: int, repeats: int) -> tuple[float, bool]:
    """Microseconds of the plain-Python slot; with more than `most` channels, of the first servers, scaled up."""
    channels = len(graph.channel_job)
    servers = max(int(np.searchsorted(graph.server_start, most, side="right")) - 1, 1)
    sampled = servers < len(graph.server_start) - 1
    part = graph
    if sampled:
        end = int(graph.server_start[servers])
        part = Graph(
            graph.server_start[: servers + 1],
            graph.channel_job[:end],
            graph.cap[:end],
            graph.capacity[:servers],
            graph.kind[:servers],
            graph.alpha[:servers],
            graph.beta,
        )
    y = np.zeros(part.cap.shape)

    def step(x: NDArray[Any]) -> float:
        nonlocal y
        weights = x.tolist()
        value = twin.reward(part, weights, y)
        z = y + ETA * twin.gradient(part, weights, y)
        y = twin.project_decision(part, z, printed=True, zero_dropped=True)
        return value

    warm = 3
    return median_time(step, arrivals(part, repeats + warm), warm) * channels / len(part.channel_job), sampled


def peak_megabytes(build: Callable[[Graph], Callable[[NDArray[Any]], float]], graph: Graph, xs: NDArray[Any]) -> float:
    """Highest memory while building and playing a few slots."""
    tracemalloc.start()
    step = build(graph)
    for x in xs:
        step(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def berth_step(graph: Graph) -> Callable[[NDArray[Any]], float]:
    return Berth(graph, np.float64).step


def numpy_step(graph: Graph) -> Callable[[NDArray[Any]], float]:
    peer = NumpySlot(graph)
    return lambda x: peer.step(x, ETA)


def sizes_table(sizes: list[Size], quick: bool) -> Table:
    table = Table(title="One slot: reward + gradient + exact projection, one thread (median µs, best of 3 rounds)")
    for name in ("ports × servers × resources", "elements", "float64", "goal", "float32", "NumPy", "printed, Python"):
        table.add_column(name, justify="left" if name.startswith("ports") else "right")
    for name in ("× NumPy", "× printed", "held MB", "peak MB", "NumPy peak MB"):
        table.add_column(name, justify="right")
    for size in sizes:
        graph = instance(size.jobs, size.servers, size.density)
        slots = max(size.slots // 10, 10) if quick else size.slots
        rounds = [  # taken in turns, so that a busy moment of the machine does not fall on one of them
            (
                time_berth(graph, slots, np.float64),
                time_berth(graph, slots, np.float32),
                median_time(numpy_step(graph), arrivals(graph, slots // 4 + WARM), WARM),
            )
            for _ in range(1 if quick else 3)
        ]
        wide, narrow, numpy_time = (min(times) for times in zip(*rounds, strict=True))
        plain, sampled = time_printed(graph, 2500 if quick else 8000, 2 if quick else 5)
        few = arrivals(graph, 3)
        table.add_row(
            str(size),
            f"{graph.cap.size:,}",
            f"{wide:,.1f}",
            f"{size.goal:,.0f}",
            f"{narrow:,.1f}",
            f"{numpy_time:,.0f}",
            f"{'~' if sampled else ''}{plain:,.0f}",
            f"{numpy_time / wide:.1f}",
            f"{plain / wide:,.0f}",
            f"{Berth(graph, np.float64).held() / 1e6:.2f}",
            f"{peak_megabytes(berth_step, graph, few):.2f}",
            f"{peak_megabytes(numpy_step, graph, few):.2f}",
        )
    table.caption = "elements: channels × resources. ~ timed on the first servers, scaled up by channels."
    return table


def threads_table(quick: bool) -> Table:
    """The largest size in threads; the numbers do not depend on how many."""
    size = SIZES[2] if quick else SIZES[-1]
    graph = instance(size.jobs, size.servers, size.density)
    table = Table(title=f"One slot in threads, {size} (float64, median µs, best of 3 rounds)")
    for name in ("threads", "µs", "× one thread"):
        table.add_column(name, justify="right")
    most = numba.get_num_threads()
    counts = sorted({1, 2, most // 2, most} - {0} & set(range(most + 1)))
    times: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(3):
        for count in counts:  # in turns
            numba.set_num_threads(count)
            whole = Berth(graph, np.float64)
            threads = SlotThreads(whole.lanes, graph.beta.size)

            def step(x: NDArray[Any], whole: Berth = whole, threads: SlotThreads = threads) -> object:
                own = (whole.sums, whole.tau, whole.y)
                return threads.step(whole.lanes, whole.limit, x, whole.beta, whole.eta, *own)

            times[count].append(median_time(step, arrivals(graph, WARM + size.slots), WARM))
    numba.set_num_threads(most)
    for count in counts:
        table.add_row(f"{count}", f"{min(times[count]):,.0f}", f"{min(times[1]) / min(times[count]):.2f}")
    return table


def growth_table(quick: bool) -> Table:
    """Log-log slope of the time over doublings of one of L, R, K."""
    doublings = 3 if quick else 4
    series: dict[str, list[tuple[int, int, int | None, int]]] = {
        "L (dense, R = 256)": [(25 * 2**i, 256, None, 6) for i in range(doublings)],
        "L (density 3, R = 2048)": [(25 * 2**i, 2048, 3, 6) for i in range(doublings)],
        "R (density 3, L = 100)": [(100, 512 * 2**i, 3, 6) for i in range(doublings)],
        "K (density 3, 100 × 1024)": [(100, 1024, 3, 3 * 2**i) for i in range(doublings)],
    }
    table = Table(title="Growth of the time of a slot (float64)")
    table.add_column("doubling")
    table.add_column("µs at each size", justify="right")
    table.add_column("exponent", justify="right")
    for name, points in series.items():
        times = []
        for jobs, servers, density, resources in points:
            graph = instance(jobs, servers, density, resources)
            times.append(time_berth(graph, 20 if quick else 100, np.float64))
        grown = np.array([{"L": p[0], "R": p[1], "K": p[3]}[name[0]] for p in points], dtype=np.float64)
        exponent = np.polyfit(np.log(grown), np.log(times), 1)[0]
        listed = ", ".join(f"{name[0]}={int(at)}: {spent:,.0f}" for at, spent in zip(grown, times, strict=True))
        table.add_row(name, listed, f"{exponent:.2f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the three smaller sizes, fewer repetitions")
    quick = parser.parse_args().quick
    console = Console(width=180)
    begin = time.perf_counter()
    small = instance(4, 8, 2)
    for dtype in (np.float64, np.float32):
        Berth(small, dtype).step(arrivals(small, 1, dtype)[0])
    console.print(f"compiled or loaded in {time.perf_counter() - begin:.1f} s")
    console.print(sizes_table(SIZES[:3] if quick else SIZES, quick))
    console.print(threads_table(quick))
    console.print(growth_table(quick))


if __name__ == "__main__":
    main()
