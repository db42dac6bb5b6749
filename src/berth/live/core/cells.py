"""Runs by cell: of a type on a server, alone or spread over several; how many, how fast, and how different."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from berth.live.core.jobs import Job

__all__ = ["NOISE", "NOISE_RUNS", "Cell", "Cells"]

NOISE, NOISE_RUNS = 0.2, 5.0
"""The spread of the logarithms of runs that are alike before any was seen, and how many runs that counts."""
KEPT = 100.0
"""The most runs that a type on a server counts; older ones fade."""
Cell = tuple[str, str, bool]


class Cells:
    """Runs by cell (type, server, whether spread)."""

    def __init__(self) -> None:
        self._cells: dict[Cell, tuple[float, float, float, int, int]] = {}
        """Weight, mean logarithm of speed and sum of squares of each; all runs, and those that were cut off."""
        self._reference: dict[str, float] = {}
        self._total = self._fitted = 0
        """Runs in all, and when effects were estimated."""
        self._noise = NOISE**2
        self._pairs: int | None = 0
        """How many pairs of type and server have cells; None where they have to be counted."""

    def _add_to(self, cell: Cell, value: float, weight: float, run: int, cut: int) -> None:
        type_, server, spread = cell
        if self._pairs is not None and cell not in self._cells and (type_, server, not spread) not in self._cells:
            self._pairs += 1
        before, mean, squares, runs, cuts = self._cells.get(cell, (0.0, 0.0, 0.0, 0, 0))
        if before > KEPT:
            before, squares = KEPT, squares * KEPT / before
        change = value - mean
        mean += change * weight / (before + weight)
        squares += weight * change * (value - mean)
        self._cells[cell] = before + weight, mean, squares, runs + run, cuts + cut

    def deviations(self, types: Iterable[str]) -> dict[str, float]:
        """The spread of the logarithm of a run's time of each of these types."""
        cells: dict[str, list[tuple[float, float, float, int, int]]] = {type_: [] for type_ in types}
        for key, cell in self._cells.items():
            if key[0] in cells:
                cells[key[0]].append(cell)
        return {type_: math.sqrt(self._noise_of(of_type)) for type_, of_type in cells.items()}

    def _noise_of(self, cells: Sequence[tuple[float, float, float, int, int]]) -> float:
        """The variance of one run: of these cells' own, and of all as far as they are few."""
        squares = sum(cell[2] for cell in cells if cell[0] > 1.0)
        return (NOISE_RUNS * self._noise + squares) / (NOISE_RUNS + sum(max(cell[0] - 1.0, 0.0) for cell in cells))

    def work(self, job: Job) -> float:
        """How much there is to do, in seconds at speed 1, as far as is known."""
        return job.work or self._reference.get(job.type) or job.expected_seconds

    def knows(self, type_: str) -> bool:
        """Whether a run of this type has said how much work its jobs are."""
        return type_ in self._reference

    def reference(self, type_: str) -> float:
        """How much work jobs of a type are that state none, by the first run of the type; 0 before it."""
        return self._reference.get(type_, 0.0)

    @property
    def runs(self) -> int:
        """How many runs were seen."""
        return self._total

    @property
    def types(self) -> list[str]:
        """Types of which runs were seen."""
        return sorted({cell[0] for cell in self._cells})

    def seen(self, type_: str) -> list[str]:
        """Servers on which a type ran."""
        return sorted({cell[1] for cell in self._cells if cell[0] == type_})

    def __len__(self) -> int:
        if self._pairs is None:
            self._pairs = len({cell[:2] for cell in self._cells})
        return self._pairs
