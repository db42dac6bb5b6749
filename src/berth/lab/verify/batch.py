"""Published results on batch logs: RLScheduler's baselines, and HPCOpt's FIFO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from berth.families.placement.policies.priority import score_function
from berth.families.placement.pool_runs import run_pool
from berth.lab.replay.results import bounded_slowdown
from berth.lab.replay.samples import job_windows
from berth.lab.verify.environment import (
    LEARNED,
    LUBLIN,
    SP2,
    STARTS,
    WINDOW,
    by_learned_order,
    environment_jobs,
    mean_of_picks,
    swf_fields,
)
from berth.lab.verify.lines import Check, Line, Progress

__all__ = ["HPCOPT", "NETWORKS", "RLSCHEDULER", "SCORES", "mean_of_rule", "where_of"]

# --------------------------------------------------------------------------------- RLScheduler

PRINTED = "(-1 - submit)"
"""The wait of a queued job in RLScheduler's environment, whose start is −1 until it starts."""
SCORES = {
    "FCFS": "submit",
    "WFP3": f"-(({PRINTED} / estimate) ** 3) * size",
    "UNICEP": f"-({PRINTED} + 1e-15) / (log2(size + 1e-15) * estimate)",
    "SJF": "estimate",
    "F1": "log10(estimate) * size + 870 * log10(submit)",
}
TABLES: Mapping[str, tuple[int, Mapping[str, Mapping[str, float]]]] = {
    LUBLIN: (
        256,
        {
            "none": {"FCFS": 7273.77, "WFP3": 19753.53, "UNICEP": 22274.74, "SJF": 277.35, "F1": 258.37},
            "shadow": {"FCFS": 235.82, "WFP3": 133.87, "UNICEP": 307.23, "SJF": 73.31, "F1": 75.07},
        },
    ),
    SP2: (
        128,
        {
            "none": {"FCFS": 1727.54, "WFP3": 3000.88, "UNICEP": 1848.45, "SJF": 2680.55, "F1": 1232.06},
            "shadow": {"FCFS": 1595.12, "WFP3": 1083.12, "UNICEP": 548.01, "SJF": 2167.84, "F1": 1098.22},
        },
    ),
}

NETWORKS: Mapping[str, Mapping[str, float]] = {
    LUBLIN: {"none": 254.67, "shadow": 58.64},
    SP2: {"none": 466.44, "shadow": 397.82},
}
"""Printed results of RLScheduler's own networks, on the same windows."""


def mean_of_rule(jobs: Sequence[Any], capacity: float, score: str, backfill: str) -> float:
    """The mean over the windows of the mean bounded slowdown under a rule, by berth's kernel."""
    means = []
    for one in job_windows(STARTS, WINDOW):
        submit, size, run, known = (part[one] for part in jobs[:4])
        how: dict[str, Any] = {"score": score_function(score), "committed": True, "singly": True}
        began = run_pool(submit, size, run, known, capacity, backfill=backfill, **how)
        means.append(float(bounded_slowdown(began - submit, run).mean()))
    return float(np.mean(means))


def where_of(log: str, backfill: str) -> str:
    """The first column of a line: the log, and whether jobs are backfilled."""
    return f"{Path(log).name.split('.')[0]}, {'backfilling' if backfill == 'shadow' else 'no backfilling'}"


def _rlscheduler(folder: Path, progress: Progress) -> list[Line]:
    lines: list[Line] = []
    for file, (capacity, printed) in TABLES.items():
        log = environment_jobs(folder / file)
        for backfill, cells in printed.items():
            where = where_of(file, backfill)
            for rule, theirs in cells.items():
                progress(where, len(lines), 32)
                wrong = PRINTED in SCORES[rule]
                note = "wait of −1 − submission" if wrong else ""
                lines.append(Line(where, rule, theirs, mean_of_rule(log, capacity, SCORES[rule], backfill), note=note))
                if wrong:
                    right = SCORES[rule].replace(PRINTED, "wait")
                    ours = mean_of_rule(log, capacity, right, backfill)
                    lines.append(Line(where, rule, None, ours, note="corrected: the true wait"))
            name, weights = LEARNED[file]
            learned = mean_of_picks(log, capacity, backfill, by_learned_order(log, capacity, weights), by_arrival=True)
            note = f"berth's `learned-order:file={name}`"
            lines.append(Line(where, "RLScheduler's network", NETWORKS[file][backfill], learned, note=note, rival=True))
    return lines


# --------------------------------------------------------------------------------- HPCOpt


def _hpcopt(folder: Path, progress: Progress) -> list[Line]:
    log = swf_fields(folder / SP2)
    kept = np.flatnonzero((log["allocated"] > 0) & (log["run"] >= 0))
    kept = kept[np.argsort(log["submit"][kept], kind="stable")]
    submit, run, size = log["submit"][kept], log["run"][kept], log["allocated"][kept]
    progress("SDSC-SP2", 0, 1)
    wait = run_pool(submit, size, run, run, 128.0) - submit
    slow = bounded_slowdown(wait, run, 60.0)
    ends = wait + submit + run
    where = f"SDSC-SP2, FIFO, {len(kept):,} jobs"
    return [
        Line(where, "mean wait (s)", 1_552_128, float(wait.mean()), 0),
        Line(where, "95th percentile of wait (s)", 5_103_921, float(np.percentile(wait, 95)), 0),
        Line(where, "95th percentile of bounded slowdown (60 s)", 56_784.93, float(np.percentile(slow, 95))),
        Line(where, "makespan (s)", 68_440_542, float(ends.max() - submit.min()), 0),
    ]


RLSCHEDULER = Check(
    "Mean bounded slowdown of priority rules on windows of a log",
    "Zhang et al., RLScheduler, SC 2020, tables of baselines; the authors' public environment",
    "Ten windows of 1,024 jobs, each on an empty pool. The size of a job is the larger of its requested and allocated "
    "processors. The environment drops jobs of zero run time, and sets an unknown run time to 10 s. The scheduler "
    "picks the job with the least score and waits until it fits, whatever arrives meanwhile. It decides after every "
    "single arrival and end, arrivals first. When the picked job does not fit, backfilling computes its start from the "
    "estimates, once; until then other jobs start, in order of submission, if their estimates end before that time. "
    "The bound of the slowdown is 10 s.",
    (LUBLIN, SP2),
    _rlscheduler,
    "**An error in the published baselines**: WFP3 and UNICEP there take −1 − submission for the wait of a queued "
    "job, because its start is −1 until it starts. With the true wait they are up to 58 times better on Lublin-1. "
    "FCFS, SJF and F1 do not depend on the wait.\n\n"
    "**The network**: berth's own learned order stands beside the printed results of RLScheduler's network, on the "
    "same windows: one order for each log, for both columns, trained on windows that overlap none of the ten. Still "
    "the ten are no untouched test ([a learned order](batch.md#a-learned-order)); the authors of RLScheduler held no "
    "windows out. Ten windows of one part of a log tell little about others.",
)
HPCOPT = Check(
    "First come, first served on a whole log",
    "ErenAri/HPC-workload-optimizer, 2026, FIFO baseline",
    "128 processors. The size of a job is its allocated processors. Jobs of zero run time count. The bound of the "
    "slowdown is 60 s.",
    (SP2,),
    _hpcopt,
)
