"""Tetris: packing by alignment."""

from __future__ import annotations

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.kernels.gathering import Free, Pieces, Rows
from berth.families.placement.kernels.queueing import start_packed
from berth.families.placement.policies.queued import QueuedPolicy
from berth.families.placement.problem import PlacementProblem, PlacementSlot

__all__ = ["Tetris"]


class Tetris(QueuedPolicy):
    """The best aligned pair of waiting task and server first: large demand where much is free, in the same resources.

    Alignment is the scalar product of demand and free amounts, as shares of the largest server; `hurry` times the known
    work is subtracted, each relative to its mean over the tasks that fit. With 0 it only packs. A gang's pieces go to
    its best aligned servers in turn. Nothing is reserved for tasks that do not fit: large ones may wait for ever.

    >>> from berth.testing import example_placement
    >>> Tetris(example_placement(), np.random.default_rng(0)).hurry
    1.0
    """

    reference = "Grandl et al., Multi-Resource Packing for Cluster Schedulers, SIGCOMM 2014"

    def __init__(self, problem: PlacementProblem, rng: np.random.Generator, *, hurry: float = 1.0) -> None:
        super().__init__(problem, fit="aligned")
        if not 0.0 <= hurry < np.inf:
            raise InvalidInput("a number ≥ 0", value=hurry, key="hurry")
        self.hurry = float(hurry)

    def start(self, slot: PlacementSlot, pieces: Pieces, free: Free, rows: Rows) -> None:
        size = len(slot.ids)
        best, where = np.empty(size), np.empty(size, dtype=np.int64)
        start_packed(self._fleet, free, self._classes, pieces, self.hurry, best, where, rows)
