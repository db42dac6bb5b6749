"""Dynamic programme of ESDP's Algorithm 2, on whole numbers, with two repairs that it needs to return anything.

Υ are gains, Σ² spreads, both rounded up; V(s, c, i) is the largest Σ²ᵀx over channels after i with Υᵀx ≥ s and Ax ≤ c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import compiled


@compiled
def printed_choice(gain: Any, spread: Any, takes: Any, limit: Any, top: Any, x: Any) -> Any:
    """Write the choice of (21) into `x`; return s + √V(s) there. `top` is the largest s considered.

    States that no choice reaches keep the value −∞ and are left out of the maximum (as printed, they win it); a channel
    that is not taken keeps the choice made without it (as printed, that choice is forgotten).
    """
    channels, resources = takes.shape
    stride = np.ones(resources, dtype=np.int64)
    for k in range(resources - 2, -1, -1):
        stride[k] = stride[k + 1] * (limit[k + 1] + 1)
    states = stride[0] * (limit[0] + 1)
    sums = top + 1
    value = np.full((states, sums), -np.inf)
    value[:, 0] = 0.0
    after = np.empty((states, sums))
    taken = np.zeros((channels, states, sums), dtype=np.uint8)
    for e in range(channels - 1, -1, -1):
        step = 0
        for k in range(resources):
            step += stride[k] * takes[e, k]
        v, y = spread[e], min(gain[e], top)
        for state in range(states):
            fits = True
            for k in range(resources):
                if (state // stride[k]) % (limit[k] + 1) < takes[e, k]:
                    fits = False
            after[state] = value[state]
            if not fits:
                continue
            before, here, bits = value[state - step], after[state], taken[e, state]
            for s in range(y):
                if before[0] + v > here[s]:
                    here[s] = before[0] + v
                    bits[s] = 1
            for s in range(y, sums):
                better = before[s - y] + v
                if better > here[s]:
                    here[s] = better
                    bits[s] = 1
        value, after = after, value
    best, s = -np.inf, 0
    for i in range(sums):
        score = i + np.sqrt(value[states - 1, i])
        if value[states - 1, i] >= 0.0 and score > best:
            best, s = score, i
    state = states - 1
    for e in range(channels):
        x[e] = taken[e, state, s]
        if x[e]:
            for k in range(resources):
                state -= stride[k] * takes[e, k]
            s = max(s - gain[e], 0)
    return best
