"""Wrappers of policies: what berth adds to a policy of the lab.

`Leveled` asks a policy level by level, `Gathering` keeps gangs on few servers, and `Deferring` lets jobs wait for
faster servers. A policy in wrappers is named like `Leveled(Deferring(Gathering(best-fit)))`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from berth.errors import InfeasibleDecision
from berth.live.core.drivers.base import Driver
from berth.live.core.drivers.gathering import gathered
from berth.live.core.records import Outcome
from berth.live.core.reservations import level_by_level, take
from berth.live.core.view import Placing, View, spread_out, violations

__all__ = ["Deferring", "Gathering", "Leveled", "Wrapper"]

LEVELS = 8
"""The most levels that a policy is asked about one by one."""
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
            take(free, view, parts, left, placing, part)
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
        if (view.level == view.level[:1]).all():
            return self.policy.propose(view)
        return level_by_level(view, self._checked, self._most)

    def _checked(self, part: View) -> Placing:
        """What the policy decides about a part of the view, which the next part has to get along with."""
        placing = spread_out(part, self.policy.propose(part))
        if broken := violations(part, placing):
            raise InfeasibleDecision(str(broken[0]))
        return placing
