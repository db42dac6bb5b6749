"""What could have been earned: the best stationary decision and the best decision of each slot.

Axes: T slots, J jobs, R servers, K resources, E channels.
"""

from __future__ import annotations

from dataclasses import dataclass

from berth.model import Floats
from berth.worlds.allocation import AllocationWorld

__all__ = ["SlotOptima", "Stationary", "best_stationary", "slot_optima"]


@dataclass(frozen=True, eq=False)
class Stationary:
    """y*: the one decision (E, K) that is best for the whole run, and its reward in each slot, (T,).

    `bound` is a certified upper bound on what any stationary decision can earn in total.
    """

    decision: Floats
    reward: Floats
    bound: float


@dataclass(frozen=True, eq=False)
class SlotOptima:
    """The best reward of each slot (T,) when its arrivals are known, and a certified upper bound on it."""

    reward: Floats
    bound: Floats


def best_stationary(world: AllocationWorld, gap: float = 1e-5) -> Stationary:
    raise RuntimeError("being written")


def slot_optima(world: AllocationWorld, gap: float = 2e-4) -> SlotOptima:
    raise RuntimeError("being written")
