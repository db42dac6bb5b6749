"""Selection at scale: time and certified gap of ESCB's decision with 100,000 channels, in one thread and in all.

`python -m benchmarks.selection_scale [--channels 100000] [--gap 1e-6]`: demands and gains of `benchmarks.solvers`, in
one pool, in pools of about 10 channels (a server each, of random sizes) and in pools of 100. Every channel has been
observed, so that the solver has the whole question. `in pools` is the share of a decision in one thread that goes into
solving pools one by one, which is what threads divide.
"""

from __future__ import annotations

import argparse
import time
from typing import Any
from unittest.mock import patch

import numba
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.solvers import machines
from berth.families.selection.kernels.knapsack_each import solve_each
from berth.families.selection.policies.bounds import ESCB
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.families.selection.solvers import dual_core
from berth.model import Instance, Ints

REPEATS = 3


def server_of(case: str, channels: int) -> Ints:
    """Server of each channel."""
    if case == "about 10 a pool":
        return np.sort(np.random.default_rng(0).integers(0, channels // 10, channels))
    return np.arange(channels) // 100


def policy_of(case: str, channels: int, gap: float) -> tuple[ESCB, SelectionSlot]:
    """ESCB after an observation of every channel, and a slot in which every port has a job."""
    asked, server = machines(channels, 3, 0), server_of(case, channels)
    first = np.searchsorted(server, server)
    port = np.arange(channels) - first  # the n-th channel of a server is that of port n
    room = np.zeros((int(server.max()) + 1, 3))
    np.add.at(room, server, 0.3 * asked.takes)
    room = np.maximum(room, [64.0, 256.0, 8.0])
    graph = Instance.from_arrays(room, np.ones((int(port.max()) + 1, 3)), np.stack([port, server], axis=1))
    pool = 0.3 * asked.takes.sum(axis=0) if case == "one pool" else None
    problem = SelectionProblem(graph, np.zeros(channels), asked.takes, pool)
    policy = ESCB(problem, gap=gap)
    tasks = np.maximum(np.random.default_rng(1).exponential(100.0, channels), 1.0).astype(np.int64)
    policy.observe(SelectionOutcome(0, np.arange(channels), tasks, asked.gain * tasks, 0.0))
    return policy, SelectionSlot(2000, problem.limits, np.ones(problem.jobs))


def timed(policy: ESCB, slot: SelectionSlot) -> tuple[Ints, float]:
    """The decision, and its milliseconds: the fastest of three."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        tasks = policy.decide(slot)
        times.append(time.perf_counter() - began)
    return tasks, 1e3 * min(times)


def in_pools(policy: ESCB, slot: SelectionSlot) -> float:
    """Milliseconds of one decision in one thread that go into pools."""
    spent = 0.0

    def watched(*arguments: Any) -> None:
        nonlocal spent
        began = time.perf_counter()
        solve_each(*arguments)
        spent += time.perf_counter() - began

    with patch.object(dual_core, "solve_each", watched):
        policy.decide(slot)
    return 1e3 * spent


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--channels", type=int, default=100_000)
    parser.add_argument("--gap", type=float, default=1e-6)
    arguments = parser.parse_args()
    most = numba.config.NUMBA_NUM_THREADS
    table = Table("case", "pools", "open", "1 thread, ms", "in pools", f"{most} threads, ms")
    for column in ("ratio", "certified gap", "same choice"):
        table.add_column(column)
    table.title = f"ESCB, {arguments.channels:,} channels, gap asked {arguments.gap:g}"
    for case in ("one pool", "about 10 a pool", "100 a pool"):
        policy, slot = policy_of(case, arguments.channels, arguments.gap)
        numba.set_num_threads(most)
        policy.decide(slot)  # compiles
        everywhere, fast = timed(policy, slot)
        numba.set_num_threads(1)
        tasks, slow = timed(policy, slot)
        share = min(in_pools(policy, slot) for _ in range(REPEATS)) / slow
        gap = policy.choice.gap if policy.choice is not None else float("nan")
        row = [case, f"{len(slot.free):,}", f"{int(tasks.sum()):,}", f"{slow:.0f}", f"{100.0 * share:.0f} %"]
        table.add_row(
            *row, f"{fast:.0f}", f"{slow / fast:.1f}", f"{gap:.1e}", "yes" if (tasks == everywhere).all() else "NO"
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
