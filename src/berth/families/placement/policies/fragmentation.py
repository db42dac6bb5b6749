"""Fragmentation-aware placement, which keeps devices whole."""

from __future__ import annotations

import numpy as np

from berth.families.placement.policies.queued import InOrder
from berth.families.placement.problem import PlacementProblem

__all__ = ["FragmentationAware"]


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
