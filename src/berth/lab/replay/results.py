"""Result of a replay, its metrics and terminal table, and its files in a result directory.

```
DIR/manifest.json                 trace, setting and versions; a directory of another replay is refused
DIR/cells/POLICY.json, .parquet   numbers and jobs of each finished policy, with a hash of the code
DIR/summary.json, summary.parquet, jobs.parquet, plots/
```
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from berth.errors import BerthError
from berth.lab.replay.faults import complaints, load_notes
from berth.lab.replay.paired import (
    MEASURES,
    TURNAROUND,
    Difference,
    counts_part,
    differences,
    over_samples,
    print_differences,
    sampled,
    with_intervals,
)
from berth.lab.replay.setting import ReplaySetting
from berth.lab.run.cells import code_hash, source_hash
from berth.lab.run.store import ResultDirectory
from berth.lab.show.tables import as_table
from berth.lab.show.traces import spoken_time
from berth.lab.show.words import number, percent
from berth.live.core import LIVE
from berth.model import Floats, Ints
from berth.registry import PolicySpec

__all__ = [
    "PERCENTILES",
    "THRESHOLD_SECONDS",
    "Replay",
    "ReplaySetting",
    "assembled",
    "batch_metrics",
    "bounded_slowdown",
    "earlier",
    "is_live",
    "load",
    "print_replay",
    "save",
]

Played = tuple[dict[str, Any], pl.DataFrame]
"""Numbers of one policy, and its jobs."""


@dataclass(frozen=True, eq=False)
class Replay:
    """A replayed trace: `rows`, one a policy, and `jobs`, one row for each policy and job.

    `left_out` counts the jobs that could not be played, by reason; `refused` are policies that cannot serve this trace.
    With several samples, numbers in `rows` are means over them.
    """

    source: Mapping[str, Any]
    setting: ReplaySetting
    measurement: Mapping[str, Any]
    rows: list[dict[str, Any]]
    jobs: pl.DataFrame
    left_out: Mapping[str, int]
    refused: Mapping[str, str]
    unreadable: str = ""
    """First unreadable line, and the reason."""
    samples: tuple[str, ...] = ("",)
    """Names of the windows or replicas."""
    each: list[dict[str, Any]] = field(default_factory=list)
    """The numbers of every policy on every sample."""
    baseline: str = ""
    differences: list[Difference] = field(default_factory=list)
    """Paired differences of the other policies to the baseline, if there are several samples."""
    merging: str = ""
    """Which machines were merged into one pool, because their choice makes no difference."""
    notes: tuple[str, ...] = ()
    """What was assumed of types, speeds and queues, in words."""

    @property
    def remarks(self) -> list[str]:
        """How the log was played, in words."""
        played = ((row["policy"], row.get("wrapped") or row["policy"]) for row in self.rows)
        wrapped = [f"{policy} is played as {name}" for policy, name in played if name != policy]
        return [*([f"merged: {self.merging}"] if self.merging else []), *self.notes, *wrapped]

    def frame(self) -> pl.DataFrame:
        """The rows as a table."""
        return pl.DataFrame(self.rows, infer_schema_length=None)


def assembled(
    source: Mapping[str, Any],
    setting: ReplaySetting,
    measure: Any,
    samples: tuple[str, ...],
    cells: Mapping[str, Sequence[Played]],
    baseline: str = "",
    *,
    left_out: Mapping[str, int],
    refused: Mapping[str, str],
    unreadable: str = "",
    merging: str = "",
    notes: tuple[str, ...] = (),
) -> Replay:
    """The result of these policies: `cells` has the numbers and jobs of each on every sample."""
    measures = MEASURES if setting.speeds is None else (TURNAROUND, *MEASURES)
    each = {policy: [numbers for numbers, _ in played] for policy, played in cells.items()}
    base = baseline if baseline in each else next(iter(each))
    found = differences(each, base, measures) if len(samples) > 1 else []
    return Replay(
        source,
        setting,
        {name: value for name, value in vars(measure).items() if value not in (None, ())},
        [with_intervals({"policy": policy, **over_samples(rows)}, rows, found) for policy, rows in each.items()],
        pl.concat(
            jobs.select(pl.lit(policy).alias("policy"), pl.lit(sample).alias("sample"), pl.all())
            for policy, played in cells.items()
            for sample, (_, jobs) in zip(samples, played, strict=True)
        ),
        left_out,
        refused,
        unreadable,
        samples,
        [
            {"policy": policy, "sample": sample, **numbers}
            for policy, rows in each.items()
            for sample, numbers in zip(samples, rows, strict=True)
        ],
        base,
        found,
        merging,
        notes,
    )


def is_live(spec: PolicySpec) -> bool:
    """Whether only the dispatcher can play a policy: it has no family, or another one than placement."""
    return spec.name in LIVE or getattr(spec.load(), "family", None) != "placement"


def _name(policy: str, sample: str) -> str:
    named = f"{policy} {sample}" if sample else policy
    return f"cells/{hashlib.sha256(named.encode()).hexdigest()[:16]}"


def _key(policy: str, live: bool) -> str:
    """Hash of the code behind the numbers of a policy; the manifest covers the trace and the setting.

    `live`: the dispatcher plays all policies.
    """
    dispatched = live or policy in LIVE or is_live(PolicySpec.parse(policy))
    rooms = ("lab/replay", "live") if dispatched else ("lab/replay",)
    code = code_hash(*rooms), "" if policy in LIVE else source_hash(policy)
    return hashlib.sha256(" ".join(code).encode()).hexdigest()[:24]


def load(folder: ResultDirectory, policy: str, sample: str = "", live: bool = False) -> Played | None:
    """Load a policy that was played on a sample; None if it is absent, damaged, or from other code."""
    path = folder.path / f"{_name(policy, sample)}.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.get("key", _key(policy, live)) != _key(policy, live):  # results of earlier versions have no key
            return None
        return found["numbers"], pl.read_parquet(path.with_suffix(".parquet"))
    except (OSError, ValueError, KeyError, pl.exceptions.PolarsError):
        return None


def save(
    folder: ResultDirectory,
    policy: str,
    numbers: Mapping[str, Any],
    jobs: pl.DataFrame,
    sample: str,
    live: bool = False,
) -> None:
    """Save a policy that was played on a sample."""
    folder.write_table(f"{_name(policy, sample)}.parquet", jobs)
    kept = {"policy": policy, "sample": sample, "key": _key(policy, live), "numbers": numbers}
    folder.write_json(f"{_name(policy, sample)}.json", kept)  # last: marks a complete result


def earlier(
    folder: ResultDirectory, samples: Sequence[str], known: Collection[str], live: bool = False
) -> dict[str, list[Played]]:
    """Policies that earlier calls played on all samples, besides those known."""
    cells: dict[str, list[Played]] = {}
    for path in sorted((folder.path / "cells").glob("*.json")):
        try:
            policy = json.loads(path.read_text(encoding="utf-8"))["policy"]
            if policy in known or policy in cells:
                continue
            found = [load(folder, policy, sample, live) for sample in samples]
        except (OSError, ValueError, KeyError, BerthError):
            continue
        played = [one for one in found if one is not None]
        if len(played) == len(samples):
            cells[policy] = played
    return cells


def print_replay(result: Replay, console: Console) -> None:
    """Print one row per policy, those that left jobs waiting last; then what is wrong, by policy and by job."""
    shared = any("fragmentation" in row for row in result.rows)
    heads = [
        "policy",
        "wait",
        "p95",
        "turnaround",
        "slowdown",
        "p95",
        "used",
        "fair",
        *(["fragments"] if shared else []),
    ]
    named = {"unstarted": "never_started", "broken": "broken_decisions"}
    faults = {head: name for head, name in named.items() if any(row.get(name) for row in result.rows)}
    ranked = sorted(result.rows, key=lambda row: row["never_started"] > 0)  # lower bounds are no rank: last
    lines = [heads, *(_cells(row, shared) for row in ranked)]
    if faults and console.width < 110:  # faults matter more than the narrower numbers
        lines = [[cell for place, cell in enumerate(line) if place not in (3, 5, 7)] for line in lines]
    for line, row in zip(lines, [None, *ranked], strict=True):
        line[1:1] = list(faults) if row is None else [f"{row.get(name, 0):,.0f}" for name in faults.values()]
    console.print(as_table(lines[0], lines[1:], least=8))
    first = result.rows[0]
    load = first.get("offered_load")
    told = (
        f"{first['jobs']:,} {'job' if first['jobs'] == 1 else 'jobs'}{sampled(result.measurement, len(result.samples))}"
    )
    told += "" if load is None else f", offered load {load:.3g}"
    told += ". Means and 95th percentiles; slowdown is bounded "
    told += f"({result.measurement.get('slowdown_bound', THRESHOLD_SECONDS):g} s), used is the share of "
    until = "in the time that counts" if counts_part(result.measurement) else "until the last end"
    told += f"{first.get('resource', 'everything')} {until}, fair is Jain's index of users' mean slowdowns"
    told += ", fragments the share of devices that are free but of no use to a job." if shared else "."
    console.print(Text(told, style="dim"))
    print_differences(result.differences, len(result.samples), result.measurement, console)
    for note in load_notes(result.rows):
        console.print(Text(note, style="yellow"))
    for row in result.rows:
        for complaint in complaints(row):
            console.print(Text(f"{row['policy']}: {complaint}", style="yellow"))
    if any(row["never_started"] for row in result.rows) and len(result.rows) > 1:
        console.print(Text("Policies under which jobs never started are listed last, without a rank.", style="yellow"))
    if len(result.rows) > 1 and all(row.get("mean_wait_seconds") == 0 for row in result.rows):
        free = "No job waited under any policy: there is room for all, so this replay does not tell policies apart. "
        console.print(Text(free + "Fewer --processors, or a higher --load, would.", style="yellow"))
    for note in result.remarks:
        console.print(Text(note, style="dim"))
    for policy, reason in result.refused.items():
        console.print(Text(f"not here: {policy}: {reason}", style="dim"))
    if result.unreadable:
        console.print(Text(f"not read: {result.unreadable}", style="yellow"))
    if result.left_out:
        listed = ", ".join(f"{reason} {count:,}" for reason, count in result.left_out.items())
        whole = " in the whole trace" if result.setting.first is not None else ""
        console.print(Text(f"left out or repaired{whole}: {listed} (see: berth trace check)", style="dim"))


def _cells(row: Mapping[str, Any], shared: bool) -> list[str]:
    if "mean_wait_seconds" not in row:
        return [row["policy"], "no job counts"]
    bound = "≥ " if row["never_started"] else ""
    return [
        row["policy"],
        bound + spoken_time(row["mean_wait_seconds"]),
        bound + spoken_time(row["p95_wait_seconds"]),
        bound + spoken_time(row["mean_turnaround_seconds"]),
        bound + number(row["mean_bounded_slowdown"]),
        bound + number(row["p95_bounded_slowdown"]),
        percent(row["utilisation"]),
        number(row["owner_fairness"], 3),
        *([percent(row.get("fragmentation"))] if shared else []),
    ]


THRESHOLD_SECONDS = 10.0
"""Floor of run times in the bounded slowdown, so that short jobs do not dominate it."""
PERCENTILES = (50, 90, 95, 99)


def bounded_slowdown(wait: Floats, run: Floats, threshold: float = THRESHOLD_SECONDS) -> Floats:
    """Time from submission to end over run time, at least 1; run times below `threshold` count as `threshold`.

    >>> bounded_slowdown(np.array([90.0, 90.0, 0.0]), np.array([30.0, 1.0, 1.0]))
    array([4. , 9.1, 1. ])
    """
    slow: Floats = np.maximum((wait + run) / np.maximum(run, threshold), 1.0)
    return slow


def batch_metrics(
    submit: Floats,
    start: Floats,
    end: Floats,
    amount: Floats,
    capacity: Floats,
    owner: Ints | None,
    main: int = 0,
    span: tuple[float, float] | None = None,
    threshold: float = THRESHOLD_SECONDS,
) -> dict[str, Any]:
    """Metrics of a run; jobs that never started have `start` nan and are only counted.

    `amount` (N, K) is what each job holds in all, `capacity` (K,) that of the cluster, `main` the resource of
    `utilisation`. The span of a run is from the first submission to the last end; `offered_load` and
    `utilisation_while_arriving` cover the time from the first submission to the last. If owners are known,
    `owner_fairness` is Jain's index of the owners' mean bounded slowdowns: 1 if all are equal, down to 1/O; else None.

    With `span`, only jobs submitted in this time count, and shares of capacity are those of this time; what other jobs
    hold in it is in use all the same. `threshold` bounds slowdowns.
    """
    if span is not None:
        return _metrics_within(submit, start, end, amount, capacity, owner, main, span, threshold)
    ran = ~np.isnan(start)
    found: dict[str, Any] = {"jobs": len(submit), "never_started": int((~ran).sum())}
    submit, start, end, amount = submit[ran], start[ran], end[ran], amount[ran]
    if not len(submit):
        return found
    wait, run = start - submit, end - start
    slowdown = bounded_slowdown(wait, run, threshold)
    for name, unit, values in (
        ("wait", "_seconds", wait),
        ("turnaround", "_seconds", end - submit),
        ("bounded_slowdown", "", slowdown),
    ):
        found[f"mean_{name}{unit}"] = float(values.mean())
        for share in PERCENTILES:
            found[f"p{share}_{name}{unit}"] = float(np.percentile(values, share))
        found[f"max_{name}{unit}"] = float(values.max())
    length = float(end.max() - submit.min())
    found["waited_share"] = float((wait > 0).mean())
    found["makespan_seconds"] = length
    found["jobs_per_hour"] = len(submit) / length * 3600 if length > 0 else None
    used = (amount * run[:, None]).sum(axis=0)
    shares = [
        float(part / (most * length)) if most > 0 and length > 0 else 0.0
        for part, most in zip(used, capacity, strict=True)
    ]
    found["utilisation"] = shares[main]
    found["utilisation_by_resource"] = shares
    found["idle_while_waiting"] = _idle_while_waiting(
        submit, start, end, amount[:, main], float(capacity[main]), length
    )
    found["offered_load"], found["utilisation_while_arriving"] = _while_arriving(
        submit, start, end, amount[:, main], float(capacity[main])
    )
    found |= {"owners": None, "owner_fairness": None, "worst_owner_bounded_slowdown": None}
    if owner is not None:
        owners = np.unique(owner[ran], return_inverse=True)[1]
        mean = np.bincount(owners, weights=slowdown) / np.bincount(owners)
        found["owners"] = len(mean)
        found["owner_fairness"] = float(mean.sum() ** 2 / (len(mean) * (mean**2).sum()))
        found["worst_owner_bounded_slowdown"] = float(mean.max())
    return found


def _metrics_within(
    submit: Floats,
    start: Floats,
    end: Floats,
    amount: Floats,
    capacity: Floats,
    owner: Ints | None,
    main: int,
    span: tuple[float, float],
    threshold: float,
) -> dict[str, Any]:
    """`batch_metrics` of the jobs submitted in `span`, with shares of capacity in this time."""
    inside = (submit >= span[0]) & (submit <= span[1])
    owners = None if owner is None else owner[inside]
    rows = submit[inside], start[inside], end[inside], amount[inside]
    found = batch_metrics(*rows, capacity, owners, main, threshold=threshold)
    if "utilisation" not in found:
        return found
    ran, length = ~np.isnan(start), span[1] - span[0]
    held = (np.clip(end, *span) - np.clip(start, *span))[ran]
    shares = [
        float((each * held).sum() / (most * length)) if most > 0 else 0.0
        for each, most in zip(amount[ran].T, capacity, strict=True)
    ]
    work = float((amount[:, main] * (end - start))[inside & ran].sum())
    came, began, ended = (np.clip(times[ran], *span) for times in (submit, start, end))
    most = float(capacity[main])
    return found | {
        "jobs_per_hour": found["jobs"] / length * 3600,
        "utilisation": shares[main],
        "utilisation_by_resource": shares,
        "utilisation_while_arriving": shares[main],
        "offered_load": work / (most * length) if most > 0 else None,
        "idle_while_waiting": _idle_while_waiting(came, began, ended, amount[ran, main], most, length),
    }


def _while_arriving(
    submit: Floats, start: Floats, end: Floats, amount: Floats, capacity: float
) -> tuple[float | None, float | None]:
    """Offered load and utilisation between the first submission and the last, as shares of capacity."""
    first, last = float(submit.min()), float(submit.max())
    there = capacity * (last - first)
    if not there > 0:
        return None, None
    inside = np.clip(np.minimum(end, last) - start, 0.0, None)
    return float((amount * (end - start)).sum() / there), float((amount * inside).sum() / there)


def _idle_while_waiting(
    submit: Floats, start: Floats, end: Floats, amount: Floats, capacity: float, length: float
) -> float:
    """Share of capacity that is idle while some job waits, over a time of this length: a bound on gains by packing."""
    time = np.concatenate([submit, start, end])
    zero = np.zeros_like(amount)
    waiting = np.concatenate([np.ones_like(amount), -np.ones_like(amount), zero])
    busy = np.concatenate([zero, amount, -amount])
    order = np.argsort(time, kind="stable")
    step = np.diff(time[order])
    some = np.cumsum(waiting[order])[:-1] > 0.5
    idle = np.clip(capacity - np.cumsum(busy[order])[:-1], 0.0, None)
    total = capacity * length
    return float((idle * step)[some].sum() / total) if total > 0 else 0.0
