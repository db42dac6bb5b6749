"""Placement that keeps devices whole."""

from __future__ import annotations

import numpy as np

from berth.families.placement.policies.queued import InOrder
from berth.families.placement.problem import PlacementProblem

__all__ = ["FragmentationAware"]


class FragmentationAware(InOrder):
    """Every waiting task that fits starts, in the order of arrival, where it adds least to fragmentation (FGD).

    Fragments of a server are its free devices that a task cannot use: all of them where the task does not fit there or
    wants none, else those with too little left for its share. They are expected over the tasks seen so far, in the
    commonest 64 classes of port and demand (counted by the space-saving method, so that memory is bounded). Among
    servers where it adds the same, and without devices that is all of them, the one with the least left is taken, of
    which the paper says nothing. On a server, a share goes to the fullest device that has it, where the paper tries
    every device.

    Setting: `backfill`, as of fcfs.

    >>> from berth.testing import example_placement
    >>> FragmentationAware(example_placement(), np.random.default_rng(0)).fit
    'whole'
    """

    reference = "Weng et al., Beware of Fragmentation, USENIX ATC 2023"

    def __init__(self, problem: PlacementProblem, rng: np.random.Generator, *, backfill: str = "any") -> None:
        super().__init__(problem, rng, backfill=backfill, fit="whole")
