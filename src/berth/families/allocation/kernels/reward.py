"""Reward of a decision (E, K): gain minus dominant overhead, eq. (7) with sums over servers."""

from __future__ import annotations

import math
from typing import Any

from berth.families.allocation.kernels.utilities import LINEAR, LOG, POLY, RECIPROCAL, TABLE, slope, table_value
from berth.kernels.compiled import compiled


@compiled
def job_rewards(
    server_start: Any,
    channel_job: Any,
    y: Any,
    kind: Any,
    alpha: Any,
    slopes: Any,
    values: Any,
    steps: Any,
    beta: Any,
    arrivals: Any,
    sums: Any,
) -> Any:
    """Total gain and total overhead of the jobs that arrived.

    y (E, K); kind, alpha (R, K); beta (J, K); arrivals (J,), 0 or 1, or rates; `sums` (J, K) is left at Σ_r y.
    """
    jobs, resources = beta.shape
    sums[:] = 0.0
    gain = 0.0
    for r in range(server_start.shape[0] - 1):
        for k in range(resources):
            code, scale = kind[r, k], alpha[r, k]
            product = 1.0  # Π(y+1): one logarithm serves a whole segment
            for e in range(server_start[r], server_start[r + 1]):
                amount, job = y[e, k], channel_job[e]
                sums[job, k] += amount
                w = arrivals[job]
                if w == 0.0 or not amount > 0.0:  # utilities are defined for y ≥ 0
                    continue
                if code == LINEAR:
                    gain += w * scale * amount
                elif code == LOG:
                    if w != 1.0:
                        gain += w * scale * math.log1p(amount)
                        continue
                    product *= amount + 1.0
                    if product > 1e100:
                        gain += scale * math.log(product)
                        product = 1.0
                elif code == RECIPROCAL:
                    gain += w * amount / (scale * (amount + scale))
                elif code == POLY:
                    gain += w * scale * (math.sqrt(amount + 1.0) - 1.0)
                else:
                    u = code - TABLE
                    gain += w * scale * table_value(slopes[u], values[u], steps[u], amount)
            if product != 1.0:
                gain += scale * math.log(product)
    overhead = 0.0
    for job in range(jobs):
        if arrivals[job] != 0.0:
            worst = 0.0
            for k in range(resources):
                worst = max(worst, beta[job, k] * sums[job, k])
            overhead += arrivals[job] * worst
    return gain, overhead


@compiled
def decision_gradient(
    server_start: Any,
    channel_job: Any,
    y: Any,
    kind: Any,
    alpha: Any,
    slopes: Any,
    steps: Any,
    beta: Any,
    arrivals: Any,
    sums: Any,
    dominant: Any,
    g: Any,
) -> None:
    """g (E, K) = x·(f'(y) − β at the dominant resource), eq. (30); `sums` (J, K) and `dominant` (J,) are scratch."""
    jobs, resources = beta.shape
    sums[:] = 0.0
    for e in range(y.shape[0]):
        for k in range(resources):
            sums[channel_job[e], k] += y[e, k]
    for job in range(jobs):
        dominant[job] = 0
        for k in range(1, resources):
            best = dominant[job]
            if beta[job, k] * sums[job, k] > beta[job, best] * sums[job, best]:
                dominant[job] = k
    for r in range(server_start.shape[0] - 1):
        for e in range(server_start[r], server_start[r + 1]):
            job = channel_job[e]
            for k in range(resources):
                g[e, k] = 0.0
                if arrivals[job] != 0.0:
                    g[e, k] = arrivals[job] * slope(kind[r, k], alpha[r, k], max(y[e, k], 0.0), slopes, steps)
                    if k == dominant[job]:
                        g[e, k] -= arrivals[job] * beta[job, k]
