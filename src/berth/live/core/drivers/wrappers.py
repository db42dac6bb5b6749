"""Wrappers of policies: what berth adds to a policy of the lab.

`Leveled` asks a policy level by level, `Gathering` keeps gangs on few servers, and `Deferring` lets jobs wait for
faster servers. A policy in wrappers is named like `Leveled(Deferring(Gathering(best-fit)))`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from berth.errors import InfeasibleDecision
from berth.live.core.drivers.base import Driver
from berth.live.core.drivers.gathering import gathered
from berth.live.core.records import Outcome
from berth.live.core.reservations import Reservations
from berth.live.core.view import Placing, View, placed_in_order, spread_out, violations
from berth.model import Ints

__all__ = ["IN_ORDER", "Deferring", "Gathering", "Leveled", "Wrapper", "in_order"]

LEVELS, IN_ORDER = 8, 64
"""The most levels that a policy, and a policy that decides in order of levels, is asked about one by one."""
AGAIN = 4
"""How often a policy is asked at most about one level, if jobs that it would start are deferred."""


class Wrapper(Driver):
    """A policy inside another one."""

    def __init__(self, policy: Driver) -> None:
        self.policy, self.waits = policy, policy.waits

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.policy})"

    def learn(self, outcome: Outcome, /) -> None:
        """Let the policy learn."""
        self.policy.learn(outcome)

    def warm(self) -> None:
        """Let the policy compile what it needs."""
        self.policy.warm()


class Gathering(Wrapper):
    """A policy whose gangs are gathered on the fewest servers that are as fast for them as those that it chose."""

    def propose(self, view: View, /) -> Placing:
        """Ask the policy, and move gangs."""
        placing = spread_out(view, self.policy.propose(view))
        return placing if violations(view, placing) else gathered(view, placing)


class Deferring(Wrapper):
    """A policy whose jobs wait for faster servers while that completes them earlier."""

    def propose(self, view: View, /) -> Placing:
        """Ask the policy; what deferred jobs leave is offered to the jobs behind them."""
        left, free, parts = np.arange(len(view.records)), view.free.copy(), list[Placing]()
        part = replace(view, free=free)
        for _ in range(AGAIN):
            placing = spread_out(part, self.policy.propose(part))
            if violations(part, placing):  # the check of the decision reports it
                return placing if not parts else Placing.joined(parts)
            placing, waiting = self.waits.divided(part, placing)
            _take(free, view, parts, left, placing, part)
            done = np.zeros(len(left), dtype=bool)
            done[placing.job] = done[waiting] = True
            if not len(waiting) or done.all() or view.enough():
                break
            left = left[~done]
            part = view.only(left, free)
        return Placing.joined(parts)


class Leveled(Wrapper):
    """A policy that is asked about one level after another, from the highest on."""

    def __init__(self, policy: Driver, most: int = LEVELS) -> None:
        super().__init__(policy)
        self._most = most

    def propose(self, view: View, /) -> Placing:
        """Ask the policy about each level, with what the levels above leave."""
        return level_by_level(view, self.policy.propose, self._most)


def level_by_level(view: View, propose: Callable[[View], Placing], most: int) -> Placing:
    """What starts of each level, from the highest on, with what the levels above leave.

    Where the first job of a level that does not start has no room, servers are reserved for it, on which it has room
    first. Jobs of lower levels may use them if they have ended by then almost surely. From the last of `most`
    questions on, all levels are decided together.
    """
    first = np.flatnonzero(np.diff(view.level, prepend=np.nan))[:most]
    if len(first) <= 1:
        return propose(view)
    free, parts, reservations = view.free.copy(), list[Placing](), Reservations(view)
    for begin, end in pairwise([*first.tolist(), len(view.records)]):
        chosen = np.arange(begin, end)
        part = reservations.respected(view.only(chosen, free))
        placing = spread_out(part, propose(part))
        if broken := violations(part, placing):
            raise InfeasibleDecision(str(broken[0]))
        _take(free, view, parts, chosen, placing, part)
        if end < len(view.records):
            reservations.starts(part, placing)
            waiting = np.setdiff1d(np.arange(len(chosen)), placing.job)
            if len(waiting):
                reservations.reserve(part, int(waiting[0]), free)
    return Placing.joined(parts)


def in_order(view: View) -> Placing:
    """What the fallback policy starts."""
    return level_by_level(view, placed_in_order, IN_ORDER)


def _take(free: Ints, view: View, parts: list[Placing], chosen: Ints, placing: Placing, part: View) -> None:
    """Add a placing of some jobs of a view to those of the others, and take its places."""
    np.subtract.at(free, placing.server, placing.count[:, None] * part.gangs.demand[placing.role])
    parts.append(view.whole(chosen, placing))
