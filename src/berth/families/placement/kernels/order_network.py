"""Score of a waiting job by a small network: its wait, estimate, size and owner, and the state of the pool.

The score is `direct · x + out · s(hidden x + offset)` of the features `x` (F,), where `s(v) = v / (1 + |v|)`. The least
score is picked. Weights are one vector: `hidden` (H, F), `offset` (H,), `out` (H,), `direct` (F,).

The network also sees a prediction of the run time: the mean run time of the owner's last two jobs that ended, at most
the estimate (Tsafrir et al., 2007). For an owner without such jobs it is the estimate.

Axes: F features, H hidden units, n jobs, U owners.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import inlined, inner, lean

__all__ = ["FEATURES", "FITS", "PREDICTED", "SIZE", "note_run", "order_score", "predicted", "score_jobs"]

FEATURES = 8
ESTIMATE, SIZE, WAIT, DELAY, FITS, FREE, QUEUE, PREDICTED = range(FEATURES)
"""Features: logarithms of the estimate (s), the size (share of the pool), the wait (s) and the wait relative to the
prediction; whether the job fits now; the free share of the pool; logarithms of the number of waiting jobs and of the
prediction (s)."""
SCALE = 0.1  # of logarithms, so that all features are about 1


@inlined
def _soft(value: float) -> Any:
    return value / (1.0 + abs(value))


@inner
def note_run(past: Any, owner: int, run: float) -> None:
    """Note the run time of a job that ended; `past` (U, 2) are the last two of each owner, nan for none."""
    if 0 <= owner < past.shape[0]:
        past[owner, 1] = past[owner, 0]
        past[owner, 0] = run


@inner
def predicted(past: Any, owner: int, estimate: float) -> Any:
    """Predicted run time of a job of this owner, -1 for none."""
    if not 0 <= owner < past.shape[0] or np.isnan(past[owner, 0]):
        return estimate
    if np.isnan(past[owner, 1]):
        return min(estimate, past[owner, 0])
    return min(estimate, 0.5 * (past[owner, 0] + past[owner, 1]))


@inner
def order_score(
    weights: Any, wait: float, estimate: float, run: float, size: float, free: float, capacity: float, waiting: int
) -> Any:
    """Score of one job with the prediction `run`.

    `weights` ((F + 2) H + F,), `free` of `capacity` processors, `waiting` jobs in the queue.
    """
    length = max(run, 1.0)
    x0 = SCALE * np.log(max(estimate, 1.0))
    x1 = SCALE * np.log(max(size, 1e-9) / capacity)
    x2 = SCALE * np.log(1.0 + max(wait, 0.0))
    x3 = SCALE * np.log(1.0 + max(wait, 0.0) / length)
    x4 = 1.0 if size <= free + 1e-9 * (1.0 + capacity) else 0.0
    x5 = free / capacity
    x6 = SCALE * np.log(1.0 + waiting)
    x7 = SCALE * np.log(length)
    hidden = (weights.shape[0] - FEATURES) // (FEATURES + 2)
    offset, out, direct = hidden * FEATURES, hidden * (FEATURES + 1), hidden * (FEATURES + 2)
    score = weights[direct] * x0 + weights[direct + 1] * x1 + weights[direct + 2] * x2 + weights[direct + 3] * x3
    score += weights[direct + 4] * x4 + weights[direct + 5] * x5 + weights[direct + 6] * x6 + weights[direct + 7] * x7
    for h in range(hidden):
        at = h * FEATURES
        value = weights[at] * x0 + weights[at + 1] * x1 + weights[at + 2] * x2 + weights[at + 3] * x3
        value += weights[at + 4] * x4 + weights[at + 5] * x5 + weights[at + 6] * x6 + weights[at + 7] * x7
        value += weights[offset + h]
        score += weights[out + h] * _soft(value)
    return score


@lean
def score_jobs(
    weights: Any,
    past: Any,
    owner: Any,
    wait: Any,
    estimate: Any,
    size: Any,
    free: float,
    capacity: float,
    scores: Any,
) -> None:
    """Scores of the waiting jobs, every array (n,) but `past` (U, 2) and the weights, into `scores`."""
    waiting = scores.shape[0]
    for place in range(waiting):
        run = predicted(past, owner[place], estimate[place])
        scores[place] = order_score(weights, wait[place], estimate[place], run, size[place], free, capacity, waiting)
