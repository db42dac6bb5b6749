"""Score of a waiting job by eight features, and windows of a log played in its order on one pool of processors.

Axes: N jobs, n waiting jobs, U owners.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["EASY", "ESTIMATE", "FEATURES", "MODES", "NONE", "PREDICTED", "SHADOW", "SIZE", "play", "score_jobs"]

FEATURES = 8
ESTIMATE, SIZE, WAIT, DELAY, FITS, FREE, QUEUE, PREDICTED = range(FEATURES)
"""Features: logarithms of the estimate (s), the size (share of the pool), the wait (s) and the wait relative to the
prediction; whether the job fits now; the free share of the pool; logarithms of the number of waiting jobs and of the
prediction (s)."""
SCALE = 0.1  # of logarithms, so that all features are about 1
NONE, EASY, SHADOW = range(3)
MODES = {"none": NONE, "easy": EASY, "shadow": SHADOW}
"""Ways to backfill. `shadow`, as in RLScheduler: the start of the picked job is computed once; until then other jobs
start, in the order of arrival, if they end before it by their estimates."""


@njit(cache=True, error_model="numpy")
def predicted(past: Any, owner: int, estimate: float) -> Any:
    """Mean of the owner's last two run times, `past` (U, 2), at most the estimate; without any, the estimate."""
    if not 0 <= owner < past.shape[0] or np.isnan(past[owner, 0]):
        return estimate
    if np.isnan(past[owner, 1]):
        return min(estimate, past[owner, 0])
    return min(estimate, 0.5 * (past[owner, 0] + past[owner, 1]))


@njit(cache=True, error_model="numpy")
def score_jobs(
    weights: Any, past: Any, owner: Any, wait: Any, estimate: Any, size: Any, free: float, capacity: float
) -> Any:
    """Scores (n,) of the waiting jobs, the least first: a weighted sum of the features, `weights` (8,)."""
    waiting = len(wait)
    scores = np.zeros(waiting)
    for i in range(waiting):
        length = max(predicted(past, owner[i], estimate[i]), 1.0)
        score = weights[ESTIMATE] * (SCALE * np.log(max(estimate[i], 1.0)))
        score += weights[SIZE] * (SCALE * np.log(max(size[i], 1e-9) / capacity))
        score += weights[WAIT] * (SCALE * np.log(1.0 + max(wait[i], 0.0)))
        score += weights[DELAY] * (SCALE * np.log(1.0 + max(wait[i], 0.0) / length))
        score += weights[FITS] * (1.0 if size[i] <= free + 1e-9 * (1.0 + capacity) else 0.0)
        score += weights[FREE] * (free / capacity) + weights[QUEUE] * (SCALE * np.log(1.0 + waiting))
        score += weights[PREDICTED] * (SCALE * np.log(length))
        scores[i] = 0.0 if np.isnan(score) else score
    return scores


@njit(cache=True, error_model="numpy")
def play(
    submit: Any, size: Any, run: Any, estimate: Any, owner: Any, capacity: float, weights: Any, mode: int,
    committed: bool, singly: bool,
) -> Any:  # fmt: skip
    """Start of each job (N,); jobs by arrival. Every job must fit into the empty pool.

    Ended jobs leave first, then jobs arrive; or, with `singly`, each arrival and each end is a moment of its own, and
    arrivals come first. The picked job waits until it fits if `committed`, or is picked again at each moment.
    """
    total, slack = len(submit), 1e-9 * (1.0 + capacity)
    owners = owner.max() + 1 if total else 0
    start, past = np.full(total, np.nan), np.full((owners, 2), np.nan)
    running, waiting = np.empty(0, np.int64), np.empty(0, np.int64)
    free, arrived, head, shadow = capacity, 0, -1, 0.0
    while arrived < total or len(running):
        now = submit[arrived] if arrived < total else np.inf
        arriving = now
        for job in running:
            now = min(now, start[job] + run[job])
        if not singly or arriving > now:
            for job in np.sort(running):
                if start[job] + run[job] == now:
                    running = running[running != job]
                    free = free + size[job] if len(running) else capacity  # exactly, without rounding errors
                    if owner[job] >= 0:
                        past[owner[job], 1] = past[owner[job], 0]
                        past[owner[job], 0] = run[job]
                    if singly:
                        break
        while arrived < total and submit[arrived] == now:
            waiting = np.append(waiting, arrived)
            arrived += 1
            if singly:
                break
        before = head
        if not committed:
            head = -1
        while len(waiting):
            order = waiting[:0]
            if head < 0 or mode == EASY:
                wait, known = now - submit[waiting], estimate[waiting]
                scores = score_jobs(weights, past, owner[waiting], wait, known, size[waiting], free, capacity)
                order = waiting[np.argsort(scores, kind="mergesort")]
            if head < 0:
                head = order[0]
            if size[head] <= free + slack:
                start[head], free = now, free - size[head]
                running, waiting = np.append(running, head), waiting[waiting != head]
                head = -1
                continue
            if mode == NONE:
                break
            ends = np.maximum(start[running] + estimate[running], now)
            if mode == EASY or head != before:
                room = free
                for i in np.argsort(ends, kind="mergesort"):
                    room += size[running[i]]
                    if room + slack >= size[head]:
                        shadow = ends[i]
                        break
            extra = free - size[head] + size[running][ends <= shadow].sum()
            for job in waiting.copy() if mode == SHADOW else order:
                end = now + estimate[job]
                early = end < shadow if mode == SHADOW else end <= shadow
                beside = mode == EASY and size[job] <= extra + slack
                if job != head and size[job] <= free + slack and (early or beside):
                    start[job], free = now, free - size[job]
                    running, waiting = np.append(running, job), waiting[waiting != job]
                    if not early:
                        extra -= size[job]
            break
    return start
