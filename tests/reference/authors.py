"""Slow twin of `ogasched-authors`: what the authors' public code does, slot by slot, with lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from berth.families.allocation.problem import AllocationProblem
from berth.model import Floats
from tests.reference.allocation import project_printed, slope


def played(problem: AllocationProblem, arrivals: Iterable[Floats], eta: float, decay: float) -> Iterator[Floats]:
    """The decision of each slot, (E, K)."""
    graph = problem.instance
    capacity, demand = graph.capacity.tolist(), graph.demand.tolist()
    kind, alpha, beta = problem.utilities.kind.tolist(), problem.utilities.alpha.tolist(), problem.overhead.tolist()
    channels = list(zip(graph.channel_port.tolist(), graph.channel_server.tolist(), strict=True))
    ports, servers, resources = range(len(demand)), range(len(capacity)), range(len(capacity[0]))
    reached = set(channels)
    y = [[[0.0 for _ in resources] for _ in servers] for _ in ports]
    for number, present in enumerate(arrivals):
        here = [port for port in ports if present[port] == 1.0]
        if number == 0:
            for r in servers:
                mine = [port for port in here if (port, r) in reached]
                for k in resources:
                    wanted = sum(demand[port][k] for port in mine)
                    for port in mine:
                        if wanted > 0.0:
                            y[port][r][k] = min(demand[port][k] / wanted * capacity[r][k], demand[port][k])
        else:
            z = [[row.copy() for row in rows] for rows in y]
            for port in here:
                overhead = [beta[port][k] * sum(y[port][r][k] for r in servers) for k in resources]
                dominant = overhead.index(max(overhead))
                for r in servers:
                    for k in resources:
                        if (port, r) in reached:
                            z[port][r][k] += eta * slope(kind[r][k], alpha[r][k], max(y[port][r][k], 0.0))
                        if k == dominant:
                            z[port][r][k] -= eta * beta[port][k]
            for r in servers:
                for k in resources:
                    column = [z[port][r][k] for port in ports]
                    there = project_printed(column, [demand[port][k] for port in ports], capacity[r][k], False)
                    for port in ports:
                        y[port][r][k] = there[port] if port in here else 0.0
            eta *= decay
        yield np.array([y[port][r] for port, r in channels])
