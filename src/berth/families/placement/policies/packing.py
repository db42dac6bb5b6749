"""Every task that fits starts: best fit, Tetris, and fragmentation-aware placement."""

from __future__ import annotations

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.kernels.gathering import Free, Pieces, Rows
from berth.families.placement.kernels.queueing import start_packed
from berth.families.placement.policies.queue_rule import QueueRule
from berth.families.placement.policies.queued import InOrder, QueuedPolicy
from berth.families.placement.problem import PlacementProblem, PlacementSlot

__all__ = ["BestFit", "FragmentationAware", "Tetris"]


class BestFit(InOrder):
    """Every waiting task that fits starts, in order of arrival, on the servers that are left with least.

    The remainder is a sum over resources of shares of the largest server.

    >>> from berth.testing import example_placement
    >>> BestFit(example_placement(), np.random.default_rng(0)).backfill
    'any'
    """

    reference = "Panigrahy et al., Heuristics for Vector Bin Packing, 2011"

    def __init__(self, problem: PlacementProblem, rng: np.random.Generator) -> None:
        super().__init__(problem, rng, backfill="any", fit="best")


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

    @property
    def queue_rule(self) -> QueueRule | None:
        return QueueRule(fit=self.fit, turns="packed", hurry=self.hurry)

    def start(self, slot: PlacementSlot, pieces: Pieces, free: Free, rows: Rows) -> None:
        size = len(slot.ids)
        best, where = np.empty(size), np.empty(size, dtype=np.int64)
        start_packed(self._fleet, free, self._classes, pieces, self.hurry, best, where, rows)


class FragmentationAware(InOrder):
    """Every waiting task that fits starts, in order of arrival, where it adds least to fragmentation (FGD).

    Fragments of a server are its free devices that a task cannot use: all of them if the task does not fit there or
    needs none, else those with too small a share left. The expectation is over the tasks seen so far, in the most
    common 64 classes of port and demand (counted by the space-saving algorithm, which bounds memory). Ties, which
    without devices are all servers, go to the server with the least left; the paper does not say. On a server, a share
    goes to the fullest device that has it, where the paper tries every device.

    Setting: `backfill`, as in fcfs.

    >>> from berth.testing import example_placement
    >>> FragmentationAware(example_placement(), np.random.default_rng(0)).fit
    'whole'
    """

    reference = "Weng et al., Beware of Fragmentation, USENIX ATC 2023"

    def __init__(self, problem: PlacementProblem, rng: np.random.Generator, *, backfill: str = "any") -> None:
        super().__init__(problem, rng, backfill=backfill, fit="whole")
