"""The only module here that imports what is frozen: a change of berth's structure changes this file and no other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import yaml

from berth.errors import UnsupportedProblem
from berth.families.placement.problem import (
    WAIT,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
)
from berth.lab.replay import ReplaySetting, replay
from berth.lab.reproduce.experiments import chosen
from berth.lab.reproduce.run import reproduce
from berth.live.core.dispatcher import Dispatcher, read_dump, write_dump
from berth.live.core.events import (
    Decided,
    Event,
    Failed,
    Finished,
    Overran,
    PolicyChanged,
    ServerJoined,
    read_event,
    write_event,
)
from berth.live.engines.simulated.cluster import Latency, SimulatedCluster, Truth
from berth.live.service.store import Batch, Key, Store, Token, packed
from berth.live.simulation import play
from berth.live.twin.runs import Run, Runner, run
from berth.live.twin.settings import RehearsalFile
from berth.model import Floats
from berth.traces.trace import Trace

__all__ = [
    "Event",
    "Schedule",
    "Unruly",
    "continue_replay",
    "decisions",
    "ends",
    "event",
    "experiments",
    "followed",
    "played",
    "read_event",
    "read_rehearsal",
    "read_store",
    "rehearsed",
    "restored",
    "runners",
    "schedule",
    "snapshot",
    "starts_of",
    "verdicts",
    "write_event",
    "write_rehearsal",
    "write_replay",
    "write_store",
]


class Unruly:
    """A policy whose decisions are refused in two ways, so that the fallback decides, and every third time accepted."""

    family = "placement"
    reference = "none"

    def __init__(self, problem: PlacementProblem) -> None:
        self.count = 0

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        self.count += 1
        if self.count % 3 == 0:
            raise RuntimeError("every third decision")
        return PlacementDecision(np.full(len(slot.ids), 0 if self.count % 3 == 1 else WAIT, dtype=np.int64))

    def observe(self, outcome: PlacementOutcome, /) -> None:
        return None


TIMED = "decide_seconds"


class Schedule(NamedTuple):
    """Start and end of each job (N,), nan if it never starts, and the metrics."""

    start: Floats
    end: Floats
    metrics: Mapping[str, Any]


def schedule(trace: Trace, policy: str, **setting: Any) -> Schedule | None:
    """Play a log under a policy; None if the policy cannot serve it. Settings are those of `ReplaySetting`."""
    try:
        found = replay(trace, [policy], ReplaySetting(**setting))
    except UnsupportedProblem:
        return None
    start, end = (found.jobs[name].cast(float).fill_null(float("nan")).to_numpy() for name in ("start_s", "end_s"))
    return Schedule(start, end, found.rows[0])


# ---------------------------------------------------------------------------- rehearsals and verdicts


def _plan(path: Path, changes: Mapping[str, Any]) -> RehearsalFile:
    made = RehearsalFile.model_validate({**yaml.safe_load(path.read_text()), **changes})
    made._folder = path.parent
    return made


def runners(path: Path, changes: Mapping[str, Any]) -> list[str]:
    """The schedulers of a rehearsal file with these changes."""
    return [str(one) for one in _plan(path, changes).plan().all]


def rehearsed(path: Path, changes: Mapping[str, Any], runner: str, seed: int) -> list[tuple[float, ...]]:
    """Arrival, start, end, tasks, servers and, last, the run's refused decisions, of each job of a rehearsal."""
    plan = _plan(path, changes).plan()
    made = run(plan.stream, Runner.parse(runner), seed, plan.latency, plan.plain_latency, plan.patience)
    return _rows(made)


def experiments() -> list[str]:
    """The experiments of the papers that need no traces."""
    return [one.name for one in chosen(["all"]) if not one.name.endswith("/traces")]


def verdicts(name: str) -> tuple[list[str], list[str]]:
    """The numbers of an experiment's quick version, without measured times, and the verdict on each claim."""
    found = reproduce([name], quick=True, workers=1).experiments[0]
    claims = [claim for claim in found.claims if claim.claim.metric != TIMED]
    lines = [
        f"{found.settings[place]} {cell} {series} {value:.9g}"
        for place, runs in sorted(found.runs.items())
        for cell, made in sorted(runs.items(), key=str)
        for series, value in sorted(made.means.items())
        if series != TIMED
    ]
    told = [claim.verdict.value for claim in claims]
    return [*lines, *(f"{claim.claim.says}: {text}" for claim, text in zip(claims, told, strict=True))], told


# ---------------------------------------------------------------------------- live decisions


def decisions(events: Iterable[Event]) -> list[str]:
    """The decisions among some events: moment, policy, starts, refusal and reserved servers of each."""
    return [_told(event) for event in events if isinstance(event, Decided)]


def _told(decided: Decided | None) -> str:
    if decided is None:
        return "nothing"
    starts = (
        f"{start.job}.{start.attempt}: " + " ".join(f"{p.role}@{p.server}*{p.count}" for p in start.places)
        for start in decided.starts
    )
    kept = " ".join(f"{server}={job}" for server, job in decided.reserved.items())
    return f"{decided.time!r} {decided.by} of {decided.waiting}: {'; '.join(starts)} | {decided.refused} | {kept}"


def ends(events: Iterable[Event]) -> list[str]:
    """How and when each attempt ended."""
    return [f"{e.job}.{e.attempt} {e.kind} {e.time!r}" for e in events if isinstance(e, Finished | Failed | Overran)]


def event(kind: str, time: float, **fields: Any) -> Event:
    """An event of these fields, as a journal has them."""
    return read_event(json.dumps({"kind": kind, "time": time, **fields}))


def starts_of(told: str) -> str:
    """What a decision starts, without who decided."""
    return told.partition(": ")[2].partition(" | ")[0]


def played(policy: str, servers: Iterable[Any], given: Iterable[Event], setting: Mapping[str, Any]) -> list[Event]:
    """All events of a simulated cluster on which a policy decides about these jobs; `setting` is that of `Scenario`."""
    joined = [event("server-joined", 0.0, server=one) for one in servers]
    there = [one.server for one in joined if isinstance(one, ServerJoined)]
    cluster = SimulatedCluster(there, Truth(**setting["truth"]), Latency(**setting["latency"]))
    return play(_dispatcher({**setting, "policy": policy}), cluster, given).events


def followed(policy: str | None, events: Sequence[Event], setting: Mapping[str, Any]) -> Iterator[str]:
    """What a policy would decide at each decision of a journal; None: its own policies, and the state after it."""
    dispatcher = _dispatcher(setting if policy is None else {**setting, "policy": policy})
    for event in events:
        if isinstance(event, Decided):
            yield _told(dispatcher.decide(event.time))
        if policy is None or not isinstance(event, PolicyChanged):
            dispatcher.handle(event)
    if policy is None:
        yield from _state(dispatcher)


def _state(dispatcher: Dispatcher) -> Iterator[str]:
    """What a dispatcher remembers, in a form that does not depend on how it keeps it.

    What is learned is rounded: its last digits depend on the processor.
    """
    state = dispatcher.state
    for name, record in sorted(state.jobs.items()):
        yield f"{name} {record.phase} {record.attempt} {record.started!r} {record.failures} {record.unlucky}"
    for server, kept in sorted(state.servers.items()):
        used = state.used[kept.index].tolist()
        yield f"{server} {kept.standing} uses {dict(zip(state.resources, used, strict=True))}"
    for team in sorted(state.teams):
        yield f"{team} {state.usage(team, state.time):.9g}"
    for type_ in sorted(state.learned.types):
        numbers = [*state.learned.speeds(type_).tolist(), state.learned.deviations([type_])[type_]]
        yield f"{type_} {' '.join(f'{number:.9g}' for number in numbers)}"


# ---------------------------------------------------------------------------- files


def _dispatcher(setting: Mapping[str, Any]) -> Dispatcher:
    return Dispatcher(setting["policy"], seed=3, learn_by=setting["learn_by"], bare=setting["bare"])


def snapshot(events: Iterable[Event], setting: Mapping[str, Any]) -> bytes:
    """A snapshot after some events."""
    dispatcher = _dispatcher(setting)
    dispatcher.replay(events)
    return write_dump(dispatcher.dump())


def restored(dumped: bytes | None, events: Iterable[Event], setting: Mapping[str, Any]) -> Iterator[str]:
    """The state after a snapshot and the events since."""
    dispatcher = _dispatcher(setting)
    if dumped is not None:
        dispatcher.load(read_dump(dumped))
    dispatcher.replay(events)
    yield from _state(dispatcher)


def write_store(path: Path, events: Sequence[Event], setting: Mapping[str, Any]) -> None:
    """A store with a journal, its jobs, a snapshot, an idempotency key and a token."""
    store, dispatcher = Store(f"sqlite:///{path}"), _dispatcher(setting)
    batch = Batch(1, list(events), keys=[Key("u1", "again", "digest", ("j1",), 1.0)])
    for event in events:
        batch.records.update({record.job.id: record for record in dispatcher.handle(event).changed})
    store.write(batch)
    store.write_snapshot(batch.last, events[-1].time, packed(dispatcher.dump()))
    store.add_token(Token("ann", "hash", "user", "u1", 1.0))
    store.close()


def read_store(path: Path, setting: Mapping[str, Any]) -> Iterator[str]:
    """What a store holds."""
    store = Store(f"sqlite:///{path}")
    try:
        events = [event for _, event in store.events()]
        yield from decisions(events)
        for record in store.list_jobs({}, limit=1000):
            yield f"{record.job.id} {record.phase} {record.attempt} {record.started!r} {record.ended!r} {record.reason}"
        yield f"{store.last()} {store.keys([('u1', 'again')])} {store.tokens()}"
        found = store.snapshot()
        assert found is not None
        yield from restored(write_dump(found[1]), (), setting)
    finally:
        store.close()


def write_replay(trace: Trace, policies: Sequence[str], folder: Path) -> None:
    """A result folder of a replay."""
    replay(trace, policies, ReplaySetting(), out=folder)


def continue_replay(trace: Trace, policies: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """The numbers of a replay that goes on in a result folder, as if the packages were those that wrote it."""
    fresh, manifest = folder.with_name("fresh"), folder / "manifest.json"
    replay(trace, policies, ReplaySetting(), out=fresh)
    facts = json.loads((fresh / "manifest.json").read_text())
    same = {name: facts[name] for name in ("versions", "played")}  # a hash of the trace as polars writes it
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **same}))
    return replay(trace, policies, ReplaySetting(), out=folder).rows


def write_rehearsal(path: Path, changes: Mapping[str, Any], runner: str, seed: int, target: Path) -> None:
    """A run of a rehearsal, as the folder of `berth rehearse` has it."""
    plan = _plan(path, changes).plan()
    run(plan.stream, Runner.parse(runner), seed, plan.latency, plan.plain_latency).frame().write_parquet(target)


def read_rehearsal(path: Path) -> list[tuple[float, ...]]:
    """The same of a run that was written."""
    return _rows(Run.of(pl.read_parquet(path)))


def _rows(made: Run) -> list[tuple[float, ...]]:
    columns = (made.arrival, made.began, made.ended, made.tasks, made.servers)
    return [(*row, made.refused) for row in zip(*(column.tolist() for column in columns), strict=True)]
