"""Interface of a family to scenario files: its keys, checks, defaults and builder.

Each family has one such record, `SCENARIO` in its folder `scenario`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from berth.errors import InvalidInput, did_you_mean
from berth.families import FAMILIES
from berth.files.wording import Mistake
from berth.files.yaml_tree import Tree
from berth.scenario.settings import Common, Given

__all__ = ["Defaults", "ScenarioFamily", "family_of", "foreign_keys", "schema", "slots_of"]

HORIZON = 2000


@dataclass(frozen=True)
class Defaults:
    """Values for keys that a file leaves out."""

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
    """Build the world: (settings, horizon, seed, arrivals_known)."""
    layer: Callable[[Any], dict[str, Any]]
    """Keys set by a workload, from its `berth.scenario.workload.WorkloadPlan`."""
    batches: bool = False
    """Whether jobs arrive in batches, whose sizes a file may list as `arrivals.sizes`."""


def slots_of(arrivals: object) -> int:
    """Default number of slots in a run."""
    return len(arrivals.slots) if isinstance(arrivals, Given) else HORIZON


def family_of(tree: Tree) -> ScenarioFamily:
    """The family that this tree names."""
    name = tree.value.get("family", next(iter(FAMILIES)))
    if isinstance(name, str) and name in FAMILIES:
        family: ScenarioFamily = FAMILIES[name].scenario
        return family
    file, line = tree.place(("family",))
    expected = f"one of {', '.join(FAMILIES)}"
    if isinstance(name, str):
        raise InvalidInput(expected + did_you_mean(name, FAMILIES), value=name, key="family", file=file, line=line)
    found = "nothing" if name is None else "a mapping" if isinstance(name, dict) else "a list"
    found = found if name is None or isinstance(name, (dict, list)) else repr(name)
    raise InvalidInput(expected, found=found, key="family", file=file, line=line)


def foreign_keys(family: ScenarioFamily) -> dict[str, str]:
    """Keys that only other families have, each with one such family."""
    return {
        key: name
        for name, other in FAMILIES.items()
        for key in other.scenario.settings.model_fields
        if key not in family.settings.model_fields
    }


def schema() -> dict[str, Any]:
    """JSON schema of scenario files of all families: a key accepts what any of its families accepts."""
    parts = [
        family.scenario.settings.model_json_schema(ref_template=f"#/$defs/{name}.{{model}}")
        if place
        else family.scenario.settings.model_json_schema()
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
        "description": "name or file of a base scenario; this file lists only the differences",
    }
    whole["anyOf"] = [{"required": ["extends"]}, {"required": ["workload"]}] + [
        {"properties": {"family": {"const": name}}, "required": part.get("required", [])}
        for name, part in zip(FAMILIES, parts, strict=True)
    ]
    return whole
