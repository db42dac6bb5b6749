"""LCF: lowest cost first."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.families.selection.policies.baseline import Baseline
from berth.families.selection.problem import SelectionProblem
from berth.model import Ints

__all__ = ["LCF"]


class LCF(Baseline):
    """Channels by their supply cost, lowest first, regardless of gain. `misfit` is `"stop"` or `"skip"`.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> LCF(problem).decide(slot)
    array([1, 0, 0])
    """

    reference = "ESDP, section 4.1, baseline LCF"

    def __init__(self, problem: SelectionProblem, rng: Any = None, *, misfit: str = "stop") -> None:
        super().__init__(problem, rng, misfit=misfit)
        self._order = np.argsort(problem.cost, kind="stable").astype(np.int64)

    def order(self) -> Ints:
        return self._order
