"""Plain schedulers, written plainly: jobs of one role, in order; each starts if it fits."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["started"]

Places = dict[int, int]


def started(
    rule: str, free: Sequence[int], group: Sequence[int], jobs: Sequence[tuple[int, int, set[int]]]
) -> list[Places | None]:
    """Where each job starts: servers and tasks, None where it waits. A job is its tasks, what each takes, its reach."""
    left, found = list(free), list[Places | None]()
    for tasks, each, reach in jobs:
        places = _places(rule, left, group, tasks, each, reach)
        found.append(places)
        for server, count in (places or {}).items():
            left[server] -= count * each
    return found


def _places(rule: str, free: list[int], group: Sequence[int], tasks: int, each: int, reach: set[int]) -> Places | None:
    left = list(free)
    there = [r for r in range(len(left)) if r in reach]
    whole = [r for r in there if left[r] // each >= tasks]
    enough = [r for r in range(len(left)) if sum(left[s] // each for s in there if group[s] == group[r]) >= tasks]
    if not whole and not enough:
        return None
    chosen = group[whole[0]] if whole else group[enough[0]]
    there = [r for r in there if group[r] == chosen]
    places: Places = {}
    while tasks:
        open_ = [r for r in there if left[r] >= each]
        together = [r for r in open_ if left[r] // each >= tasks]
        if rule in ("kubernetes", "ray"):
            server = max(open_, key=lambda r: left[r])
            count = 1 if rule == "kubernetes" else min(left[server] // each, tasks)
        elif together:
            server, count = (together[0] if rule == "slurm" else min(together, key=lambda r: left[r])), tasks
        else:
            server = open_[0] if rule == "slurm" else max(open_, key=lambda r: left[r] // each)
            count = left[server] // each
        places[server] = places.get(server, 0) + count
        left[server] -= count * each
        tasks -= count
    return places
