"""What batch users and operators ask of a schedule: waits, slowdowns, utilisation, fairness.

Axes: N jobs, K resources, O owners.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.model import Floats, Ints

__all__ = ["PERCENTILES", "THRESHOLD_SECONDS", "batch_metrics", "bounded_slowdown"]

THRESHOLD_SECONDS = 10.0
"""Jobs shorter than this count as if they took so long, so that a short one's wait does not weigh without bound."""
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
    """Numbers of a run; jobs that never started have `start` nan and count only as such.

    `amount` (N, K) is what each job holds in all, `capacity` (K,) what the cluster has, `main` the resource that
    `utilisation` is of. The span of a run is from the first submission to the last end; `offered_load` and
    `utilisation_while_arriving` are of the time from the first submission to the last. Per owner, None where owners are
    not known: the mean bounded
    slowdown of its jobs, and of these Jain's index, 1 when all fare alike, down to 1/O when one has all of it.
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
        for percent in PERCENTILES:
            found[f"p{percent}_{name}{unit}"] = float(np.percentile(values, percent))
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
    """What comes, and what is taken, between the first submission and the last, as shares of what there is."""
    first, last = float(submit.min()), float(submit.max())
    there = capacity * (last - first)
    if not there > 0:
        return None, None
    inside = np.clip(np.minimum(end, last) - start, 0.0, None)
    return float((amount * (end - start)).sum() / there), float((amount * inside).sum() / there)


def _idle_while_waiting(submit: Floats, start: Floats, end: Floats, amount: Floats, capacity: float) -> float:
    """The share of capacity that is idle while some job waits, over the span: what a better packing could win."""
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
