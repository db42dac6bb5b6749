"""The key `workload`: cluster, job types, channels and arrivals from a fitted workload or a trace.

The keys of the file override those of the workload. The seed only changes the jobs: another draw from a fit, another
window of a trace.

Axes: N jobs, T slots, J job types, G groups of equal servers, K resources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from berth.errors import InvalidInput, did_you_mean
from berth.files.wording import Mistake, first_of, part_of
from berth.files.yaml_tree import Key, Tree
from berth.model import Floats, Ints
from berth.random import stream
from berth.scenario.families import ScenarioFamily
from berth.scenario.layering import laid
from berth.scenario.settings import WorkloadSettings
from berth.traces.fitting.fit import fit, prepared
from berth.traces.fitting.generate import generate, job_rate, machine_mix, offered_load
from berth.traces.fitting.types import job_types
from berth.traces.fitting.workload import FOLDER, Speeds, Workload, load_workload
from berth.traces.formats import load_trace
from berth.traces.trace import Trace

__all__ = ["WorkloadPlan", "check_workload", "planned", "with_workload"]

SAMPLE = 5000
"""Jobs drawn from a fit to cluster its job types, always with the same seed."""
BUSY = 0.7
"""Default slot length: the most common type averages this many jobs a slot."""
BATCH = 10.0
"""Default slot length of the placement family: a batch averages this many jobs."""
MOST_JOBS = 10_000_000
"""The most jobs of a run that repeats a trace."""
ANY = "any"


@dataclass(frozen=True)
class Group:
    """Identical servers."""

    name: str
    count: int
    capacity: Floats
    label: str | None
    speed: float


@dataclass(frozen=True, eq=False)
class WorkloadPlan:
    """The part of a workload that no seed changes: servers, job types, and the length of a slot."""

    settings: WorkloadSettings
    workload: Workload
    trace: Trace | None
    groups: tuple[Group, ...]
    names: tuple[str, ...]
    demand: Floats
    """Request of one piece of the typical job of each type, (J, K)."""
    pieces: Ints
    """Pieces of the typical job of each type, (J,)."""
    shares: Floats
    """Share of all jobs, (J,)."""
    reach: tuple[tuple[str, ...], ...]
    """The groups of servers that each type reaches."""
    type_of: Callable[[Trace], Ints]
    rate: float
    """Jobs per second on these servers."""
    slot_seconds: float

    def jobs(self, horizon: int, seed: int, faster: float = 1.0, slot_seconds: float | None = None) -> Trace:
        """Jobs of a run; `submit_s` counts from its start.

        They arrive `faster` times as often, daily cycle included; run times stay the same.
        """
        length = horizon * (slot_seconds or self.slot_seconds)
        if self.trace is None:
            servers = sum(group.count for group in self.groups)
            made = generate(self.workload, hours=length * faster / 3600.0, machines=servers, seed=seed)
            return made.replace(jobs=made.jobs.with_columns(pl.col("submit_s") / faster))
        rate = self.rate / job_rate(self.workload) * faster
        submit = self.trace.jobs["submit_s"].to_numpy() / rate
        submit = submit - submit[0]
        span = float(submit[-1]) + 1e-9 if len(submit) > 1 else length
        start = stream(seed, "workload", "window").random() * (span - length if span > length else span)
        if length / span * len(submit) > MOST_JOBS:
            raise InvalidInput(
                "jobs that come over a longer time", found=f"{len(submit)} in {span:.3g} s", key="workload.trace"
            )
        passes = int(length // span) + 2  # a trace that is too short is repeated
        shifted = np.concatenate([submit + turn * span - start for turn in range(passes)])
        rows = np.flatnonzero((shifted >= 0) & (shifted < length))
        jobs = self.trace.jobs[rows % len(submit)].with_columns(pl.Series("submit_s", shifted[rows]))
        return self.trace.replace(jobs=jobs)

    def arrivals(self, names: Sequence[str], horizon: int, seed: int) -> Floats:
        """1 in slots with a job of the type of this name, (T, len(names))."""
        trace = self.jobs(horizon, seed)
        slot = np.minimum((trace.jobs["submit_s"].to_numpy() / self.slot_seconds).astype(np.int64), horizon - 1)
        there = np.zeros((horizon, len(self.names)))
        there[slot, self.type_of(trace)] = 1.0
        return there[:, [self.names.index(name) for name in names]]

    def pace(self) -> tuple[float, float]:
        """Length of a slot in seconds, and the factor on the arrival rate for the load, for jobs of any length."""
        faster = 1.0
        if self.settings.load is not None:
            whole = np.sum([m.count * np.array(m.capacity) for m in self.workload.machines], axis=0)
            there = np.sum([group.count * group.capacity for group in self.groups], axis=0)
            part = sum(g.count for g in self.groups) / sum(m.count for m in self.workload.machines)
            load = offered_load(self.workload) * np.divide(whole, there, out=np.zeros(len(there)), where=there > 0)
            faster = self.settings.load / max(part * float(load.max()), 1e-12)
        return self.settings.slot_seconds or BATCH / (self.rate * faster), faster

    def needs(self, trace: Trace) -> tuple[list[str], Ints]:
        """The sets of labels that jobs of this workload need, the same for every seed, and the set of each job."""
        if self.trace is None:
            classes = self.workload.classes
            told = {demand.needs for entry in classes for demand in entry.demands} | {entry.needs for entry in classes}
        else:
            told = set(self.trace.jobs["needs"].unique().to_list())
        labels = [ANY, *sorted(label for label in told if label is not None)]
        numbers = {label: place for place, label in enumerate(labels)}
        column = trace.jobs["needs"].fill_null(ANY).replace_strict(numbers, return_dtype=pl.Int64)
        return labels, column.to_numpy()

    def homes(self, labels: Sequence[str], kinds: Sequence[str]) -> NDArray[np.bool_]:
        """Servers, by the group of each, with a label that each set allows, (L, R); all servers if none has one."""
        label = {group.name: group.label for group in self.groups}
        of_server = [label.get(kind) for kind in kinds]
        rows = [[text == ANY or (own is not None and own in text.split("|")) for own in of_server] for text in labels]
        found = np.array(rows)
        found[~found.any(axis=1)] = True
        return found

    def cluster(self, unit: Floats) -> dict[str, Any]:
        """The key `cluster`, with amounts in these units."""
        resources = [
            {"name": entry.name, "unit": entry.unit if size == 1 else f"{size:.4g} {entry.unit}".strip()}
            for entry, size in zip(self.workload.resources, unit.tolist(), strict=True)
        ]
        servers = [
            {"name": group.name, "count": group.count, "capacity": self.amounts(group.capacity, unit)}
            for group in self.groups
        ]
        return {"resources": resources, "servers": servers}

    def amounts(self, row: Floats, unit: Floats) -> dict[str, float]:
        """Amounts (K,) by resource in these units, without zeros."""
        names = [entry.name for entry in self.workload.resources]
        return {name: float(a / u) for name, a, u in zip(names, row, unit, strict=True) if a > 0}

    def speeds(self) -> Speeds:
        """Spread of speeds; a workload without speeds uses those measured in PAI, the only public trace with them."""
        speeds = self.workload.speeds or load_workload("pai").speeds
        if speeds is None:
            raise InvalidInput("speeds", found="none", key="pai")
        return speeds

    def copies(self) -> float:
        """Number of equal jobs that the job of a port stands for, to reach the requested load.

        If jobs last one slot, a few of them never fill a cluster; real jobs do, because they run for long.
        """
        if self.settings.load is None:
            return 1.0
        horizon = max(100, int(SAMPLE / (self.rate * self.slot_seconds)))
        often = self.arrivals(self.names, min(horizon, 5000), 0).mean(axis=0)
        asked = (often[:, None] * self.demand * self.pieces[:, None]).sum(axis=0)
        total = np.sum([group.count * group.capacity for group in self.groups], axis=0)
        share = np.divide(asked, total, out=np.zeros(len(total)), where=total > 0)
        return self.settings.load / max(float(share.max()), 1e-12)


# ---------------------------------------------------------------------------- the layer


def with_workload(tree: Tree, family: ScenarioFamily) -> tuple[Tree, frozenset[str]]:
    """Lay the tree on top of its workload's keys; also return the keys set by the workload alone."""
    given = tree.value["workload"]
    if isinstance(given, str):
        tree = Tree({**tree.value, "workload": {"name": given}}, tree.places)
    settings = part_of(tree, "workload", WorkloadSettings)
    mistakes = list(_sources(settings))
    if mistakes:
        raise first_of(mistakes, tree)
    settings = _placed(settings, tree)
    try:
        plan = planned(settings)
    except InvalidInput as error:
        where: Key = ("workload", _source(settings))
        file, line = tree.place(where)
        if error.file is None:
            raise error.at(key="workload", file=file, line=line) from None
        raise first_of([Mistake(where, error.expected, found=str(error))], tree) from None
    layer = family.layer(plan)
    told = settings.model_dump(mode="json", exclude_none=True)
    below = Tree({**layer, "workload": told}, {})
    above = Tree({**tree.value, "workload": told}, tree.places)
    return laid(below, above), frozenset(key for key in layer if key not in tree.value)


def _source(settings: WorkloadSettings) -> str:
    return next(name for name in ("name", "fit", "trace") if getattr(settings, name) is not None)


def _sources(settings: WorkloadSettings) -> list[Mistake]:
    given = [name for name in ("name", "fit", "trace") if getattr(settings, name) is not None]
    if len(given) != 1:
        return [Mistake(("workload",), "one of name, fit, trace", found=" and ".join(given) or "none of them")]
    for key in ("format", "since"):
        if getattr(settings, key) is not None and given != ["trace"]:
            return [Mistake(("workload", key), "trace beside it", getattr(settings, key))]
    if settings.name is not None:
        known = [path.stem for path in FOLDER.glob("*.json")]
        if settings.name not in known:
            expected = f"one of {', '.join(sorted(known))}{did_you_mean(settings.name, known)}"
            return [Mistake(("workload", "name"), expected, settings.name)]
    return []


def _placed(settings: WorkloadSettings, tree: Tree) -> WorkloadSettings:
    """Resolve the file's path from the scenario's folder, and add the file's digest."""
    source = _source(settings)
    text = getattr(settings, source)
    path = FOLDER / f"{text}.json"
    if source != "name":
        file = tree.place(("workload", source))[0]
        path = (Path(file).parent if file is not None else Path()) / Path(text).expanduser()
        path = path.absolute()
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise first_of([Mistake(("workload", source), "a file", found=f"{found} {str(path)!r}")], tree)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if settings.digest is not None and settings.digest != digest:
        raise first_of([Mistake(("workload", "digest"), f"the digest of {path.name}, {digest}", settings.digest)], tree)
    return settings.model_copy(update={"digest": digest, **({} if source == "name" else {source: str(path)})})


def planned(settings: WorkloadSettings | str | None) -> WorkloadPlan:
    """The plan of these settings, cached."""
    if not isinstance(settings, WorkloadSettings):
        raise InvalidInput("a workload", found="none", key="workload")
    return _planned(settings.model_dump_json())


@lru_cache(maxsize=16)
def _planned(text: str) -> WorkloadPlan:
    settings = WorkloadSettings.model_validate_json(text)
    trace = None
    if settings.trace is not None:
        trace = load_trace(settings.trace, settings.format)
        if settings.since is not None:
            trace = trace.replace(jobs=trace.jobs.filter(pl.col("submit_s") >= settings.since))
        trace = prepared(trace)
        workload = fit(trace, Path(settings.trace).stem)
        sample = trace
    else:
        workload = load_workload(settings.name or Path(settings.fit or ""))
        sample = generate(workload, jobs=SAMPLE, seed=0)
    groups = _groups(workload, settings.servers)
    type_of, names = job_types(sample, settings.ports, settings.types)
    chosen = type_of(sample)
    counts = np.bincount(chosen, minlength=len(names))
    kept = np.flatnonzero(counts)
    if len(kept) < len(names):  # a cluster without jobs
        place = np.cumsum(counts > 0) - 1
        whole = type_of

        def renumbered(jobs: Trace) -> Ints:
            numbered: Ints = place[whole(jobs)]
            return numbered

        type_of, names = renumbered, [names[j] for j in kept]
        chosen, counts = place[chosen], counts[kept]
    shares = counts / counts.sum()
    demand, pieces, reach = _typical(sample, chosen, len(names), groups, workload)
    rate = job_rate(workload) * sum(g.count for g in groups) / sum(m.count for m in workload.machines)
    slot = settings.slot_seconds or BUSY / (rate * float(shares.max()))
    types = tuple(names)
    return WorkloadPlan(settings, workload, trace, groups, types, demand, pieces, shares, reach, type_of, rate, slot)


def check_workload(settings: Any, names: Sequence[str]) -> Iterator[Mistake]:
    """Check that the workload exists and that the job types are its own, if arrivals come from a workload."""
    if settings.workload is None:
        yield Mistake(("arrivals", "process"), "the key workload beside it", "workload")
        return
    known = planned(settings.workload).names
    for i, name in enumerate(names):
        if name not in known:
            own: Key = ("ports", i, "name") if isinstance(settings.ports, list) else ("ports",)
            expected = f"a job type of the workload{did_you_mean(name, known)}, or arrivals of its own"
            yield Mistake(own, expected, name)


def _groups(workload: Workload, servers: int) -> tuple[Group, ...]:
    labels = [machine.label or "node" for machine in workload.machines]
    found = []
    for place, (machine, count) in enumerate(zip(workload.machines, machine_mix(workload, servers), strict=True)):
        if count:
            label = labels[place]
            name = label if labels.count(label) == 1 else f"{label}.{labels[: place + 1].count(label)}"
            found.append(Group(name, count, np.array(machine.capacity), machine.label, machine.speed))
    return tuple(found)


def _typical(
    sample: Trace, chosen: Ints, types: int, groups: tuple[Group, ...], workload: Workload
) -> tuple[Floats, Ints, tuple[tuple[str, ...], ...]]:
    """Request of a piece, number of pieces, and reachable groups of servers, for each type.

    A request that no server holds is capped at the server that holds most of it.
    """
    names = [entry.name for entry in workload.resources]
    amounts, number = sample.jobs.select(names).to_numpy(), sample.jobs["pieces"].to_numpy()
    needs = sample.jobs["needs"].to_list()
    demand, pieces = np.zeros((types, len(names))), np.ones(types, dtype=np.int64)
    reach: list[tuple[str, ...]] = []
    capacity = np.array([group.capacity for group in groups])
    for j in range(types):
        rows = np.flatnonzero(chosen == j)
        demand[j] = np.median(amounts[rows], axis=0)
        if not demand[j].any():
            demand[j] = amounts[rows].mean(axis=0)
        pieces[j] = max(1, int(np.median(number[rows])))
        allowed = _allowed([needs[row] for row in rows], groups)
        fits = allowed & (capacity >= demand[j] - 1e-9).all(axis=1)
        if not fits.any():
            there = np.flatnonzero(allowed) if allowed.any() else np.arange(len(groups))
            share = np.divide(capacity[there], demand[j], out=np.ones((len(there), len(names))), where=demand[j] > 0)
            best = there[int(share.min(axis=1).argmax())]
            demand[j] = np.minimum(demand[j], capacity[best])
            fits = np.arange(len(groups)) == best
        room = sum(
            group.count * np.floor((group.capacity[demand[j] > 0] / demand[j][demand[j] > 0]).min(initial=1) + 1e-9)
            for group, there in zip(groups, fits, strict=True)
            if there
        )
        pieces[j] = min(int(pieces[j]), max(1, int(room)))
        reach.append(tuple(group.name for group, there in zip(groups, fits, strict=True) if there))
    return demand, pieces, tuple(reach)


def _allowed(needs: list[str | None], groups: tuple[Group, ...]) -> Any:
    """Groups with a label that at least half of the jobs allow, (G,)."""
    sets = [None if need is None else set(need.split("|")) for need in needs]
    return np.array([2 * sum(s is None or group.label in s for s in sets) >= len(sets) for group in groups])
