"""Starts and ends of jobs by log, policy and setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any

from berth.traces.trace import Trace
from tests.frozen.interface import schedule
from tests.frozen.logs import LOGS, PUBLIC_LOGS, public_file, public_log
from tests.frozen.policies import ASKED, PUBLIC, QUEUE
from tests.frozen.tables import Case, Key, Outcome

__all__ = ["public_schedules", "schedules"]

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "exact": {"exact": True},
    "stopped": {"stopped": True},
    "load 1.5": {"load": 1.5},
    "pool": {"processors": 96.0},
    "outages": {"outages": True},  # policies are asked at every event: also of a log without any outage
}
SOME = ("fcfs:fit=first", "easy:fit=first", "easy:fit=best", "conservative:fit=first", "tetris", "fgd", "wfp3")
"""Policies that are played with the other settings too."""


def schedules() -> Iterator[Case]:
    """Drawn logs."""
    for name, make in LOGS.items():
        log = cache(make)
        for policy in (*QUEUE, *ASKED) if name.endswith("short") or name == "outages" else QUEUE:
            for setting, values in SETTINGS.items():
                if not setting or policy in SOME or (name, setting) == ("outages", "outages"):
                    yield _case(name, log, policy, setting, values)


def public_schedules() -> Iterator[Case]:
    """Public logs, those that are there."""
    for name, one in PUBLIC_LOGS.items():
        log = cache(partial(public_log, name))
        for policy in PUBLIC if public_file(name) is not None else ():
            yield _case(name, log, policy, "", {"processors": one.processors})
            yield _case(name, log, policy, "load 1.2", {"processors": one.processors, "load": 1.2})


def _case(name: str, log: Callable[[], Trace], policy: str, setting: str, values: Mapping[str, Any]) -> Case:
    return Case(Key(name, policy, setting), lambda: _outcome(log(), policy, values))


def _outcome(trace: Trace, policy: str, setting: Mapping[str, Any]) -> Outcome:
    found = schedule(trace, policy, **setting)
    if found is None:
        return Outcome([], "cannot serve it")
    lines = [f"{start!r} {end!r}" for start, end in zip(found.start.tolist(), found.end.tolist(), strict=True)]
    means = {"wait": "mean_wait_seconds", "slowdown": "mean_bounded_slowdown", "fragments": "fragmentation"}
    told = [f"{word} {found.metrics[name]:.5g}" for word, name in means.items() if found.metrics.get(name) is not None]
    counts = {"never started": "never_started", "broken": "broken_decisions"}
    told += [f"{word} {found.metrics[name]}" for word, name in counts.items() if found.metrics.get(name)]
    return Outcome(lines, ", ".join(told))
