"""Statistics of each channel: number of tasks, mean gain and its variance.

Axes: E channels.
"""

from __future__ import annotations

import math

import numpy as np

from berth.errors import InvalidInput
from berth.families.selection.kernels.reservation import SEEN
from berth.families.selection.problem import SelectionOutcome
from berth.model import Floats, Ints

__all__ = ["Statistics", "check_at_least"]


def check_at_least(value: object, key: str, low: float = 0.0, *, above: bool = False) -> float:
    """Return the value, or refuse it if it is not a finite number ≥ (or, with `above`, >) `low`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidInput(f"a number {'>' if above else '≥'} {low:g}", value=value, key=key)
    if value < low or (above and value == low):
        raise InvalidInput(f"a number {'>' if above else '≥'} {low:g}", value=value, key=key)
    return float(value)


class Statistics:
    """Observations of each channel: weight of the tasks `count`, their `mean` gain, and its variance.

    Outcomes may come late, twice, in any order or never: each counts for its own slot. With `discount` γ an outcome a
    slots old weighs γᵃ; with `window` those of the last `window` slots weigh 1 and others 0.

    A sum of n gains informs the mean as much as n single gains, but the variance only as much as one.

    >>> seen = Statistics(2)
    >>> seen.learn(SelectionOutcome(0, np.array([1]), np.array([2]), np.array([1.0]), 1.0))
    >>> seen.count, seen.mean
    (array([0., 2.]), array([0. , 0.5]))
    """

    def __init__(self, channels: int, discount: float = 1.0, window: int | None = None) -> None:
        if not check_at_least(discount, "discount", above=True) <= 1.0:
            raise InvalidInput("a number in (0, 1]", value=discount, key="discount")
        if window is not None and (int(check_at_least(window, "window", 1.0)) != window):
            raise InvalidInput("a whole number ≥ 1, or none", value=window, key="window")
        if window is not None and discount < 1.0:
            raise InvalidInput("either a discount or a window, not both", value=(discount, window), key="window")
        self.discount, self.window = float(discount), window
        self.count = np.zeros(channels)
        self.mean = np.zeros(channels)
        self.squares = np.zeros(channels)
        """Σ weight·(gain of a task − mean)²."""
        self.pulls = np.zeros(channels)
        """Weight of the outcomes, independent of their numbers of tasks."""
        self._now = 0
        self._kept: dict[int, list[tuple[Ints, Floats, Floats]]] = {}

    def advance(self, slot: int) -> None:
        """Advance time to this slot."""
        passed = slot - self._now
        if passed <= 0:
            return
        self._now = slot
        if self.discount < 1.0:
            fade = self.fade(passed)
            self.count *= fade
            self.squares *= fade
            self.pulls *= fade
        if self.window is not None:
            for old in [kept for kept in self._kept if kept <= slot - self.window]:
                for channels, tasks, each in self._kept.pop(old):
                    self._forget(channels, tasks, each)

    def fade(self, slots: int) -> float:
        """Remaining share of a weight after this many slots; a window counts as an even decay."""
        kept = self.discount if self.window is None else 1.0 - 1.0 / self.window
        return math.pow(kept, slots)

    @property
    def now(self) -> int:
        """Slot up to which time has advanced."""
        return self._now

    @property
    def forgets(self) -> bool:
        """Whether old observations count less."""
        return self.discount < 1.0 or self.window is not None

    @property
    def time(self) -> float:
        """Number of slots behind the statistics: all of them, or as many as the discount or window leaves."""
        slots = self._now + 1.0
        if self.discount < 1.0:
            return (1.0 - math.pow(self.discount, slots)) / (1.0 - self.discount)
        return slots if self.window is None else min(slots, float(self.window))

    @property
    def unseen(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Channels (E,) without observations."""
        return self.count < SEEN

    @property
    def tried(self) -> Floats:
        """`count`, but 1 for channels without observations: the divisor, (E,)."""
        return np.where(self.unseen, 1.0, self.count)

    def variance(self, prior: float, weight: float = 1.0) -> Floats:
        """Variance of the gain of one task, (E,): the observed one, with `weight` observations of variance `prior`."""
        degrees = np.maximum(self.pulls - 1.0, 0.0)
        return (self.squares + weight * prior) / (degrees + weight)

    def learn(self, outcome: SelectionOutcome) -> None:
        """Add an outcome."""
        age = self._now - outcome.slot
        if not len(outcome.channels) or (self.window is not None and age >= self.window):
            return
        channels = np.array(outcome.channels)
        tasks = np.array(outcome.tasks, dtype=np.float64)
        each = outcome.gains / tasks
        weight = self.discount ** max(age, 0)
        tasks *= weight
        total = self.count[channels] + tasks
        shift = each - self.mean[channels]
        self.mean[channels] += shift * tasks / total
        self.squares[channels] += tasks * shift * (each - self.mean[channels])
        self.count[channels] = total
        self.pulls[channels] += weight
        if self.window is not None:
            self._kept.setdefault(outcome.slot, []).append((channels, tasks, each))

    def _forget(self, channels: Ints, tasks: Floats, each: Floats) -> None:
        left = self.count[channels] - tasks  # whole numbers: exact
        mean = self.mean[channels]
        with np.errstate(divide="ignore", invalid="ignore"):
            before = np.where(left > 0, mean - (each - mean) * tasks / left, 0.0)
        squares = self.squares[channels] - tasks * (each - before) * (each - mean)
        self.count[channels], self.mean[channels] = left, before
        self.squares[channels] = np.where(left > 0, np.maximum(squares, 0.0), 0.0)
        self.pulls[channels] -= 1.0
