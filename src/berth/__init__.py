"""berth: online-learning scheduling of multi-server jobs.

The names that most programs need; `berth.protocols` is the page to read first. They are imported
when first used, so that `import berth` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from berth.errors import BerthError as BerthError
    from berth.families.allocation.problem import AllocationProblem as AllocationProblem
    from berth.families.allocation.utility import Utility as Utility
    from berth.families.allocation.world import AllocationWorld as AllocationWorld
    from berth.families.placement.problem import PlacementDecision as PlacementDecision
    from berth.families.placement.problem import PlacementProblem as PlacementProblem
    from berth.families.placement.problem import Tasks as Tasks
    from berth.families.placement.world import Failure as Failure
    from berth.families.placement.world import PlacementWorld as PlacementWorld
    from berth.families.selection.gains import DrawnGains as DrawnGains
    from berth.families.selection.problem import Roles as Roles
    from berth.families.selection.problem import SelectionProblem as SelectionProblem
    from berth.families.selection.world import SelectionWorld as SelectionWorld
    from berth.lab.compare import compare as compare
    from berth.model import Berth as Berth
    from berth.model import Cluster as Cluster
    from berth.model import Instance as Instance
    from berth.model import JobType as JobType
    from berth.model import Resource as Resource
    from berth.scenario import load_scenario as load_scenario
    from berth.simulation import Result as Result
    from berth.simulation import simulate as simulate

_HOME = {
    "BerthError": "berth.errors",
    "compare": "berth.lab.compare",
    "Berth": "berth.model",
    "Cluster": "berth.model",
    "Instance": "berth.model",
    "JobType": "berth.model",
    "Resource": "berth.model",
    "AllocationProblem": "berth.families.allocation.problem",
    "PlacementDecision": "berth.families.placement.problem",
    "PlacementProblem": "berth.families.placement.problem",
    "Tasks": "berth.families.placement.problem",
    "Roles": "berth.families.selection.problem",
    "SelectionProblem": "berth.families.selection.problem",
    "load_scenario": "berth.scenario",
    "Result": "berth.simulation",
    "simulate": "berth.simulation",
    "Utility": "berth.families.allocation.utility",
    "AllocationWorld": "berth.families.allocation.world",
    "DrawnGains": "berth.families.selection.gains",
    "Failure": "berth.families.placement.world",
    "PlacementWorld": "berth.families.placement.world",
    "SelectionWorld": "berth.families.selection.world",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'berth' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
