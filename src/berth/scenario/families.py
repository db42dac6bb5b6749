"""What scenario files need to know of each family: its keys, its checks, its defaults and its builder.

A new family adds a record to `FAMILIES`; nothing else here asks which family a file is of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from berth.errors import InvalidInput, did_you_mean
from berth.families.allocation.scenario.building import build_allocation
from berth.families.placement.scenario.building import build_placement
from berth.families.placement.scenario.checks import across_placement, slots_of
from berth.families.placement.scenario.settings import PlacementSettings, WorkloadTasks
from berth.families.selection.scenario.building import build_selection
from berth.families.selection.scenario.checks import across_selection, has_gangs
from berth.families.selection.scenario.settings import SelectionSettings
from berth.files.wording import Mistake
from berth.files.yaml_tree import Tree
from berth.scenario.checks import across_allocation
from berth.scenario.settings import Common, Given, Settings

__all__ = ["FAMILIES", "Defaults", "ScenarioFamily", "family_of", "foreign_keys", "schema"]

HORIZON = 2000


@dataclass(frozen=True)
class Defaults:
    """What holds where a file does not say it."""

    horizon: int
    policies: tuple[str, ...]
    baseline: str
    oracles: tuple[str, ...]


@dataclass(frozen=True)
class ScenarioFamily:
    """One family: `settings` are the keys its files may have."""

    settings: type[Common]
    across: Callable[[Any], Iterable[Mistake]]
    defaults: Callable[[Any], Defaults]
    build: Callable[[Any, int, int, bool], Any]
    """(settings, horizon, seed, arrivals_known) → the world of this seed."""


def _slots(arrivals: object) -> int:
    return len(arrivals.slots) if isinstance(arrivals, Given) else HORIZON


ALLOCATION_POLICIES = (
    "ogasched-aware",
    "ogasched-rates",
    "ogasched",
    "ogasched-printed",
    "fairness",
    "drf",
    "binpacking",
    "spreading",
)


def _allocation_defaults(settings: Settings) -> Defaults:
    ports = settings.ports
    if settings.gangs is not None or (isinstance(ports, list) and any(p.components for p in ports)):
        # with gangs the optima leave the all-or-nothing constraint out: upper bounds, of use slot by slot
        return Defaults(_slots(settings.arrivals), ("ogasched-gang",), "ogasched-gang", ("slot",))
    return Defaults(_slots(settings.arrivals), ALLOCATION_POLICIES, "fairness", ("stationary", "slot"))


SELECTION_POLICIES = ("escb", "escb-v", "cts", "kl-ucb", "cucb", "esdp-printed", "hauf", "lcf", "lwtf")


# of those above, the ones that keep gangs whole
GANG_POLICIES = ("escb", "escb-v", "cts", "kl-ucb", "cucb", "random-selection")


def _selection_defaults(settings: SelectionSettings) -> Defaults:
    if has_gangs(settings):
        return Defaults(_slots(settings.arrivals), GANG_POLICIES, "random-selection", ("slot",))
    return Defaults(_slots(settings.arrivals), SELECTION_POLICIES, "hauf", ("slot",))


PLACEMENT_POLICIES = (
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


def _placement_defaults(settings: PlacementSettings) -> Defaults:
    tasks = settings.tasks
    if not isinstance(tasks, WorkloadTasks):
        return Defaults(slots_of(settings), PLACEMENT_POLICIES, "greedy", ("slot",))
    # no bound: it is one linear programme for all tasks, which takes minutes where they run for many slots
    if tasks.gangs or tasks.needs or tasks.devices or tasks.known == "estimate":
        return Defaults(slots_of(settings), QUEUED_POLICIES, "fcfs", ())
    return Defaults(slots_of(settings), PLACEMENT_POLICIES, "greedy", ())


FAMILIES = {
    "allocation": ScenarioFamily(Settings, across_allocation, _allocation_defaults, build_allocation),
    "selection": ScenarioFamily(SelectionSettings, across_selection, _selection_defaults, build_selection),
    "placement": ScenarioFamily(PlacementSettings, across_placement, _placement_defaults, build_placement),
}
"""By the value of the key `family`; the first is meant where a file has none."""


def family_of(tree: Tree) -> ScenarioFamily:
    """The family that this tree names."""
    name = tree.value.get("family", next(iter(FAMILIES)))
    if isinstance(name, str) and name in FAMILIES:
        return FAMILIES[name]
    file, line = tree.place(("family",))
    expected = f"one of {', '.join(FAMILIES)}"
    if isinstance(name, str):
        raise InvalidInput(expected + did_you_mean(name, FAMILIES), value=name, key="family", file=file, line=line)
    found = "nothing" if name is None else "a mapping" if isinstance(name, dict) else "a list"
    found = found if name is None or isinstance(name, (dict, list)) else repr(name)
    raise InvalidInput(expected, found=found, key="family", file=file, line=line)


def foreign_keys(family: ScenarioFamily) -> dict[str, str]:
    """Keys that only files of other families have, and one such family for each."""
    return {
        key: name
        for name, other in FAMILIES.items()
        for key in other.settings.model_fields
        if key not in family.settings.model_fields
    }


def schema() -> dict[str, Any]:
    """The JSON schema of scenario files of all families: a key is as any family that has it takes it."""
    parts = [
        family.settings.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}")
        if place
        else family.settings.model_json_schema()
        for place, (name, family) in enumerate(FAMILIES.items())
    ]
    whole: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "berth scenario",
        "type": "object",
        "additionalProperties": False,
        "properties": {},
        "$defs": {},
    }
    forms: dict[str, list[Any]] = {}
    for place, (name, part) in enumerate(zip(FAMILIES, parts, strict=True)):
        prefix = f"{name}." if place else ""  # definitions of the first family keep their plain names
        whole["$defs"].update({prefix + key: value for key, value in part.get("$defs", {}).items()})
        for key, value in part["properties"].items():
            known = forms.setdefault(key, [])
            if value not in known:
                known.append(value)
    whole["properties"] = {
        key: known[0] if len(known) == 1 else {"title": known[0].get("title", key), "anyOf": known}
        for key, known in forms.items()
    }
    whole["properties"]["family"] = {"enum": list(FAMILIES), "default": next(iter(FAMILIES)), "title": "Family"}
    whole["properties"]["extends"] = {
        "type": "string",
        "title": "Extends",
        "description": "name or file of a scenario of which this one gives only the differences",
    }
    whole["anyOf"] = [{"required": ["extends"]}, {"required": ["workload"]}] + [
        {"properties": {"family": {"const": name}}, "required": part.get("required", [])}
        for name, part in zip(FAMILIES, parts, strict=True)
    ]
    return whole
