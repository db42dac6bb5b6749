"""Use of a server over time, as a step function: of what has berths there, now and later."""

from __future__ import annotations

import numpy as np

from berth.capacity import TOLERANCE
from berth.model import Floats

__all__ = ["earliest_start", "usage"]


def usage(now: float, start: Floats, end: Floats, demand: Floats) -> tuple[Floats, Floats]:
    """Moments (m,) from `now` on, and what berths hold of each resource from each of them to the next (m, K).

    >>> usage(1.0, np.array([0.0, 2.0]), np.array([2.0, 3.0]), np.array([[4.0], [1.0]]))[1].tolist()
    [[4.0], [1.0], [0.0]]
    """
    here = end > now
    began, over, holds = np.maximum(start[here], now), end[here], demand[here]
    moments = np.unique(np.concatenate([[now], began, over]))
    change = np.zeros((len(moments), demand.shape[1]))
    np.add.at(change, np.searchsorted(moments, began), holds)
    np.subtract.at(change, np.searchsorted(moments, over), holds)
    return moments, np.cumsum(change, axis=0)


def earliest_start(now: float, length: float, asked: Floats, capacity: Floats, berths: tuple[Floats, ...]) -> float:
    """The earliest time from which `asked` (K,) fits for `length` beside berths (start, end, demand); inf for never."""
    room = capacity + TOLERANCE * (1.0 + capacity)
    if (asked > room).any():
        return np.inf
    moments, used = usage(now, *berths)
    full = np.flatnonzero((used + asked > room).any(axis=1))
    # room may begin now, or where a moment without room ends; it lasts until the next one without
    first = np.concatenate([[0], full + 1])
    last = np.concatenate([moments[full], [np.inf]])
    starts = moments[first]
    return float(starts[np.argmax(last >= starts + length)])
