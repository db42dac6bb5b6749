"""Queues: first come first served, shortest job first, and EASY backfilling."""

from __future__ import annotations

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.policies.queued import InOrder
from berth.families.placement.problem import PlacementProblem

__all__ = ["EASY", "FCFS", "SJF"]


class FCFS(InOrder):
    """Tasks start in order of arrival; none passes the first in the queue.

    Settings: `backfill` (`none`, `easy` or `any`: which tasks may pass after all) and `fit` (`first`, `best`, `worst`,
    `aligned` or `whole`: which servers its pieces get).

    >>> from berth.testing import example_placement
    >>> FCFS(example_placement()).backfill
    'none'
    """

    reference = "the strict queue that every batch scheduler is compared with"


class SJF(InOrder):
    """Tasks start in order of their known work, the shortest first; none passes the first in the queue.

    Settings: `backfill` and `fit`, as in fcfs. Long tasks may wait for ever.

    >>> from berth.testing import example_placement
    >>> SJF(example_placement()).fit
    'first'
    """

    reference = "Smith, Various Optimizers for Single-Stage Production, 1956; here with users' estimates"
    rule = "estimate"


ORDERS = {"arrival": "submit", "shortest": "estimate"}


class EASY(InOrder):
    """First come, first served; but tasks behind the first may start if that does not delay it.

    Variant: the queue is in order of arrival, and backfilling scans it in the same order, taking every task that fits
    (first fit). Only the first task has a reservation, at the earliest moment at which it fits if running tasks end at
    their estimates; one that runs longer is assumed to end now. A task may pass if by its estimate it ends by then, or
    uses only what the reservation leaves. The plan is recomputed whenever a task arrives or ends. Users' estimates are
    taken as they are, and no task is stopped when its estimate is over.

    Other variants: the shortest first among those that may pass (SJBF, here with `order=shortest` for the whole queue),
    the best fit among them, several reservations (`conservative` gives one to every task), estimates doubled or
    replaced by predictions (EASY++), tasks stopped at their estimate.

    Settings: `order` (`arrival`, `shortest`) and `fit`, as in fcfs.

    >>> from berth.testing import example_placement
    >>> EASY(example_placement(), np.random.default_rng(0)).backfill
    'easy'
    """

    reference = "Lifka, The ANL/IBM SP Scheduling System, 1995; Mu'alem & Feitelson, TPDS 2001"

    def __init__(
        self, problem: PlacementProblem, rng: np.random.Generator, *, order: str = "arrival", fit: str = "first"
    ) -> None:
        if order not in ORDERS:
            raise InvalidInput(f"one of {', '.join(ORDERS)}", value=order, key="order")
        self.order, self.rule = order, ORDERS[order]
        super().__init__(problem, rng, backfill="easy", fit=fit)
