"""Arrivals and outages, shared by the worlds of all families.

Axes: T slots, L ports, J jobs, G pools (servers, or the whole cluster), K resources.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from berth.errors import InvalidInput
from berth.model import Floats

__all__ = ["bernoulli_arrivals", "counted_arrivals", "given_arrivals", "given_up", "what_is_up"]


def given_arrivals(arrivals: ArrayLike, jobs: int) -> Floats:
    """Validate arrivals (T, J) of 0 and 1; the result is read-only."""
    given = np.array(arrivals, dtype=np.float64)
    if given.ndim != 2 or given.shape[1] != jobs:
        raise InvalidInput(f"arrivals (T, {jobs})", value=given.shape, key="arrivals")
    if not np.isin(given, (0.0, 1.0)).all():
        raise InvalidInput("0 or 1 for each slot and job", key="arrivals")
    given.setflags(write=False)
    return given


def given_up(up: ArrayLike | None, slots: int, pools: int) -> NDArray[np.bool_] | None:
    """Validate which pools are up in each slot, (T, G); read-only, None if all always are."""
    if up is None:
        return None
    given = np.array(up, dtype=bool)
    if given.shape != (slots, pools):
        raise InvalidInput(f"up ({slots}, {pools}), a flag for each slot and server", value=given.shape, key="up")
    given.setflags(write=False)
    return given


def what_is_up(capacity: Floats, up: NDArray[np.bool_] | None, index: int) -> Floats:
    """Capacities (G, K) of this slot, 0 for pools that are down."""
    if up is None or up[index].all():
        return capacity
    free: Floats = capacity * up[index][:, None]
    free.setflags(write=False)
    return free


def bernoulli_arrivals(rng: np.random.Generator, slots: int, probability: ArrayLike) -> Floats:
    """Draw a job at each port with its probability (L,), independently each slot; (T, L)."""
    rates = np.asarray(probability, dtype=np.float64)
    return (rng.random((slots, len(rates))) < rates).astype(np.float64)


def counted_arrivals(counts: NDArray[np.int64], most: ArrayLike) -> Floats:
    """Convert job counts (T, L) to one 0/1 column for each job of `replicate_ports(instance, most)`, (T, J).

    >>> counted_arrivals(np.array([[2, 0], [1, 1]]), [2, 1])
    array([[1., 1., 0.],
           [1., 0., 1.]])
    """
    limits = np.asarray(most, dtype=np.int64)
    port = np.repeat(np.arange(len(limits)), limits)
    copy = np.concatenate([np.arange(1, n + 1) for n in limits])
    return (counts[:, port] >= copy).astype(np.float64)
