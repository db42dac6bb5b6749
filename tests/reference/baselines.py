"""Slow plain-Python twins of the papers' four baselines: lists and loops, nothing shared with the kernels.

A decision is a dictionary {(port, server, resource): amount}; `decision_array` turns it into (E, K).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from berth.model import Floats, Instance

Amounts = dict[tuple[int, int, int], float]


def decision_array(instance: Instance, amounts: Amounts) -> Floats:
    """The (E, K) array of a dictionary."""
    decision = np.zeros((len(instance.channel_port), instance.capacity.shape[1]))
    for e, (port, server) in enumerate(zip(instance.channel_port, instance.channel_server, strict=True)):
        for k in range(decision.shape[1]):
            decision[e, k] = amounts.get((int(port), int(server), k), 0.0)
    return decision


def _sizes(instance: Instance) -> tuple[range, range, range]:
    return range(len(instance.ports)), range(len(instance.cluster.servers)), range(len(instance.cluster.resources))


def _channels(instance: Instance) -> set[tuple[int, int]]:
    return {(int(p), int(r)) for p, r in zip(instance.channel_port, instance.channel_server, strict=True)}


def fairness(instance: Instance, free: Floats, present: Sequence[bool]) -> Amounts:
    """c·a_l / Σ a over the ports present at a server, at most what a port requests."""
    ports, servers, resources = _sizes(instance)
    channels = _channels(instance)
    amounts: Amounts = {}
    for server in servers:
        here = [port for port in ports if (port, server) in channels and present[port]]
        for k in resources:
            total = sum(float(instance.demand[port, k]) for port in here)
            for port in here:
                wish = float(instance.demand[port, k])
                if wish > 0:
                    amounts[port, server, k] = min(wish, float(free[server, k]) * wish / total)
    return amounts


def dominant_share(instance: Instance, port: int) -> float:
    """max_k a_l^k / Σ_r c_r^k over the servers that the port reaches."""
    _, servers, resources = _sizes(instance)
    channels = _channels(instance)
    shares = [0.0]
    for k in resources:
        wish = float(instance.demand[port, k])
        have = sum(float(instance.capacity[server, k]) for server in servers if (port, server) in channels)
        if wish > 0:
            shares.append(wish / have if have > 0 else float("inf"))
    return max(shares)


def drf(instance: Instance, free: Floats, present: Sequence[bool]) -> Amounts:
    """Ports by ascending dominant share, the first in the list first where equal, take what is left."""
    ports, servers, resources = _sizes(instance)
    channels = _channels(instance)
    left = {(server, k): float(free[server, k]) for server in servers for k in resources}
    amounts: Amounts = {}
    for port in sorted(ports, key=lambda p: dominant_share(instance, p)):
        if not present[port]:
            continue
        for server in servers:
            if (port, server) in channels:
                for k in resources:
                    amount = min(float(instance.demand[port, k]), left[server, k])
                    amounts[port, server, k] = amount
                    left[server, k] -= amount
    return amounts


def by_utilisation(
    instance: Instance, free: Floats, present: Sequence[bool], quota: float, fullest_first: bool
) -> Amounts:
    """BINPACKING (fullest first) and SPREADING (emptiest first): ports in turn, each up to its quota."""
    ports, servers, resources = _sizes(instance)
    channels = _channels(instance)
    left = {(server, k): float(free[server, k]) for server in servers for k in resources}
    amounts: Amounts = {}

    def utilisation(server: int) -> float:
        used = [1 - left[server, k] / float(free[server, k]) for k in resources if free[server, k] > 0]
        return sum(used) / len(used) if used else 0.0

    for port in ports:
        if not present[port]:
            continue
        reached = [server for server in servers if (port, server) in channels]
        rest = [quota * float(instance.demand[port, k]) * len(reached) for k in resources]
        for server in sorted(reached, key=lambda r: -utilisation(r) if fullest_first else utilisation(r)):
            for k in resources:
                amount = max(0.0, min(float(instance.demand[port, k]), left[server, k], rest[k]))
                amounts[port, server, k] = amount
                left[server, k] -= amount
                rest[k] -= amount
    return amounts
