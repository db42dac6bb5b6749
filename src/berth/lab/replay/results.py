"""The result of a replay, its table in the terminal, and its files in a result directory.

```
DIR/manifest.json                 trace, setting and versions: a directory with those of another replay is refused
DIR/cells/POLICY.json, .parquet   the numbers and the jobs of each finished policy, with the key of the code that ran
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

import polars as pl
from rich.console import Console
from rich.text import Text

from berth.errors import BerthError
from berth.lab.run.cells import code_hash, source_hash
from berth.lab.run.store import ResultDirectory
from berth.lab.show.tables import as_table
from berth.lab.show.trace_table import spoken_time
from berth.lab.show.words import number, percent

__all__ = ["Replay", "ReplaySetting", "load", "print_replay", "save", "with_earlier"]

Played = tuple[dict[str, Any], pl.DataFrame]
"""The numbers of one policy, and its jobs."""


@dataclass(frozen=True)
class ReplaySetting:
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
    """A replayed trace: `rows`, one a policy, and `jobs`, one row for each policy and job.

    `left_out` counts the jobs that could not be played, by reason; `refused` are policies that cannot serve this.
    """

    source: Mapping[str, Any]
    setting: ReplaySetting
    rows: list[dict[str, Any]]
    jobs: pl.DataFrame
    left_out: Mapping[str, int]
    refused: Mapping[str, str]
    unreadable: str = ""
    """The first line that could not be read, and why."""

    def frame(self) -> pl.DataFrame:
        """The rows as a table."""
        return pl.DataFrame(self.rows, infer_schema_length=None)


def _name(policy: str) -> str:
    return f"cells/{hashlib.sha256(policy.encode()).hexdigest()[:16]}"


def _key(policy: str) -> str:
    """A hash of the code that the numbers of a policy depend on; the manifest has the trace and the setting."""
    return hashlib.sha256(f"{code_hash('lab/replay')} {source_hash(policy)}".encode()).hexdigest()[:24]


def load(folder: ResultDirectory, policy: str) -> Played | None:
    """A finished policy; None where there is none, where a file is damaged, or where the code has changed since."""
    path = folder.path / f"{_name(policy)}.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.get("key", _key(policy)) != _key(policy):  # directories of earlier versions have no keys
            return None
        return found["numbers"], pl.read_parquet(path.with_suffix(".parquet"))
    except (OSError, ValueError, KeyError, pl.exceptions.PolarsError):
        return None


def save(folder: ResultDirectory, policy: str, numbers: Mapping[str, Any], jobs: pl.DataFrame) -> None:
    """Keep a finished policy."""
    folder.write_table(f"{_name(policy)}.parquet", jobs)
    kept = {"policy": policy, "key": _key(policy), "numbers": numbers}
    folder.write_json(f"{_name(policy)}.json", kept)  # last: now whole


def with_earlier(folder: ResultDirectory, result: Replay) -> Replay:
    """The result with the policies that earlier calls have left in the directory."""
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
    """One row a policy; then jobs that were left out, and policies that cannot serve the trace."""
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
