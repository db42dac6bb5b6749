"""First come, first served."""

from __future__ import annotations

import numpy as np

from berth.families.placement.policies.queued import InOrder
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.model import Floats

__all__ = ["FCFS"]


class FCFS(InOrder):
    """Tasks start in the order of their arrival; nobody passes the first in the queue.

    Settings: `backfill` (`none`, `easy` or `any`: who may pass it after all) and `fit` (`first`, `best`, `worst`,
    `aligned` or `whole`: which servers its pieces get).

    >>> problem = PlacementProblem.of_servers([[4.0], [2.0]], speed=[2.0, 1.0], launch=[1.0, 0.5], rate=[0.1, 0.1])
    >>> FCFS(problem, np.random.default_rng(0)).backfill
    'none'
    """

    reference = "the strict queue that every batch scheduler is compared with"

    def __init__(
        self, problem: PlacementProblem, rng: np.random.Generator, *, backfill: str = "none", fit: str = "first"
    ) -> None:
        super().__init__(problem, backfill=backfill, fit=fit)

    def key(self, tasks: Tasks) -> Floats:
        return np.zeros(len(tasks))
