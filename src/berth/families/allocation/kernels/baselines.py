"""Server filling of the papers' four baselines, on decision-shaped arrays (E, K)."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import compiled
from berth.kernels.small import sort_places


@compiled
def proportional(server_start: Any, want: Any, free: Any, y: Any) -> None:
    """Give every channel its request, scaled by free / Σ requests if a server cannot serve them all."""
    for r in range(server_start.shape[0] - 1):
        first, last = server_start[r], server_start[r + 1]
        for k in range(want.shape[1]):
            total = 0.0
            for e in range(first, last):
                total += want[e, k]
            share = 1.0 if total <= free[r, k] else free[r, k] / total
            for e in range(first, last):
                y[e, k] = share * want[e, k]


@compiled
def one_after_another(
    order: Any, port_start: Any, port_channel: Any, channel_server: Any, want: Any, left: Any, y: Any
) -> None:
    """Let ports in `order` take min(request, what is left) on every server they reach; `left` (R, K) shrinks."""
    for port in order:
        for place in range(port_start[port], port_start[port + 1]):
            e = port_channel[place]
            r = channel_server[e]
            for k in range(want.shape[1]):
                amount = min(want[e, k], left[r, k])
                y[e, k] = amount
                left[r, k] -= amount


@compiled
def by_utilisation(
    order: Any,
    port_start: Any,
    port_channel: Any,
    channel_server: Any,
    want: Any,
    capacity: Any,
    quota: Any,
    favour_full: bool,
    left: Any,
    y: Any,
) -> None:
    """Let ports in `order` visit their servers by utilisation (the fullest or the emptiest first).

    On each they take min(request, what is left there, what is left of the job's quota). The quota of a job is `quota`
    times the sum of its requests over all channels; with quota 1 the order of servers does not matter and both rules
    give the same allocation.
    """
    resources = want.shape[1]
    rest, score = np.empty(resources), np.empty(want.shape[0])
    visit, scratch = np.empty(want.shape[0], np.int64), np.empty(want.shape[0], np.int64)
    for port in order:
        first, last = port_start[port], port_start[port + 1]
        rest[:] = 0.0
        for place in range(first, last):
            e = port_channel[place]
            r = channel_server[e]
            full, kinds = 0.0, 0
            for k in range(resources):
                rest[k] += quota * want[e, k]
                if capacity[r, k] > 0.0:
                    full += 1.0 - left[r, k] / capacity[r, k]
                    kinds += 1
            mean = full / kinds if kinds > 0 else 0.0
            score[place - first] = -mean if favour_full else mean
        sort_places(score, last - first, visit, scratch)
        for place in range(last - first):
            e = port_channel[first + visit[place]]
            r = channel_server[e]
            for k in range(resources):
                amount = max(0.0, min(want[e, k], min(left[r, k], rest[k])))
                y[e, k] = amount
                left[r, k] -= amount
                rest[k] -= amount
