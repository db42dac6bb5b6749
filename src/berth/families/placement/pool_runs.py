"""Play batch jobs on one pool of processors: a whole log at once, by a kernel.

`berth.simulate` gives the same starts for the same policy on one server, a hundred times slower.

Axes: N jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import cfunc
from numba.core.errors import NumbaError
from numpy.typing import ArrayLike

from berth.errors import InvalidInput
from berth.families.placement.kernels.pool import ANY, CAPACITY, EASY, FREE, STRICT, Jobs, Pool, play_pool
from berth.families.placement.kernels.pool_reservations import Profile, play_conservative
from berth.families.placement.kernels.ranked import SHADOW, play_ranked
from berth.model import Floats, frozen_array

__all__ = ["MODES", "compiled_score", "run_pool"]

MODES = {"none": STRICT, "easy": EASY, "any": ANY, "shadow": SHADOW, "conservative": -1}
"""Backfilling modes, and the kernel's code for each."""


def run_pool(
    submit: ArrayLike,
    size: ArrayLike,
    run: ArrayLike,
    estimate: ArrayLike,
    capacity: float,
    *,
    backfill: str = "none",
    key: ArrayLike | None = None,
    score: Callable[..., Any] | None = None,
    committed: bool = False,
    singly: bool = False,
) -> Floats:
    """Start of each job, (N,); jobs by arrival, and in the queue by ascending `key` (N,), then by arrival.

    With a `score` of wait, estimate, size and submission the queue is in its order instead, found anew at every moment,
    and ties by `key`; `committed`: what was first stays first until it starts; `singly`: each end and arrival is a
    moment of its own (`berth.families.placement.kernels.ranked`).

    >>> run_pool([0, 0, 1], [2, 4, 2], [5, 5, 4], [5, 5, 4], 4, backfill="easy")
    array([0., 5., 1.])
    """
    if backfill not in MODES or (backfill == "shadow" and score is None):
        raise InvalidInput(f"one of {', '.join(MODES)} (shadow with a score)", value=backfill, key="backfill")
    submit = frozen_array(submit, "submit", low=-np.inf)
    size, run = (frozen_array(part, name, submit.shape) for part, name in ((size, "size"), (run, "run")))
    estimate = frozen_array(estimate, "estimate", submit.shape, low=-np.inf if score is not None else 0.0)
    if (np.diff(submit) < 0).any():
        raise InvalidInput("jobs in the order of their arrival", key="submit")
    if size.max(initial=0.0) > capacity:
        raise InvalidInput(f"at most {capacity:g}", value=float(size.max()), key=f"size[{int(size.argmax())}]")
    count = len(submit)
    at = np.arange(count) if key is None else np.argsort(np.asarray(key, dtype=np.float64), kind="stable")
    rank = np.empty(count, dtype=np.int64)
    rank[at] = np.arange(count)
    leaves = 1 << max(count - 1, 0).bit_length()
    pool = Pool(
        np.full(2 * leaves, np.inf),
        np.full(2 * leaves, np.inf),
        np.empty(count),
        np.empty(count, dtype=np.int64),
        np.empty(count),
        np.empty(count, dtype=np.int64),
        np.zeros(3, dtype=np.int64),
        np.zeros(4),
        np.full(count, np.nan),
    )
    pool.number[FREE] = pool.number[CAPACITY] = capacity
    jobs = Jobs(submit, size, run, estimate, rank, at)
    if score is not None:
        if backfill == "conservative":
            raise InvalidInput("a backfilling with a score: none, easy, any or shadow", value=backfill, key="backfill")
        scratch = np.empty(count, dtype=np.int64), np.empty(count)
        play_ranked(jobs, pool, *scratch, compiled_score(score), committed, singly, MODES[backfill])
    elif backfill == "conservative":
        steps = 4 * count + 8
        play_conservative(
            jobs, pool, Profile(np.empty(steps), np.empty(steps), np.zeros(2, np.int64), at.copy(), np.empty(count))
        )
    else:
        play_pool(jobs, pool, MODES[backfill])
    start: Floats = pool.start
    return start


@cache
def compiled_score(score: Callable[..., Any]) -> Any:
    """A score as machine code that kernels can call."""
    try:
        return cfunc("float64(float64, float64, float64, float64)", error_model="numpy")(score)
    except NumbaError as error:
        lines = str(error).splitlines()
        expected = "a score that numba can compile: arithmetic on wait, estimate, size and submit"
        raise InvalidInput(expected, found=lines[0] if lines else "no reason", key="score") from error
