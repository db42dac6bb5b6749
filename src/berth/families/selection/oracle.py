"""What could have been earned by one who knows the mean gains: the best expected reward of each slot."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from berth.families.selection.policies.index import solved
from berth.families.selection.problem import SelectionSlot
from berth.families.selection.world import SelectionWorld
from berth.regret import SlotOptima

__all__ = ["selection_optima"]


def selection_optima(
    world: SelectionWorld, gap: float = 1e-6, progress: Callable[[int], None] | None = None
) -> SlotOptima:
    """The best expected reward of every slot for one who knows the means: what regret is measured against.

    Slots with the same arrivals, free capacity and means are solved once. Where there are gangs `bound` is what no
    policy can exceed, and `reward` what the gang solver reached.
    """
    problem = world.problem
    none = np.zeros(len(problem.cost))
    known: dict[bytes, tuple[float, float]] = {}
    reward, bound = np.zeros(len(world)), np.zeros(len(world))
    for t, (means, _) in zip(range(len(world)), world.gains, strict=False):
        free, arrivals = world.free(t), world.arrivals[t]
        key = hashlib.blake2b(arrivals.tobytes() + free.tobytes() + means.tobytes()).digest()
        if key not in known:
            choice = solved(problem, SelectionSlot(t, free, arrivals), means - problem.cost, none, gap)
            known[key] = choice.value, choice.bound
        reward[t], bound[t] = known[key]
        if progress is not None:
            progress(t + 1)
    return SlotOptima(reward, bound)
