"""ESDP as its papers print it: a reference, not a recommendation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.selection.kernels.printed import printed_choice
from berth.families.selection.policies.index import most_open, no_roles
from berth.families.selection.policies.statistics import Statistics, check_at_least
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.model import Floats, Ints

__all__ = ["ESDPPrinted"]

LARGEST = 2**31  # largest table of decisions, in bytes
FAR = 10**6  # slot for which the table must fit if the horizon is unknown


def _ln1(x: float) -> float:
    return math.log(x + 1.0)


DELTAS: dict[str, Callable[[float], float]] = {
    "log": lambda t: 1.0 / (_ln1(t) + 1.0),
    "loglog": lambda t: 1.0 / (_ln1(_ln1(t)) + 1.0),
    "logloglog": lambda t: 1.0 / (_ln1(_ln1(_ln1(t))) + 1.0),
}
GS: dict[str, Callable[[float, float], float]] = {
    "full": lambda t, m: _ln1(t) + 4.0 * _ln1(_ln1(t)) * m,
    "loglog": lambda t, m: 4.0 * _ln1(_ln1(t)) * m,
    "log": lambda t, m: _ln1(t),
}


class ESDPPrinted:
    """Algorithms 1 and 2 as printed: everything rounded up, m = α·E, arrivals checked only after the choice.

    Only what keeps it from running at all is repaired:

    * the maximum over s leaves out sums that no choice reaches (as printed they win, and nothing is opened);
    * a channel that is not taken keeps the choice made without it (as printed, that choice is forgotten);
    * a channel never opened has a large finite spread instead of +∞ (as printed, −∞ + ∞ is NaN);
    * statistics are those of slots before t (as printed they contain x(t) itself), of net gains clipped to [0, 1], as
      the papers assume.

    Capacity is that of the whole cluster: if servers are separate pools, choices can overfill them. Simulations count
    the violations and play the repaired choice.

    Settings: `alpha`; `delta`, `"log"`, `"loglog"` or `"logloglog"` (figure 7); `g`, `"full"`, `"loglog"` or `"log"`
    (figure 8).

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> ESDPPrinted(problem).decide(slot)
    array([1, 0, 0])
    """

    family = "selection"
    reference = "Zhao et al., Learning to Dispatch Multi-Server Jobs in Bipartite Graphs with Unknown Service Rates"

    def __init__(
        self,
        problem: SelectionProblem,
        rng: Any = None,
        *,
        alpha: float = 0.5,
        delta: str = "loglog",
        g: str = "full",
    ) -> None:
        self.problem = no_roles(problem, self)
        self.alpha = check_at_least(alpha, "alpha", above=True)
        if delta not in DELTAS:
            raise InvalidInput(f"one of {', '.join(DELTAS)}", value=delta, key="delta")
        if g not in GS:
            raise InvalidInput(f"one of {', '.join(GS)}", value=g, key="g")
        self.delta, self.g = delta, g
        limit = problem.limits.sum(axis=0)
        takes = problem.takes
        if (takes != np.floor(takes)).any() or (limit != np.floor(limit)).any():
            raise UnsupportedProblem("the printed dynamic programme needs demands and capacities in whole numbers")
        channels = len(problem.cost)
        self.most = max(1, math.ceil(alpha * channels))
        self._open = most_open(takes, np.zeros(channels, dtype=np.int64), limit[None])
        sums = self.most / DELTAS[delta](problem.horizon or FAR) * min(self.most, self._open)
        cells = float(channels) * sums * float(np.prod(limit + 1.0))
        if cells > LARGEST:
            raise UnsupportedProblem(f"the printed dynamic programme would table {cells:.2g} states, too many to hold")
        self._takes, self._limit = takes.astype(np.int64), limit.astype(np.int64)
        self.statistics = Statistics(channels)

    def index(self, time: int) -> tuple[Ints, Floats, int]:
        """Υ(t) (E,), Σ²(t) (E,) and ξ(t): gains and spreads, scaled and rounded up."""
        seen, most = self.statistics, self.most
        xi = math.ceil(most / DELTAS[self.delta](time))
        g = GS[self.g](time, most)
        # one channel never opened outweighs every choice without it: gains of 1 and spreads of g / 2 each
        large = (1.0 + most + math.sqrt(most * g / 2.0)) ** 2
        spread = np.where(seen.unseen, large, g / (2.0 * seen.tried))
        return np.ceil(xi * seen.mean).astype(np.int64), np.ceil(xi**2 * spread), xi

    def decide(self, slot: SelectionSlot, /) -> Ints:
        gain, spread, xi = self.index(slot.index + 1)
        decision = np.zeros(len(gain), dtype=np.int64)
        if decision.size:
            # sums above that of the largest fitting gains are never reached: the table need not hold all of S(t)
            reached = int(np.sort(gain)[gain.size - self._open :].sum())
            printed_choice(gain, spread, self._takes, self._limit, min(xi * self.most, reached), decision)
        decision[~self.problem.available(slot)] = 0
        return decision

    def observe(self, outcome: SelectionOutcome, /) -> None:
        net = np.clip(outcome.gains - self.problem.cost[outcome.channels], 0.0, 1.0)
        known = SelectionOutcome(outcome.slot, outcome.channels, outcome.tasks, net, outcome.reward)
        self.statistics.learn(known)
