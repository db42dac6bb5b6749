"""Runs by cell: of a type on a server, alone or spread over several; how many, how fast, and how different."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from berth.live.core.jobs import Job
from berth.live.core.shapes import longer
from berth.model import Floats, Ints

__all__ = ["KEPT", "NOISE", "NOISE_RUNS", "Cell", "Cells", "Runs"]

NOISE, NOISE_RUNS = 0.2, 5.0
"""The spread of the logarithms of runs that are alike before any was seen, and how many runs that counts."""
KEPT = 100.0
"""The most runs that a type on a server counts; older ones fade."""
Cell = tuple[str, str, bool]


class Runs(NamedTuple):
    """Runs as columns: the types that occur; of each run its type (n,) and where its places begin (n + 1,); the row of
    the server of each place (p,); and the logarithm of the speed of each run (n,).
    """

    types: Sequence[str]
    type: Ints
    start: Ints
    server: Ints
    speed: Floats

    def places(self) -> tuple[Ints, Ints]:
        """The run and the server of each place, of several places of a run on one server only the first."""
        run = np.repeat(np.arange(len(self.type)), np.diff(self.start))
        _, first = np.unique(np.stack([run, self.server]), axis=1, return_index=True)
        kept = np.sort(first)
        return run[kept], self.server[kept]


class Cells:
    """Runs by cell (type, server, whether spread), as columns.

    Axes: n cells, in the order of their first runs.
    """

    def __init__(self) -> None:
        self._row: dict[Cell, int] = {}
        self._seen, self._counts = np.zeros((0, 3)), np.zeros((0, 2), dtype=np.int64)
        """Weight, mean logarithm of speed and sum of squares of each cell; all its runs, and those cut off."""
        self._type, self._place = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        """The number of the type of each cell, and of its server."""
        self._types: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self._reference: dict[str, float] = {}
        self.met = 0
        """How often references of types were set or forgotten."""
        self._total = self._fitted = 0
        """Runs in all, and when effects were estimated."""
        self._noise = NOISE**2
        self._pairs = 0
        """How many pairs of type and server have cells."""

    def _put(self, cell: Cell, seen: Sequence[float], count: Sequence[int]) -> None:
        """Set what is known of a cell, which may be new."""
        row = self._row.get(cell)
        if row is None:
            self._pairs += (cell[0], cell[1], not cell[2]) not in self._row
            row = self._row[cell] = len(self._row)
            for name in ("_seen", "_counts", "_type", "_place"):
                setattr(self, name, longer(getattr(self, name), row + 1))
            self._type[row] = self._types.setdefault(cell[0], len(self._types))
            self._place[row] = self._places.setdefault(cell[1], len(self._places))
        self._seen[row], self._counts[row] = seen, count

    def _add_to(self, cell: Cell, value: float, weight: float, run: int, cut: int) -> None:
        row = self._row.get(cell)
        before, mean, squares = (0.0, 0.0, 0.0) if row is None else self._seen[row].tolist()
        runs, cuts = (0, 0) if row is None else self._counts[row].tolist()
        if before > KEPT:
            before, squares = KEPT, squares * KEPT / before
        change = value - mean
        mean += change * weight / (before + weight)
        squares += weight * change * (value - mean)
        self._put(cell, (before + weight, mean, squares), (runs + run, cuts + cut))

    def _forget(self, gone: Container[Cell]) -> None:
        """Remove cells."""
        kept = [(cell, seen, count) for cell, seen, count in self._cells() if cell not in gone]
        self._row, self._types, self._pairs = {}, {}, 0
        for cell, seen, count in kept:
            self._put(cell, seen, count)

    def _cells(self) -> Iterator[tuple[Cell, list[float], list[int]]]:
        """What is known of each cell: weight, mean and sum of squares, and its runs and those that were cut off."""
        rows = len(self._row)
        yield from zip(self._row, self._seen[:rows].tolist(), self._counts[:rows].tolist(), strict=True)

    def deviations(self, types: Iterable[str]) -> dict[str, float]:
        """The spread of the logarithm of a run's time of each of these types."""
        of_type, seen = self._type[: len(self._row)], self._seen[: len(self._row)]
        rows = {type_: np.flatnonzero(of_type == self._types.get(type_, -1)) for type_ in types}
        return {type_: math.sqrt(self._noise_of(seen[mine])) for type_, mine in rows.items()}

    def _noise_of(self, seen: Floats) -> float:
        """The variance of one run: of these cells' own (n, 3), and of all as far as they are few."""
        squares = spare = 0.0
        for weight, _, square in seen.tolist():
            if weight > 1.0:
                squares += square
                spare += weight - 1.0
        return float((NOISE_RUNS * self._noise + squares) / (NOISE_RUNS + spare))

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
        return sorted({cell[0] for cell in self._row})

    def seen(self, type_: str) -> list[str]:
        """Servers on which a type ran."""
        return sorted({cell[1] for cell in self._row if cell[0] == type_})

    def __len__(self) -> int:
        return self._pairs
