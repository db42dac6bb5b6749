"""Notice drift: which memory predicts gains best.

Axes: E channels, M memories.
"""

from __future__ import annotations

import numpy as np

from berth.families.selection.policies.statistics import Statistics
from berth.families.selection.problem import SelectionOutcome

__all__ = ["DriftWatch"]

DISCOUNTS = (1.0, 0.998, 0.995)
DOUBT = 3.0  # by how much, in logarithms of likelihoods, a memory that forgets must be better
EVIDENCE = 0.999  # what is left of an error after one more observation: what counts are the last thousand


class DriftWatch:
    """Statistics of the same outcomes with several discounts, M of them; `best` are those that predicted gains best.

    Before an outcome is learned, each memory says what it expects: the mean that it has of a channel, with the variance
    of one gain and that of its mean. What counts is how likely the gains were in its eyes.

    >>> watch = DriftWatch(1)
    >>> for slot in range(400):
    ...     watch.advance(slot)
    ...     gain = np.array([0.8 if slot < 300 else 0.2])
    ...     watch.learn(SelectionOutcome(slot, np.array([0]), np.array([1]), gain, 0.0))
    ...     if slot in (299, 399):
    ...         print(watch.best.discount)
    1.0
    0.995
    """

    def __init__(self, channels: int, scale: float = 1.0) -> None:
        self.memories = [Statistics(channels, discount) for discount in DISCOUNTS]
        self.best = self.memories[0]
        self._usual = (0.25 * scale) ** 2
        self._error = np.zeros(len(DISCOUNTS))

    def advance(self, slot: int) -> None:
        """Let time pass until this slot."""
        for memory in self.memories:
            memory.advance(slot)

    def learn(self, outcome: SelectionOutcome) -> None:
        """Take an outcome in, and say anew which memory is best."""
        self._judge(outcome)
        for memory in self.memories:
            memory.learn(outcome)

    def _judge(self, outcome: SelectionOutcome) -> None:
        count = np.array([memory.count[outcome.channels] for memory in self.memories])
        known = count.min(axis=0, initial=np.inf) >= 1.0
        if not known.any():
            return
        channels, tasks = outcome.channels[known], outcome.tasks[known]
        mean = np.array([memory.mean[channels] for memory in self.memories])
        noise = self.best.variance(self._usual, 5.0)[channels]
        wide = 1.0 / tasks + 1.0 / count[:, known]
        away = outcome.gains[known] / tasks - mean
        error = 0.5 * (np.log(wide) + away**2 / np.maximum(noise * wide, 1e-300)).sum(axis=1)
        self._error = self._error * EVIDENCE ** len(channels) + error
        self.best = self.memories[int(np.argmin(self._error + DOUBT * (np.array(DISCOUNTS) < 1.0)))]
