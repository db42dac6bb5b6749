"""Cells of sweeps of replays: one policy on one sample at one point.

Workers read a trace once and keep its samples, so that points and policies share them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from berth.families.placement.trace_world import BatchJobs, batch_jobs
from berth.files.wording import Part, said
from berth.lab.replay import run, trace_digest
from berth.lab.replay.results import ReplaySetting
from berth.lab.replay.samples import Measurement, Sample, opened_log, samples_of
from berth.lab.run.cells import code_hash, source_hash
from berth.lab.run.runner import CellKind, Work
from berth.lab.run.store import ResultDirectory
from berth.registry import PolicySpec
from berth.traces.fitting.workload import workload_names
from berth.traces.trace import Trace

__all__ = ["REPLAYED", "ReplayCell", "ReplayKeys", "ReplayPoint", "batch_of", "forget", "samples_at"]

Time = Annotated[str | float, said("a duration such as 30d, or a number of seconds")]
Count = Annotated[int, Field(ge=1), said("a whole number ≥ 1")]
Positive = Annotated[float, Field(gt=0), said("a number above 0")]


class ReplayKeys(Part):
    """Keys of a replay that a sweep may set or vary."""

    trace: Annotated[str, said("the file of a trace")] = Field(description="trace, or fitted workload with `replicas`")
    format: str | None = Field(None, description="format of the trace, if not recognised")
    machines: str | None = Field(None, description="table of machines, if not beside the trace")
    processors: Positive | None = Field(None, description="size of one pool, instead of the machines of the trace")
    resource: str | None = Field(None, description="resource of the pool")
    load: Positive | None = Field(None, description="offered load to which inter-arrival times are rescaled")
    exact: bool = Field(False, description="tell policies the run times")
    stop: bool = Field(False, description="end jobs when their estimate is over")
    outages: bool = Field(False, description="apply the outages of the trace")
    first: Count | None = Field(None, description="number of jobs to play; of a replica, to draw")
    seed: Annotated[int, Field(ge=0), said("a whole number ≥ 0")] = Field(
        0, description="seed for randomised policies, window starts and replicas"
    )
    since: Time | None = Field(None, description="play jobs submitted from here: a time or a date")
    until: Time | None = Field(None, description="play jobs submitted before")
    warm_up: Time | None = Field(None, description="play the first jobs without counting them: a time, or 5%")
    cool_down: Time | None = Field(None, description="play the last jobs without counting them")
    windows: Count | None = Field(None, description="number of windows")
    window_jobs: Count | None = Field(None, description="length of a window in jobs")
    window_length: Time | None = Field(None, description="length of a window in time")
    window_starts: list[Time] = Field(default_factory=list, description="starts of the windows")
    replicas: Count | None = Field(None, description="number of workloads to draw from a fit")
    slowdown_bound: Positive | None = Field(None, description="threshold of bounded slowdowns in seconds (default 10)")
    size: str | None = Field(None, description="size of a job in an SWF log: requested, allocated or larger")
    zero_run_times: bool = Field(False, description="play jobs of zero run time")

    def setting(self) -> ReplaySetting:
        """How the trace is played."""
        return ReplaySetting(
            self.processors,
            self.resource,
            self.exact,
            self.stop,
            self.outages,
            self.first,
            self.load,
            self.seed,
            self.size,
            self.zero_run_times,
        )

    def measure(self) -> Measurement:
        """What is played and what counts."""
        names = {field.name for field in fields(Measurement)} - {"window_starts"}
        return Measurement(**{name: getattr(self, name) for name in names}, window_starts=tuple(self.window_starts))


class ReplayCell(NamedTuple):
    """A policy on a sample."""

    policy: str
    sample: int

    def __str__(self) -> str:
        return f"{self.policy}, sample {self.sample}"


@dataclass(frozen=True)
class ReplayPoint:
    """A point of the sweep, for a worker: its settings, with files as absolute paths."""

    settings: str

    @property
    def keys(self) -> ReplayKeys:
        """The settings."""
        return ReplayKeys(**json.loads(self.settings))


@lru_cache(maxsize=2)
def _read(path: str, format: str | None, machines: str | None, size: str | None) -> Trace:
    return opened_log(path, size, format, machines=machines).trace()


@lru_cache(maxsize=4)
def samples_at(point: ReplayPoint) -> list[Sample]:
    """Samples of a point; points of a trace share what was read."""
    keys = point.keys
    fitted = keys.replicas is not None and (keys.trace in workload_names() or keys.trace.endswith(".json"))
    if fitted:
        return samples_of(keys.trace, keys.setting(), keys.measure()).samples
    given = _read(keys.trace, keys.format, keys.machines, keys.size)
    return samples_of(given, replace(keys.setting(), size=None), keys.measure()).samples


@lru_cache(maxsize=4)
def batch_of(point: ReplayPoint, sample: int) -> BatchJobs:
    setting = point.keys.setting()
    return batch_jobs(samples_at(point)[sample].played, exact=setting.exact, stopped=setting.stopped)


@lru_cache(maxsize=64)
def _digest(point: ReplayPoint, sample: int) -> str:
    return trace_digest([samples_at(point)[sample]])


def forget() -> None:
    """Read files again: in a process with several sweeps, they may have changed since."""
    for function in (_read, samples_at, batch_of, _digest):
        function.cache_clear()


class ReplayedCells(CellKind[ReplayPoint, ReplayCell, dict[str, Any]]):
    """Cells of sweeps of replays."""

    def key(self, context: ReplayPoint, cell: ReplayCell) -> str:
        """A hash of the code, the jobs and the settings."""
        setting = context.keys.setting()
        parts = {
            "berth": code_hash("lab/replay"),
            "source": source_hash(cell.policy),
            "policy": cell.policy,
            "played": _digest(context, cell.sample),
            "setting": [setting.exact, setting.stopped, setting.outages, setting.seed, context.keys.slowdown_bound],
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]

    def compute(self, context: ReplayPoint, cell: ReplayCell) -> dict[str, Any]:
        """The metrics of the policy on the sample."""
        keys, sample, batch = context.keys, samples_at(context)[cell.sample], batch_of(context, cell.sample)
        spec = PolicySpec.parse(cell.policy)
        return run.played(spec, batch, sample.trace, keys.setting(), None, sample.span, keys.slowdown_bound)[0]

    def save(self, directory: ResultDirectory, key: str, cell: ReplayCell, result: dict[str, Any]) -> None:
        """Write the numbers as JSON."""
        directory.write_json(f"cells/{key}.json", {**cell._asdict(), "numbers": result})

    def load(self, directory: ResultDirectory, key: str) -> dict[str, Any]:
        """Read the numbers."""
        found = json.loads((directory.path / "cells" / f"{key}.json").read_text(encoding="utf-8"))
        return dict(found["numbers"])

    def groups(self, contexts: Sequence[ReplayPoint], works: Iterable[Work]) -> list[list[Work]]:
        """Cells by policy."""
        found: dict[str, list[Work]] = {}
        for work in works:
            found.setdefault(work.cell.policy, []).append(work)
        return list(found.values())

    def alike(self, group: Iterable[Work]) -> list[Work]:
        """The first: a group has one policy."""
        return [next(iter(group))]

    def warm_up(self, contexts: Sequence[ReplayPoint], works: Iterable[Work]) -> None:
        """Play the first jobs of these cells."""
        for place, (policy, number) in works:
            with suppress(Exception):  # the cell itself reports any error
                sample, setting = samples_at(contexts[place])[number], contexts[place].keys.setting()
                few, played = (
                    trace.replace(jobs=trace.jobs.head(run.SHORT)) for trace in (sample.trace, sample.played)
                )
                batch = batch_jobs(played, exact=setting.exact, stopped=setting.stopped)
                run.played(PolicySpec.parse(policy), batch, few, setting, None)


REPLAYED = ReplayedCells()
