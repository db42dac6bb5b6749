"""Result of a replay, its terminal table, and its files in a result directory.

```
DIR/manifest.json                 trace, setting and versions; a directory of another replay is refused
DIR/cells/POLICY.json, .parquet   numbers and jobs of each finished policy, with a hash of the code
DIR/summary.json, summary.parquet, jobs.parquet, plots/
```
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.text import Text

from berth.errors import BerthError
from berth.lab.run.cells import code_hash, source_hash
from berth.lab.run.store import ResultDirectory
from berth.lab.show.tables import as_table
from berth.lab.show.traces import spoken_time
from berth.lab.show.words import number, percent
from berth.model import Floats, Ints

__all__ = [
    "PERCENTILES",
    "THRESHOLD_SECONDS",
    "Replay",
    "ReplaySetting",
    "batch_metrics",
    "bounded_slowdown",
    "load",
    "print_replay",
    "save",
    "with_earlier",
]

Played = tuple[dict[str, Any], pl.DataFrame]
"""Numbers of one policy, and its jobs."""


@dataclass(frozen=True)
class ReplaySetting:
    """How a trace is replayed: on one pool of `processors` units of `resource`, or on its own machines.

    `exact`: policies know the run times. `stopped`: jobs end when their estimate is over. `outages`: machines are away
    when the trace says so. `first`: the number of jobs to play. `load`: the offered load of the scarcest resource to
    which inter-arrival times are rescaled.
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
    """A replayed trace: `rows`, one a policy, and `jobs`, one row for each policy and job.

    `left_out` counts the jobs that could not be played, by reason; `refused` are policies that cannot serve this trace.
    """

    source: Mapping[str, Any]
    setting: ReplaySetting
    rows: list[dict[str, Any]]
    jobs: pl.DataFrame
    left_out: Mapping[str, int]
    refused: Mapping[str, str]
    unreadable: str = ""
    """First unreadable line, and the reason."""

    def frame(self) -> pl.DataFrame:
        """The rows as a table."""
        return pl.DataFrame(self.rows, infer_schema_length=None)


def _name(policy: str) -> str:
    return f"cells/{hashlib.sha256(policy.encode()).hexdigest()[:16]}"


def _key(policy: str) -> str:
    """Hash of the code behind the numbers of a policy; the manifest covers the trace and the setting."""
    return hashlib.sha256(f"{code_hash('lab/replay')} {source_hash(policy)}".encode()).hexdigest()[:24]


def load(folder: ResultDirectory, policy: str) -> Played | None:
    """Load a finished policy; None if it is absent, damaged, or from other code."""
    path = folder.path / f"{_name(policy)}.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.get("key", _key(policy)) != _key(policy):  # results of earlier versions have no key
            return None
        return found["numbers"], pl.read_parquet(path.with_suffix(".parquet"))
    except (OSError, ValueError, KeyError, pl.exceptions.PolarsError):
        return None


def save(folder: ResultDirectory, policy: str, numbers: Mapping[str, Any], jobs: pl.DataFrame) -> None:
    """Save a finished policy."""
    folder.write_table(f"{_name(policy)}.parquet", jobs)
    kept = {"policy": policy, "key": _key(policy), "numbers": numbers}
    folder.write_json(f"{_name(policy)}.json", kept)  # last: marks a complete result


def with_earlier(folder: ResultDirectory, result: Replay) -> Replay:
    """Add the policies that earlier calls saved in the directory."""
    rows, tables = list(result.rows), [result.jobs]
    known = {row["policy"] for row in rows}
    for path in sorted((folder.path / "cells").glob("*.json")):
        try:
            policy = json.loads(path.read_text(encoding="utf-8"))["policy"]
            found = None if policy in known else load(folder, policy)
        except (OSError, ValueError, KeyError, BerthError):
            continue
        if found is not None:
            rows.append({"policy": policy, **found[0]})
            tables.append(found[1].select(pl.lit(policy).alias("policy"), pl.all()))
    return dataclasses.replace(result, rows=rows, jobs=pl.concat(tables))


def print_replay(result: Replay, console: Console) -> None:
    """Print one row per policy, then skipped jobs, and policies that cannot serve the trace."""
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
    console.print(as_table(heads, [_cells(row, shared) for row in result.rows], least=8))
    first = result.rows[0]
    load = first.get("offered_load")
    told = f"{first['jobs']:,} {'job' if first['jobs'] == 1 else 'jobs'}"
    told += "" if load is None else f", offered load {load:.3g}"
    told += ". Means and 95th percentiles; slowdown is bounded (10 s), used is the share of "
    told += f"{first.get('resource', 'everything')} until the last end, fair is Jain's index of users' mean slowdowns"
    told += ", fragments the share of devices that are free but of no use to a job." if shared else "."
    console.print(Text(told, style="dim"))
    for row in result.rows:
        if row["never_started"]:
            console.print(Text(f"{row['policy']}: {row['never_started']:,} jobs never started", style="yellow"))
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
        return [row["policy"], "no job started"]
    return [
        row["policy"],
        spoken_time(row["mean_wait_seconds"]),
        spoken_time(row["p95_wait_seconds"]),
        spoken_time(row["mean_turnaround_seconds"]),
        number(row["mean_bounded_slowdown"]),
        number(row["p95_bounded_slowdown"]),
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
    submit: Floats, start: Floats, end: Floats, amount: Floats, capacity: Floats, owner: Ints | None, main: int = 0
) -> dict[str, Any]:
    """Metrics of a run; jobs that never started have `start` nan and are only counted.

    `amount` (N, K) is what each job holds in all, `capacity` (K,) that of the cluster, `main` the resource of
    `utilisation`. The span of a run is from the first submission to the last end; `offered_load` and
    `utilisation_while_arriving` cover the time from the first submission to the last. If owners are known,
    `owner_fairness` is Jain's index of the owners' mean bounded slowdowns: 1 if all are equal, down to 1/O; else None.
    """
    ran = ~np.isnan(start)
    found: dict[str, Any] = {"jobs": len(submit), "never_started": int((~ran).sum())}
    submit, start, end, amount = submit[ran], start[ran], end[ran], amount[ran]
    if not len(submit):
        return found
    wait, run = start - submit, end - start
    slowdown = bounded_slowdown(wait, run)
    for name, unit, values in (
        ("wait", "_seconds", wait),
        ("turnaround", "_seconds", end - submit),
        ("bounded_slowdown", "", slowdown),
    ):
        found[f"mean_{name}{unit}"] = float(values.mean())
        for share in PERCENTILES:
            found[f"p{share}_{name}{unit}"] = float(np.percentile(values, share))
        found[f"max_{name}{unit}"] = float(values.max())
    span = float(end.max() - submit.min())
    found["waited_share"] = float((wait > 0).mean())
    found["makespan_seconds"] = span
    found["jobs_per_hour"] = len(submit) / span * 3600 if span > 0 else None
    used = (amount * run[:, None]).sum(axis=0)
    shares = [
        float(part / (most * span)) if most > 0 and span > 0 else 0.0 for part, most in zip(used, capacity, strict=True)
    ]
    found["utilisation"] = shares[main]
    found["utilisation_by_resource"] = shares
    found["idle_while_waiting"] = _idle_while_waiting(submit, start, end, amount[:, main], float(capacity[main]))
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


def _idle_while_waiting(submit: Floats, start: Floats, end: Floats, amount: Floats, capacity: float) -> float:
    """Share of capacity that is idle while some job waits, over the span: a bound on gains by packing."""
    time = np.concatenate([submit, start, end])
    zero = np.zeros_like(amount)
    waiting = np.concatenate([np.ones_like(amount), -np.ones_like(amount), zero])
    busy = np.concatenate([zero, amount, -amount])
    order = np.argsort(time, kind="stable")
    length = np.diff(time[order])
    some = np.cumsum(waiting[order])[:-1] > 0.5
    idle = np.clip(capacity - np.cumsum(busy[order])[:-1], 0.0, None)
    total = capacity * (time.max() - time.min())
    return float((idle * length)[some].sum() / total) if total > 0 else 0.0
