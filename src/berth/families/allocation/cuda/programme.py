"""The concave programme of the allocation family on a GPU, with warm start and certificate.

The same iterations as `berth.families.allocation.kernels.ascent`, for several problems side by side.

Axes: P problems, J jobs, K resources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from berth.cuda import source
from berth.families.allocation.cuda.batch import Batch
from berth.families.allocation.kernels.ascent import FIRST_CHECK, LOOSEST, RELAX, SHARES, STALLED
from berth.families.allocation.kernels.utilities import LINEAR, LOG, POLY, RECIPROCAL, TABLE
from berth.families.allocation.problem import AllocationProblem
from berth.model import Floats

__all__ = ["CudaProgramme", "Played", "Solved"]

RECORDED = 4  # iterations of a recorded launch


@dataclass(frozen=True, eq=False)
class Played:
    """Gain and overhead of the decisions of a call, and the largest excess over a capacity, each (P,)."""

    gain: Floats
    overhead: Floats
    excess: Floats

    @property
    def value(self) -> Floats:
        """Gain − overhead, (P,)."""
        return self.gain - self.overhead


@dataclass(frozen=True, eq=False)
class Solved:
    """Values and certified upper bounds, (P,), and the number of iterations."""

    value: Floats
    bound: Floats
    iterations: int

    @property
    def gap(self) -> Floats:
        """Largest distance of each value from its optimum, relative to the bound."""
        return np.where(self.bound == self.value, 0.0, (self.bound - self.value) / np.abs(self.bound))


class CudaProgramme:
    """Maximise Σ_j w_j (gain_j − overhead_j) for every problem of a batch (made with `programme`), repeatedly.

    Each call starts from what every job had when it last had a weight; the decisions are in `y`.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        device, problems, resources = batch.device, len(batch.problems), batch.resources
        code = source(__file__, "common.cuh", "ascent.cu", "bound.cu")
        names = ("forget", "recall", "iterate", "adjust", "charges", "settle", "overheads", "bound")
        self._kernels = device.kernels(code, batch.macros, names)
        self.y, self._remembered = batch.element_values(), batch.element_values()
        self._best: Any = None
        self._tau, self._damp = batch.lane_values(), batch.lane_values()
        self._scratch = device.zeros(1 if batch.rows else 2 * batch.elements, batch.dtype)
        self._sums, self._loose_sums = batch.sums(), batch.sums()
        self._beta = device.array(np.stack([problem.overhead for problem in batch.problems]))
        self._dual = device.array(np.full((problems, batch.jobs, resources), 1.0 / resources))
        self._total = device.zeros((problems, batch.jobs, resources), np.float64)
        self._charge = device.zeros((problems, batch.cells + 1), batch.dtype)
        self._weight, self._rewarded = (device.zeros((problems, batch.jobs), np.float64) for _ in range(2))
        self._loose, self._pace = device.array(np.ones(problems)), device.array(np.ones(problems))
        tables = batch.problems[0].utilities.tables
        falls = -np.diff(tables[0], axis=1).min(axis=1, initial=0.0)
        self._bends = device.array((falls / tables[2]).astype(batch.dtype))
        self._stats, self._bounds = device.zeros((batch.blocks, 2), np.float64), device.zeros(batch.blocks, np.float64)
        self._rows = device.array(batch.sum_rows.astype(np.int32))
        self._group, self._groups, self._job_threads, self._job_shared = batch.price_blocks
        self._costs = device.zeros(problems * self._groups, np.float64)
        self._loose_scale = _loose_scale(batch)
        self._several: Callable[[], None] | None = None
        # the threshold of zero: this share of the gain if all jobs got their full requests
        self._nothing = np.array([_most(problem) for problem in batch.problems]) * 1e-9
        self._launch("forget", self._remembered)

    def _launch(self, name: str, *arguments: Any) -> None:
        """A kernel over all elements."""
        batch = self.batch
        ascent = (self._weight, self._charge, self._loose, self._bends, np.int32(batch.jobs))
        self._kernels[name](batch.blocks, batch.warps * 32, batch.shared_bytes, [*batch.arguments, *ascent, *arguments])

    def _by_job(self, name: str, *arguments: Any) -> None:
        """A kernel over groups of jobs."""
        blocks = len(self.batch.problems) * self._groups
        self._kernels[name](blocks, self._job_threads, self._job_shared, [self._rows, *arguments])

    def _begin(self, weights: Floats, rewarded: Floats | None) -> None:
        batch, fill = self.batch, self.batch.device.fill
        given = np.ascontiguousarray(np.broadcast_to(weights, self._weight.shape), dtype=np.float64)
        fill(self._weight, given)
        fill(self._rewarded, given if rewarded is None else np.ascontiguousarray(rewarded, dtype=np.float64))
        fill(self._loose, 1.0)
        fill(self._pace, 1.0)
        sizes = np.int32(len(batch.problems)), np.int32(batch.jobs)
        blocks = -(-len(batch.problems) * batch.jobs // 128)
        self._kernels["charges"](blocks, 128, 0, [self._weight, self._beta, self._dual, self._charge, *sizes])
        self._launch("recall", self._remembered, self._damp, self.y)

    def _iterate(self) -> None:
        batch = self.batch
        self._launch(
            "iterate",
            *(self._damp, self._scratch, self._tau, self.y, self._sums, self._loose_sums),
            *(np.float64(self._loose_scale), np.int64(batch.elements)),
        )
        units = np.float64(1.0 / batch.scale), np.float64(1.0 / self._loose_scale)
        self._by_job(
            "adjust",
            *(self._weight, self._beta, self._pace, self._sums, self._loose_sums, self._dual, self._total),
            *(self._charge, *units, np.int32(batch.jobs), np.int32(self._group)),
        )

    def _iterate_often(self) -> None:
        for _ in range(RECORDED):
            self._iterate()

    def _ascend(self, iterations: int) -> None:
        self.batch.device.fill(self._total, 0.0)
        left = iterations
        if self._several is None and left > RECORDED:
            self._iterate()  # loads the kernels
            left -= 1
            self._several = self.batch.device.recorded(self._iterate_often)
        while self._several is not None and left >= RECORDED:
            self._several()
            left -= RECORDED
        for _ in range(left):
            self._iterate()

    def _settle(self) -> None:
        batch = self.batch
        self._launch("settle", self._rewarded, self._remembered, self.y, self._sums, self._loose_sums, self._stats)
        self._by_job(
            "overheads",
            *(self._rewarded, self._beta, self._sums, self._costs),
            *(np.float64(1.0 / batch.scale), np.int32(batch.jobs), np.int32(self._group)),
        )

    def _played(self) -> Played:
        """Gain and overhead that the last `_settle` left."""
        stats = self.batch.device.host(self._stats)
        first = self.batch.first_block[:-1]
        costs = self.batch.device.host(self._costs).reshape(len(self.batch.problems), -1)
        return Played(np.add.reduceat(stats[:, 0], first), costs.sum(axis=1), np.maximum.reduceat(stats[:, 1], first))

    def improve(self, weights: Floats, iterations: int, rewarded: Floats | None = None) -> Played:
        """Feasible decisions after this many iterations from the warm start; `weights` are (P, J) or (J,).

        Gains and overheads are those of the weights, or of `rewarded` (P, J) if given.
        """
        self._begin(weights, rewarded)
        self._ascend(iterations)
        self._settle()
        return self._played()

    def bound(self, averaged: int = 0) -> Floats:
        """Certified upper bound on the optimum of the last weights, (P,), from the current multipliers.

        With `averaged` from their average over the last call, which had this number of iterations.
        """
        batch = self.batch
        dual, factor = (self._total, 1.0 / averaged) if averaged else (self._dual, 1.0)
        self._kernels["bound"](
            batch.blocks,
            batch.warps * 32,
            batch.shared_bytes,
            [
                *(*batch.arguments, self._weight, self._beta, dual, self._tau, self._bounds),
                *(np.float64(factor), np.int32(batch.jobs)),
            ],
        )
        return np.add.reduceat(batch.device.host(self._bounds), batch.first_block[:-1])

    def solve(self, weights: Floats, gap: float, max_iterations: int = 20_000) -> Solved:
        """Iterate until every value and its bound are within `gap`, relative, or the iterations are used up.

        The bounds hold in either case. Steps of a problem change between checks as on the CPU.
        """
        fill, problems = self.batch.device.fill, len(self.batch.problems)
        self._begin(weights, None)
        best, bound, previous = np.full(problems, -np.inf), np.full(problems, np.inf), np.full(problems, np.inf)
        done, pace, loose = 0, np.ones(problems), np.ones(problems)
        if self._best is None:
            self._best = self.batch.element_values()
        while True:
            chunk = max(min(max(FIRST_CHECK, done // 4), max_iterations - done), 1)
            self._ascend(chunk)
            self._settle()
            done += chunk
            reached = self._played().value
            for place in np.flatnonzero(reached > best):
                rows = slice(int(self.batch.first_row[place]), int(self.batch.first_row[place + 1]))
                fill(self._best[rows], self.y[rows])
            best = np.maximum(best, reached)
            fresh = self.bound()
            if (fresh >= bound).any():  # a dual that cycles instead of converging: its average does better
                fresh = np.minimum(fresh, self.bound(averaged=chunk))
            bound = np.minimum(bound, fresh)
            now = (bound - best) / np.maximum(np.abs(bound), self._nothing)
            if (now <= gap).all() or done >= max_iterations:
                break
            stalled = now > STALLED * previous
            pace = np.where(stalled, np.maximum(RELAX * pace, 0.1), pace)
            change = np.where(stalled, np.where(loose < 1.0, 1.0 / RELAX, 1.0), np.where(loose > LOOSEST, RELAX, 1.0))
            loose = loose * change
            fill(self._pace, pace)
            fill(self._loose, loose)
            previous = now
        fill(self.y, self._best)
        self._settle()  # the warm start of the next call
        return Solved(best, bound, done)


def _loose_scale(batch: Batch) -> float:
    """The power of two that keeps sums of w/h below 2^62, with room for the smallest ρ of `solve`."""
    most = 0.0
    for problem in batch.problems:
        kind, alpha, capacity = problem.utilities.kind, problem.utilities.alpha, problem.instance.capacity
        tables = problem.utilities.tables[0][np.maximum(kind - TABLE, 0), 0] * alpha
        options = [kind == LINEAR, kind == LOG, kind == RECIPROCAL, kind == POLY]
        steep = np.select(options, [alpha, alpha, alpha**-2.0, 0.5 * alpha], tables)
        channels = np.bincount(problem.channel_job, minlength=problem.jobs).max(initial=1)
        longest = np.max(np.maximum(SHARES * capacity, 1.0) / np.where(steep > 0, steep, 1.0))
        most = max(most, float(longest) * float(channels))
    return float(2.0 ** np.floor(np.log2(2.0**61 * RELAX * LOOSEST / most)))


def _most(problem: AllocationProblem) -> float:
    """Gain if all jobs got their full requests."""
    return problem.reward(np.ones(problem.jobs), problem.cap)[0]
