"""When a gang could start on faster servers than those that are free now, as running jobs come to their ends.

Axes: m roles, R servers, K resources, n releases.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from berth.kernels.compiled import compiled, inner
from berth.live.core.kernels.berthing import room

__all__ = ["Releases", "ends_later"]


class Releases(NamedTuple):
    """What running jobs give back, the first at the front: when (n,), on which server (n,), and how much (n, K)."""

    time: Any
    server: Any
    amount: Any


@inner
def _lack(speed: Any, level: float, demand: Any, minimum: Any, each: Any, left: Any, lacking: Any) -> Any:
    """How many tasks of each role find no room (m,) on servers of at least this speed; how many roles lack some."""
    missing = 0
    for role in range(minimum.shape[0]):
        lacking[role] = minimum[role]
        for r in range(speed.shape[0]):
            if speed[r] >= level:
                lacking[role] -= room(demand, left, role, r, each[role])
        if lacking[role] > 0:
            missing += 1
    return missing


@compiled
def ends_later(
    speed: Any, demand: Any, minimum: Any, each: Any, free: Any, releases: Releases, work: float, beat: float
) -> float:
    """In how many seconds a gang would end if it waited for servers that are faster than `beat`, each at least.

    `speed` (R,) is how fast it runs on each server, 0 where it may not run or nobody knows. `demand` (m, K), `minimum`
    and `each` (m,) are those of its roles; every role is counted by itself. Infinity where it would never fit, and
    where it fits on such servers now: then nothing is to be waited for.
    """
    best = float("inf")
    left = free.copy()
    lacking = minimum.copy()
    level = float("inf")
    for r in range(speed.shape[0]):
        if speed[r] > beat and speed[r] < level:
            level = speed[r]
    if _lack(speed, level, demand, minimum, each, left, lacking) == 0:
        return best
    level = float("inf")
    while True:
        # the next lower speed: with each more servers count, and the wait is shorter but the run longer
        lower = beat
        for r in range(speed.shape[0]):
            if speed[r] < level and speed[r] > lower:
                lower = speed[r]
        if lower <= beat or work / lower >= best:
            return best
        level = lower
        left[:] = free
        _lack(speed, level, demand, minimum, each, left, lacking)
        for i in range(releases.time.shape[0]):
            r = releases.server[i]
            if speed[r] < level:
                continue
            if releases.time[i] + work / level >= best:
                break
            for role in range(minimum.shape[0]):
                if lacking[role] > 0:
                    lacking[role] += room(demand, left, role, r, each[role])
            for k in range(left.shape[1]):
                left[r, k] += releases.amount[i, k]
            missing = 0
            for role in range(minimum.shape[0]):
                if lacking[role] > 0:
                    lacking[role] -= room(demand, left, role, r, each[role])
                    if lacking[role] > 0:
                        missing += 1
            if missing == 0:
                best = releases.time[i] + work / level
                break
