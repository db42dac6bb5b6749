"""Real traces in experiments: find their files, and build the points that name one.

A scenario with a `workload` plays the jobs of the trace. A placement scenario without one takes only the arrival counts
from it, as DRL-Greedy's paper does: those of a section of the trace, with a slot length at which the mean count equals
the scenario's `arrivals.mean`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.families import FAMILIES
from berth.lab.reproduce.experiments import Setting
from berth.model import Floats
from berth.scenario import Scenario, load_scenario
from berth.traces.folder import VARIABLE
from berth.traces.formats import load_trace

__all__ = ["Found", "find_traces"]

NO_FOLDER = f"there is no traces folder (set {VARIABLE} or --traces)"
NO_FILE = "it is not in the traces folder"


@dataclass(frozen=True)
class Found:
    """Points of an experiment that can be run, and those whose trace is missing.

    By the experiment's names, `files` holds the SHA-256 of each trace that is played, `missing` why another one is not.
    """

    settings: tuple[Setting, ...]
    absent: tuple[Setting, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


def find_traces(settings: Sequence[Setting], folder: Path | None) -> Found:
    """Points with the files of their traces; a file name is relative to the folder, or absolute."""
    run: list[Setting] = []
    absent: list[Setting] = []
    files: dict[str, str] = {}
    missing: dict[str, str] = {}
    for setting in settings:
        name = setting.trace
        if name is None:
            run.append(setting)
            continue
        path = _path(name, folder)
        if path is None or not path.is_file():
            missing[name] = NO_FOLDER if path is None else NO_FILE
            absent.append(setting)
            continue
        files.setdefault(name, hashlib.sha256(path.read_bytes()).hexdigest())
        run.append(dataclasses.replace(setting, changes=_changes(setting, path)))
    return Found(tuple(run), tuple(absent), files, missing)


def _path(name: str, folder: Path | None) -> Path | None:
    path = Path(name).expanduser()
    if path.is_absolute():
        return path
    return None if folder is None else folder / path


def _changes(setting: Setting, path: Path) -> dict[str, Any]:
    """Overrides that make the scenario play the trace."""
    plain = {key: value for key, value in setting.changes.items() if key.split(".")[0] != "workload"}
    scenario = load_scenario(setting.scenario, plain)
    if scenario.settings.workload is not None:
        return {**setting.changes, "workload.trace": str(path)}
    if not FAMILIES[scenario.family].scenario.batches:
        raise InvalidInput(
            "a scenario with a workload, or of the placement family", value=setting.scenario, key="trace"
        )
    own = {key: value for key, value in setting.changes.items() if key.split(".")[0] != "arrivals"}
    return {**own, "arrivals.process": "given", "arrivals.sizes": _sizes(path, scenario)}


def _sizes(path: Path, scenario: Scenario) -> list[int]:
    """Number of jobs in each slot of a section in the middle of the trace."""
    mean = getattr(getattr(scenario.settings, "arrivals", None), "mean", 0.0)
    if not mean > 0:
        raise InvalidInput("arrivals with a mean above 0", value=scenario.name, key="trace")
    submit = _submitted(path)
    wanted = round(mean * scenario.horizon)
    if len(submit) < wanted or not submit[-1] > submit[0]:
        raise InvalidInput(f"a trace of at least {wanted} jobs", found=f"{len(submit)} jobs", file=path)
    slot = (submit[-1] - submit[0]) / len(submit) * mean
    start = (submit[0] + submit[-1] - slot * scenario.horizon) / 2.0
    return _counted(np.floor((submit - start) / slot), scenario.horizon)


def _counted(slots: Iterable[float], horizon: int) -> list[int]:
    there = np.asarray(slots, dtype=np.int64)
    counts: list[int] = np.bincount(there[(there >= 0) & (there < horizon)], minlength=horizon).tolist()
    return counts


@lru_cache(maxsize=2)
def _submitted(path: Path) -> Floats:
    """Sorted submission times of a trace, without jobs submitted before its start."""
    submit = load_trace(path).jobs["submit_s"].drop_nulls().to_numpy()
    return np.sort(submit[submit > 0])
