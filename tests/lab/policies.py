"""Policies that misbehave, for tests of what a comparison makes of them."""

from __future__ import annotations

import os
import time
from typing import Any

from berth.errors import UnsupportedProblem
from berth.families.allocation.policies.baselines import Fairness
from berth.families.allocation.problem import AllocationProblem, AllocationSlot
from berth.model import Floats


class Cheat(Fairness):
    """Gives out half as much again as there is."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return super().decide(slot) * 1.5


class Fails(Fairness):
    """Raises in its third slot, but only where arrivals are hidden."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        if slot.index == 2 and slot.arrivals is None:
            raise ValueError("<script>boom</script>\nsecond line")
        return super().decide(slot)


class Dies(Fairness):
    """Takes its whole process down."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        if slot.index == 2:
            os._exit(3)
        return super().decide(slot)


class DiesAtOnce(Fairness):
    """Takes its whole process down in its first slot, and so when it is only to be compiled."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        os._exit(3)


class Slow(Fairness):
    """Takes its time."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        time.sleep(0.03)
        return super().decide(slot)


class Held(Fairness):
    """Decides nothing while BERTH_TEST_HELD names its number of servers: such a run cannot end before it is killed."""

    def decide(self, slot: AllocationSlot, /) -> Floats:
        while os.environ.get("BERTH_TEST_HELD") == str(len(slot.free)):
            time.sleep(0.02)
        return super().decide(slot)


class Seeing(Fairness):
    """Needs to see the arrivals."""

    def __init__(self, problem: AllocationProblem, rng: Any = None) -> None:
        if not problem.arrivals_known:
            raise UnsupportedProblem("Seeing needs arrivals revealed before the decision")
        super().__init__(problem, rng)
