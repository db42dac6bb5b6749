"""Small kernels that several families share: sums over servers, sorting, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import compiled, inlined, inner

__all__ = ["below", "draw", "scale_to_fit", "server_usage", "sort_by", "sort_places"]


@compiled
def server_usage(server_start: Any, amounts: Any, used: Any) -> None:
    """used[r, k] = Σ amounts[e, k] over the channels e of server r; channels are sorted by server."""
    for r in range(server_start.shape[0] - 1):
        for k in range(amounts.shape[1]):
            used[r, k] = 0.0
        for e in range(server_start[r], server_start[r + 1]):
            for k in range(amounts.shape[1]):
                used[r, k] += amounts[e, k]


@compiled
def scale_to_fit(server_start: Any, free: Any, amounts: Any) -> None:
    """Scale down in place the amounts of every (server, resource) that exceeds what is free."""
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


@inner
def sort_by(key: Any, items: Any, spare: Any, size: int) -> None:
    """Sort the first `size` items by ascending key[item], stably (merge sort: short to compile)."""
    width = 1
    while width < size:
        for first in range(0, size, 2 * width):
            middle, last = min(first + width, size), min(first + 2 * width, size)
            a, b = first, middle
            for to in range(first, last):
                if a < middle and (b == last or key[items[a]] <= key[items[b]]):
                    spare[to] = items[a]
                    a += 1
                else:
                    spare[to] = items[b]
                    b += 1
        for i in range(size):
            items[i] = spare[i]
        width *= 2


@compiled
def sort_places(key: Any, size: int, order: Any, other: Any) -> None:
    """Put 0 … size − 1 into `order` by ascending key, ties by index; `other` is scratch."""
    for i in range(size):
        order[i] = i
    sort_by(key, order, other, size)


@inlined
def draw(state: Any) -> Any:
    """Draw a number in [0, 1) by xorshift64*; `state` (1,) is the whole state."""
    z = state[0]
    z ^= z >> np.uint64(12)
    z ^= z << np.uint64(25)
    z ^= z >> np.uint64(27)
    state[0] = z
    return float((z * np.uint64(2685821657736338717)) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inlined
def below(state: Any, size: int) -> int:
    """Draw a whole number from 0 to size − 1."""
    return min(int(draw(state) * size), size - 1)
