"""Scenario files of the selection family: defaults, and the keys set by a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from berth.families.selection.scenario.building import build_selection
from berth.families.selection.scenario.checks import across_selection, has_gangs
from berth.families.selection.scenario.settings import SelectionSettings
from berth.scenario.families import Defaults, ScenarioFamily, slots_of

if TYPE_CHECKING:
    from berth.scenario.workload import WorkloadPlan

__all__ = ["SCENARIO"]

GAIN = 0.5
"""The gain of a task of a workload on a server of speed 1."""

POLICIES = ("reservation", "escb", "escb-v", "cts", "kl-ucb", "cucb", "esdp-printed", "hauf", "lcf", "lwtf")


# the default policies that keep gangs whole
GANG_POLICIES = ("reservation", "escb", "escb-v", "cts", "kl-ucb", "cucb", "random-selection")


def _defaults(settings: SelectionSettings) -> Defaults:
    oracles = ("slot", "information") if settings.drift is None else ("slot",)
    if has_gangs(settings):
        return Defaults(slots_of(settings.arrivals), GANG_POLICIES, "random-selection", oracles)
    return Defaults(slots_of(settings.arrivals), POLICIES, "hauf", oracles)


def _layer(plan: WorkloadPlan) -> dict[str, Any]:
    """Make each piece a task and each job a gang; gains are speeds, spread as measured."""
    unit = np.ones(len(plan.workload.resources))
    copies = plan.copies()
    ports: list[dict[str, Any]] = []
    for j, name in enumerate(plan.names):
        pieces = int(plan.pieces[j])
        most = max(pieces, round(copies * pieces))
        role = {"name": "piece", "demand": plan.amounts(plan.demand[j], unit), "minimum": pieces, "most": most}
        ports.append({"name": name, "servers": list(plan.reach[j]), "roles": [role]})
    speeds = plan.speeds()
    speed = {group.name: group.speed for group in plan.groups if group.speed != 1}
    gains = {"distribution": "measured", "mean": GAIN, "between": speeds.between, "within": speeds.within}
    return {
        "cluster": plan.cluster(unit),
        "ports": ports,
        "gains": {**gains, **({"speed": speed} if speed else {})},
        "arrivals": {"process": "workload"},
    }


SCENARIO = ScenarioFamily(SelectionSettings, across_selection, _defaults, build_selection, _layer)
