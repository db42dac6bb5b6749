"""The families of problems: allocation, selection and placement. Nothing else in berth lists them.

A record names its parts as "module:attribute". They are imported when they are asked for, so that listing families or
policies costs nothing. To add a family, add a record here.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from berth.families.cases import CheckFamily
    from berth.families.lab import LabFamily

__all__ = ["BUILTIN", "FAMILIES", "Family"]


@cache
def _loaded(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


@dataclass(frozen=True)
class Family:
    """One family; `policies` are its built-in ones, the class of each as "module:Class"."""

    name: str
    policies: dict[str, str]
    scenario_at: str
    lab_at: str
    checks_at: str
    driver_at: str

    @property
    def scenario(self) -> Any:
        """Its scenario files, a `berth.scenario.families.ScenarioFamily`."""
        return _loaded(self.scenario_at)

    @property
    def lab(self) -> LabFamily:
        """What comparisons need: oracles, what regret is measured in, words."""
        return _loaded(self.lab_at)  # type: ignore[no-any-return]

    @property
    def checks(self) -> CheckFamily:
        """The instances on which `berth.testing.check_policy` tries its policies."""
        return _loaded(self.checks_at)  # type: ignore[no-any-return]

    @property
    def driver(self) -> Any:
        """The class of its `berth.live.core.drivers.Driver`, by which its policies decide for a live cluster."""
        return _loaded(self.driver_at)


def _family(name: str, policies: dict[str, str]) -> Family:
    here = f"berth.families.{name}"
    return Family(
        name,
        {policy: f"{here}.policies.{place}" for policy, place in policies.items()},
        f"{here}.scenario:SCENARIO",
        f"{here}.lab:LAB",
        f"{here}.checks:{name.upper()}",
        f"berth.live.core.drivers.{name}:{name.capitalize()}Driver",
    )


_ALLOCATION = _family(
    "allocation",
    {
        "ogasched": "ogasched:OGASched",
        "ogasched-rates": "rates:OGASchedRates",
        "ogasched-aware": "aware:OGASchedAware",
        "ogasched-gang": "gang:OGASchedGang",
        "ogasched-printed": "printed:OGASchedPrinted",
        "drf": "drf:DRF",
        "fairness": "fairness:Fairness",
        "binpacking": "binpacking:BinPacking",
        "spreading": "spreading:Spreading",
        "random-allocation": "random:RandomAllocation",
    },
)

_SELECTION = _family(
    "selection",
    {
        "escb": "escb:ESCB",
        "escb-v": "escb_v:ESCBV",
        "cts": "cts:CTS",
        "kl-ucb": "kl_ucb:KLUCB",
        "cucb": "cucb:CUCB",
        "epsilon-greedy": "epsilon_greedy:EpsilonGreedy",
        "esdp-printed": "printed:ESDPPrinted",
        "hauf": "hauf:HAUF",
        "hswf": "hauf:HAUF",
        "lcf": "lcf:LCF",
        "lwtf": "lwtf:LWTF",
        "random-selection": "random:RandomSelection",
    },
)

_PLACEMENT = _family(
    "placement",
    {
        "greedy": "greedy:Greedy",
        "placement-rule": "rule:Rule",
        "drl-greedy-printed": "printed:DRLGreedyPrinted",
        "drl-direct": "printed:DRLDirect",
        "drl-greedy": "learned:Learned",
        "random-placement": "random:RandomPlacement",
        "first-fit": "first_fit:FirstFit",
        "optra": "optra:OptRA",
        "ossa": "ossa:OSSA",
        "hmao": "hmao:HMAO",
        "fcfs": "fcfs:FCFS",
        "sjf": "sjf:SJF",
        "easy": "easy:EASY",
        "conservative": "conservative:Conservative",
        "best-fit": "best_fit:BestFit",
        "tetris": "tetris:Tetris",
        "drf-placement": "fair:FairQueue",
        "fgd": "fragmentation:FragmentationAware",
    },
)

FAMILIES = {family.name: family for family in (_ALLOCATION, _SELECTION, _PLACEMENT)}
"""By the `family` of a scenario and of a policy; the first is meant where a scenario file names none."""

BUILTIN = {name: place for family in FAMILIES.values() for name, place in family.policies.items()}
"""Every built-in policy by name."""
