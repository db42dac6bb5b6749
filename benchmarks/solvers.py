"""Time and certified gap of the selection solvers: `python -m benchmarks.solvers` (`--quick` for a minute).

Side by side in one run: berth, and HiGHS with tangents of the root under a time limit, on demands shaped like
machines (cores, memory, GPUs, then random resources), capacity 30 % of all demand, gains correlated .5 with size. Then
the dynamic programme at the papers' defaults beside the printed one in plain Python, and many small pools.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.families.selection.solvers import Choice, Question, choose
from berth.families.selection.solvers.dual_core import dual_core
from berth.families.selection.solvers.dynamic import dynamic, rounded
from tests.reference.selection import highs, printed_dp

SIZES = [(32, 3), (100, 3), (300, 3), (1000, 3), (3000, 3), (10_000, 3), (1000, 2), (300, 5), (1000, 5), (10_000, 5)]
SIZES += [(300, 8), (1000, 8)]
GOALS = {(1000, 3): "2 ms, .01 %", (10_000, 3): "15 ms, .01 %", (300, 5): "15 ms, .2 %", (1000, 5): "15 ms, .2 %"}


def machines(n: int, resources: int, seed: int) -> Question:
    """One pool of real capacities."""
    rng = np.random.default_rng(seed)
    cores = rng.choice([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], n)
    columns = [cores, cores * rng.uniform(1.0, 8.0, n), rng.choice([0.0, 1.0, 2.0, 4.0, 8.0], n)]
    columns += [rng.uniform(1.0, 10.0, n) for _ in range(resources - 3)]
    takes = np.column_stack(columns[:resources])
    size = (np.log2(cores) - 3.0) / 2.0
    mixed = 0.5 * size + math.sqrt(0.75) * rng.standard_normal(n)
    gain = 0.5 * (1.0 + np.tanh(0.8 * mixed))  # in (0, 1)
    spread = math.log(2001) / (2.0 * np.maximum(rng.exponential(100.0, n), 1.0))
    return Question(gain, spread, takes, np.zeros(n, dtype=np.int64), 0.3 * takes.sum(axis=0)[None])


def papers(seed: int, capacity: int) -> Question:
    """The papers' defaults: 8 ports, 40 servers, channels with probability .1, demands 1 or 2 of three resources."""
    rng = np.random.default_rng(seed)
    n = max(int((rng.random((8, 40)) < 0.1).sum()), 8)
    spread = math.log(2001) / (2.0 * np.maximum(rng.exponential(100.0, n), 1.0))
    takes = rng.integers(1, 3, (n, 3)).astype(np.float64)
    return Question(
        rng.uniform(0.1, 1.0, n), spread, takes, np.zeros(n, dtype=np.int64), np.full((1, 3), float(capacity))
    )


def servers(count: int, n: int, seed: int) -> Question:
    """Every server a pool of its own."""
    rng = np.random.default_rng(seed)
    base = machines(n, 3, seed)
    pool = rng.integers(0, count, n)
    free = np.zeros((count, 3))
    np.add.at(free, pool, 0.4 * base.takes)
    return Question(base.gain, base.spread, base.takes, pool, np.maximum(free, [64.0, 256.0, 8.0]))


def timed(
    solve: Callable[[Question], Choice | None], asked: list[Question], repeats: int
) -> tuple[float, list[Choice]]:
    """Median seconds, and the answers."""
    times, answers = [], []
    for question in asked:
        answer = solve(question)
        if answer is not None:
            answers.append(answer)
        for _ in range(repeats):
            begin = time.perf_counter()
            solve(question)
            times.append(time.perf_counter() - begin)
    return float(np.median(times)), answers


def sizes_table(quick: bool) -> tuple[Table, dict[tuple[int, int], float]]:
    limit = 2.0 if quick else 10.0
    table = Table(title=f"One pool, real capacities; HiGHS with tangents, gap .01 %, stopped after about {limit:g} s")
    for name in (
        "n",
        "K",
        "ms (median)",
        "ms (worst)",
        "gap % (median)",
        "gap % (worst)",
        "goal",
        "HiGHS ms",
        "HiGHS gap %",
    ):
        table.add_column(name, justify="right")
    medians = {}
    for n, resources in [SIZES[0], SIZES[2], SIZES[3], SIZES[5], SIZES[7]] if quick else SIZES:
        asked = [machines(n, resources, seed) for seed in range(5 if quick else 15)]
        spent, answers = timed(choose, asked, 3)
        worst = max(timed(choose, [question], 3)[0] for question in asked)
        gaps = [100.0 * answer.gap for answer in answers]
        begin = time.perf_counter()
        referee = highs(asked[0], gap=1e-4, seconds=limit)
        taken = time.perf_counter() - begin
        medians[n, resources] = spent
        table.add_row(
            f"{n:,}",
            str(resources),
            f"{1e3 * spent:.2f}",
            f"{1e3 * worst:.2f}",
            f"{np.median(gaps):.4f}",
            f"{max(gaps):.4f}",
            GOALS.get((n, resources), ""),
            f"{'>' if taken >= limit else ''}{1e3 * taken:,.0f}",
            f"{100.0 * (referee.bound - referee.value) / referee.bound:.4f}",
        )
    return table, medians


def papers_table(quick: bool) -> Table:
    table = Table(title="Papers' defaults: about 32 channels, K = 3, capacity c (median µs a slot, Python included)")
    for name in (
        "c",
        "choose",
        "exact table",
        "rounded, true m",
        "rounded, printed m",
        "prices, gap 0",
        "printed, Python s",
    ):
        table.add_column(name, justify="right")
    delta = 1.0 / (math.log(math.log(2001) + 1.0) + 1.0)
    repeats = 20 if quick else 100
    for capacity in (2, 4, 8):
        asked = [papers(seed, capacity) for seed in range(20)]
        begin = time.perf_counter()
        plain = "—"
        if capacity == 2 and not quick:
            one = asked[0]
            printed_dp(
                one.gain.tolist(),
                one.spread.tolist(),
                one.takes.astype(int).tolist(),
                (capacity,) * 3,
                delta,
                len(one.gain) // 2,
                {"feasible-s", "carry"},
            )
            plain = f"{time.perf_counter() - begin:.1f}"

        def true_m(question: Question, most: int = capacity) -> Choice:
            return rounded(question, delta, most)

        def printed_m(question: Question) -> Choice:
            return rounded(question, delta, len(question.gain) // 2)

        def to_the_end(question: Question) -> Choice:
            return dual_core(question, 0.0)

        row = [f"{1e6 * timed(solve, asked, repeats)[0]:.1f}" for solve in (choose, dynamic, true_m)]
        row.append("—" if capacity == 8 else f"{1e6 * timed(printed_m, asked, repeats)[0]:.1f}")
        row.append(f"{1e6 * timed(to_the_end, asked, repeats)[0]:.1f}")
        table.add_row(str(capacity), *row, plain)
    return table


def pools_table(quick: bool) -> Table:
    table = Table(title="Every server a pool")
    for name in ("servers", "channels", "most on one", "ms", "gap % (worst)"):
        table.add_column(name, justify="right")
    for count, n in ((40, 32), (40, 200), (200, 1000), (10, 1000)):
        asked = [servers(count, n, seed) for seed in range(3 if quick else 10)]
        spent, answers = timed(choose, asked, 5)
        most = max(int(np.bincount(question.pool).max()) for question in asked)
        table.add_row(
            str(count),
            f"{n:,}",
            str(most),
            f"{1e3 * spent:.2f}",
            f"{100.0 * max(answer.gap for answer in answers):.4f}",
        )
    return table


def growth(medians: dict[tuple[int, int], float]) -> str:
    """Log-log slopes of the median time."""
    along_n = sorted((n, spent) for (n, resources), spent in medians.items() if resources == 3 and n >= 100)
    slope = np.polyfit(np.log([n for n, _ in along_n]), np.log([spent for _, spent in along_n]), 1)[0]
    text = f"growth with n (K = 3, n ≥ 100): exponent {slope:.2f}"
    along_k = sorted((resources, spent) for (n, resources), spent in medians.items() if n == 1000)
    if len(along_k) > 2:
        slope = np.polyfit(np.log([k for k, _ in along_k]), np.log([spent for _, spent in along_k]), 1)[0]
        text += f"; with K (n = 1000): {slope:.2f}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and repetitions")
    quick = parser.parse_args().quick
    console = Console(width=150)
    begin = time.perf_counter()
    for asked in (papers(0, 2), machines(40, 3, 0), servers(4, 30, 0), servers(2, 60, 0)):
        choose(asked)
        dual_core(asked)
    console.print(f"compiled or loaded in {time.perf_counter() - begin:.1f} s")
    table, medians = sizes_table(quick)
    console.print(table)
    console.print(growth(medians))
    console.print(papers_table(quick))
    console.print(pools_table(quick))


if __name__ == "__main__":
    main()
