"""Load and dump scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from berth.errors import InvalidInput
from berth.families import FAMILIES

if TYPE_CHECKING:
    from berth.scenario.settings import Common

__all__ = ["Scenario", "load_scenario", "parse_overrides", "scenario_schema"]


@dataclass(frozen=True, eq=False)
class Scenario:
    """A problem to simulate and the policies to run; made by `load_scenario`.

    `family` names the kind of problem; `berth.families` has a record of each. `arrivals_known` is "hidden", "revealed"
    or "both": whether policies see the arrivals of a slot before they decide. `policies` and `baseline` are written as
    for `berth compare`; `seeds` is the number of seeds of a comparison; `oracles` names the oracles it computes regret
    against.

    >>> scenario = load_scenario("small")
    >>> scenario.horizon, scenario.seeds, scenario.baseline, scenario.information
    (200, 4, 'fairness', (False, True))
    """

    settings: Common
    name: str
    title: str
    description: str
    family: str
    horizon: int
    arrivals_known: str
    policies: tuple[str, ...]
    baseline: str
    seeds: int
    oracles: tuple[str, ...]
    from_workload: frozenset[str] = frozenset()
    """Keys set by the scenario's workload and not by the file."""

    @property
    def information(self) -> tuple[bool, ...]:
        """Values of `arrivals_known` to call `build` with."""
        return {"hidden": (False,), "revealed": (True,)}.get(self.arrivals_known, (False, True))

    def build(self, seed: int, arrivals_known: bool = True) -> Any:
        """Build the world of this seed; instance and arrivals do not depend on `arrivals_known`.

        >>> world = load_scenario("small").build(seed=3, arrivals_known=True)
        >>> world.arrivals.shape
        (200, 4)
        """
        if seed < 0:
            raise InvalidInput("a whole number ≥ 0", value=seed, key="seed")
        return FAMILIES[self.family].scenario.build(self.settings, self.horizon, seed, arrivals_known)

    def dump(self) -> dict[str, Any]:
        """Return all settings, defaults filled in, as plain values that `load_scenario` accepts.

        >>> load_scenario(load_scenario("small").dump()).dump() == load_scenario("small").dump()
        True
        """
        dumped = self.settings.model_dump(mode="json", exclude_none=True)
        resolved = {
            "name": self.name,
            **({"title": self.title} if self.title else {}),
            "horizon": self.horizon,
            "policies": list(self.policies),
            "baseline": self.baseline,
            "oracles": list(self.oracles),
        }
        # in the order of the reference page, including defaults
        return {
            key: resolved.get(key, dumped.get(key))
            for key in type(self.settings).model_fields
            if key in {**dumped, **resolved} and key not in self.from_workload
        }


def load_scenario(name_or_path: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Load a scenario by name, from a file, or from the values that a file would hold.

    `overrides` set single keys by dotted name and are checked like the file.

    >>> load_scenario("small", {"ports.count": 3, "arrivals.probability": 0.5}).build(0, False).arrivals.shape
    (200, 3)
    >>> load_scenario("smal")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    berth.errors.UnknownName: unknown scenario 'smal'; did you mean 'small'?
    """
    from berth.files.wording import checked
    from berth.files.yaml_tree import Tree
    from berth.scenario.families import family_of, foreign_keys
    from berth.scenario.layering import find_file, overridden, read_layers, with_base

    if isinstance(name_or_path, Mapping):
        tree = with_base(overridden(Tree({}), name_or_path) if name_or_path else Tree({}), Path())
        stem = "unnamed"
    else:
        path = find_file(name_or_path)
        tree = read_layers(path)
        stem = path.stem
    if overrides:
        tree = overridden(tree, overrides)
    family = family_of(tree)
    given: frozenset[str] = frozenset()
    if tree.value.get("workload") is not None:
        from berth.scenario.workload import with_workload  # imports the trace readers, which few scenarios need

        tree, given = with_workload(tree, family)
    settings = checked(tree, family.settings, family.across, foreign_keys(family))
    defaults = family.defaults(settings)
    title = settings.title
    if overrides:
        title += f" (with {', '.join(f'{key}={value}' for key, value in overrides.items())})"
    return Scenario(
        settings=settings,
        name=settings.name or stem,
        title=title,
        description=settings.description,
        family=settings.family,
        horizon=settings.horizon or defaults.horizon,
        arrivals_known=settings.arrivals_known,
        policies=tuple(settings.policies or defaults.policies),
        baseline=settings.baseline or defaults.baseline,
        seeds=settings.seeds,
        oracles=tuple(defaults.oracles if settings.oracles is None else settings.oracles),
        from_workload=given,
    )


def parse_overrides(texts: Iterable[str]) -> dict[str, Any]:
    """Parse `key=value` texts of a command line into `overrides`; values are read as in a file.

    >>> parse_overrides(["ports.count=20", "overhead=[0.4, 0.6]"])
    {'ports.count': 20, 'overhead': [0.4, 0.6]}
    """
    from berth.files.yaml_tree import read_text

    overrides: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InvalidInput("key=value, such as ports.count=20", value=text, key="override")
        try:
            overrides[key.strip()] = read_text(value).value
        except InvalidInput as error:
            raise InvalidInput(error.expected, found=error.found, key=key.strip()) from None
    return overrides


def scenario_schema() -> dict[str, Any]:
    """JSON schema of scenario files, for editors that complete and check them.

    >>> sorted(scenario_schema()["properties"])[:4]
    ['arrivals', 'arrivals_known', 'baseline', 'capacity']
    """
    from berth.scenario.families import schema

    return schema()
