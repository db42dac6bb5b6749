"""Shared parts of allocation policies: requests, the order of dominant shares, and a base class without learning."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.errors import UnsupportedProblem
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.model import Floats, Ints

__all__ = ["Baseline", "dominant_share_order", "no_gangs", "requested"]


def no_gangs(problem: AllocationProblem, policy: object) -> AllocationProblem:
    """Return the problem, or refuse it if it has gangs that this policy would break."""
    if problem.gang is not None:
        raise UnsupportedProblem(f"{type(policy).__name__} cannot keep gangs whole; use ogasched-gang")
    return problem


class Baseline:
    """A policy that learns nothing and refuses gangs."""

    family = "allocation"

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        self.problem = no_gangs(problem, self)

    def observe(self, outcome: AllocationOutcome, /) -> None:
        """Learns nothing."""


def requested(problem: AllocationProblem, slot: AllocationSlot) -> Floats:
    """Requests of this slot's jobs through each channel, (E, K)."""
    if slot.arrivals is None:
        return problem.cap
    return problem.cap * slot.arrivals[problem.channel_job][:, None]


def dominant_share_order(problem: AllocationProblem) -> Ints:
    """Ports by ascending dominant share max_k a_l^k / Σ_r c_r^k over the servers they reach, (L,)."""
    graph = problem.instance
    reachable = np.zeros(graph.demand.shape)
    np.add.at(reachable, graph.channel_port, graph.capacity[graph.channel_server])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.where(graph.demand > 0, graph.demand / reachable, 0.0).max(axis=1)
    return np.argsort(share, kind="stable").astype(np.int64)
