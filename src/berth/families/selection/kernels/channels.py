"""Kernels of selection policies per channel: fill pools in a given order, and the KL index."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import compiled, inlined

SLACK = 1e-12  # relative tolerance of a sum of demands that just fits


@inlined
def _fits(takes: Any, e: Any, left: Any, g: Any) -> Any:
    for k in range(takes.shape[1]):  # noqa: SIM110, compiled: a generator is slower
        if takes[e, k] > left[g, k] + SLACK * (1.0 + left[g, k]):
            return False
    return True


@inlined
def _move(takes: Any, e: Any, left: Any, g: Any, tasks: Any) -> None:
    for k in range(takes.shape[1]):
        left[g, k] -= tasks * takes[e, k]


@compiled
def fill(order: Any, pool: Any, takes: Any, skip: Any, left: Any, x: Any) -> None:
    """Open channels in `order` while they fit; at the first that does not, stop, or `skip` it and continue."""
    for e in order:
        if _fits(takes, e, left, pool[e]):
            _move(takes, e, left, pool[e], 1)
            x[e] = 1
        elif not skip:
            return


@compiled
def fill_gangs(
    order: Any,
    job_start: Any,
    job_port: Any,
    port_start: Any,
    port_channel: Any,
    minimum: Any,
    most: Any,
    pool: Any,
    takes: Any,
    left: Any,
    x: Any,
) -> None:
    """Let jobs in `order` place the minimum of each role on their channels in turn, or nothing; then add what fits."""
    for job in order:
        whole = True
        for place in range(job_start[job], job_start[job + 1]):
            port = job_port[place]
            need = minimum[port]
            for i in range(port_start[port], port_start[port + 1]):
                e = port_channel[i]
                while need > 0 and _fits(takes, e, left, pool[e]):
                    _move(takes, e, left, pool[e], 1)
                    x[e] += 1
                    need -= 1
            whole = whole and need == 0
        for place in range(job_start[job], job_start[job + 1]):
            port = job_port[place]
            room = most[port] - minimum[port]
            for i in range(port_start[port], port_start[port + 1]):
                e = port_channel[i]
                if not whole:
                    _move(takes, e, left, pool[e], -x[e])
                    x[e] = 0
                elif room > 0 and _fits(takes, e, left, pool[e]):
                    _move(takes, e, left, pool[e], 1)
                    x[e] += 1
                    room -= 1


@compiled
def kl_upper(mean: Any, budget: Any, upper: Any) -> None:
    """For each channel the largest q in [mean, 1] with kl(mean, q) ≤ budget, kl that of two Bernoulli variables."""
    for e in range(mean.shape[0]):
        p = min(max(mean[e], 0.0), 1.0)
        low, high = p, 1.0
        for _ in range(40):
            q = 0.5 * (low + high)
            distance = 0.0
            if p > 0.0:
                distance += p * np.log(p / q)
            if p < 1.0:
                distance += (1.0 - p) * np.log((1.0 - p) / max(1.0 - q, 1e-300))
            if distance > budget[e]:
                high = q
            else:
                low = q
        upper[e] = low
