"""Sorting places by key."""

from __future__ import annotations

from typing import Any

from berth.kernels.compiled import compiled

__all__ = ["sort_places"]


@compiled
def sort_places(key: Any, size: int, order: Any, other: Any) -> None:
    """Put 0 … size − 1 into `order` by rising key, equal keys by place; `other` is scratch. Short to compile."""
    for i in range(size):
        order[i] = i
    width = 1
    while width < size:
        for first in range(0, size, 2 * width):
            middle, last = min(first + width, size), min(first + 2 * width, size)
            a, b = first, middle
            for to in range(first, last):
                if a < middle and (b == last or key[order[a]] <= key[order[b]]):
                    other[to] = order[a]
                    a += 1
                else:
                    other[to] = order[b]
                    b += 1
        for i in range(size):
            order[i] = other[i]
        width *= 2
