"""Scenario files of the placement family: defaults, and the keys that a workload gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from berth.families.placement.scenario.building import build_placement
from berth.families.placement.scenario.checks import across_placement, slots_of
from berth.families.placement.scenario.settings import PlacementSettings, WorkloadTasks
from berth.scenario.families import Defaults, ScenarioFamily

if TYPE_CHECKING:
    from berth.scenario.workload import WorkloadPlan

__all__ = ["SCENARIO"]

SCALE = 16.0
"""The weights of all that the largest server of a workload has, added up."""

POLICIES = (
    "drl-greedy",
    "placement-rule",
    "greedy:order=densest,waiting=queue",
    "greedy",
    "optra",
    "ossa",
    "hmao",
    "first-fit",
)


# those that serve gangs, ports, devices and times that are only estimates
QUEUED_POLICIES = ("easy", "conservative", "sjf", "fcfs", "best-fit", "tetris", "drf-placement", "fgd")


def _defaults(settings: PlacementSettings) -> Defaults:
    tasks = settings.tasks
    if not isinstance(tasks, WorkloadTasks):
        return Defaults(slots_of(settings), POLICIES, "greedy", ("slot",))
    # no bound: it is one linear programme for all tasks, which takes minutes where they run for many slots
    if tasks.gangs or tasks.needs or tasks.devices or tasks.known == "estimate":
        return Defaults(slots_of(settings), QUEUED_POLICIES, "fcfs", ())
    return Defaults(slots_of(settings), POLICIES, "greedy", ())


def _layer(plan: WorkloadPlan) -> dict[str, Any]:
    """Servers are kinds; tasks are the jobs themselves. Servers stay on, as those of real clusters do."""
    unit = np.ones(len(plan.workload.resources))
    cluster = plan.cluster(unit)
    for kind, group in zip(cluster["servers"], plan.groups, strict=True):
        kind["speed"] = group.speed
    largest = np.max([group.capacity for group in plan.groups], axis=0)
    some = largest > 0
    weights = {
        entry.name: float(SCALE / some.sum() / size) if size > 0 else 0.0
        for entry, size in zip(plan.workload.resources, largest, strict=True)
    }
    return {
        "cluster": cluster,
        "idle": "never",
        "launch_cost": {"weights": weights},
        "execution_cost": {"weights": weights},
        "tasks": {"draw": "workload"},
    }


SCENARIO = ScenarioFamily(PlacementSettings, across_placement, _defaults, build_placement, _layer, batches=True)
