"""Fit a `Workload` to a trace: arrivals, job classes, users and machines.

A class of jobs is a kind (the trace's own, if it has a few) and a size class (by GPUs, or else by cores, in steps of
four). A class keeps its most common demand vectors whole, so that cores, memory and GPUs stay correlated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from berth.errors import InvalidInput
from berth.model import Floats, Ints
from berth.traces.fitting.distributions import Mix, Quantiles, short
from berth.traces.fitting.estimates import Estimates, Menu
from berth.traces.fitting.workload import (
    DAY_S,
    WEEK_S,
    Arrivals,
    Demand,
    File,
    JobClass,
    Machine,
    Provenance,
    UnitOf,
    Users,
    Workload,
)
from berth.traces.lint import usable
from berth.traces.trace import Trace

__all__ = ["files_read", "fit", "fit_arrivals", "machine_table_of", "prepared"]

KINDS, SIZES = 6, 5
"""Largest number of kinds of a workload, and of size classes of a kind."""
VECTORS, FEWEST, MOST = 250, 6, 64
"""Demand vectors of all classes together, shared by their job counts; the fewest and the most of a class."""
LEAST = 100
"""A size class with fewer jobs is merged with its neighbour."""
LOAD = 0.7
"""Load assumed for machines if a trace names none."""


def prepared(trace: Trace) -> Trace:
    """Prepare a trace for fitting: its usable part, without resources that most jobs do not give.

    Missing amounts become the median of the others; missing estimates stay null. Whole weeks before the first job are
    dropped, which keeps hours and days in place.
    """
    told = [r for r in trace.resources if trace.jobs[r.name].null_count() < 0.5 * len(trace.jobs)]
    dropped = [resource.name for resource in trace.resources if resource not in told]
    never = float("inf")  # a placeholder that prevents repair of the estimate
    jobs = trace.jobs.drop(dropped).with_columns(
        *(pl.col(resource.name).fill_null(pl.col(resource.name).median()) for resource in told),
        estimate_s=pl.when(pl.col("estimate_s") > 0).then(pl.col("estimate_s")).otherwise(never),
    )
    trace = trace.replace(jobs=jobs, machines=trace.machines.drop(dropped), resources=tuple(told))
    clean, _ = usable(trace)
    if not len(clean):
        raise InvalidInput("jobs with a run time and a size", found="none", key="jobs")
    first = clean.jobs["submit_s"][0] // WEEK_S * WEEK_S
    return clean.replace(
        jobs=clean.jobs.with_columns(
            pl.col("submit_s") - first,
            estimate_s=pl.when(pl.col("estimate_s") < never).then(pl.col("estimate_s")),
        )
    )


def fit(
    trace: Trace,
    name: str,
    *,
    title: str = "",
    provenance: Provenance | None = None,
    machine: Mapping[str, float] | None = None,
    load: float = LOAD,
) -> Workload:
    """Fit the workload of a trace; deterministic.

    If the trace names no machines, `machine` is the capacity of one, and their number follows from the mean load
    `load`. Without both, each machine holds the largest piece.

    >>> jobs = {"job": list("abc"), "submit_s": [0.0, 60.0, 90.0], "run_s": [5.0, 10.0, 20.0], "pieces": [1, 1, 2],
    ...         "cpu": [1.0, 1.0, 1.0]}
    >>> workload = fit(Trace.of(jobs, {"machine": ["m"], "count": [4], "cpu": [1.0]}), "three")
    >>> [(entry.name, round(entry.share, 3)) for entry in workload.classes]
    [('1-2', 1.0)]
    """
    trace = prepared(trace)
    jobs = trace.jobs
    names = [resource.name for resource in trace.resources]
    if not names:
        raise InvalidInput("some resource that jobs request", found="none", key="jobs")
    amounts = jobs.select(names).to_numpy()
    pieces, run = jobs["pieces"].to_numpy(), jobs["run_s"].to_numpy()
    assumed: list[str] = []
    machines = machine_table_of(trace)
    span = float(jobs["submit_s"][-1] - jobs["submit_s"][0]) or 1.0
    if not machines:
        shape = [float((machine or {}).get(n, 0.0)) or float(amounts[:, k].max()) for k, n in enumerate(names)]
        busy = (amounts * (pieces * run)[:, None]).sum(axis=0) / span
        count = max(1, int(np.ceil(max(b / s for b, s in zip(busy, shape, strict=True) if s > 0) / load)))
        machines = [Machine(capacity=[short(s) for s in shape], count=count)]
        had = ", ".join(f"{s:g} {n}" for s, n in zip(shape, names, strict=True))
        assumed.append(f"machines: the trace names none; {count} of {had} each, for a mean load of {load:g}")
    kind = _kinds(jobs)
    groups = _groups(kind, _size(trace, amounts, pieces), len(jobs))
    menu = Menu(jobs["estimate_s"].drop_nulls().to_numpy())
    classes = [_class(jobs, rows, label, names, amounts, menu) for label, rows in groups]
    of_job = np.empty(len(jobs), dtype=np.int64)
    for place, (_, rows) in enumerate(groups):
        of_job[rows] = place
    arrivals = fit_arrivals(jobs["submit_s"].to_numpy(), _repeats(jobs, of_job))
    origin = provenance or Provenance(source=", ".join(Path(f).name for f in trace.source.files) or trace.source.format)
    origin = origin.model_copy(
        update={
            "files": origin.files or files_read(trace.source.files),
            "rows": len(jobs),
            "span": origin.span or f"{span / DAY_S:.1f} days",
            "assumed": [*origin.assumed, *assumed],
        }
    )
    return Workload(
        name=name,
        title=title or name,
        provenance=origin,
        resources=[UnitOf(name=r.name, unit=r.unit) for r in trace.resources],
        machines=machines,
        arrivals=arrivals,
        classes=classes,
        users=_users(jobs),
    )


def files_read(paths: Sequence[str | Path]) -> list[File]:
    """Names and hashes of files."""
    read = []
    for path in map(Path, paths):
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
        read.append(File(name=path.name, sha256=digest.hexdigest()))
    return read


def fit_arrivals(submit: Floats, repeat: float = 0.0) -> Arrivals:
    """Fit hourly and daily rates, gaps in operational time and batches to sorted times (N,) in seconds."""
    times, batch = np.unique(submit, return_counts=True)
    span = float(times[-1] - times[0])
    whole = bool(np.all(times == np.floor(times)))
    hours, days = np.ones(24), np.ones(7)
    if span >= 2 * DAY_S:
        hours = _profile(times, 3600.0, 24)
    if span >= 2 * WEEK_S:
        days = _profile(times, DAY_S, 7)
    clock = weekly(hours, days)
    passed = operational(times, clock)
    gaps = np.diff(passed)
    if not len(gaps):
        return Arrivals(events_per_hour=1.0, gap=Mix(values=[1.0], shares=[1.0]), batch=Mix.of(batch.astype(float)))
    mean = float(gaps.mean())
    gap = _of_mean_one(Mix.of(gaps / mean, common=2.0, most=0))
    return Arrivals(
        events_per_hour=short(3600.0 / mean),
        hours=[short(v, 4) for v in hours],
        days=[short(v, 4) for v in days],
        gap=gap,
        batch=Mix.of(batch.astype(np.float64)),
        repeat=round(repeat, 4),
        whole_seconds=whole,
    )


def _of_mean_one(gap: Mix) -> Mix:
    """Rescale the gaps to a mean of exactly 1: quantiles only approximate a tail."""
    mean = gap.mean()
    if gap.rest is None:
        return Mix(values=[short(v / mean) for v in gap.values], shares=gap.shares)
    return Mix(rest=Quantiles(values=[short(v / mean) for v in gap.rest.values], levels=gap.rest.levels))


def _profile(times: Floats, step: float, length: int) -> Floats:
    """Relative event rate in each of `length` repeated periods of `step` seconds; 1 is the average."""
    counts = np.bincount((times // step).astype(np.int64) % length, minlength=length).astype(np.float64)
    (first, before), (last, after) = (divmod(float(end), step * length) for end in (times[0], times[-1]))
    seen = (last - first) * step + sum(
        sign * np.clip(part - step * np.arange(length), 0.0, step) for sign, part in ((1, after), (-1, before))
    )
    rate = counts / np.maximum(seen, 1e-9)
    weight: Floats = rate / rate.mean()
    return weight


def weekly(hours: Floats, days: Floats) -> Floats:
    """Operational seconds passed at each hour of a week, from 0, (169,); a whole week takes a week."""
    rate = np.outer(days, hours).ravel()
    passed = np.concatenate([[0.0], np.cumsum(rate)])
    clock: Floats = passed * (WEEK_S / passed[-1])
    return clock


def operational(times: Floats, clock: Floats) -> Floats:
    """Convert times in seconds to operational seconds."""
    weeks, inside = np.divmod(times, WEEK_S)
    passed: Floats = weeks * WEEK_S + np.interp(inside, np.arange(169) * 3600.0, clock)
    return passed


def seconds(passed: Floats, clock: Floats) -> Floats:
    """Convert operational seconds to times in seconds, the inverse of `operational`."""
    weeks, inside = np.divmod(passed, WEEK_S)
    times: Floats = weeks * WEEK_S + np.interp(inside, clock, np.arange(169) * 3600.0)
    return times


def machine_table_of(trace: Trace) -> list[Machine]:
    """Shapes of machines and their counts, the most common first."""
    names = [resource.name for resource in trace.resources]
    table = (
        trace.machines.with_columns(pl.col("count").fill_null(1), pl.col("speed").fill_null(1.0))
        .filter(pl.col("count") > 0)
        .group_by([*names, "label", "speed"], maintain_order=True)
        .agg(pl.col("count").sum())
        .sort(["count", *names], descending=True, nulls_last=True)
    )
    return [
        Machine(
            capacity=[short(row[name]) for name in names], count=row["count"], label=row["label"], speed=row["speed"]
        )
        for row in table.iter_rows(named=True)
        if any(row[name] > 0 for name in names)
    ]


def _kinds(jobs: pl.DataFrame) -> list[str | None]:
    """Kind of each job: the most common kept, others `other`; None if there is just one."""
    counts = jobs["kind"].drop_nulls().value_counts(sort=True)
    kept = [
        str(kind) for kind, count in zip(counts["kind"], counts["count"], strict=True) if count >= 0.02 * len(jobs)
    ][:KINDS]
    if len(counts) < 2 or not kept or len(kept) == 1 == len(counts):
        return [None] * len(jobs)
    return [kind if kind in kept else "other" for kind in jobs["kind"].to_list()]


def _size(trace: Trace, amounts: Floats, pieces: Ints) -> Floats:
    """Total size of each job: its GPUs if the trace has some, else its cores (or its first resource)."""
    names = [resource.name for resource in trace.resources]
    column = names.index("gpu") if "gpu" in names and amounts[:, names.index("gpu")].any() else 0
    size: Floats = amounts[:, column] * pieces
    return size


def _groups(kind: list[str | None], size: Floats, total: int) -> list[tuple[str, Ints]]:
    """Classes: (name, rows)."""
    found: list[tuple[str, Ints]] = []
    labels = np.array(["" if k is None else k for k in kind])
    for label in sorted(set(labels.tolist())):
        rows = np.flatnonzero(labels == label)
        bins = np.where(size[rows] > 0, np.ceil(np.log(np.maximum(size[rows], 1e-12)) / np.log(4) - 1e-9), -1000)
        parts = [rows[bins == b] for b in np.unique(bins)]
        least = max(LEAST, 0.001 * total)
        while len(parts) > 1 and (len(parts) > SIZES or min(map(len, parts)) < least):
            small = min(range(len(parts)), key=lambda i: len(parts[i]))
            beside = min((i for i in (small - 1, small + 1) if 0 <= i < len(parts)), key=lambda i: len(parts[i]))
            low = min(small, beside)
            parts[low : low + 2] = [np.sort(np.concatenate(parts[low : low + 2]))]
        for part in parts:
            least_size, most_size = float(size[part].min()), float(size[part].max())
            text = f"{least_size:g}" if least_size == most_size else f"{least_size:g}-{most_size:g}"
            found.append((f"{label}/{text}" if label else text, part))
    return found


def _class(jobs: pl.DataFrame, rows: Ints, label: str, names: list[str], amounts: Floats, menu: Menu) -> JobClass:
    part = jobs[rows]
    run = part["run_s"].to_numpy()
    estimate = part["estimate_s"].fill_null(0.0).to_numpy()
    known = estimate > 0
    kinds = part["kind"].drop_nulls().unique().to_list()
    limit = min(MOST, max(FEWEST, round(VECTORS * len(rows) / len(jobs))))
    demands, rest = _demands(part, amounts[rows], names, limit)
    return JobClass(
        name=label,
        kind=str(kinds[0]) if len(kinds) == 1 else None,
        share=round(len(rows) / len(jobs), 6),
        pieces=Mix.of(part["pieces"].to_numpy().astype(np.float64)),
        run_s=Mix.of(run),
        estimates=Estimates.of(estimate[known], run[known], float(known.mean()), menu) if known.any() else None,
        demands=demands,
        rest=rest,
        whole_seconds=bool(np.all(run == np.floor(run))),
    )


def _demands(
    part: pl.DataFrame, amounts: Floats, names: list[str], limit: int
) -> tuple[list[Demand], list[Quantiles] | None]:
    """Most common vectors with the machines that they need, and quantiles of the rest."""
    table = part.select([*names, "needs"]).group_by([*names, "needs"]).len()
    table = table.sort(["len", *names, "needs"], descending=[True] + [False] * (len(names) + 1), nulls_last=True)
    top = table if len(table) <= limit else table.head(limit).filter(pl.col("len") > 1)
    found = [
        Demand(
            amounts=[short(row[name], 12) for name in names],
            share=round(row["len"] / len(part), 6),
            needs=row["needs"],
        )
        for row in top.iter_rows(named=True)
    ]
    left = part.with_row_index("row").join(top, on=[*names, "needs"], how="anti", nulls_equal=True)["row"].to_numpy()
    if not len(left):
        total = sum(demand.share for demand in found)
        found[0] = found[0].model_copy(update={"share": round(found[0].share + 1.0 - total, 6)})
        return found, None
    return found, [Quantiles.of(amounts[left, k]) for k in range(len(names))]


def _repeats(jobs: pl.DataFrame, of_job: Ints) -> float:
    """How often a job repeats class and user of the job before it, beyond chance."""
    user = jobs["user"].fill_null("").rank("dense").to_numpy().astype(np.int64)
    both = of_job * (int(user.max(initial=0)) + 1) + user
    if len(both) < 2:
        return 0.0
    counts = np.unique(both, return_counts=True)[1] / len(both)
    chance = float((counts**2).sum())
    seen = float((both[1:] == both[:-1]).mean())
    return max(0.0, (seen - chance) / (1 - chance)) if chance < 1 else 0.0


def _users(jobs: pl.DataFrame) -> Users | None:
    counts = jobs["user"].drop_nulls().value_counts(sort=True)["count"].to_numpy()
    if not len(counts):
        return None
    shares = np.cumsum(counts) / counts.sum()
    ranks = np.unique(np.concatenate([np.arange(1, 11), np.geomspace(1, len(counts), 30).round(), [len(counts)]]))
    kept = [int(rank) for rank in ranks if rank <= len(counts)]
    return Users(ranks=kept, cumulative=[round(float(shares[rank - 1]), 5) for rank in kept])
