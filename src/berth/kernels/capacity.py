"""Sums over the channels of each server, on plain decision-shaped arrays (E, K)."""

from __future__ import annotations

from typing import Any

from berth.kernels.compiled import compiled


@compiled
def server_usage(server_start: Any, amounts: Any, used: Any) -> None:
    """used[r, k] = Σ over the channels of server r of amounts[e, k]; channels sorted by server."""
    for r in range(server_start.shape[0] - 1):
        for k in range(amounts.shape[1]):
            used[r, k] = 0.0
        for e in range(server_start[r], server_start[r + 1]):
            for k in range(amounts.shape[1]):
                used[r, k] += amounts[e, k]


@compiled
def scale_to_fit(server_start: Any, free: Any, amounts: Any) -> None:
    """Scale down, in place, the amounts of every (server, resource) that gives out more than is free."""
    for r in range(server_start.shape[0] - 1):
        first, last = server_start[r], server_start[r + 1]
        for k in range(amounts.shape[1]):
            total = 0.0
            for e in range(first, last):
                total += amounts[e, k]
            if total > free[r, k]:
                share = free[r, k] / total
                for e in range(first, last):
                    amounts[e, k] *= share
