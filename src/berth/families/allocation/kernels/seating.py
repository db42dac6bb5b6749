"""Seat the components of all-or-nothing jobs, on decision-shaped arrays (E, K)."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import compiled

ROUNDING = 1e-12  # tolerance of sums of seats above the room
MAX_STEPS = 20_000  # of one job's search for seats; beyond it the job counts as not fitting


@compiled
def _fits(e: int, share: Any, channel_server: Any, cap: Any, left: Any) -> bool:
    asked = False
    for k in range(cap.shape[1]):
        if cap[e, k] > 0.0:
            asked = True
            if share * cap[e, k] > left[channel_server[e], k] + ROUNDING * (1.0 + cap[e, k]):
                return False
    return asked


@compiled
def _take(e: int, sign: Any, share: Any, channel_server: Any, cap: Any, left: Any) -> None:
    for k in range(cap.shape[1]):
        left[channel_server[e], k] -= sign * share * cap[e, k]


@compiled
def _seat_greedily(
    ports: Any,
    minimum: int,
    share: Any,
    port_start: Any,
    port_channel: Any,
    channel_server: Any,
    cap: Any,
    wish: Any,
    left: Any,
    seat: Any,
) -> int:
    """Take the best remaining seat until the minimum is reached; return the number of seated components."""
    count = 0
    while count < minimum:
        best, best_channel, best_score = -1, -1, -1.0
        for i in range(ports.shape[0]):
            if seat[i] >= 0:
                continue
            for place in range(port_start[ports[i]], port_start[ports[i] + 1]):
                e = port_channel[place]
                if not _fits(e, share, channel_server, cap, left):
                    continue
                score = 1.0
                for k in range(cap.shape[1]):
                    if cap[e, k] > 0.0:
                        score = min(score, wish[e, k] / (share * cap[e, k]))
                if score > best_score:
                    best, best_channel, best_score = i, e, score
        if best < 0:
            break
        seat[best] = best_channel
        _take(best_channel, 1.0, share, channel_server, cap, left)
        count += 1
    return count


@compiled
def _seat_by_search(
    ports: Any,
    minimum: int,
    share: Any,
    port_start: Any,
    port_channel: Any,
    channel_server: Any,
    cap: Any,
    left: Any,
    seat: Any,
) -> int:
    """Try every way to seat at least the minimum, component by component, until one fits."""
    size = ports.shape[0]
    choice = np.full(size, -1, dtype=np.int64)  # current option; the last option of a component is no seat
    i, count, steps = 0, 0, 0
    while i >= 0 and count < minimum and steps < MAX_STEPS:
        steps += 1
        if i == size:
            i -= 1
            continue
        if seat[i] >= 0:
            _take(seat[i], -1.0, share, channel_server, cap, left)
            seat[i] = -1
            count -= 1
        first, options = port_start[ports[i]], port_start[ports[i] + 1] - port_start[ports[i]]
        choice[i] += 1
        while choice[i] < options and not _fits(port_channel[first + choice[i]], share, channel_server, cap, left):
            choice[i] += 1
        if choice[i] < options:
            seat[i] = port_channel[first + choice[i]]
            _take(seat[i], 1.0, share, channel_server, cap, left)
            count += 1
            i += 1
        elif choice[i] == options and count + size - i - 1 >= minimum:
            i += 1
        else:
            choice[i] = -1
            i -= 1
    return count


@compiled
def seat_components(
    order: Any,
    job_of_port: Any,
    minimum: Any,
    share: Any,
    port_start: Any,
    port_channel: Any,
    channel_server: Any,
    cap: Any,
    wish: Any,
    left: Any,
    floor: Any,
    seated: Any,
) -> None:
    """Let jobs in `order` seat their components; a job that cannot seat its minimum takes nothing.

    A seat is one channel whose server has `share` of the component's whole request left. Components take the seat that
    `wish` (E, K) fills best, and a job stops at its minimum. If that fails for a gang that fits, a search finds the
    seats. `left` (R, K) shrinks; `floor` (E, K) gets what the seats hold; `seated` (J,) says which jobs succeeded.
    """
    for job in order:
        ports = np.flatnonzero(job_of_port == job)
        seat = np.full(ports.shape[0], -1, dtype=np.int64)
        need = minimum[job]
        count = _seat_greedily(ports, need, share, port_start, port_channel, channel_server, cap, wish, left, seat)
        if count < need:
            for i in range(ports.shape[0]):
                if seat[i] >= 0:
                    _take(seat[i], -1.0, share, channel_server, cap, left)
                    seat[i] = -1
            count = _seat_by_search(ports, need, share, port_start, port_channel, channel_server, cap, left, seat)
        seated[job] = count >= need
        for i in range(ports.shape[0]):
            if seat[i] >= 0 and seated[job]:
                for k in range(cap.shape[1]):
                    floor[seat[i], k] = share * cap[seat[i], k]
            elif seat[i] >= 0:
                _take(seat[i], -1.0, share, channel_server, cap, left)
