"""Scenario files of the allocation family: defaults, and the keys set by a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from berth.families.allocation.scenario.building import build_allocation
from berth.families.allocation.scenario.checks import across_allocation
from berth.families.allocation.scenario.settings import AllocationSettings
from berth.scenario.families import Defaults, ScenarioFamily, slots_of

if TYPE_CHECKING:
    from berth.scenario.workload import WorkloadPlan

__all__ = ["SCENARIO"]

UNITS = 8.0
"""Capacity of a workload's largest server after scaling, for each resource: utilities expect this range."""

POLICIES = (
    "ogasched-aware",
    "ogasched-rates",
    "ogasched",
    "ogasched-printed",
    "fairness",
    "drf",
    "binpacking",
    "spreading",
)


def _defaults(settings: AllocationSettings) -> Defaults:
    ports = settings.ports
    if settings.gangs is not None or (isinstance(ports, list) and any(p.components for p in ports)):
        # with gangs the oracles ignore the all-or-nothing constraint: upper bounds, useful slot by slot
        return Defaults(slots_of(settings.arrivals), ("ogasched-gang",), "ogasched-gang", ("slot",))
    return Defaults(slots_of(settings.arrivals), POLICIES, "fairness", ("stationary", "slot"))


def _layer(plan: WorkloadPlan) -> dict[str, Any]:
    """Let a job use on one server all that it requests, up to the largest server that it reaches."""
    largest = np.max([group.capacity for group in plan.groups], axis=0)
    unit = np.where(largest > 0, largest / UNITS, 1.0)
    copies = plan.copies()
    ports = []
    for j, name in enumerate(plan.names):
        there = np.max([group.capacity for group in plan.groups if group.name in plan.reach[j]], axis=0)
        request = np.minimum(plan.demand[j] * plan.pieces[j] * copies, there)
        ports.append({"name": name, "demand": plan.amounts(request, unit), "servers": list(plan.reach[j])})
    return {"cluster": plan.cluster(unit), "ports": ports, "arrivals": {"process": "workload"}}


SCENARIO = ScenarioFamily(AllocationSettings, across_allocation, _defaults, build_allocation, _layer)
