"""Build a world of the allocation family from settings and a seed.

Axes: T slots, J job types, L ports (components or copies of job types), R servers, K resources.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from berth.families.allocation.problem import AllocationProblem, Gang
from berth.families.allocation.scenario.checks import resource_names
from berth.families.allocation.scenario.settings import AllocationSettings, DrawnCluster, DrawnPorts
from berth.families.allocation.utility import Utilities
from berth.families.allocation.world import AllocationWorld
from berth.families.arrivals import counted_arrivals
from berth.model import Cluster, Floats, Instance, JobType, replicate_ports
from berth.scenario.drawing import (
    RESOURCES,
    draw_arrivals,
    draw_channel_list,
    draw_channels,
    draw_demands,
    draw_outages,
    draw_servers,
    given_cluster,
    reach_named,
    uniforms,
)
from berth.scenario.settings import FromWorkload, Poisson

__all__ = ["build_allocation"]


@dataclass
class _Kind:
    """A job type being built: the request of each component; most types have one component."""

    name: str
    demands: list[Floats]
    components: list[str] = field(default_factory=list)
    minimum: int = 0
    """0: not a gang, any amounts are allowed."""
    servers: list[str] | None = None
    """Names of servers or groups; None if channels are drawn."""
    probability: float | None = None


def build_allocation(settings: AllocationSettings, horizon: int, seed: int, arrivals_known: bool) -> AllocationWorld:
    """Build the world of this seed; the draws do not depend on `arrivals_known`."""
    cluster = _cluster(settings, seed)
    kinds = _kinds(settings, seed)
    gang = None
    if any(kind.minimum for kind in kinds) or settings.gangs is not None:
        job_of_port = np.repeat(np.arange(len(kinds)), [len(kind.demands) for kind in kinds])
        share = 0.5 if settings.gangs is None else settings.gangs.share
        gang = Gang(job_of_port, np.array([kind.minimum for kind in kinds]), share)
    ports = [JobType(n, d) for kind in kinds for n, d in zip(_port_names(kind), kind.demands, strict=True)]
    of_port = np.repeat(np.arange(len(kinds)), [len(kind.demands) for kind in kinds])
    instance = Instance(cluster, tuple(ports), _channels(settings, kinds, of_port, cluster, seed))
    if isinstance(settings.arrivals, FromWorkload):
        from berth.scenario.workload import planned  # imports the trace readers, which few scenarios need

        arrivals = planned(settings.workload).arrivals([kind.name for kind in kinds], horizon, seed)
    else:
        arrivals = draw_arrivals(settings.arrivals, [kind.probability for kind in kinds], horizon, seed)
    if isinstance(settings.arrivals, Poisson):
        most = np.full(len(kinds), settings.arrivals.most)
        instance = replicate_ports(instance, most)
        arrivals = counted_arrivals(arrivals.astype(np.int64), most)
    up = None
    if settings.outages is not None:
        chances = settings.outages.probability, settings.outages.repair
        up = draw_outages(seed, horizon, len(cluster.servers), *chances)
    problem = AllocationProblem(
        instance,
        _utilities(settings, cluster, seed),
        _overhead(settings, cluster, seed),
        arrivals_known=arrivals_known,
        horizon=horizon,
        gang=gang,
    )
    return AllocationWorld(problem, arrivals, up)


def _cluster(settings: AllocationSettings, seed: int) -> Cluster:
    given = settings.cluster
    if isinstance(given, DrawnCluster):
        names = tuple(f"server-{r}" for r in range(given.servers))
        return Cluster(RESOURCES, names, draw_servers(seed, given.servers))
    return given_cluster(given)


def _kinds(settings: AllocationSettings, seed: int) -> list[_Kind]:
    resources = resource_names(settings)
    ports = settings.ports
    kinds: list[_Kind] = []
    if isinstance(ports, DrawnPorts):
        columns = [[r.name for r in RESOURCES].index(name) for name in resources]
        demands = draw_demands(seed, ports.count, ports.contention)[:, columns]
        kinds = [_Kind(f"port-{i}", [row]) for i, row in enumerate(demands)]
    else:
        for port in ports:
            parts = port.components or []
            listed = [part.demand for part in parts] or [port.demand or {}]
            kind = _Kind(port.name, [np.array([demand.get(name, 0.0) for name in resources]) for demand in listed])
            kind.components = [part.name or str(c + 1) for c, part in enumerate(parts)]
            if parts:
                kind.minimum = len(parts) if port.minimum is None else port.minimum
            if port.servers is not None:
                kind.servers = ["all"] if port.servers == "all" else list(port.servers)
            kind.probability = port.probability
            kinds.append(kind)
    gangs = settings.gangs
    if gangs is not None and gangs.components is not None:
        _split(kinds, gangs.components, gangs.components if gangs.minimum is None else gangs.minimum, seed)
    return kinds


def _split(kinds: list[_Kind], components: int, minimum: int, seed: int) -> None:
    """Split every request into components at random; the largest part is at most three times the smallest."""
    resources = len(kinds[0].demands[0])
    parts = np.array([0.5 + uniforms(seed, len(kinds), resources, "gangs", c) for c in range(components)])
    parts /= parts.sum(axis=0)
    for j, kind in enumerate(kinds):
        kind.demands = [kind.demands[0] * parts[c, j] for c in range(components)]
        kind.components = [str(c + 1) for c in range(components)]
        kind.minimum = minimum


def _port_names(kind: _Kind) -> list[str]:
    return [f"{kind.name}/{component}" for component in kind.components] or [kind.name]


def _channels(
    settings: AllocationSettings, kinds: list[_Kind], of_port: NDArray[np.int64], cluster: Cluster, seed: int
) -> NDArray[np.int64]:
    """Channels as pairs (port, server), (E, 2)."""
    channels = settings.channels
    if channels is not None and channels.listed and channels.density != "all":
        pairs = draw_channel_list(seed, len(kinds), len(cluster.servers), channels.density)
        servers = [pairs[pairs[:, 0] == kind, 1] for kind in range(len(kinds))] if len(of_port) > len(kinds) else []
        parts = [np.column_stack([np.full(len(servers[k]), p), servers[k]]) for p, k in enumerate(of_port) if servers]
        return np.concatenate(parts) if parts else pairs
    return np.argwhere(_reach(settings, kinds, cluster, seed)[of_port])


def _reach(settings: AllocationSettings, kinds: list[_Kind], cluster: Cluster, seed: int) -> NDArray[np.bool_]:
    """Which job type reaches which server, (J, R)."""
    reach = np.ones((len(kinds), len(cluster.servers)), dtype=bool)
    open_kinds = [j for j, kind in enumerate(kinds) if kind.servers is None]
    density = settings.channels.density if settings.channels is not None else None
    if density is None:
        density = 3.0 if isinstance(settings.ports, DrawnPorts) else "all"
    if open_kinds and density != "all":
        reach[open_kinds] = draw_channels(seed, len(open_kinds), len(cluster.servers), density)
    reach_named(reach, [kind.servers for kind in kinds], settings.cluster, cluster)
    return reach


def _utilities(settings: AllocationSettings, cluster: Cluster, seed: int) -> Utilities:
    chosen = settings.utilities
    servers, resources = cluster.capacity.shape
    kinds = list(chosen.kinds)
    choice = (uniforms(seed, servers, resources, "utilities", "kind") * len(kinds)).astype(np.int64)
    low, high = chosen.alpha if isinstance(chosen.alpha, list) else (chosen.alpha, chosen.alpha)
    alpha = low + (high - low) * uniforms(seed, servers, resources, "utilities", "alpha")
    for k, resource in enumerate(cluster.resources):
        if resource.name in chosen.fixed:
            entry = chosen.fixed[resource.name]
            if entry.kind not in kinds:
                kinds.append(entry.kind)
            choice[:, k], alpha[:, k] = kinds.index(entry.kind), entry.alpha
    return Utilities(tuple(kinds), choice, alpha)


def _overhead(settings: AllocationSettings, cluster: Cluster, seed: int) -> Floats:
    given = settings.overhead
    if isinstance(given, dict):
        return np.array([given[resource.name] for resource in cluster.resources])
    low, high = given if isinstance(given, list) else (given, given)
    drawn: Floats = low + (high - low) * uniforms(seed, 1, len(cluster.resources), "overhead")[0]
    return drawn
