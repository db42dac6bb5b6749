"""berth's blind policy: learn the arrival rate of each port, and ascend the expected reward."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.families.allocation.policies.requests import no_gangs
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.families.allocation.programme import Programme
from berth.model import Floats

__all__ = ["ArrivalRates", "OGASchedRates"]


class ArrivalRates:
    """Arrival rate of each port, (J,), learned from outcomes; restarts when a rate has changed.

    The estimate is the mean since the last change. A second, short average runs beside it; if the two differ by more
    than chance allows (`alarm` standard deviations), that port's mean restarts from the short average.

    >>> rates = ArrivalRates(1)
    >>> for slot in range(400):
    ...     rates.observe(np.array([float(slot < 200)]))
    >>> bool(rates.mean[0] < 0.1)
    True
    """

    def __init__(self, jobs: int, memory: int = 20, alarm: float = 3.5) -> None:
        self.memory, self.alarm = memory, alarm
        self.mean = np.full(jobs, 0.5)
        self._weight = np.full(jobs, 2.0)  # slots behind the mean; two prior ones at the start
        self._recent = np.full(jobs, 0.5)
        self._seen = 0

    def observe(self, arrivals: Floats) -> None:
        """Add one slot's arrivals (J,), 0 or 1."""
        self._seen += 1
        self._weight += 1.0
        self.mean += (arrivals - self.mean) / self._weight
        self._recent += (arrivals - self._recent) / min(self._seen + 1.0, self.memory)
        # standard deviation of an exponential average of coin flips, at least that of a rare event
        chance = np.maximum(self.mean * (1.0 - self.mean), 1.0 / self.memory)
        changed = np.abs(self._recent - self.mean) > self.alarm * np.sqrt(chance / (2.0 * self.memory))
        changed &= self._weight > self.memory
        self.mean[changed] = self._recent[changed]
        self._weight[changed] = self.memory / 2.0


class OGASchedRates:
    """Ascent on the expected reward under learned arrival rates, a few steps per slot from a warm start.

    The reward is linear in the arrivals, so the expected reward of a reservation is the reward at the arrival rates. It
    does not use revealed arrivals, and follows rates that change.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> policy = OGASchedRates(problem)
    >>> policy.decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    family = "allocation"
    reference = "this documentation, page OGASched"

    def __init__(
        self, problem: AllocationProblem, rng: Any = None, *, iterations: int = 3, memory: int = 20, alarm: float = 3.5
    ) -> None:
        for key, value in (("iterations", iterations), ("memory", memory)):
            if value < 1:
                raise InvalidInput("at least 1", value=value, key=key)
        if not alarm > 0:
            raise InvalidInput("a number > 0", value=alarm, key="alarm")
        self.problem = no_gangs(problem, self)
        self.iterations = iterations
        self.rates = ArrivalRates(problem.jobs, memory, alarm)

    @cached_property
    def _programme(self) -> Programme:
        """Made at the first slot, because it takes time and memory."""
        return Programme(self.problem)

    def decide(self, slot: AllocationSlot, /) -> Floats:
        return self._programme.improve(self.rates.mean, self.iterations, slot.free)

    def observe(self, outcome: AllocationOutcome, /) -> None:
        self.rates.observe(outcome.arrivals)
