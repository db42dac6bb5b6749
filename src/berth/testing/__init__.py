"""Test tools for authors of policies and engines.

`check_policy` checks every promise of a policy, and `check_engine` every promise of an engine on a `Site`, with a
`Ledger` or another witness, such as that of `SimulatedSite`. `example_problem`, `example_slot`, `example_selection` and
`example_placement` are tiny problems for docstrings and first tries. The hypothesis strategies (`allocation_problems`,
`allocation_worlds`, `decisions`, `projection_cases`, and `selection_problems`, `selection_worlds`,
`selection_decisions`, and `placement_problems`, `placement_worlds`, `placement_decisions`) need
`pip install 'berth-scheduler[test]'` and are imported on first use.

>>> from berth.testing import check_policy
>>> all(result.passed for result in check_policy("fairness"))
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from berth.families.cases import Case, CheckFamily
from berth.testing.engines.contract import ENGINE_CHECKS, EngineResult, check_engine
from berth.testing.engines.ledger import Ledger
from berth.testing.engines.simulated_site import SimulatedSite
from berth.testing.engines.site import Script, Sighting, Site
from berth.testing.examples import example_placement, example_problem, example_selection, example_slot
from berth.testing.live_checks import LIVE_CHECKS
from berth.testing.policy_checks import CHECKS, CheckResult, check_policy

if TYPE_CHECKING:
    from berth.testing.strategies import allocation_problems as allocation_problems
    from berth.testing.strategies import allocation_worlds as allocation_worlds
    from berth.testing.strategies import decisions as decisions
    from berth.testing.strategies import placement_decisions as placement_decisions
    from berth.testing.strategies import placement_problems as placement_problems
    from berth.testing.strategies import placement_worlds as placement_worlds
    from berth.testing.strategies import projection_cases as projection_cases
    from berth.testing.strategies import selection_decisions as selection_decisions
    from berth.testing.strategies import selection_problems as selection_problems
    from berth.testing.strategies import selection_worlds as selection_worlds

_STRATEGIES = (
    "allocation_problems",
    "allocation_worlds",
    "decisions",
    "placement_decisions",
    "placement_problems",
    "placement_worlds",
    "projection_cases",
    "selection_decisions",
    "selection_problems",
    "selection_worlds",
)

__all__ = [
    "CHECKS",
    "ENGINE_CHECKS",
    "LIVE_CHECKS",
    "Case",
    "CheckFamily",
    "CheckResult",
    "EngineResult",
    "Ledger",
    "Script",
    "Sighting",
    "SimulatedSite",
    "Site",
    "check_engine",
    "check_policy",
    "example_placement",
    "example_problem",
    "example_selection",
    "example_slot",
]


def __getattr__(name: str) -> Any:
    if name in _STRATEGIES:
        return getattr(importlib.import_module("berth.testing.strategies"), name)
    raise AttributeError(f"module 'berth.testing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_STRATEGIES])
