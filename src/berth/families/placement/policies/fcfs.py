"""First come, first served."""

from __future__ import annotations

from berth.families.placement.policies.queued import InOrder

__all__ = ["FCFS"]


class FCFS(InOrder):
    """Tasks start in order of arrival; none passes the first in the queue.

    Settings: `backfill` (`none`, `easy` or `any`: which tasks may pass after all) and `fit` (`first`, `best`, `worst`,
    `aligned` or `whole`: which servers its pieces get).

    >>> from berth.testing import example_placement
    >>> FCFS(example_placement()).backfill
    'none'
    """

    reference = "the strict queue that every batch scheduler is compared with"
