"""Scenario files of the placement family: defaults, and the keys set by a workload."""

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
"""Sum of the weighted capacity of a workload's largest server."""

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


# the default policies that support gangs, ports, devices and estimated run times
QUEUED_POLICIES = (
    "drl-greedy",
    "placement-rule",
    "greedy",
    "easy",
    "conservative",
    "sjf",
    "fcfs",
    "best-fit",
    "tetris",
    "drf-placement",
    "fgd",
)


def _defaults(settings: PlacementSettings) -> Defaults:
    tasks = settings.tasks
    if not isinstance(tasks, WorkloadTasks):
        return Defaults(slots_of(settings), POLICIES, "greedy", ("slot",))
    # no oracle: its linear programme covers all tasks and takes minutes for tasks of many slots
    if tasks.gangs or tasks.needs or tasks.devices or tasks.known == "estimate":
        return Defaults(slots_of(settings), QUEUED_POLICIES, "fcfs", ())
    return Defaults(slots_of(settings), POLICIES, "greedy", ())


def _layer(plan: WorkloadPlan) -> dict[str, Any]:
    """Make each server shape a kind and each job a task. Servers stay on, as in real clusters."""
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
