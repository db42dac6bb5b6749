"""All that a policy's own package has to test: that it keeps the promises, and what it is for."""

from __future__ import annotations

import numpy as np
from berth_example_policy import GreedyGain

from berth.testing import check_policy, example_problem, example_slot


def test_keeps_every_promise() -> None:
    check_policy(GreedyGain)


def test_serves_nothing_that_costs_more_than_it_earns() -> None:
    problem = example_problem().replace(overhead=np.array([9.0, 0.1]))
    decision = GreedyGain(problem).decide(example_slot(problem))
    assert decision.sum(axis=0).tolist() == [0.0, 3.0]
