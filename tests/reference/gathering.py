"""Where the pieces of waiting tasks go, written plainly: dictionaries and loops, no code shared with the package.

A cluster is a list of servers, each with amounts of resources and, where `device` names one, a list of devices. Whole
numbers and quarters are meant: then all sums are exact.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class Server:
    """What is free; `devices` are the shares left of each."""

    amount: list[float]
    devices: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Task:
    demand: tuple[float, ...]
    pieces: int = 1
    work: float = 1.0
    servers: frozenset[int] = frozenset()
    """Those that it may use."""


@dataclass(frozen=True)
class Kind:
    """A kind of task that was seen, and how often."""

    demand: tuple[float, ...]
    servers: frozenset[int]
    count: int


def put(server: Server, demand: tuple[float, ...], device: int | None) -> bool:
    """One piece on a server, if there is room: a share on the fullest device that has it, or whole devices."""
    if any(need > there for need, there in zip(demand, server.amount, strict=True)):
        return False
    if device is not None and demand[device] > 0:
        share = demand[device]
        if share < 1:
            able = [g for g, left in enumerate(server.devices) if left >= share]
            if not able:
                return False
            server.devices[min(able, key=lambda g: (server.devices[g], g))] -= share
        else:
            whole = [g for g, left in enumerate(server.devices) if left == 1]
            if len(whole) < share:
                return False
            for g in whole[: int(share)]:
                server.devices[g] = 0.0
    server.amount = [there - need for need, there in zip(demand, server.amount, strict=True)]
    return True


def room(server: Server, demand: tuple[float, ...], device: int | None, most: int) -> int:
    """How many pieces there is room for, by trying."""
    tried, count = copy.deepcopy(server), 0
    while count < most and put(tried, demand, device):
        count += 1
    return count


def fragments(server: Server, r: int, kinds: list[Kind], device: int) -> Fraction:
    """The free devices of server r that a task drawn from the kinds cannot use, expected."""
    total = sum(Fraction(left) for left in server.devices)
    lost, seen = Fraction(0), sum(kind.count for kind in kinds)
    for kind in kinds:
        share = kind.demand[device]
        if share == 0 or r not in kind.servers or not put(copy.deepcopy(server), kind.demand, device):
            lost += kind.count * total
        else:
            useless = [left for left in server.devices if left < min(share, 1)]
            lost += kind.count * sum(Fraction(left) for left in useless)
    return lost / seen if seen else Fraction(0)


def cost(
    rule: str, servers: list[Server], r: int, task: Task, most: list[float], kinds: list[Kind], device: int | None
) -> Fraction:
    """How good server r is for a piece; lower is better."""
    shares = [
        (Fraction(need) / Fraction(top), Fraction(there) / Fraction(top))
        for need, there, top in zip(task.demand, servers[r].amount, most, strict=True)
        if top > 0
    ]
    if rule == "best":
        return sum((there - need for need, there in shares), Fraction(0))
    if rule == "worst":
        return sum((need - there for need, there in shares), Fraction(0))
    if rule == "aligned":
        return -sum((need * there for need, there in shares), Fraction(0))
    if rule == "whole" and device is not None:
        after = copy.deepcopy(servers[r])
        put(after, task.demand, device)
        return fragments(after, r, kinds, device) - fragments(servers[r], r, kinds, device)
    return Fraction(0)


def gathered(
    rule: str, servers: list[Server], task: Task, most: list[float], kinds: list[Kind], device: int | None
) -> list[int] | None:
    """The server of each piece, best server first, each filled before the next; None where they do not fit."""
    left = {r: room(servers[r], task.demand, device, task.pieces) for r in sorted(task.servers)}
    if sum(left.values()) < task.pieces:
        return None
    order = sorted(
        (r for r in left if left[r] > 0), key=lambda r: (cost(rule, servers, r, task, most, kinds, device), r)
    )
    chosen: list[int] = []
    for r in order:
        chosen += [r] * min(left[r], task.pieces - len(chosen))
    return chosen


def started(
    rule: str,
    servers: list[Server],
    tasks: list[Task],
    most: list[float],
    kinds: list[Kind] | None = None,
    device: int | None = None,
) -> dict[int, list[int]]:
    """Everybody who fits starts, in order: the servers of each. `servers` are changed."""
    found: dict[int, list[int]] = {}
    for i, task in enumerate(tasks):
        chosen = gathered(rule, servers, task, most, kinds or [], device)
        if chosen is not None:
            found[i] = chosen
            for r in chosen:
                assert put(servers[r], task.demand, device)
    return found


def packed(servers: list[Server], tasks: list[Task], most: list[float], hurry: float = 1.0) -> dict[int, list[int]]:
    """Tetris: again and again the task whose best alignment less its work, both relative to their means, is largest.

    Means are over tasks of which at least one piece fits at the beginning. A task that is chosen and does not fit as a
    whole is not asked again.
    """

    def best(task: Task) -> Fraction | None:
        able = [r for r in sorted(task.servers) if room(servers[r], task.demand, None, 1)]
        return max((-cost("aligned", servers, r, task, most, [], None) for r in able), default=None)

    first = {i: value for i, task in enumerate(tasks) if (value := best(task)) is not None}
    if not first:
        return {}
    mean = sum(first.values(), Fraction(0)) / len(first)
    length = sum((Fraction(tasks[i].work) for i in first), Fraction(0)) / len(first)
    left, found = set(first), {}
    while left:
        able = {i: product for i in left if (product := best(tasks[i])) is not None}
        left = set(able)
        if not left:
            break
        gain = {
            i: (able[i] / mean if mean else Fraction(0)) - Fraction(hurry) * Fraction(tasks[i].work) / length
            for i in left
        }
        chosen = max(sorted(left), key=lambda i: gain[i])
        left.remove(chosen)
        places = gathered("aligned", servers, tasks[chosen], most, [], None)
        if places is not None:
            found[chosen] = places
            for r in places:
                assert put(servers[r], tasks[chosen].demand, None)
    return found
