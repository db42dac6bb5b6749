"""Questions and choices of solvers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from berth.model import Floats, Ints

__all__ = ["Choice", "GangQuestion", "Question"]


@dataclass(frozen=True, eq=False)
class Question:
    """Which channels to open: maximise gainᵀx + √(spreadᵀx) over x in {0, 1}ⁿ with Σ takes·x ≤ free in every pool.

    `gain` (n,) may be negative (opening nothing is allowed), `spread` (n,) ≥ 0, `takes` (n, K) ≥ 0, `pool` (n,) is the
    row of `free` (G, K) that a channel draws from.
    """

    gain: Floats
    spread: Floats
    takes: Floats
    pool: Ints
    free: Floats

    def value(self, tasks: Ints) -> float:
        """Objective of this choice (n,)."""
        opened = np.flatnonzero(tasks)  # few of many
        count = tasks[opened].astype(np.float64)
        return float(self.gain[opened] @ count) + math.sqrt(max(float(self.spread[opened] @ count), 0.0))

    def fits(self, tasks: Ints, tolerance: float = 1e-9) -> bool:
        """Whether the choice fits in every pool."""
        used = np.zeros(self.free.shape)
        np.add.at(used, self.pool, np.asarray(tasks, dtype=np.float64)[:, None] * self.takes)
        return bool((used <= self.free + tolerance * (1.0 + self.free)).all())


@dataclass(frozen=True, eq=False)
class GangQuestion(Question):
    """A question with whole numbers of tasks and gangs: x in {0, 1, 2, …}ⁿ.

    `port` (n,) is the role of each channel, `job_of_port` (L,) the job of each role. A job that starts has between
    `minimum` (L,) and `most` (L,) tasks of each of its roles; one that does not has none. Only jobs in `arrived` (J,)
    may start.
    """

    port: Ints
    job_of_port: Ints
    minimum: Ints
    most: Ints
    arrived: np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, eq=False)
class Choice:
    """A choice: tasks (n,), their value, and an upper bound on the value of any other."""

    tasks: Ints
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """Largest distance of the value from the best, relative to the bound."""
        return (self.bound - self.value) / max(abs(self.bound), 1e-12)
