"""berth: online-learning scheduling of multi-server jobs.

Public names for programs and notebooks; read `berth.protocols` first. Names are imported on first use, so
`import berth` is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from berth.about import VERSION as __version__

if TYPE_CHECKING:  # the names in `_NAMES`, for type checkers
    # fmt: off
    # isort: off
    from berth.errors import BerthError as BerthError, InvalidInput as InvalidInput
    from berth.errors import UnsupportedProblem as UnsupportedProblem
    from berth.families.allocation.oracle import slot_optima as slot_optima
    from berth.families.allocation.problem import AllocationOutcome as AllocationOutcome
    from berth.families.allocation.problem import AllocationProblem as AllocationProblem
    from berth.families.allocation.problem import AllocationSlot as AllocationSlot
    from berth.families.allocation.utility import Utility as Utility
    from berth.families.allocation.world import AllocationWorld as AllocationWorld
    from berth.families.placement.policies.ordered import OrderedPolicy as OrderedPolicy
    from berth.families.placement.policies.queued import InOrder as InOrder
    from berth.families.placement.problem import PlacementDecision as PlacementDecision
    from berth.families.placement.problem import PlacementOutcome as PlacementOutcome
    from berth.families.placement.problem import PlacementProblem as PlacementProblem, PlacementSlot as PlacementSlot
    from berth.families.placement.problem import REJECT as REJECT, Tasks as Tasks, WAIT as WAIT
    from berth.families.placement.training.train import TrainingPlan as TrainingPlan, train as train
    from berth.families.placement.world import Failure as Failure, PlacementWorld as PlacementWorld
    from berth.families.selection.gains import DrawnGains as DrawnGains
    from berth.families.selection.problem import Roles as Roles, SelectionOutcome as SelectionOutcome
    from berth.families.selection.problem import SelectionProblem as SelectionProblem, SelectionSlot as SelectionSlot
    from berth.families.selection.world import SelectionWorld as SelectionWorld
    from berth.lab.compare import Comparison as Comparison, compare as compare
    from berth.lab.leaderboard import leaderboard as leaderboard
    from berth.lab.replay import Measurement as Measurement, Replay as Replay, ReplaySetting as ReplaySetting
    from berth.lab.replay import replay as replay
    from berth.lab.replay.sweep import ReplaySweepFile as ReplaySweepFile
    from berth.lab.reproduce.run import reproduce as reproduce
    from berth.lab.run.sweep import SweepFile as SweepFile, points_of as points_of
    from berth.lab.sweep import load_sweep as load_sweep, sweep as sweep
    from berth.model import Berth as Berth, Cluster as Cluster, Floats as Floats, Instance as Instance
    from berth.model import JobType as JobType, Resource as Resource
    from berth.random import stream as stream
    from berth.registry import PolicySpec as PolicySpec, make_policy as make_policy
    from berth.scenario import Scenario as Scenario, load_scenario as load_scenario
    from berth.simulation import Result as Result, simulate as simulate
    from berth.testing import check_policy as check_policy
    from berth.traces.fitting.workload import load_workload as load_workload
    from berth.traces.formats import load_trace as load_trace, open_trace as open_trace
    from berth.traces.trace import Trace as Trace
    # isort: on
    # fmt: on

_NAMES = {
    "berth.errors": "BerthError InvalidInput UnsupportedProblem",
    "berth.families.allocation.oracle": "slot_optima",
    "berth.families.allocation.problem": "AllocationOutcome AllocationProblem AllocationSlot",
    "berth.families.allocation.utility": "Utility",
    "berth.families.allocation.world": "AllocationWorld",
    "berth.families.placement.policies.ordered": "OrderedPolicy",
    "berth.families.placement.policies.queued": "InOrder",
    "berth.families.placement.problem": "PlacementDecision PlacementOutcome PlacementProblem PlacementSlot "
    "REJECT Tasks WAIT",
    "berth.families.placement.training.train": "TrainingPlan train",
    "berth.families.placement.world": "Failure PlacementWorld",
    "berth.families.selection.gains": "DrawnGains",
    "berth.families.selection.problem": "Roles SelectionOutcome SelectionProblem SelectionSlot",
    "berth.families.selection.world": "SelectionWorld",
    "berth.lab.compare": "Comparison compare",
    "berth.lab.leaderboard": "leaderboard",
    "berth.lab.replay": "Measurement Replay ReplaySetting replay",
    "berth.lab.replay.sweep": "ReplaySweepFile",
    "berth.lab.reproduce.run": "reproduce",
    "berth.lab.run.sweep": "SweepFile points_of",
    "berth.lab.sweep": "load_sweep sweep",
    "berth.model": "Berth Cluster Floats Instance JobType Resource",
    "berth.random": "stream",
    "berth.registry": "PolicySpec make_policy",
    "berth.scenario": "Scenario load_scenario",
    "berth.simulation": "Result simulate",
    "berth.testing": "check_policy",
    "berth.traces.fitting.workload": "load_workload",
    "berth.traces.formats": "load_trace open_trace",
    "berth.traces.trace": "Trace",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'berth' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
