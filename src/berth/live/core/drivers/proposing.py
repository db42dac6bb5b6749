"""Proposed starts of a policy: level by level, gangs gathered, and without deferred jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from berth.errors import InfeasibleDecision
from berth.live.core.drivers import Driver
from berth.live.core.drivers.gathering import gathered
from berth.live.core.view import Placing, View, spread_out, violations
from berth.model import Ints

__all__ = ["proposed"]

LEVELS = 8
"""The first levels are decided one by one; from the last of these on, all levels are decided together."""
AGAIN = 4
"""How often a policy is asked at most about one level, if jobs that it would start are deferred."""


def proposed(driver: Driver, view: View) -> Placing:
    """What a policy starts, level by level from the highest; the lowest are decided together."""
    view = driver.waits.begin(view)
    levels = np.unique(view.level)[::-1]
    if len(levels) <= 1:
        return _started(driver, view)
    merged = np.maximum(view.level, levels[min(len(levels), LEVELS) - 1])
    free, parts = view.free.copy(), list[Placing]()
    for level in levels[:LEVELS]:
        together = np.flatnonzero(merged == level)
        chosen = together[np.argsort([view.records[i].number for i in together.tolist()], kind="stable")]
        part = view.only(chosen, free)
        placing = _started(driver, part)
        if broken := violations(part, placing):
            raise InfeasibleDecision(str(broken[0]))
        _take(free, view, parts, chosen, placing, part)
    return Placing.joined(parts)


def _started(driver: Driver, view: View) -> Placing:
    """What a policy starts at one level; what deferred jobs leave is offered to the jobs behind them."""
    if driver.decides:
        return spread_out(view, driver.propose(view))
    left, free, parts = np.arange(len(view.records)), view.free.copy(), list[Placing]()
    part = replace(view, free=free)
    for _ in range(AGAIN):
        placing = spread_out(part, driver.propose(part))
        if violations(part, placing):  # the check of the decision reports it
            return placing if not parts else Placing.joined(parts)
        if driver.gathers:
            placing = gathered(part, placing)
        placing, waiting = driver.waits.divided(part, placing)
        _take(free, view, parts, left, placing, part)
        done = np.zeros(len(left), dtype=bool)
        done[placing.job] = done[waiting] = True
        if not len(waiting) or done.all() or view.enough():
            break
        left = left[~done]
        part = view.only(left, free)
    return Placing.joined(parts)


def _take(free: Ints, view: View, parts: list[Placing], chosen: Ints, placing: Placing, part: View) -> None:
    """Add a placing of some jobs of a view to those of the others, and take its places."""
    np.subtract.at(free, placing.server, placing.count[:, None] * part.gangs.demand[placing.role])
    parts.append(view.whole(chosen, placing))
