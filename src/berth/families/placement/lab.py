"""The placement family in the lab."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.families.lab import REVEALED, LabFamily, OracleWords, grouped
from berth.families.placement.oracle import placement_bound
from berth.families.placement.problem import PlacementDecision, PlacementProblem, PlacementSlot
from berth.families.placement.world import PlacementWorld
from berth.model import Floats

__all__ = ["LAB", "PlacementShare"]


def _clairvoyant(world: PlacementWorld) -> tuple[Floats, float]:
    """Bound of a whole run; when it would be earned is unknown, so it is spread evenly over slots."""
    gain = placement_bound(world).gain
    return np.full(len(world), gain / len(world)), gain


class PlacementShare:
    """Observer that averages the share of each server that tasks hold over the whole run."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        ports = len(problem.instance.ports)
        self._held = np.zeros((ports, *problem.instance.capacity.shape))  # amount · time
        self._berth: dict[int, list[tuple[int, int, float, float, Floats]]] = {}
        self._end = 0.0

    def __call__(self, slot: PlacementSlot, decision: PlacementDecision, outcome: Any, /) -> None:
        still = set(slot.berths.task.tolist())
        for task in [task for task in self._berth if task not in still]:
            self._close(task, slot.time)  # ended, or lost with its server
        new = self.problem.placed(slot, decision)
        port = dict(zip(slot.ids.tolist(), slot.tasks.port.tolist(), strict=True))
        placed = set(new.task.tolist())
        self._berth = {task: rows for task, rows in self._berth.items() if task not in placed}
        for i, task in enumerate(new.task.tolist()):  # a row for each server of a gang
            row = port[task], int(new.server[i]), float(new.start[i]), float(new.end[i]), new.demand[i]
            self._berth.setdefault(task, []).append(row)
        self._end = max(self._end, slot.time)

    def _close(self, task: int, now: float) -> None:
        for port, server, start, said, demand in self._berth.pop(task):
            end = min(said, now) if self.problem.exact or np.isinf(now) else now
            if end > start:
                self._held[port, server] += (end - start) * demand
                self._end = max(self._end, end)

    def mean(self) -> Floats:
        """Mean share, (ports, servers), with neighbours averaged if there are many."""
        for task in list(self._berth):
            self._close(task, np.inf)
        capacity = self.problem.instance.capacity
        there = capacity > 0
        part = np.divide(self._held, capacity, out=np.zeros_like(self._held), where=there)
        share = part.sum(axis=2) / np.maximum(there.sum(axis=1), 1) / (self._end or 1.0)
        return grouped(grouped(share, 0), 1)


LAB = LabFamily(
    name="placement",
    information=(REVEALED,),
    oracles={"slot": _clairvoyant},
    oracle_words={
        "slot": OracleWords(
            "clairvoyant bound, spread evenly",
            "clairvoyant bound",
            "bound",
            "bound",
            "the clairvoyant bound",
            "to the bound of one who knows all tasks",
        )
    },
    measured_in="reward",
    expense="cost",
    share=PlacementShare,
    share_of="the server",
    shortened=PlacementWorld.first,
    left_out=frozenset(
        {
            "overhead",
            "expected",
            "fraction_of_stationary",
            "fraction_of_information",
            "regret_stationary",
            "regret",
            "regret_stationary_growth",
            "regret_growth",
            "regret_log_fit",
        }
    ),
    known="Every policy here sees the tasks that have arrived, and none that will. A slot is the time between two "
    "batches, and the last one goes on until every task has ended.",
    captions={
        "gain-overhead": "Gain is the value of the tasks that were started; cost is that of running them and of "
        "launching servers. Gain minus cost is the reward.",
        "allocation": "The mean share of each server that tasks hold, over the whole run, for the first seed.",
    },
)
