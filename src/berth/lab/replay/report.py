"""HTML report of a replay: a single file."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from berth.lab.replay.faults import complaints, load_notes
from berth.lab.replay.paired import (
    HEADS,
    Difference,
    counts_part,
    difference_cells,
    difference_heads,
    differences_in_words,
    sampled,
)
from berth.lab.replay.results import THRESHOLD_SECONDS, Replay
from berth.lab.show.canvas import line_looks
from berth.lab.show.page import page
from berth.lab.show.traces import spoken_time
from berth.lab.show.words import number, percent

__all__ = ["render_replay", "replay_command_line", "replay_verdict"]

TITLES = {
    "waits": "Waits, slowdowns and the queue",
    "utilisation": "Utilisation over time",
    "gantt": "Gantt chart",
    "queue": "Around the longest queue",
}
CAPTIONS = {
    "waits": "Left and middle: the share of jobs above each value, both axes logarithmic. Right: the number of waiting "
    "jobs.",
    "utilisation": "Each point is the mean over 1/120 of the time. Policies do the same work at different times.",
    "gantt": "Each block is a job, its colour how long it waited; without colour nothing runs. Rows are units of the "
    "resource, given out from the lowest free one: they are not the machines that the policy chose. If there are too "
    "many jobs to draw one by one, every dot is the mean of what it covers.",
    "queue": "A part of the chart above, around the moment with the most waiting jobs under the baseline: the same "
    "time under every policy.",
}
OPTIONS = {
    "processors": "--processors",
    "resource": "--resource",
    "exact": "--exact",
    "stopped": "--stop",
    "outages": "--outages",
    "first": "--first",
    "load": "--load",
    "seed": "--seed",
    "window_starts": "--window-start",
}


def replay_command_line(result: Replay) -> str:
    """The command that repeats a replay; empty for a trace that is not in a file."""
    files = list(result.source["files"])
    if not files:
        return ""
    words = ["berth", "replay", files[0], *(word for row in result.rows for word in ("--policy", row["policy"]))]
    for name, value in {**vars(result.setting), **result.measurement}.items():
        option = OPTIONS.get(name, f"--{name.replace('_', '-')}")
        if value is True:
            words.append(option)
        elif value not in (None, False) and (name, value) != ("seed", 0):
            for one in value if isinstance(value, tuple) else (value,):
                words += [option, f"{one:g}" if isinstance(one, float) else str(one)]
    words += ["--baseline", result.baseline] if len(result.samples) > 1 else []
    return shlex.join(words)


def replay_verdict(result: Replay) -> list[str]:
    """The result in a few sentences: shortest waits, differences that hold, jobs that never started."""
    faults = [f"{row['policy']}: {complaint}." for row in result.rows for complaint in complaints(row)]
    rows = [row for row in result.rows if "mean_wait_seconds" in row and not row["never_started"]]
    if not rows:
        return ["No policy started all jobs.", *faults]
    best = min(rows, key=lambda row: row["mean_wait_seconds"])
    said = [f"Jobs wait least under {best['policy']}: {spoken_time(best['mean_wait_seconds'])} on average."]
    if starved := [row["policy"] for row in result.rows if row.get("never_started")]:
        said.append(f"Not ranked, because jobs never started under them: {', '.join(starved)}.")
    clear = [one for one in result.differences if one.significant]
    tested = [one for one in result.differences if one.bound is None]
    if tested:
        count = f"{len(clear)} of {len(tested)}"
        said.append(
            f"{count} differences to {result.baseline} are significant at 5 % after Holm's correction"
            + (f": {_listed(clear)}." if clear else ".")
        )
    elif result.differences:
        said.append(f"No difference to {result.baseline} is tested.")
    else:
        said.append("One sample: no intervals. --windows or --replicas give them.")
    return [*said, *faults, *load_notes(result.rows)]


def _listed(found: Sequence[Difference]) -> str:
    words = {**HEADS, "utilisation": "utilisation"}
    return ", ".join(
        f"{one.policy} has {'more' if one.estimate.mean > 0 else 'less'} {words[one.measure]}" for one in found
    )


def render_replay(result: Replay, plots: Mapping[str, str], manifest: Mapping[str, Any]) -> str:
    """The page; `plots` are SVG texts by name, as `save_replay_plots` gives them."""
    files, row = list(result.source["files"]), result.rows[0]
    facts = {
        "Jobs": f"{row['jobs']:,}{sampled(result.measurement, len(result.samples))}",
        "Cluster": f"{row.get('capacity') or 0:,.6g} {row.get('resource', '')}",
        "Offered load": number(row.get("offered_load"), 3),
        "Policies": f"{len(result.rows)}, baseline {result.baseline}",
    }
    sections = {"numbers": "Numbers", "differences": "Differences", "charts": "Charts"}
    columns = _columns(result)
    return page(
        "replay.html",
        f"Replay of {Path(files[0]).name}" if files else "Replay",
        facts,
        manifest,
        {key: word for key, word in sections.items() if key != "differences" or result.differences},
        command=replay_command_line(result),
        result=result,
        plots=plots,
        titles=TITLES,
        captions=CAPTIONS,
        verdict=replay_verdict(result),
        warned=any(complaints(row) for row in result.rows),
        looks=line_looks([row["policy"] for row in result.rows]),
        columns=list(columns),
        numbers=[
            (row["policy"], [show(row) for show in columns.values()] if "mean_wait_seconds" in row else [])
            for row in sorted(result.rows, key=lambda row: row["never_started"] > 0)
        ],
        samples=len(result.samples),
        bound=result.measurement.get("slowdown_bound", THRESHOLD_SECONDS),
        resource=row.get("resource", "everything"),
        until="in the time that counts" if counts_part(result.measurement) else "until the last end",
        differences=difference_cells(result.differences),
        difference_heads=[
            "utilisation" if head == "used" else f"mean {head}" for head in difference_heads(result.differences)
        ],
        differences_in_words=differences_in_words(result.differences, len(result.samples), result.measurement)
        if result.differences
        else "",
        left_out=[
            *result.remarks,
            *(f"{reason}: {count:,}" for reason, count in result.left_out.items()),
            *(f"{policy} is not here: {reason}" for policy, reason in result.refused.items()),
        ],
    )


def _columns(result: Replay) -> dict[str, Callable[[dict[str, Any]], str]]:
    """Columns of the table of numbers: what each shows of a row."""
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "mean wait": lambda row: _bound(row) + spoken_time(row["mean_wait_seconds"]),
        "p95 wait": lambda row: _bound(row) + spoken_time(row["p95_wait_seconds"]),
        "mean turnaround": lambda row: _bound(row) + spoken_time(row["mean_turnaround_seconds"]),
        "mean slowdown": lambda row: _bound(row) + number(row["mean_bounded_slowdown"]),
        "p95 slowdown": lambda row: _bound(row) + number(row["p95_bounded_slowdown"]),
        "utilisation": lambda row: percent(row["utilisation"]),
        "idle while waiting": lambda row: percent(row["idle_while_waiting"]),
        "fairness": lambda row: number(row["owner_fairness"], 3),
    }
    for head, name in (("never started", "never_started"), ("broken", "broken_decisions")):
        if any(row.get(name) for row in result.rows):
            columns[head] = partial(_count, name)
    return columns


def _count(name: str, row: Mapping[str, Any]) -> str:
    return f"{row.get(name, 0):,}"


def _bound(row: Mapping[str, Any]) -> str:
    """What stands before numbers that count jobs that never started."""
    return "≥ " if row["never_started"] else ""
