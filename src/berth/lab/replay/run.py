"""A trace played again under other policies: when each job would have started, and what that means.

Policies that are a queue on one pool go through a kernel that plays whole logs; all others are asked at every moment.
On one machine both give the same starts, and so they do on several of which jobs take equal pieces, but for
reservations: a pool counts what will be free, where a policy that is asked reserves on certain machines.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.kernels.gathering import Classes, Fleet, Free
from berth.families.placement.kernels.queueing import mean_fragments
from berth.families.placement.policies.conservative import Conservative
from berth.families.placement.policies.queued import InOrder
from berth.families.placement.pool_runs import run_pool
from berth.families.placement.problem import PlacementSlot
from berth.families.placement.trace_world import BatchJobs, as_pool, batch_jobs, batch_world, pooled, squeezed
from berth.lab.replay.metrics import batch_metrics, bounded_slowdown
from berth.lab.run.manifest import now, versions
from berth.lab.run.store import ResultDirectory, opened
from berth.model import Floats
from berth.random import stream
from berth.registry import PolicySpec
from berth.simulation import simulate
from berth.traces.formats import open_trace
from berth.traces.lint import usable
from berth.traces.trace import Trace

__all__ = ["DEFAULT_POLICIES", "Replay", "Setting", "replay"]

KIND = "berth replay"
DEFAULT_POLICIES = ("fcfs", "sjf", "easy", "conservative")
CLASSES = 60
"""The commonest classes of jobs by which fragmentation is measured."""
SHARED_POLICIES = ("fcfs", "best-fit", "tetris", "fgd")
"""Those compared by default where jobs share GPUs."""


@dataclass(frozen=True)
class Setting:
    """How a trace is played: on one pool of `processors` units of `resource`, or on its own machines.

    `exact`: policies know how long jobs run. `stopped`: jobs end when their estimate is over. `outages`: machines are
    away when the trace says so. `first`: only so many jobs. `load`: submissions are drawn together, or apart, until the
    work that comes, of the resource that is shortest, is this share of what the cluster can do in the meantime.
    """

    processors: float | None = None
    resource: str | None = None
    exact: bool = False
    stopped: bool = False
    outages: bool = False
    first: int | None = None
    load: float | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Replay:
    """What came of it: `rows`, one a policy, and `jobs`, one row for each policy and job.

    `left_out` counts the jobs that could not be played, by reason; `refused` are policies that cannot serve this.
    """

    source: Mapping[str, Any]
    setting: Setting
    rows: list[dict[str, Any]]
    jobs: pl.DataFrame
    left_out: Mapping[str, int]
    refused: Mapping[str, str]
    unreadable: str = ""
    """The first line that could not be read, and why."""

    def frame(self) -> pl.DataFrame:
        """The rows as a table."""
        return pl.DataFrame(self.rows, infer_schema_length=None)


def replay(
    trace: str | Path | Trace,
    policies: Sequence[str] | None = None,
    setting: Setting | None = None,
    *,
    format: str | None = None,
    machines: str | Path | None = None,
    strict: bool = False,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Replay:
    """Play a trace under each policy; `progress` is called with the policy, moments done and moments in all.

    With `out` results are kept there, and what is there already of the same trace and setting is not played again.

    >>> jobs = {"submit_s": [0.0, 0.0, 1.0], "run_s": [5.0, 5.0, 4.0], "pieces": [2, 4, 2], "cpu": [1.0, 1.0, 1.0]}
    >>> found = replay(Trace.of(jobs), ["fcfs", "easy"], Setting(processors=4))
    >>> [row["mean_wait_seconds"] for row in found.rows]
    [4.666666666666667, 1.6666666666666667]
    """
    setting = setting or Setting()
    unreadable: dict[str, int] = {}
    unread: InvalidInput | None = None
    if not isinstance(trace, Trace):
        reading = open_trace(trace, format, machines=machines, strict=strict)
        trace = reading.trace()
        unreadable = dict(reading.report.skipped)
        unread = next((found[0] for found in reading.report.examples.values()), None)
    if setting.processors is not None:
        trace = pooled(trace, setting.processors, setting.resource)
    elif setting.resource is not None:
        raise InvalidInput("processors too: a resource is that of a pool", value=setting.resource, key="resource")
    playable, unusable = usable(trace)
    left_out = {**unreadable, **unusable}
    if setting.first is not None:
        playable = playable.replace(jobs=playable.jobs.head(setting.first))
    if setting.load is not None:
        playable = squeezed(playable, setting.load)
    try:
        batch = batch_jobs(playable, exact=setting.exact, stopped=setting.stopped)
    except InvalidInput as error:
        if not len(trace) and unread is not None:
            raise unread from None
        raise error.at(file=next(iter(trace.source.files), None)) from None
    chosen = policies or (DEFAULT_POLICIES if batch.problem.devices is None else SHARED_POLICIES)
    specs = [_placement(text) for text in dict.fromkeys(chosen)]
    source = {"format": trace.source.format, "files": {file: _hash(file) for file in trace.source.files}}
    facts = {"source": source, "played": _digest(playable), "setting": vars(setting), "versions": versions()}
    rows: list[dict[str, Any]] = []
    tables: list[pl.DataFrame] = []
    refused: dict[str, str] = {}
    with opened(out, KIND) as folder:
        kept = None if folder is None else _Kept(folder, facts)
        for spec in specs:
            found = None if kept is None else kept.load(str(spec))
            if found is None:
                try:
                    found = _played(spec, batch, playable, setting, progress)
                except UnsupportedProblem as error:
                    refused[str(spec)] = str(error)
                    continue
                if kept is not None:
                    kept.save(str(spec), *found)
            rows.append({"policy": str(spec), **found[0]})
            tables.append(found[1].select(pl.lit(str(spec)).alias("policy"), pl.all()))
        if not rows:
            raise UnsupportedProblem("; ".join(refused.values()))
        told = "" if unread is None else str(unread)
        result = Replay(source, setting, rows, pl.concat(tables), left_out, refused, told)
        if kept is not None:
            kept.finish(result)
    return result


def _placement(text: str) -> PolicySpec:
    spec = PolicySpec.parse(text)
    family = getattr(spec.load(), "family", None)
    if family != "placement":
        raise InvalidInput("a policy of the placement family", found=f"{text}, of the {family} family", key="policy")
    return spec


def _hash(file: str) -> str | None:
    """The SHA-256 of a file of the trace, None where it is gone."""
    path = Path(file)
    if not path.is_file():
        return None
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _digest(trace: Trace) -> str:
    """The SHA-256 of what is played; files do not tell, for a trace may be in memory, or read in another way."""
    found = hashlib.sha256(repr(trace.resources).encode())
    for table in (trace.jobs, trace.machines, trace.outages):
        bytes_of = io.BytesIO()
        table.rechunk().write_ipc(bytes_of)
        found.update(bytes_of.getvalue())
    return found.hexdigest()


def _played(
    spec: PolicySpec,
    batch: BatchJobs,
    trace: Trace,
    setting: Setting,
    progress: Callable[[str, int, int], None] | None,
) -> tuple[dict[str, Any], pl.DataFrame]:
    """The numbers of one policy, and its jobs."""
    problem, tasks = batch.problem, batch.tasks
    policy = spec.build(problem, stream(setting.seed, "policy", str(spec)))
    began = time.perf_counter()
    start, end, fragmentation = _at_once(policy, batch, setting), None, None
    if start is None:
        start, end, fragmentation = _one_by_one(policy, batch, trace, setting, spec, progress)
    else:
        end = start + batch.runs / problem.speed[0]
    seconds = time.perf_counter() - began
    amount = tasks.demand * tasks.pieces[:, None]
    capacity = problem.instance.capacity.sum(axis=0)
    main = problem.devices if problem.devices is not None else _main(amount, capacity)
    owner = None if trace.jobs["user"].null_count() == len(trace.jobs) else tasks.owner
    numbers = batch_metrics(tasks.arrival, start, end, amount, capacity, owner, main)
    names = [resource.name for resource in problem.instance.cluster.resources]
    shares = numbers.pop("utilisation_by_resource", None)
    if shares is not None:
        numbers["resource"] = names[main]
        numbers["utilisation_by_resource"] = dict(zip(names, shares, strict=True))
    if fragmentation is not None:
        numbers["fragmentation"] = fragmentation
    numbers["simulation_seconds"] = seconds
    wait = start - tasks.arrival
    jobs = trace.jobs.select("job", "user", "submit_s").with_columns(
        pl.Series("start_s", start).fill_nan(None),
        pl.Series("end_s", end).fill_nan(None),
        pl.Series("wait_s", wait).fill_nan(None),
        pl.Series("bounded_slowdown", bounded_slowdown(wait, end - start)).fill_nan(None),
    )
    return numbers, jobs


def _main(amount: Floats, capacity: Floats) -> int:
    """The resource that jobs ask most of, relative to what there is."""
    return int(np.argmax(np.where(capacity > 0, amount.sum(axis=0) / np.where(capacity > 0, capacity, 1.0), -1.0)))


def _at_once(policy: Any, batch: BatchJobs, setting: Setting) -> Floats | None:
    """When jobs start, (N,), by the kernel of whole logs; None where that cannot tell."""
    tasks, pool = batch.tasks, None if setting.outages else as_pool(batch)
    if pool is None:
        return None
    if type(policy) is Conservative:
        backfill, key = "conservative", None
    elif isinstance(policy, InOrder) and type(policy).start is InOrder.start:
        backfill, key = policy.backfill, policy.key(tasks)
    else:
        return None
    return run_pool(tasks.arrival, pool.size, pool.run, pool.estimate, pool.capacity, backfill=backfill, key=key)


def _one_by_one(
    policy: Any,
    batch: BatchJobs,
    trace: Trace,
    setting: Setting,
    spec: PolicySpec,
    progress: Callable[[str, int, int], None] | None,
) -> tuple[Floats, Floats, float | None]:
    """When jobs start and end, (N,), asking the policy at every moment; and what arriving jobs saw of fragmentation."""
    problem, world = batch.problem, batch_world(batch, trace, outages=setting.outages)
    start, end = np.full(len(batch.tasks), np.nan), np.full(len(batch.tasks), np.nan)
    seen = None if problem.devices is None else _Fragments(batch)

    begun = np.zeros(len(start), dtype=bool)

    def watch(slot: PlacementSlot, decision: Any, outcome: Any) -> None:
        new = problem.placed(slot, decision)
        slowest = np.full(len(start), np.inf)
        np.minimum.at(slowest, new.task, problem.speed[new.server])
        begun[outcome.started] = True
        begun[outcome.lost] = False
        begun[new.task] = new.start <= slot.time  # of those reserved for later we hear when they have begun
        start[new.task] = new.start
        end[new.task] = new.start + batch.runs[new.task] / slowest[new.task]
        if seen is not None:
            seen.look(slot)

    told = None if progress is None else (lambda done: progress(str(spec), done, len(world)))
    simulate(world, policy, observers=[watch], progress=told)
    start[~begun] = end[~begun] = np.nan
    return start, end, None if seen is None else seen.mean


class _Fragments:
    """The share of all devices that are free but of no use to a job drawn from the trace, seen by arriving jobs."""

    def __init__(self, batch: BatchJobs) -> None:
        problem, tasks = batch.problem, batch.tasks
        capacity = problem.instance.capacity
        device = -1 if problem.devices is None else problem.devices
        self.fleet = Fleet(capacity, problem.speed, problem.reach, capacity.max(axis=0), np.array([device]))
        rows, count = np.unique(np.column_stack([tasks.port, tasks.demand]), axis=0, return_counts=True)
        commonest = np.sort(np.argsort(-count, kind="stable")[:CLASSES])
        share = count[commonest] / count[commonest].sum()
        demand = np.ascontiguousarray(rows[commonest, 1:])
        self.classes = Classes(demand, rows[commonest, 0].astype(np.int64), share)
        self.total, self.sum, self.count, self.index = float(capacity[:, device].sum()), 0.0, 0, -1

    def look(self, slot: PlacementSlot) -> None:
        if slot.index == self.index or slot.devices is None:
            return
        self.index, self.count = slot.index, self.count + 1
        free = Free(slot.free, slot.devices, np.zeros(len(slot.free)))
        self.sum += mean_fragments(self.fleet, free, self.classes) / self.total

    @property
    def mean(self) -> float:
        return self.sum / max(self.count, 1)


class _Kept:
    """Results in a directory: manifest.json, a table of jobs for each finished policy, and the summary of all."""

    def __init__(self, folder: ResultDirectory, facts: Mapping[str, Any]) -> None:
        self.folder = folder
        self.facts = json.loads(json.dumps(facts))
        before = self.folder.manifest()
        self.same = before is not None and all(before.get(key) == value for key, value in self.facts.items())
        if before is not None and not self.same:
            raise InvalidInput(
                "a directory without results, or with those of this very trace and setting",
                found=f"{str(folder.path)!r}, which has others",
                key="out",
            )
        self.folder.create({"kind": KIND, **self.facts, "finished": None})

    def _name(self, policy: str) -> str:
        return f"cells/{hashlib.sha256(policy.encode()).hexdigest()[:16]}"

    def load(self, policy: str) -> tuple[dict[str, Any], pl.DataFrame] | None:
        path = self.folder.path / f"{self._name(policy)}.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return found["numbers"], pl.read_parquet(path.with_suffix(".parquet"))
        except (OSError, ValueError, KeyError, pl.exceptions.PolarsError):
            return None

    def save(self, policy: str, numbers: Mapping[str, Any], jobs: pl.DataFrame) -> None:
        self._table(f"{self._name(policy)}.parquet", jobs)
        self.folder.write_json(f"{self._name(policy)}.json", {"policy": policy, "numbers": numbers})  # last: now whole

    def _table(self, name: str, table: pl.DataFrame) -> None:
        whole = io.BytesIO()
        table.write_parquet(whole)
        self.folder.write(name, lambda path: path.write_bytes(whole.getvalue()))

    def finish(self, result: Replay) -> None:
        from berth.lab.replay.plots import save_replay_plots

        result = self._with_earlier(result)
        self._table("jobs.parquet", result.jobs)
        flat = [{k: v for k, v in row.items() if not isinstance(v, dict)} for row in result.rows]
        self._table("summary.parquet", pl.DataFrame(flat, infer_schema_length=None))
        self.folder.write_json("summary.json", result.rows)
        save_replay_plots(result, self.folder)
        facts = {"left_out": dict(result.left_out), "refused": dict(result.refused), "finished": now()}
        self.folder.write_json("manifest.json", {"kind": KIND, **self.facts, **facts})

    def _with_earlier(self, result: Replay) -> Replay:
        """The result with policies that an earlier call has left here."""
        rows, tables = list(result.rows), [result.jobs]
        known = {row["policy"] for row in rows}
        for path in sorted((self.folder.path / "cells").glob("*.json")):
            try:
                policy = json.loads(path.read_text(encoding="utf-8"))["policy"]
            except (OSError, ValueError, KeyError):
                continue
            found = None if policy in known else self.load(policy)
            if found is not None:
                rows.append({"policy": policy, **found[0]})
                tables.append(found[1].select(pl.lit(policy).alias("policy"), pl.all()))
        return dataclasses.replace(result, rows=rows, jobs=pl.concat(tables))
