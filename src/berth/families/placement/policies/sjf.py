"""Shortest job first."""

from __future__ import annotations

import numpy as np

from berth.families.placement.policies.queued import InOrder
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.model import Floats

__all__ = ["SJF"]


class SJF(InOrder):
    """Tasks start in the order of their known work, the shortest first; nobody passes the first in the queue.

    Settings: `backfill` and `fit`, as of fcfs. Long tasks may wait for ever.

    >>> problem = PlacementProblem.of_servers([[4.0], [2.0]], speed=[2.0, 1.0], launch=[1.0, 0.5], rate=[0.1, 0.1])
    >>> SJF(problem, np.random.default_rng(0)).fit
    'first'
    """

    reference = "Smith, Various Optimizers for Single-Stage Production, 1956; here with users' estimates"

    def __init__(
        self, problem: PlacementProblem, rng: np.random.Generator, *, backfill: str = "none", fit: str = "first"
    ) -> None:
        super().__init__(problem, backfill=backfill, fit=fit)

    def key(self, tasks: Tasks) -> Floats:
        return tasks.work
