"""A slow, plain twin of the kernel that says when a gang would end on faster servers."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["ends_later"]

Row = Sequence[int]


def _room(free: Row, demand: Row, each: int) -> int:
    return max(min([each, *(have // need for have, need in zip(free, demand, strict=True) if need)]), 0)


def ends_later(
    speed: Sequence[float],
    demand: Sequence[Row],
    minimum: Row,
    each: Row,
    free: Sequence[Row],
    releases: Sequence[tuple[float, int, Row]],
    work: float,
    beat: float,
) -> float:
    """Every speed above `beat` is tried: all servers that are so fast, at every moment at which something is free."""
    found = []
    for level in {one for one in speed if one > beat}:
        servers = [r for r, one in enumerate(speed) if one >= level]
        left = [list(row) for row in free]
        for time, released, amount in [(0.0, 0, [0] * len(free[0])), *releases]:
            left[released] = [have + more for have, more in zip(left[released], amount, strict=True)]
            rooms = [sum(_room(left[r], need, most) for r in servers) for need, most in zip(demand, each, strict=True)]
            if all(room >= wanted for room, wanted in zip(rooms, minimum, strict=True)):
                found.append((time, time + work / level))
                break
    if any(time == 0.0 for time, _ in found):
        return math.inf
    return min((end for _, end in found), default=math.inf)
