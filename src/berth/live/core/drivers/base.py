"""The interface through which the dispatcher uses a policy."""

from __future__ import annotations

import math
from typing import Protocol

from berth.live.core.drivers.deferral import Waits
from berth.live.core.records import Outcome
from berth.live.core.view import Placing, View, spread_out

__all__ = ["Driver", "proposed"]


class Driver(Protocol):
    """A policy as it decides for a live cluster."""

    waits: Waits
    """When running jobs release what they hold, and what they tell of speeds."""
    interrupts: bool = False
    """Whether it may interrupt running jobs."""
    next_look: float = math.inf
    """When to ask it again if nothing happens until then."""

    def propose(self, view: View, /) -> Placing:
        """Which jobs of the view start now, and where."""
        ...

    def learn(self, outcome: Outcome, /) -> None:
        """Learn from the end of a job."""
        ...

    def warm(self) -> None:
        """Compile what made-up decisions do not reach."""
        return None


def proposed(driver: Driver, view: View) -> Placing:
    """What a policy decides about a view: it begins with the speeds that running jobs suggest."""
    begun = driver.waits.begin(view)
    return spread_out(begun, driver.propose(begun))
