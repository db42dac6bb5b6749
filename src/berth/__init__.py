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
    from berth.lab.compare import compare as compare
    from berth.model import Berth as Berth
    from berth.model import Cluster as Cluster
    from berth.model import Instance as Instance
    from berth.model import JobType as JobType
    from berth.model import Resource as Resource
    from berth.problems.allocation import AllocationProblem as AllocationProblem
    from berth.problems.placement import PlacementDecision as PlacementDecision
    from berth.problems.placement import PlacementProblem as PlacementProblem
    from berth.problems.placement import Tasks as Tasks
    from berth.problems.selection import Roles as Roles
    from berth.problems.selection import SelectionProblem as SelectionProblem
    from berth.scenario import load_scenario as load_scenario
    from berth.simulation import Result as Result
    from berth.simulation import simulate as simulate
    from berth.utility import Utility as Utility
    from berth.worlds.allocation import AllocationWorld as AllocationWorld
    from berth.worlds.gains import DrawnGains as DrawnGains
    from berth.worlds.placement import Failure as Failure
    from berth.worlds.placement import PlacementWorld as PlacementWorld
    from berth.worlds.selection import SelectionWorld as SelectionWorld

_HOME = {
    "BerthError": "berth.errors",
    "compare": "berth.lab.compare",
    "Berth": "berth.model",
    "Cluster": "berth.model",
    "Instance": "berth.model",
    "JobType": "berth.model",
    "Resource": "berth.model",
    "AllocationProblem": "berth.problems.allocation",
    "PlacementDecision": "berth.problems.placement",
    "PlacementProblem": "berth.problems.placement",
    "Tasks": "berth.problems.placement",
    "Roles": "berth.problems.selection",
    "SelectionProblem": "berth.problems.selection",
    "load_scenario": "berth.scenario",
    "Result": "berth.simulation",
    "simulate": "berth.simulation",
    "Utility": "berth.utility",
    "AllocationWorld": "berth.worlds.allocation",
    "DrawnGains": "berth.worlds.gains",
    "Failure": "berth.worlds.placement",
    "PlacementWorld": "berth.worlds.placement",
    "SelectionWorld": "berth.worlds.selection",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'berth' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
