"""Registry of the families: allocation, selection and placement. Nothing else in berth lists them.

A family is a folder here and a driver of the live scheduler. Its record imports them on demand, so listing families or
policies is cheap. To add a family, add a record here.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from berth.families.cases import CheckFamily
    from berth.families.lab import LabFamily

__all__ = ["BUILTIN", "FAMILIES", "MOVED", "Family"]


@cache
def _loaded(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


@dataclass(frozen=True)
class Family:
    """One family; `policies` are its built-in policies, each as "module:Class".

    Their order gives each its colour in plots: the first eight differ in colour.
    """

    name: str
    policies: dict[str, str]

    @property
    def scenario(self) -> Any:
        """Scenario files of the family, a `berth.scenario.families.ScenarioFamily`."""
        return _loaded(f"berth.families.{self.name}.scenario:SCENARIO")

    @property
    def lab(self) -> LabFamily:
        """Interface to comparisons: oracles, the series that regret uses, labels."""
        return _loaded(f"berth.families.{self.name}.lab:LAB")  # type: ignore[no-any-return]

    @property
    def checks(self) -> CheckFamily:
        """Instances on which `berth.testing.check_policy` tries the family's policies."""
        return _loaded(f"berth.families.{self.name}.checks:{self.name.upper()}")  # type: ignore[no-any-return]

    @property
    def driver(self) -> Any:
        """Subclass of `berth.live.core.drivers.Driver` that lets the family's policies decide for a live cluster."""
        return _loaded(f"berth.live.core.drivers.{self.name}:{self.name.capitalize()}Driver")


PRIORITIES = ("Priority", "LJF", "SAF", "WFP3", "UNICEP", "F1", "F2", "F3", "F4")

_ALL = (
    Family(
        "allocation",
        {
            "ogasched": "berth.families.allocation.policies.ogasched:OGASched",
            "ogasched-rates": "berth.families.allocation.policies.rates:OGASchedRates",
            "ogasched-aware": "berth.families.allocation.policies.aware:OGASchedAware",
            "ogasched-printed": "berth.families.allocation.policies.printed:OGASchedPrinted",
            "drf": "berth.families.allocation.policies.baselines:DRF",
            "fairness": "berth.families.allocation.policies.baselines:Fairness",
            "binpacking": "berth.families.allocation.policies.baselines:BinPacking",
            "spreading": "berth.families.allocation.policies.baselines:Spreading",
            "random-allocation": "berth.families.allocation.policies.baselines:RandomAllocation",
            "ogasched-gang": "berth.families.allocation.policies.gang:OGASchedGang",
            "ogasched-authors": "berth.families.allocation.policies.authors:OGASchedAuthors",
        },
    ),
    Family(
        "selection",
        {
            "reservation": "berth.families.selection.policies.reservation:Reservation",
            "escb": "berth.families.selection.policies.bounds:ESCB",
            "escb-v": "berth.families.selection.policies.bounds:ESCBV",
            "cts": "berth.families.selection.policies.cts:CTS",
            "kl-ucb": "berth.families.selection.policies.bounds:KLUCB",
            "cucb": "berth.families.selection.policies.bounds:CUCB",
            "epsilon-greedy": "berth.families.selection.policies.epsilon_greedy:EpsilonGreedy",
            "esdp-printed": "berth.families.selection.policies.printed:ESDPPrinted",
            "hauf": "berth.families.selection.policies.baselines:HAUF",
            "hswf": "berth.families.selection.policies.baselines:HAUF",
            "lcf": "berth.families.selection.policies.baselines:LCF",
            "lwtf": "berth.families.selection.policies.baselines:LWTF",
            "random-selection": "berth.families.selection.policies.random:RandomSelection",
        },
    ),
    Family(
        "placement",
        {
            "greedy": "berth.families.placement.policies.greedy:Greedy",
            "placement-rule": "berth.families.placement.policies.rule:Rule",
            "drl-greedy-printed": "berth.families.placement.policies.printed:DRLGreedyPrinted",
            "drl-direct": "berth.families.placement.policies.printed:DRLDirect",
            "drl-greedy": "berth.families.placement.policies.learned:Learned",
            "random-placement": "berth.families.placement.policies.random:RandomPlacement",
            "first-fit": "berth.families.placement.policies.first_fit:FirstFit",
            "optra": "berth.families.placement.policies.baselines:OptRA",
            "ossa": "berth.families.placement.policies.baselines:OSSA",
            "hmao": "berth.families.placement.policies.baselines:HMAO",
            "fcfs": "berth.families.placement.policies.rules:FCFS",
            "sjf": "berth.families.placement.policies.rules:SJF",
            "easy": "berth.families.placement.policies.rules:EASY",
            **{name.lower(): f"berth.families.placement.policies.priority:{name}" for name in PRIORITIES},
            "conservative": "berth.families.placement.policies.conservative:Conservative",
            "best-fit": "berth.families.placement.policies.packing:BestFit",
            "tetris": "berth.families.placement.policies.packing:Tetris",
            "fgd": "berth.families.placement.policies.packing:FragmentationAware",
            "drf-placement": "berth.families.placement.policies.fair:FairQueue",
        },
    ),
)

FAMILIES = {family.name: family for family in _ALL}
"""Families by the `family` of a scenario or policy; a scenario file without one means the first."""

BUILTIN = {name: place for family in FAMILIES.values() for name, place in family.policies.items()}
"""Every built-in policy by name."""
MOVED = {"learned-order": "an example now: install examples/learned-order beside berth (`pip install .` there)"}
"""Policies that were built in once, and what became of each."""
