"""Slow referees for the selection solvers: enumeration, HiGHS with tangents, and the papers' Algorithm 2."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from berth.families.selection.solvers import Question

__all__ = ["Printed", "enumerated", "highs", "printed_dp", "printed_table_bytes"]

REPAIRS = frozenset({"feasible-s", "carry", "true-m", "real-spread"})


def enumerated(question: Question) -> tuple[list[int], float]:
    """The best choice and its value, in plain Python: every subset, smallest first."""
    n = len(question.gain)
    best, value = [0] * n, 0.0
    for bits in itertools.product((0, 1), repeat=n):
        tasks = np.array(bits, dtype=np.int64)
        if question.fits(tasks) and question.value(tasks) > value:
            best, value = list(bits), question.value(tasks)
    return best, value


class Refereed(NamedTuple):
    """What HiGHS found: tasks (n,), their value, a bound on the best."""

    tasks: Any
    value: float
    bound: float


def highs(question: Question, gap: float = 1e-6, seconds: float = 60.0, rounds: int = 30) -> Refereed:
    """Mixed-integer programmes with tangents in place of the root: max gainᵀx + h, h ≤ √a + (spreadᵀx − a)/(2√a).

    Every tangent (one for each a) lies above the root, so that the optimum is an upper bound; a new one at each
    solution brings bound and value together.
    """
    import highspy  # not beside ortools: their symbols clash

    n, (pools, resources) = len(question.gain), question.free.shape
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("mip_rel_gap", 0.3 * gap)
    solver.setOptionValue("time_limit", seconds)
    for e in range(n):
        solver.addVar(0.0, 1.0)
        solver.changeColCost(e, -float(question.gain[e]))
        solver.changeColIntegrality(e, highspy.HighsVarType.kInteger)
    top = math.sqrt(float(question.spread.sum()))
    solver.addVar(0.0, top)
    solver.changeColCost(n, -1.0)
    for g in range(pools):
        members = np.flatnonzero(question.pool == g)
        for k in range(resources):
            used = members[question.takes[members, k] > 0.0]
            if len(used):
                limit = float(question.free[g, k]) + 1e-9 * (1.0 + float(question.free[g, k]))
                solver.addRow(-highspy.kHighsInf, limit, len(used), used.astype(np.int32), question.takes[used, k])

    def tangent(at: float) -> None:
        """h − spreadᵀx / (2√a) ≤ √a / 2."""
        root = math.sqrt(at)
        held = np.flatnonzero(question.spread > 0.0)
        columns = np.append(held, n).astype(np.int32)
        weights = np.append(-question.spread[held] / (2.0 * root), 1.0)
        solver.addRow(-highspy.kHighsInf, root / 2.0, len(columns), columns, weights)

    if top > 0.0:
        for part in (0.01, 0.1, 0.3, 0.6, 1.0):
            tangent(part * top * top)
    best, value, bound = np.zeros(n, dtype=np.int64), 0.0, math.inf
    for _ in range(rounds):
        solver.run()
        bound = min(bound, -float(solver.getInfo().mip_dual_bound))
        columns = solver.getSolution().col_value
        if len(columns) <= n:
            break
        tasks = np.round(np.array(columns[:n])).astype(np.int64)
        if question.fits(tasks) and question.value(tasks) > value:
            best, value = tasks, question.value(tasks)
        spent = float(solver.getRunTime())
        at = float(question.spread @ tasks)
        if bound - value <= gap * max(abs(bound), 1e-12) or spent >= seconds or at <= 0.0:
            break
        tangent(at)
    return Refereed(best, value, max(bound, value))


class Printed(NamedTuple):
    """What Algorithm 2 gives: the sum s that (17) picks, x, and the score s + √(Σ²ᵀx) in units of 1/ξ."""

    s: int
    tasks: list[int]
    score: float


def printed_dp(
    gain: Sequence[float],
    spread: Sequence[float],
    takes: Sequence[Sequence[int]],
    capacity: Sequence[int],
    delta: float,
    m: int,
    repairs: Collection[str] = frozenset(),
    scale: int | None = None,
) -> Printed:
    """Algorithm 2 and (17) of the papers, in plain Python, fault by fault as printed or repaired.

    V(s, c, i) is the largest Σ²ᵀx over channels after i with Υᵀx ≥ s and Ax ≤ c; ξ = ⌈m/δ⌉ (or `scale`) and s runs to
    ξ·m. `repairs` may hold:

    * "feasible-s" (B1): a sum that no choice reaches is left out of (17), instead of scoring s with x = 0;
    * "carry" (B2): where V(i) = V(i + 1) the choice of i + 1 is kept, instead of staying 0;
    * "true-m" (B7): m is the number of channels that fit together, instead of what is passed;
    * "real-spread" (B8): Σ² = ξ²σ² is kept as it is, instead of being rounded up.
    """
    unknown = set(repairs) - REPAIRS
    if unknown:
        raise ValueError(f"unknown repairs {sorted(unknown)}; there are {sorted(REPAIRS)}")
    n = len(gain)
    if "true-m" in repairs:
        m = max(
            sum(bits)
            for bits in itertools.product((0, 1), repeat=n)
            if all(sum(b * a[k] for b, a in zip(bits, takes, strict=True)) <= c for k, c in enumerate(capacity))
        )
    xi = math.ceil(m / delta) if scale is None else scale
    up = [math.ceil(xi * v - 1e-9) for v in gain]
    squares: list[float] = [xi * xi * q if "real-spread" in repairs else math.ceil(xi * xi * q - 1e-9) for q in spread]
    grid = list(itertools.product(*(range(c + 1) for c in capacity)))
    # V and x of channels after i, for every (s, c)
    value = {(s, c): 0.0 if s == 0 else -math.inf for s in range(xi * m + 1) for c in grid}
    held: dict[Any, tuple[int, ...]] = dict.fromkeys(value, (0,) * n)
    for i in range(n - 1, -1, -1):
        new_value, new_held = {}, {}
        for (s, c), without in value.items():
            choice = held[s, c] if "carry" in repairs else (0,) * n
            new_value[s, c], new_held[s, c] = without, choice
            if not any(c):
                continue
            before = (max(s - up[i], 0), tuple(max(have - a, 0) for have, a in zip(c, takes[i], strict=True)))
            with_it = value[before] + squares[i]
            if with_it > without:
                taken = list(held[before])
                taken[i] = 1
                if all(sum(b * a[k] for b, a in zip(taken, takes, strict=True)) <= have for k, have in enumerate(c)):
                    new_value[s, c], new_held[s, c] = with_it, tuple(taken)
                else:  # lines 13 to 15
                    new_held[s, c] = held[s, c]
        value, held = new_value, new_held
    full = tuple(capacity)
    best = Printed(0, [0] * n, -math.inf)
    for s in range(xi * m + 1):
        x = held[s, full]
        if "feasible-s" in repairs and value[s, full] == -math.inf:
            continue
        score = s + math.sqrt(sum(q * b for q, b in zip(squares, x, strict=True)))
        if score > best.score:
            best = Printed(s, list(x), score)
    return best


def printed_table_bytes(channels: int, capacity: Sequence[int], delta: float, m: int, each: int = 4) -> int:
    """What the printed V(s, c, i) takes as numbers of `each` bytes: (E + 1)·(ξ m + 1)·Π (c_k + 1) of them."""
    return each * (channels + 1) * (math.ceil(m / delta) * m + 1) * math.prod(c + 1 for c in capacity)
