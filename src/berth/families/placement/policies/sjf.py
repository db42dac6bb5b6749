"""Shortest job first."""

from __future__ import annotations

from berth.families.placement.policies.queued import InOrder
from berth.families.placement.problem import Tasks
from berth.model import Floats

__all__ = ["SJF"]


class SJF(InOrder):
    """Tasks start in order of their known work, the shortest first; none passes the first in the queue.

    Settings: `backfill` and `fit`, as in fcfs. Long tasks may wait for ever.

    >>> from berth.testing import example_placement
    >>> SJF(example_placement()).fit
    'first'
    """

    reference = "Smith, Various Optimizers for Single-Stage Production, 1956; here with users' estimates"

    def key(self, tasks: Tasks) -> Floats:
        return tasks.work
