"""RLScheduler's environment in plain Python: the jobs of a log, and windows played by a rule that picks the next job.

The learned order of `examples/learned-order` plays here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from berth.lab.replay.results import bounded_slowdown
from berth.lab.replay.samples import job_windows
from berth.model import Floats, Ints
from berth.traces.formats.swf import FIELDS, LAYOUT
from berth.traces.rows import Report, read_rows

__all__ = [
    "LEARNED",
    "LUBLIN",
    "SP2",
    "STARTS",
    "WINDOW",
    "Pick",
    "by_learned_order",
    "environment_jobs",
    "mean_of_picks",
    "played",
    "swf_fields",
]

LUBLIN, SP2 = "swf/lublin_256-synthetic.swf.gz", "swf/SDSC-SP2-1998-4.2-cln.swf.gz"
STARTS = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)
WINDOW = 1024

Pick = Callable[[list[int], float, float, list[int]], int]
"""Which of the waiting jobs is next, given the time, the free processors, and the jobs that have ended, in order."""


def swf_fields(path: Path) -> dict[str, Floats]:
    """The fields of a log, in the order of job numbers."""
    frame = pl.concat(read_rows(path, LAYOUT, Report())).sort("job", maintain_order=True)
    return {name: frame[name].fill_null(-1).to_numpy() for name in FIELDS}


def environment_jobs(path: Path) -> tuple[Floats, Floats, Floats, Floats, Ints]:
    """Submission, size, run time, estimate and user (-1: unknown) of the jobs that RLScheduler's environment plays."""
    log = swf_fields(path)
    run, asked = log["run"], log["time_requested"]
    kept = np.flatnonzero(run != 0)
    submit, size = log["submit"][kept], np.maximum(log["allocated"], log["requested"])[kept]
    known = np.where(asked == -1, run, asked)[kept]  # also −1, of jobs whose run time is not known either
    user = log["user"][kept]
    owner = np.where(user >= 0, np.unique(user, return_inverse=True)[1], -1)
    return submit, size, np.where(run < 0, 10.0, run)[kept], known, owner


def played(jobs: Sequence[Floats], capacity: float, backfill: bool, pick: Pick, *, by_arrival: bool = False) -> Floats:
    """Start of each job where `pick` names the next one, in the environment of RLScheduler; (N,) each.

    The environment takes one arrival or end after another. The job picked waits until it fits, whatever comes
    meanwhile; `backfill` starts others, in order of submission, if they end before its start by the estimates. Of ends
    at one time the first in the environment's list comes first, or with `by_arrival` the first to arrive, as in
    berth's kernel.
    """
    submit, size, run, estimate = (part.tolist() for part in jobs)
    began = [math.nan] * len(submit)
    queue, running, ended, now, free, coming = [0], list[int](), list[int](), submit[0], float(capacity), 1

    def start(job: int) -> None:
        nonlocal free
        began[job] = now
        free -= size[job]
        running.append(job)
        queue.remove(job)

    def advance() -> None:
        """To the next arrival or end; arrivals first."""
        nonlocal now, free, coming
        running.sort(key=lambda job: (began[job] + run[job], job if by_arrival else 0))
        end = began[running[0]] + run[running[0]] if running else math.inf
        if coming < len(submit) and submit[coming] <= end:
            now = max(now, submit[coming])
            queue.append(coming)
            coming += 1
        else:
            now = max(now, end)
            ended.append(running.pop(0))
            free += size[ended[-1]]

    while queue:
        job = pick(queue, now, free, ended)
        if backfill and size[job] > free:
            running.sort(key=lambda one: began[one] + estimate[one])
            room, earliest = free, now
            for one in running:
                room, earliest = room + size[one], began[one] + estimate[one]
                if room >= size[job]:
                    break
        while size[job] > free:
            if backfill:
                for one in sorted(queue):
                    if size[one] <= free and now + estimate[one] < earliest:
                        start(one)
            advance()
        start(job)
        while not queue and coming < len(submit):
            advance()
    return np.array(began)


def mean_of_picks(
    jobs: Sequence[Any],
    capacity: float,
    backfill: str,
    picker: Callable[[int, slice], Pick],
    *,
    by_arrival: bool = False,
) -> float:
    """The mean over the windows of the mean bounded slowdown; `picker` is made for each window and its jobs."""
    means = []
    for number, one in enumerate(job_windows(STARTS, WINDOW)):
        submit, size, run, estimate = (part[one] for part in jobs[:4])
        part, pick = (submit, size, run, estimate), picker(number, one)
        began = played(part, capacity, backfill == "shadow", pick, by_arrival=by_arrival)
        means.append(float(bounded_slowdown(began - submit, run).mean()))
    return float(np.mean(means))


# --------------------------------------------------------------------------------- the learned order

LEARNED: Mapping[str, tuple[str, Sequence[float]]] = {
    LUBLIN: (
        "lublin-256",
        (
            -0.09805658018226301,
            2.2662255725832803,
            -0.16271465169961127,
            0.05370843270343463,
            -0.6108366112462554,
            -0.0864507888377955,
            0.20950434044317978,
            0.7565877057905863,
        ),
    ),
    SP2: (
        "sdsc-sp2",
        (
            0.7725197479810343,
            0.9213065984451102,
            -0.10930556571975836,
            -0.21460299704496788,
            0.0632050058920219,
            0.6762912791477752,
            0.1335503210091631,
            0.6768231402151028,
        ),
    ),
}
"""Name and weights of the order that `examples/learned-order` trained for each log, on windows that overlap none of
the ten."""


def by_learned_order(jobs: Sequence[Any], capacity: float, weights: Sequence[float]) -> Callable[[int, slice], Pick]:
    """The waiting job with the least weighted sum of eight features is next; of equal ones the first.

    Features are logarithms of estimate, size, wait, and wait relative to the predicted run time; whether the job fits;
    the free share; logarithms of the number of waiting jobs and of the predicted run time. The prediction is the mean
    run time of the last two jobs of the user that ended, at most the estimate.
    """

    def picker(_: int, one: slice) -> Pick:
        submit, size, run, estimate, owner = (part[one] for part in jobs)
        past: dict[int, list[float]] = {}
        predicted, noted = estimate.copy(), 0

        def pick(queue: list[int], now: float, free: float, ended: list[int]) -> int:
            nonlocal noted
            for job in ended[noted:]:
                if (user := int(owner[job])) >= 0:
                    past[user] = [*past.get(user, [])[-1:], float(run[job])]
                    mine = owner == user
                    predicted[mine] = np.minimum(estimate[mine], np.mean(past[user]))
            noted = len(ended)
            waiting, length, wait = np.array(queue), np.maximum(predicted[queue], 1.0), now - submit[queue]
            features = (
                0.1 * np.log(np.maximum(estimate[waiting], 1.0)),
                0.1 * np.log(np.maximum(size[waiting], 1e-9) / capacity),
                0.1 * np.log1p(wait),
                0.1 * np.log1p(wait / length),
                (size[waiting] <= free).astype(float),
                np.full(len(queue), free / capacity),
                np.full(len(queue), 0.1 * math.log1p(len(queue))),
                0.1 * np.log(length),
            )
            score = np.dot(weights, features)
            return int(waiting[np.lexsort((waiting, score))[0]])

        return pick

    return picker
