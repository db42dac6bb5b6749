"""EASY backfilling."""

from __future__ import annotations

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.policies.queued import InOrder
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.model import Floats

__all__ = ["EASY"]

ORDERS = ("arrival", "shortest")


class EASY(InOrder):
    """First come, first served; but tasks behind the first may start if that does not delay it.

    Which variant: the queue is in the order of arrival, and backfilling goes through it in the same order, taking
    whoever fits (first fit). Only the first has a reservation, at the earliest moment at which it fits if those that
    run end when their users said; one that runs longer is taken to end now. A task may pass if by its estimate it ends
    by then, or uses only what is left beside the reservation. All of it is done anew whenever a task arrives or ends.
    Users' estimates are taken as they are, and nobody is stopped when its estimate is over.

    Others have: the shortest first among those that may pass (SJBF, here with `order=shortest` for the whole queue),
    the best fit among them, several reservations (`conservative` gives one to everybody), estimates doubled or replaced
    by predictions (EASY++), tasks stopped at their estimate.

    Settings: `order` (`arrival`, `shortest`) and `fit`, as of fcfs.

    >>> from berth.testing import example_placement
    >>> EASY(example_placement(), np.random.default_rng(0)).backfill
    'easy'
    """

    reference = "Lifka, The ANL/IBM SP Scheduling System, 1995; Mu'alem & Feitelson, TPDS 2001"

    def __init__(
        self, problem: PlacementProblem, rng: np.random.Generator, *, order: str = "arrival", fit: str = "first"
    ) -> None:
        super().__init__(problem, rng, backfill="easy", fit=fit)
        if order not in ORDERS:
            raise InvalidInput(f"one of {', '.join(ORDERS)}", value=order, key="order")
        self.order = order

    def key(self, tasks: Tasks) -> Floats:
        return tasks.work if self.order == "shortest" else super().key(tasks)
