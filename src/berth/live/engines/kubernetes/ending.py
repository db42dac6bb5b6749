"""The fewest running pods whose end makes room for a gang.

Pods of daemon sets and static pods are no candidates: they would be back at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from berth.live.engines.kubernetes.cluster import Cluster
from berth.live.engines.kubernetes.fitting import Fitting
from berth.live.engines.kubernetes.pods import Pod
from berth.model import Ints

__all__ = ["fewest", "pods_to_end"]

STEPS = 2_000
"""The most steps of an exact search on one node; after that the answer is a small set, perhaps not the smallest."""
NODES = 256
"""The most nodes among which pods are chosen: those where the fewest ends make room for one pod."""


def pods_to_end(cluster: Cluster, fitting: Fitting) -> list[Pod] | None:
    """Pods to end so that the gang fits, as few as possible; None if even all of them would not help.

    For equal pods the number is the smallest. For pods of several kinds none of the chosen pods can be left out.
    """
    usable = np.flatnonzero(fitting.may.any(axis=0)).tolist()
    there = {r: [pod for pod in cluster.holding.get(fitting.nodes[r].name, ()) if not pod.stays] for r in usable}
    there = {r: pods for r, pods in there.items() if pods}
    everything = [(r, pod) for r, pods in there.items() for pod in pods]
    if not everything or not fitting.fits(free=_without(cluster, fitting, everything)):
        return None
    if len(fitting.roles) == 1:
        return _smallest(cluster, fitting, there)
    chosen = _irreducible(cluster, fitting, everything)
    return [pod for _, pod in chosen]


def _debt(cluster: Cluster, fitting: Fitting, r: int) -> Ints:
    """What the pods of a node request above what it has (K,): the first amounts that become free do not count."""
    name = fitting.nodes[r].name
    held = [pod.requests for pod in cluster.holding.get(name, ())]
    total = fitting.vector(cluster.taken.get(name, {})) + sum(map(fitting.vector, held))
    debt: Ints = np.maximum(total - fitting.capacity[r], 0)
    return debt


def _without(cluster: Cluster, fitting: Fitting, ended: Sequence[tuple[int, Pod]]) -> Ints:
    """What is free (R, K) when these pods have ended."""
    free = fitting.free.copy()
    for r in {r for r, _ in ended}:
        free[r] -= _debt(cluster, fitting, r)
    for r, pod in ended:
        free[r] += fitting.vector(pod.requests)
    left: Ints = np.clip(free, 0, fitting.capacity)
    return left


def _irreducible(cluster: Cluster, fitting: Fitting, everything: list[tuple[int, Pod]]) -> list[tuple[int, Pod]]:
    """A minimal set of pods: in each round the search tries without parts of it, half as large as before."""
    chosen, size = everything, len(everything)
    while size:
        for first in range(len(chosen) - size, -size, -size):
            rest = chosen[: max(first, 0)] + chosen[first + size :]
            if rest and fitting.fits(free=_without(cluster, fitting, rest)):
                chosen = rest
        size = 0 if size == 1 else (size + 1) // 2
    return chosen


# ---------------------------------------------------------------------------- equal pods


def _smallest(cluster: Cluster, fitting: Fitting, there: dict[int, list[Pod]]) -> list[Pod]:
    """The fewest pods for a gang of equal pods: for each node the cost of more room, then a knapsack over nodes."""
    role = fitting.roles[0]
    rooms = fitting.rooms()[0]
    missing = role.minimum - int(rooms.sum())
    demand = fitting.demand([role])[0]
    offers: list[tuple[int, dict[int, list[Pod]]]] = []
    for r, pods in there.items():
        offers.append((r, _offers(fitting, r, pods, demand, int(rooms[r]), missing, _debt(cluster, fitting, r), 1)))
    offers = sorted((offer for offer in offers if offer[1]), key=lambda offer: len(offer[1][min(offer[1])]))[:NODES]
    full = [
        _offers(fitting, r, there[r], demand, int(rooms[r]), missing, _debt(cluster, fitting, r)) for r, _ in offers
    ]
    best = np.full(missing + 1, len(cluster.pods) + 1, dtype=np.int64)  # fewest ends for 0, 1, … more pods
    best[0] = 0
    gains = []
    for mine in full:
        before, gained = best.copy(), np.zeros(missing + 1, dtype=np.int64)
        for gain, pods in mine.items():
            cost = before[np.maximum(np.arange(missing + 1) - gain, 0)] + len(pods)
            better = cost < best
            best[better], gained[better] = cost[better], gain
        gains.append(gained)
    chosen, total = list[Pod](), missing
    for mine, gained in zip(reversed(full), reversed(gains), strict=True):
        if gain := int(gained[total]):
            chosen += mine[gain]
            total = max(total - gain, 0)
    return chosen


def _offers(
    fitting: Fitting, r: int, pods: list[Pod], demand: Ints, room: int, missing: int, debt: Ints, most: int = 0
) -> dict[int, list[Pod]]:
    """The fewest pods of a node to end for 1, 2, … more pods of the gang; only up to `most`, if given."""
    found: dict[int, list[Pod]] = {}
    held = [fitting.vector(pod.requests) for pod in pods]
    limit = min(missing, fitting.roles[0].each - room, most or missing)
    for gain in range(1, limit + 1):
        if ((room + gain) * demand > fitting.capacity[r]).any():
            break
        need = (room + gain) * demand - fitting.free[r]
        lacking = np.flatnonzero(need > 0)
        rows = [tuple((row[lacking]).tolist()) for row in held]
        some = fewest(rows, tuple((need + debt)[lacking].tolist()))
        if some is None:
            break
        found[gain] = [pods[i] for i in some]
    return found


def fewest(rows: Sequence[tuple[int, ...]], need: tuple[int, ...]) -> list[int] | None:
    """The fewest rows whose sum is at least `need` in every column; None if all rows together are not.

    >>> fewest([(1, 0), (2, 2), (0, 3)], (2, 3))
    [1, 2]
    """
    columns = range(len(need))
    if any(sum(row[k] for row in rows) < need[k] for k in columns):
        return None
    order = sorted(range(len(rows)), key=lambda i: -max((rows[i][k] / need[k] for k in columns), default=0.0))
    useful = [i for i in order if any(rows[i][k] for k in columns)]
    steps = [0]
    for size in range(len(useful) + 1):
        found = _search(rows, useful, 0, size, list(need), steps)
        if found is not None:
            return found
        if steps[0] > STEPS:
            return _greedy(rows, useful, need)
    return None


def _search(
    rows: Sequence[tuple[int, ...]], order: list[int], start: int, size: int, need: list[int], steps: list[int]
) -> list[int] | None:
    """Rows from `start` on, `size` of them, that cover what is needed."""
    if all(much <= 0 for much in need):
        return []
    steps[0] += 1
    if not size or steps[0] > STEPS:
        return None
    for k, much in enumerate(need):  # the largest rows of each column alone must suffice
        if much > 0 and sum(sorted((rows[i][k] for i in order[start:]), reverse=True)[:size]) < much:
            return None
    for place in range(start, len(order)):
        row: Any = rows[order[place]]
        rest = _search(rows, order, place + 1, size - 1, [a - b for a, b in zip(need, row, strict=True)], steps)
        if rest is not None:
            return [order[place], *rest]
    return None


def _greedy(rows: Sequence[tuple[int, ...]], order: list[int], need: tuple[int, ...]) -> list[int]:
    """Rows that cover what is needed, of which none can be left out."""

    def covers(chosen: Sequence[int]) -> bool:
        return all(sum(rows[i][k] for i in chosen) >= much for k, much in enumerate(need))

    chosen = list(order)
    for i in reversed(order):
        rest = [one for one in chosen if one != i]
        if covers(rest):
            chosen = rest
    return chosen
