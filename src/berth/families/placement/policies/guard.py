"""A guard for networks: the rule decides while it is better on the recent past.

Whenever an eighth of the recent tasks is new, the network and the rule are played on the recent tasks, from an empty
cluster. A network for single tasks begins; it loses its place if its result is below the rule's by more than a margin,
which is larger while there are few tasks to judge by, and gets it back when it is at least level. The guard is strict
with a network for gangs, and as soon as a recent task is unlike those of the paper, `UNLIKE` times the mean in value or
work: then the network gets the place when it is better by the margin on at least half of the tasks that the guard can
remember, and loses it when it is worse. A batch that holds much of the recent value is checked at once, but can only
take the network's place away. So there are at most eight switches in as many tasks as the guard remembers, and one more
for every such batch.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from berth.families.placement.policies.gang_runs import GangRun, run_gangs
from berth.families.placement.policies.network import Network
from berth.families.placement.policies.rule import Rule
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.model import Floats

__all__ = ["RECENT", "Guard"]

RECENT = 1024
"""Default number of recent tasks."""
CHECKS = 8
MARGIN = 0.01
"""Margin once the guard has all its tasks; with half of them it is twice as large."""
UNLIKE = 8.0
HEAVY = 0.05
"""Share of the recent value in one batch that has the guard look at once."""


def _unlike(tasks: Tasks) -> bool:
    """Whether a task is far above the mean, as in heavy tails, which the paper's tasks do not have."""
    return any(float(part.max()) > UNLIKE * float(part.mean()) for part in (tasks.value, tasks.work))


class Guard:
    """Decides whether a network or its safe side ranks tasks.

    The safe side is the rule for the gain; for the other objectives, the shortest task first.
    """

    def __init__(
        self, problem: PlacementProblem, network: Network, objective: str = "gain", only_order: bool = False,
        recent: int = RECENT,
    ) -> None:  # fmt: skip
        self.problem, self.network, self.objective, self.only_order = problem, network, objective, only_order
        self.recent, self.trusted, self.switches = recent, not network.gangs, 0
        self.beta = 0.3 if objective == "gain" else 1.0
        """Share of launch costs that the safe side counts."""
        self._columns: dict[str, NDArray[Any]] = {}
        """The recent tasks by column, the latest last; each has room for all, so that a policy does not grow."""
        self._size = 0  # how many of them there are
        self._since = 0  # new tasks since the last regular check

    def ranks(self, tasks: Tasks) -> Floats:
        """Ranks of the safe side (n,)."""
        return Rule.ranks(tasks, self.problem.weight, 1.0) if self.objective == "gain" else -tasks.work

    def trusts(self, new: Tasks, up: NDArray[np.bool_]) -> bool:
        """Whether the network may rank tasks, now that these have arrived."""
        if not len(new):
            return self.trusted
        first, tasks = not self._size, self._joined(new)
        self._since += len(new)
        due = (first and self.trusted) or self._since * CHECKS >= self.recent
        heavy = self.trusted and self.objective == "gain" and new.value.sum() >= HEAVY * tasks.value.sum()
        if due or heavy:
            better = self._compare(tasks, up)
            margin = MARGIN * self.recent / len(tasks)
            strict = self.network.gangs or _unlike(tasks)
            if strict:
                enough = 2 * len(tasks) >= self.recent
                trusted = better >= (0.0 if self.trusted else margin) and (self.trusted or enough)
            else:
                trusted = better >= (-margin if self.trusted else 0.0)
            self.switches += trusted != self.trusted
            self.trusted = trusted
            self._since = 0 if due else self._since
        return self.trusted

    def _joined(self, new: Tasks) -> Tasks:
        """The recent tasks with these."""
        count = min(len(new), self.recent)
        self._size = min(self._size + count, self.recent)
        columns = {}
        for name in (column.name for column in dataclasses.fields(Tasks)):
            given = getattr(new, name)[-count:]
            kept = self._columns.setdefault(name, np.zeros((self.recent, *given.shape[1:]), dtype=given.dtype))
            kept[:-count] = kept[count:]
            kept[-count:] = given
            columns[name] = kept[-self._size :].copy()
        columns["arrival"] = np.maximum.accumulate(columns["arrival"])  # a clock may have been set back
        return Tasks(**columns)

    def _compare(self, tasks: Tasks, up: NDArray[np.bool_]) -> float:
        """By how much the network is better than the safe side on these tasks, as a share."""
        if self.objective == "gain":
            learned = run_gangs(self.problem, tasks, self.network, only_order=self.only_order, up=up).gain
            safe = run_gangs(self.problem, tasks, beta=self.beta, up=up).gain
            return (learned - safe) / max(abs(safe), 1e-300)
        costs = [self._forced(tasks, by, up).cost(tasks, self.objective) for by in (self.network, self.ranks(tasks))]
        return (costs[1] - costs[0]) / max(costs[1], 1e-300)

    def _forced(self, tasks: Tasks, by: Network | Floats, up: NDArray[np.bool_]) -> GangRun:
        return run_gangs(self.problem, tasks, by, only_order=True, forced=True, up=up)
