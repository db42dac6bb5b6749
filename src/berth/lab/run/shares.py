"""Where a policy puts the ports' jobs: the mean share of each server that each port holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.families.placement.problem import PlacementDecision, PlacementProblem, PlacementSlot
from berth.families.selection.problem import SelectionProblem
from berth.model import Floats, Instance

__all__ = ["MeanShare", "PlacementShare", "SelectionShare", "grouped"]

MOST = 64
"""Rows or columns that a map has at most; beyond, neighbours are averaged."""


def grouped(values: Floats, axis: int, most: int = MOST) -> Floats:
    """Average neighbours along an axis until at most `most` groups are left.

    >>> grouped(np.array([[1.0, 3.0, 5.0, 7.0]]), axis=1, most=2)
    array([[2., 6.]])
    """
    size = values.shape[axis]
    if size <= most:
        return values
    edges = np.linspace(0, size, most + 1).astype(np.int64)
    total = np.add.reduceat(values, edges[:-1], axis=axis)
    shape = [1] * values.ndim
    shape[axis] = most
    return np.asarray(total / np.diff(edges).reshape(shape))


class MeanShare:
    """Watches a run and averages what each port holds of each server.

    The share of a server is the mean over its resources of held / capacity: a server that is full in
    every resource has shares that sum to 1.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._total = np.zeros((len(instance.channel_port), len(instance.cluster.resources)))
        self._slots = 0

    def __call__(self, slot: Any, decision: Floats, outcome: Any, /) -> None:
        self._total += decision
        self._slots += 1

    def mean(self) -> Floats:
        """The mean share, (ports, servers), neighbours averaged where there are many."""
        graph = self.instance
        capacity = graph.capacity[graph.channel_server]
        there = capacity > 0
        part = np.divide(self._total, capacity, out=np.zeros_like(self._total), where=there)
        share = part.sum(axis=1) / np.maximum(there.sum(axis=1), 1) / max(self._slots, 1)
        return _mapped(graph, share)


class SelectionShare:
    """The same for decisions that open channels: shares are of the pool that a channel draws from."""

    def __init__(self, problem: SelectionProblem) -> None:
        self.problem = problem
        self._total = np.zeros(len(problem.cost))
        self._slots = 0

    def __call__(self, slot: Any, decision: Any, outcome: Any, /) -> None:
        self._total += decision
        self._slots += 1

    def mean(self) -> Floats:
        """The mean share, (ports, servers), neighbours averaged where there are many."""
        problem = self.problem
        limits = problem.limits[problem.channel_pool]
        there = limits > 0
        part = np.divide(problem.takes, limits, out=np.zeros_like(limits), where=there)
        each = part.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
        return _mapped(problem.instance, self._total * each / max(self._slots, 1))


class PlacementShare:
    """The same for tasks that hold servers for a while: shares are of what a server has in the whole run."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        ports = len(problem.instance.ports)
        self._held = np.zeros((ports, *problem.instance.capacity.shape))  # amount · time
        self._berth: dict[int, list[tuple[int, int, float, float, Floats]]] = {}
        self._end = 0.0

    def __call__(self, slot: PlacementSlot, decision: PlacementDecision, outcome: Any, /) -> None:
        still = set(slot.berths.task.tolist())
        for task in [task for task in self._berth if task not in still]:
            self._close(task, slot.time)  # it has ended, or was lost with its server
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
        """The mean share, (ports, servers), neighbours averaged where there are many."""
        for task in list(self._berth):
            self._close(task, np.inf)
        capacity = self.problem.instance.capacity
        there = capacity > 0
        part = np.divide(self._held, capacity, out=np.zeros_like(self._held), where=there)
        share = part.sum(axis=2) / np.maximum(there.sum(axis=1), 1) / (self._end or 1.0)
        return grouped(grouped(share, 0), 1)


def _mapped(graph: Instance, share: Floats) -> Floats:
    """Shares of channels (E,) as (ports, servers), neighbours averaged where there are many."""
    table = np.zeros((len(graph.ports), len(graph.cluster.servers)))
    table[graph.channel_port, graph.channel_server] = share
    return grouped(grouped(table, 0), 1)
