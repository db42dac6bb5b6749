"""Selection: is this channel opened?

Axes: E channels, G pools, K resources.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from berth.errors import UnsupportedProblem
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.gym.episodes import ScenarioEnv
from berth.gym.questions import Asking, Questions, part, signed

__all__ = ["SelectionEnv", "SelectionQuestions"]

FEATURES = (
    "mean gain so far",
    "trials so far",
    "cost",
    "share of what is free",
    "share of the capacity",
    "channels of the job opened in this slot",
    "channels left to ask",
    "share of the run",
)


class SelectionQuestions(Questions):
    """Asks about each channel whose job has arrived and that fits: 0 leaves it, 1 opens it.

    Channels that were never tried come first, then those with the highest mean gain less cost. Gains and costs are
    relative to the mean gain of all tasks so far.
    """

    family = "selection"

    def __init__(self, problem: SelectionProblem) -> None:
        if problem.roles is not None:
            raise UnsupportedProblem("questions about single channels cannot keep gangs whole")
        self.problem = problem
        self.features = FEATURES
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(-1.0, 1.0, (len(FEATURES),), np.float32)
        self._total, self._count = np.zeros(len(problem.cost)), np.zeros(len(problem.cost))

    def ask(self, slot: SelectionSlot) -> Asking:
        """Ask about the channels of this slot."""
        problem = self.problem
        decision = np.zeros(len(problem.cost), dtype=np.int64)
        mean = self._total / np.maximum(self._count, 1.0)
        worth = np.where(self._count > 0, mean - problem.cost, np.inf)
        tried = float(self._count.sum())
        scale = float(np.abs(self._total).sum()) / tried if tried else float(np.abs(problem.cost).max(initial=0.0))
        left, jobs = slot.free.copy(), problem.channel_job
        there = np.flatnonzero(problem.available(slot))
        order = there[np.argsort(-worth[there], kind="stable")]
        for place, e in enumerate(order.tolist()):
            pool, takes = problem.channel_pool[e], problem.takes[e]
            if not (takes <= left[pool]).all():
                continue
            seen = np.array(
                [
                    signed(float(mean[e]), scale or 1.0),
                    part(float(self._count[e]), 10.0),
                    signed(float(problem.cost[e]), scale or 1.0),
                    _largest(takes, left[pool]),
                    _largest(takes, problem.limits[pool]),
                    part(float(decision[jobs == jobs[e]].sum()), 1.0),
                    part(float(len(order) - place - 1), 10.0),
                    part(float(slot.index), float(problem.horizon or 1000)),
                ],
                dtype=np.float32,
            )
            if int((yield np.clip(seen, -1.0, 1.0), np.ones(2, dtype=np.int8))):
                decision[e] = 1
                left[pool] -= takes
        return decision

    def observe(self, outcome: SelectionOutcome) -> None:
        """Count the gains of the opened channels."""
        self._total[outcome.channels] += outcome.gains
        self._count[outcome.channels] += outcome.tasks


def _largest(takes: Any, there: Any) -> float:
    """Largest share of an amount that is taken, 0 to 1."""
    share = np.divide(takes, there, out=np.zeros(len(takes)), where=there > 0)
    return min(float(share.max(initial=0.0)), 1.0)


class SelectionEnv(ScenarioEnv):
    """Which channels are opened, one after the other, in a scenario of the selection family without gangs.

    >>> env = SelectionEnv("esdp-small", {"horizon": 3})
    >>> observation, info = env.reset(seed=1)
    >>> env.action_space, observation.shape, info["action_mask"].tolist()
    (Discrete(2), (8,), [1, 1])
    """

    asked = SelectionQuestions
    default = "esdp-small"
