"""Oracles: the best stationary decision and the best decision of each slot.

For problems with gangs, both ignore the all-or-nothing constraint and are upper bounds.

Axes: T slots, J jobs, R servers, K resources, E channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from berth.errors import UnsupportedProblem
from berth.families.allocation.programme import Programme
from berth.families.allocation.world import AllocationWorld
from berth.model import Floats
from berth.regret import SlotOptima

__all__ = ["Stationary", "best_stationary", "slot_optima"]


@dataclass(frozen=True, eq=False)
class Stationary:
    """y*: the one decision (E, K) that is best for the whole run, and its reward in each slot, (T,).

    `bound` is a certified upper bound on the total reward of any stationary decision.
    """

    decision: Floats
    reward: Floats
    bound: float


def best_stationary(world: AllocationWorld, gap: float = 1e-5) -> Stationary:
    """Compute the best stationary decision in hindsight, to `gap` (relative; `bound` certifies it).

    The reward is linear in the arrivals, so y* is the optimum of one programme whose weights are the number of jobs at
    each port.
    """
    if world.up is not None and not world.up.all():
        raise UnsupportedProblem("no decision is feasible in every slot while servers come and go")
    problem = world.problem
    rates = world.arrivals.mean(axis=0)
    solution = Programme(problem).solve(rates, gap)
    reward = np.empty(len(world))
    for t, arrivals in enumerate(world.arrivals):
        gain, overhead = problem.reward(arrivals, solution.decision)
        reward[t] = gain - overhead
    return Stationary(solution.decision, reward, solution.bound * len(world))


def slot_optima(world: AllocationWorld, gap: float = 1e-5, progress: Callable[[int], None] | None = None) -> SlotOptima:
    """Compute the optimum of every slot, to `gap` (relative; `bound` certifies it). Equal slots are solved once."""
    programme = Programme(world.problem)
    known: dict[bytes, tuple[float, float]] = {}
    reward, bound = np.empty(len(world)), np.empty(len(world))
    for t, arrivals in enumerate(world.arrivals):
        key = np.packbits(arrivals > 0).tobytes()
        if world.up is not None:
            key += np.packbits(world.up[t]).tobytes()
        if key not in known:
            solution = programme.solve(arrivals, gap, world.free(t))
            known[key] = solution.value, solution.bound
        reward[t], bound[t] = known[key]
        if progress is not None:
            progress(t + 1)
    return SlotOptima(reward, bound)
