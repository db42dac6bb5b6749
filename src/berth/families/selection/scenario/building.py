"""Build a world of the selection family from settings and a seed.

Properties of a channel are drawn in a table of ports and servers, one stream a port: more servers or ports only add to
what a seed draws, and copies of a port (several jobs a slot) share its true values.

Axes: T slots, J job types, L ports (roles or copies of job types), R servers, K resources, E channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from berth.families.arrivals import counted_arrivals
from berth.families.selection import gains as laws
from berth.families.selection.problem import Roles, SelectionProblem
from berth.families.selection.scenario.checks import has_gangs, port_names, resource_names, scope_of
from berth.families.selection.scenario.settings import DrawnTypes, Drift, Price, SelectionBernoulli, SelectionSettings
from berth.families.selection.world import SelectionWorld
from berth.model import Cluster, Floats, Instance, Ints, JobType, Resource, replicate_ports
from berth.random import stream
from berth.scenario.drawing import draw_arrivals, draw_outages, given_cluster, reach_named, uniforms
from berth.scenario.settings import FromWorkload, GivenCluster, Poisson

__all__ = ["build_selection"]

EACH = 2.0
"""Capacity of the papers' pool for each resource."""
COST_SCALE = 1.0 / 15.0
"""Factor on the papers' costs: as printed, almost no job would be worth serving. Scaling keeps their order."""
MACHINES = np.array([[96.0, 384.0, 0.0], [64.0, 256.0, 4.0], [96.0, 768.0, 8.0]])  # cores, GB, GPUs
MACHINE_CHANCES = (0.4, 0.3, 0.3)
UNITS = ("1 core", "1 GB", "1 device")
QUANTILES = (np.arange(32) + 0.5) / 32
"""Quantiles of the gain distribution that the information oracle is told."""


@dataclass
class _Type:
    """A job type being built: the demand of a task of each role; most types have one role."""

    name: str
    demands: list[Floats]
    roles: list[str] = field(default_factory=list)
    minimum: list[int] = field(default_factory=lambda: [0])
    most: list[int] = field(default_factory=lambda: [1])
    servers: list[str] | None = None
    """Names of servers or groups; None if channels are drawn."""
    probability: float | None = None

    def port_names(self) -> list[str]:
        return [f"{self.name}/{role}" for role in self.roles] or [self.name]


def build_selection(
    settings: SelectionSettings, horizon: int, seed: int, arrivals_known: bool = True
) -> SelectionWorld:
    """Build the world of this seed; arrivals are always known in this family."""
    del arrivals_known
    cluster = _cluster(settings, seed)
    types = _types(settings, seed)
    roles_of = np.repeat(np.arange(len(types)), [len(kind.demands) for kind in types])
    ports = [JobType(n, d) for kind in types for n, d in zip(kind.port_names(), kind.demands, strict=True)]
    instance = Instance(cluster, tuple(ports), np.argwhere(_reach(settings, types, cluster, seed)))
    arrivals = _arrivals(settings, types, horizon, seed)
    original = np.arange(len(ports))
    if isinstance(settings.arrivals, Poisson):
        most = np.full(len(types), settings.arrivals.most)
        instance = replicate_ports(instance, most)
        arrivals = counted_arrivals(arrivals.astype(np.int64), most)
        original = np.repeat(original, most)
    place = instance.channel_server, original[instance.channel_port]
    roles = None
    if has_gangs(settings):
        listed = [(m, q) for kind in types for m, q in zip(kind.minimum, kind.most, strict=True)]
        roles = Roles(roles_of, np.array([m for m, _ in listed]), np.array([q for _, q in listed]))
    demand = _channel_demand(settings, instance, place, seed)
    cost = _cost(settings, instance, demand, place, seed)
    problem = SelectionProblem(
        instance, cost, demand=demand, pool=_pool(settings, cluster), horizon=horizon, roles=roles
    )
    up = None
    if settings.outages is not None:
        chances = settings.outages.probability, settings.outages.repair
        up = draw_outages(seed, horizon, len(cluster.servers), *chances)
    gains = _gains(settings, cost, place, cluster, seed)
    return SelectionWorld(problem, arrivals, gains, up, _delay(settings, horizon, seed))


def _cluster(settings: SelectionSettings, seed: int) -> Cluster:
    given = settings.cluster
    if isinstance(given, GivenCluster):
        return given_cluster(given)
    names = tuple(f"server-{r}" for r in range(given.servers))
    listed = resource_names(settings)
    if given.draw == "machines":
        luck = uniforms(seed, given.servers, 1, "machines")[:, 0]
        kind = np.searchsorted(np.cumsum(MACHINE_CHANCES)[:-1], luck, side="right")
        return Cluster(tuple(map(Resource, listed, UNITS)), names, MACHINES[kind])
    return Cluster(tuple(map(Resource, listed)), names, np.tile(_each(settings), (given.servers, 1)))


def _each(settings: SelectionSettings) -> Floats:
    """`capacity.each` as (K,)."""
    names = resource_names(settings)
    each = None if settings.capacity is None else settings.capacity.each
    if isinstance(each, dict):
        return np.array([each[name] for name in names])
    return np.full(len(names), EACH if each is None else each)


def _pool(settings: SelectionSettings, cluster: Cluster) -> Floats | None:
    if scope_of(settings) == "server":
        return None
    own = isinstance(settings.cluster, GivenCluster) or settings.cluster.draw == "machines"
    if own and (settings.capacity is None or settings.capacity.each is None):
        total: Floats = cluster.capacity.sum(axis=0)
        return total
    return _each(settings)


def _types(settings: SelectionSettings, seed: int) -> list[_Type]:
    ports, resources = settings.ports, resource_names(settings)
    if isinstance(ports, DrawnTypes):
        names = port_names(settings)
        if ports.draw == "gangs":
            return [_gang(seed, j, name) for j, name in enumerate(names)]
        # each channel draws its own demand; this is the largest
        return [_Type(name, [np.full(len(resources), max(ports.demand or (1.0, 2.0)))]) for name in names]
    types = []
    for port in ports:
        listed = [role.demand for role in port.roles] if port.roles else [port.demand or {}]
        kind = _Type(port.name, [np.array([demand.get(name, 0.0) for name in resources]) for demand in listed])
        if port.roles:
            kind.roles = [role.name for role in port.roles]
            kind.minimum = [role.minimum for role in port.roles]
            kind.most = [max(role.minimum, 1) if role.most is None else role.most for role in port.roles]
        elif has_gangs(settings):
            kind.minimum = [1]
        if port.servers is not None:
            kind.servers = ["all"] if port.servers == "all" else list(port.servers)
        kind.probability = port.probability
        types.append(kind)
    return types


def _gang(seed: int, j: int, name: str) -> _Type:
    """Draw a machine-sized job: parameter servers and GPU workers, or tasks without GPUs."""
    rng = stream(seed, "gangs", j)
    training, share = rng.random() < 0.7, rng.uniform(0.25, 1.0)
    if training:
        cores = float(rng.choice([4, 6, 8]))
        demands = [np.array([4.0, 16.0, 0.0]), np.array([cores, cores * float(rng.choice([4, 8])), 1.0])]
        most, roles = [int(rng.integers(1, 3)), int(rng.integers(2, 17))], ["server", "worker"]
    else:
        cores = float(rng.choice([1, 2, 4, 8]))
        demands = [np.array([cores, cores * float(rng.choice([2, 4, 8])), 0.0])]
        most, roles = [int(rng.integers(4, 33))], ["task"]
    return _Type(name, demands, roles, [max(1, math.ceil(share * n)) for n in most], most)


def _reach(settings: SelectionSettings, types: list[_Type], cluster: Cluster, seed: int) -> NDArray[np.bool_]:
    """Which port (role) reaches which server, (L, R)."""
    luck = uniforms(seed, len(cluster.servers), len(types), "selection", "channels").T
    reach = np.ones(luck.shape, dtype=bool)
    drawn = settings.channels is not None or isinstance(settings.ports, DrawnTypes)
    chosen = settings.channels
    if drawn:
        reach = luck < (0.1 if chosen is None else chosen.probability)
        reach[np.arange(len(types)), luck.argmin(axis=1)] = True
        least = min(8 if chosen is None else chosen.least, reach.size)
        missing = least - int(reach.sum())
        if missing > 0:
            reach.flat[np.where(reach, np.inf, luck).argsort(axis=None, kind="stable")[:missing]] = True
    named = [kind.servers for kind in types]
    for j, servers in enumerate(named):
        if servers == ["all"]:
            reach[j] = True
    reach_named(reach, named, settings.cluster, cluster)
    of_port = np.repeat(np.arange(len(types)), [len(kind.demands) for kind in types])
    whole = reach[of_port]
    if isinstance(settings.ports, DrawnTypes) and settings.ports.draw == "gangs" and scope_of(settings) == "server":
        _only_where_it_fits(whole, luck[of_port], [d for kind in types for d in kind.demands], cluster)
    return whole


def _only_where_it_fits(reach: NDArray[np.bool_], luck: Floats, demands: list[Floats], cluster: Cluster) -> None:
    """Remove channels to servers that cannot hold one task; if none remain, keep the first server that can."""
    fits: NDArray[np.bool_] = np.all(np.array(demands)[:, None, :] <= cluster.capacity[None], axis=2)
    reach &= fits
    for port in np.flatnonzero(~reach.any(axis=1) & fits.any(axis=1)):
        reach[port, np.where(fits[port], luck[port], np.inf).argmin()] = True


def _channel_demand(
    settings: SelectionSettings, instance: Instance, place: tuple[Ints, Ints], seed: int
) -> Floats | None:
    """Demand of a task through each channel, (E, K), where it is drawn."""
    ports = settings.ports
    if not isinstance(ports, DrawnTypes) or ports.draw != "papers":
        return None
    amounts = np.array(ports.demand or (1.0, 2.0))
    tables = _tables(seed, instance, place, len(instance.cluster.resources), "selection", "demand")
    return amounts[(tables * len(amounts)).astype(np.int64)].T


def _tables(seed: int, instance: Instance, place: tuple[Ints, Ints], count: int, *names: str) -> Floats:
    """`count` uniform numbers for each channel, (count, E)."""
    servers, ports = len(instance.cluster.servers), int(place[1].max(initial=0)) + 1
    return np.array([uniforms(seed, servers, ports, *names, k)[place] for k in range(count)])


def _cost(
    settings: SelectionSettings, instance: Instance, demand: Floats | None, place: tuple[Ints, Ints], seed: int
) -> Floats:
    """The known cost of a task through each channel, (E,)."""
    costs = settings.costs
    servers, resources = instance.capacity.shape
    if costs is None:
        if settings.gains.distribution != "papers":
            return np.zeros(len(place[0]))
        ports = int(place[1].max(initial=0)) + 1
        each = [laws.normal_costs(stream(seed, "costs", j), servers, resources, scale=COST_SCALE) for j in range(ports)]
        drawn: Floats = np.array(each)[place[1], place[0]]
        return drawn
    if isinstance(costs, dict):
        takes = instance.demand[instance.channel_port] if demand is None else demand
        listed = [costs.get(name, 0.0) for name in resource_names(settings)]
        prices = [entry if isinstance(entry, Price) else Price(price=entry) for entry in listed]
        return laws.supply_cost(takes, [entry.shape for entry in prices], [entry.price for entry in prices])
    low, high = costs if isinstance(costs, list) else (costs, costs)
    spread: Floats = low + (high - low) * _tables(seed, instance, place, 1, "costs")[0]
    return spread


def _arrivals(settings: SelectionSettings, types: list[_Type], horizon: int, seed: int) -> Floats:
    if isinstance(settings.arrivals, FromWorkload):
        from berth.scenario.workload import planned  # imports the trace readers, which few scenarios need

        return planned(settings.workload).arrivals([kind.name for kind in types], horizon, seed)
    arrivals = draw_arrivals(settings.arrivals, [kind.probability for kind in types], horizon, seed)
    if isinstance(settings.arrivals, SelectionBernoulli):
        names = [kind.name for kind in types]
        for port in settings.arrivals.dead:
            arrivals[:, names.index(port) if isinstance(port, str) else port] = 0.0
    return arrivals


def _gains(
    settings: SelectionSettings, cost: Floats, place: tuple[Ints, Ints], cluster: Cluster, seed: int
) -> laws.DrawnGains:
    chosen = settings.gains
    low, high = chosen.mean if isinstance(chosen.mean, list) else (chosen.mean, chosen.mean)
    servers, ports = (int(axis.max(initial=0)) + 1 for axis in place)
    centre = low + (high - low) * uniforms(seed, servers, ports, "gains", "mean")[place]
    centres = np.repeat((low + (high - low) * QUANTILES)[:, None], len(centre), axis=1)
    law: laws.Law
    if chosen.distribution == "papers":
        law = laws.NetNormal(chosen.spread, cost, relative=True)
    elif chosen.distribution == "bounded":
        law = laws.ClippedNormal(chosen.spread, relative=True)
    elif chosen.distribution == "lognormal":
        law = laws.Lognormal(math.sqrt(math.log1p(chosen.spread**2)))
    elif chosen.distribution == "measured":
        luck = [uniforms(seed, servers, ports, "gains", name)[place] for name in ("between", "within")]
        between, within = (
            np.interp(u, np.linspace(0.0, 1.0, len(q)), q)
            for u, q in zip(luck, (chosen.between or [1.0], chosen.within or [0.0]), strict=True)
        )
        speed = _speeds(chosen.speed or {}, settings, cluster)[place[0]]
        centre = centre * speed * between
        usual = np.interp(QUANTILES, np.linspace(0.0, 1.0, len(chosen.between or [1.0])), chosen.between or [1.0])
        products = np.sort(np.outer(low + (high - low) * QUANTILES, usual), axis=None)
        centres = np.outer(products.reshape(len(QUANTILES), -1).mean(axis=1), speed)
        if chosen.server_spread:
            own = stream(seed, "gains", "servers").standard_normal(servers)
            centre = centre * np.exp(chosen.server_spread * own)[place[0]]
        if chosen.speeds is not None:
            centre = centre * _type_speeds(chosen.speeds, settings, cluster)[place[1], place[0]]
            # the information oracle knows which speeds there are, not which server has which
            centres = np.repeat(np.quantile(centre, QUANTILES)[:, None], len(centre), axis=1)
        law = laws.ClippedNormal(within, relative=True)
    elif chosen.distribution == "empirical":
        samples = np.array(chosen.samples)
        law = laws.Empirical([samples - samples.mean()] * len(centre))
    else:
        law = laws.Normal(chosen.spread, relative=True)
    return laws.DrawnGains(law, centre, seed, _drift(settings.drift, low, high), centres)


def _speeds(told: dict[str, float], settings: SelectionSettings, cluster: Cluster) -> Floats:
    """Speed of each server, (R,), by its own name or that of its group."""
    speed = np.ones((1, len(cluster.servers)))
    for name, value in told.items():
        named = np.zeros(speed.shape, dtype=bool)
        reach_named(named, [[name]], settings.cluster, cluster)
        speed[named] = value
    row: Floats = speed[0]
    return row


def _type_speeds(told: dict[str, dict[str, float]], settings: SelectionSettings, cluster: Cluster) -> Floats:
    """Speed of each port's job type on each server, (L, R)."""
    listed = [] if isinstance(settings.ports, DrawnTypes) else settings.ports
    types = [port.name for port in listed for _ in range(len(port.roles) if port.roles else 1)]
    return np.array([_speeds(told.get(name, {}), settings, cluster) for name in types])


def _drift(drift: Drift | None, low: float, high: float) -> laws.Drift | None:
    if drift is None:
        return None
    if drift.kind == "walk":
        return laws.Walk(drift.step or 0.01, low, high)
    return laws.Redraw(drift.every or 1000, 0.3 if drift.share is None else drift.share, low, high)


def _delay(settings: SelectionSettings, horizon: int, seed: int) -> Ints | None:
    """Feedback delay of each slot, (T,); -1 if the feedback never arrives."""
    delay = settings.delay
    if delay is None:
        return None
    luck = uniforms(seed, horizon, 2, "delay")
    late = delay.least + (luck[:, 0] * (delay.most - delay.least + 1)).astype(np.int64)
    return np.where(luck[:, 1] < delay.lost, -1, late)
