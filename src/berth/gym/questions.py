"""Questions that an agent answers, shared by the environments and by policies that ask an agent.

A slot is a sequence of questions. Each is an observation and a mask of possible actions; the answers make the decision.
An environment passes the questions to the caller of `step`, a policy to a trained agent. So an agent sees the same in
training and in a comparison.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

__all__ = ["Asking", "Mask", "Observation", "Questions", "part", "signed"]

Observation = NDArray[np.float32]
Mask = NDArray[np.int8]
Asking = Generator[tuple[Observation, Mask], Any, Any]
"""Yields questions, receives actions, and returns the decision."""


class Questions(ABC):
    """The questions of one kind of problem, and what is remembered between slots.

    `features` names the numbers of an observation. Their number does not depend on the size of a problem, so an agent
    can serve clusters that it was not trained on.
    """

    family: ClassVar[str]

    features: tuple[str, ...]
    action_space: spaces.Space[Any]
    observation_space: spaces.Box
    credited: float = 0.0
    """Rewards of answers that are known before their slot is played, in total."""

    @abstractmethod
    def __init__(self, problem: Any) -> None:
        """Refuse a problem that cannot be asked about with `UnsupportedProblem`."""

    @abstractmethod
    def ask(self, slot: Any) -> Asking:
        """Ask about this slot; an impossible action counts as a possible one."""

    def observe(self, outcome: Any) -> None:
        """Learn from an outcome, which may come late, twice or never; by default nothing."""
        return None


def part(amount: float, typical: float) -> float:
    """Map a number ≥ 0 to [0, 1); the typical value maps to a half.

    >>> part(3.0, 3.0), part(0.0, 3.0)
    (0.5, 0.0)
    """
    return amount / (amount + typical) if amount > 0 else 0.0


def signed(amount: float, typical: float) -> float:
    """Map any number to (−1, 1); plus or minus the typical value maps to a half.

    >>> signed(-2.0, 2.0)
    -0.5
    """
    return amount / (abs(amount) + typical) if amount else 0.0
