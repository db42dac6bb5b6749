"""Journals of a service: what policies decide about the same jobs, and at each moment of a frozen journal.

A journal in `tests/data/frozen/journals` is what the policy of its scenario decided, with all that came of it. It is
followed event by event: at each of its decisions every policy is asked, and the journal's own decision is taken, so
that one changed decision changes one line. Each policy also plays the jobs of the scenario to their end by itself.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from berth.files.quantities import amounts
from tests.frozen.interface import Event, decisions, ends, event, followed, played, read_event, starts_of, write_event
from tests.frozen.policies import ALONE, LIVE
from tests.frozen.tables import DATA, Case, Key, Outcome

__all__ = ["SCENARIOS", "journals", "write_journals"]

Fields = dict[str, Any]
"""The fields of a job, a server, queues or a role, as a journal has them."""
COUNT = 90
TYPES = ("train/a", "train/b", "solve", "default")


@dataclass(frozen=True)
class Scenario:
    """Servers, what happens to them, and a stream of jobs; the `policy` is that of the journal."""

    servers: tuple[Fields, ...]
    jobs: tuple[tuple[float, Fields], ...]
    queues: Fields = field(default_factory=dict)
    others: tuple[Event, ...] = ()
    policy: str = "completion"
    spread: float = 0.4
    faults: float = 0.0
    start: float = 0.0
    learn_by: str | None = None
    bare: bool = False

    @property
    def given(self) -> list[Event]:
        jobs = (event("submitted", time, job=job) for time, job in self.jobs)
        return sorted([event("queues-changed", 0.0, queues=self.queues), *self.others, *jobs], key=lambda one: one.time)

    @property
    def setting(self) -> Mapping[str, Any]:
        """How it is played."""
        truth = {"seed": 5, "spread": self.spread, "noise": 0.2, "faults": self.faults}
        latency = {"start": self.start, "report": self.start / 2}
        return {
            "truth": truth,
            "latency": latency,
            "policy": self.policy,
            "learn_by": self.learn_by,
            "bare": self.bare,
        }


def _servers(**changes: Fields) -> tuple[Fields, ...]:
    """Eight servers of two classes; each third has GPUs."""
    return tuple(
        {
            "name": f"n{i}",
            "capacity": amounts({"cpu": 8 + 8 * (i % 2), "memory": "32Gi", "gpu": 2 * (i % 3 == 0)}),
            "labels": {"class": "ab"[i % 2]},
            "speed": 1.0 + 0.5 * (i % 2),
            **changes.get(f"n{i}", {}),
        }
        for i in range(8)
    )


def _role(name: str, count: int, minimum: int = -1, per_server: int | None = None, **demand: Any) -> Fields:
    limit = {} if per_server is None else {"per_server": per_server}
    return {"name": name, "count": count, "minimum": minimum, "demand": amounts(demand), **limit}


def _jobs(seed: int, roles: bool = False, pause: float = 5.0, **fixed: Any) -> tuple[tuple[float, Fields], ...]:
    """A stream of jobs that differ in everything that a decision looks at; `fixed` fields are the same for all."""
    rng = np.random.default_rng(seed)
    submitted, time = [], 0.0
    for i in range(COUNT):
        time += float(np.round(rng.exponential(pause), 3)) * (rng.random() < 0.8)
        tasks, wide = int(rng.choice([1, 1, 2, 4, 9])), int(rng.integers(1, 3))
        demand: Fields = {"cpu": float(rng.choice([0.5, 1.0, 3.0])), "memory": f"{rng.choice([1, 4])}Gi"}
        gpu: Fields = {"gpu": float(rng.choice([0.25, 1.0]))} if rng.random() < 0.15 else {}
        main = [_role("main", min(tasks, 3) if gpu else tasks, **demand, **gpu)]
        if roles:
            most = None if i % 2 else 3
            main = [_role("main", tasks + 1, max(1, tasks - 1), most, **demand)]
            main += [_role("side", wide, i % 2, cpu=2), _role("gpu", 1, gpu=1)][: i % 3]
        work = float(np.round(rng.lognormal(4.0, 0.8), 3))
        given: Fields = {
            "type": TYPES[int(rng.integers(4))],
            "user": f"u{rng.integers(3)}",
            "team": ("red", "blue")[int(rng.integers(2))],
            "work": work if i % 3 else None,
            "estimate": None if i % 3 else 2.0 * work,
            "limit": float(np.round(rng.choice([1.5, 3.0, 9.0]) * work + 30.0)) if i % 2 else None,
            "needs": {"class": "ab"[i % 2]} if rng.random() < 0.15 else {},
            "value": float(rng.integers(1, 5)),
            "retries": i % 2,
            "priority": int(rng.integers(-1, 2)),
            **fixed,
        }
        submitted.append((time, {"id": f"j{i}", "roles": main, **given}))
    return tuple(submitted)


def _mixed(jobs: tuple[tuple[float, Fields], ...]) -> tuple[tuple[float, Fields], ...]:
    """Jobs of several queues in turn."""
    names = ("default", "low", "high", "default")
    return tuple((time, {**job, "queue": names[i % 4]}) for i, (time, job) in enumerate(jobs))


def _with_wide(jobs: tuple[tuple[float, Fields], ...]) -> tuple[tuple[float, Fields], ...]:
    """A job that needs half of all servers comes among the first, and another later."""
    wide = {"roles": [_role("main", 40, cpu=1)], "needs": {}, "work": 60.0}
    return tuple((time, {**job, **wide} if i in (9, 50) else job) for i, (time, job) in enumerate(jobs))


LEVELS: Fields = {
    "queues": {"default": {}, "low": {"priority": -2}, "high": {"priority": 3, "max_priority": 5}},
    "shares": {"red": 2.0},
    "aging": 40.0,
    "fairness": 6.0,
    "half_life": 400.0,
}
LIMITS: Fields = {
    "queues": {
        "default": {"limit": amounts({"cpu": 30})},
        "low": {"priority": -1},
        "high": {"priority": 1, "limit": amounts({"gpu": 2})},
    },
    "quotas": {"team:red": amounts({"cpu": 18}), "user:u1": amounts({"cpu": 12, "memory": "24Gi"})},
    "patience": 90.0,
}
EQUAL: Fields = {"aging": 0.0, "fairness": 0.0, "patience": 1e6}
SERVERS = _servers()
PLAIN: Fields = {"queue": "default", "priority": 0}
SCENARIOS: dict[str, Scenario] = {
    "one-level": Scenario(SERVERS, _jobs(1, **PLAIN), EQUAL),
    "one-level-easy": Scenario(SERVERS, _jobs(2, **PLAIN), EQUAL, policy="easy", bare=True),
    "levels": Scenario(SERVERS, _mixed(_jobs(3)), LEVELS),
    "limits": Scenario(SERVERS, _mixed(_jobs(4)), LIMITS, policy="easy"),
    "late": Scenario(SERVERS, _with_wide(_jobs(5, **PLAIN)), {"patience": 60.0}, start=0.3),
    "late-easy": Scenario(SERVERS, _with_wide(_jobs(6, **PLAIN)), {"patience": 60.0}, policy="easy"),
    "windows": Scenario(
        _servers(n1={"until": 700.0}, n2={"until": 350.0}, n3={"closed": "down"}, n5={"taken": amounts({"cpu": 6})}),
        _jobs(7),
        {"patience": 200.0},
        (
            event("server-changed", 500.0, server=_servers(n3={"until": 1500.0})[3]),
            event("server-drained", 300.0, server="n4"),
            event("server-resumed", 800.0, server="n4"),
        ),
    ),
    "roles": Scenario(SERVERS, _jobs(8, roles=True), {"patience": 300.0}, policy="in-order-best-fit"),
    "roles-completion": Scenario(SERVERS, _jobs(9, roles=True), {"patience": 300.0}),
    "deferral": Scenario(SERVERS, _jobs(10, pause=9.0, **PLAIN), EQUAL, spread=0.8, learn_by="class"),
    "gathering": Scenario(SERVERS, _jobs(11, type="train/a", **PLAIN), EQUAL, policy="best-fit", spread=0.1),
    "failing": Scenario(
        SERVERS,
        _mixed(_jobs(12)),
        LEVELS,
        (
            *(event("cancelled", 100.0 + 90.0 * i, job=f"j{9 * i}", by="op") for i in range(6)),
            event("server-lost", 250.0, server="n1"),
            event("server-lost", 400.0, server="n6"),
            event("server-changed", 640.0, server=SERVERS[1]),
            event("policy-changed", 700.0, policy="easy", by="op"),
            event("queues-changed", 800.0, queues=LIMITS, by="op"),
            event("policy-changed", 900.0, policy="completion", by="op"),
        ),
        faults=0.15,
    ),
}
"""Scenarios by name."""


def journals() -> Iterator[Case]:
    """For each scenario: its journal followed, and by policy what it would decide there and what it decides alone."""
    for name, scenario in SCENARIOS.items():
        yield Case(Key(name, "(its own)", "followed"), partial(_followed, name, scenario, None))
        for policy in LIVE:
            yield Case(Key(name, policy, "asked"), partial(_followed, name, scenario, policy))
        for policy in ALONE:
            yield Case(Key(name, policy, "played"), partial(_played, scenario, policy))


def read_journal(name: str) -> list[Event]:
    lines = gzip.decompress((DATA / "journals" / f"{name}.jsonl.gz").read_bytes()).decode()
    return [read_event(line) for line in lines.splitlines()]


def write_journals() -> None:
    """Play each scenario under its policy; the next freeze follows these journals."""
    (DATA / "journals").mkdir(parents=True, exist_ok=True)
    for name, one in SCENARIOS.items():
        text = "".join(f"{write_event(one)}\n" for one in played(one.policy, one.servers, one.given, one.setting))
        (DATA / "journals" / f"{name}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _followed(name: str, scenario: Scenario, policy: str | None) -> Outcome:
    lines = list(followed(policy, read_journal(name), scenario.setting))
    made = decisions(read_journal(name))
    same = sum(starts_of(ours) == starts_of(theirs) for ours, theirs in zip(lines, made, strict=False))
    return Outcome(lines, f"{same} of {len(made)} decisions start what the journal's do")


def _played(scenario: Scenario, policy: str) -> Outcome:
    events = played(policy, scenario.servers, scenario.given, scenario.setting)
    told, lines = decisions(events), ends(events)
    end = max(one.time for one in events)
    return Outcome([*told, *lines], f"{len(told)} decisions, {len(lines)} ends, the last at {end:.6g}")
