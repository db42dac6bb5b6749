"""Consistency checks across the keys of a selection scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from berth.errors import did_you_mean
from berth.families.selection.scenario.settings import (
    DrawnServers,
    DrawnTypes,
    SelectionBernoulli,
    SelectionPort,
    SelectionSettings,
)
from berth.files.wording import Mistake
from berth.files.yaml_tree import Key
from berth.scenario.checks import (
    check_arrivals,
    check_cluster,
    check_demands,
    check_known,
    check_names,
    check_policies,
    check_range,
    check_reach,
    reachable,
)
from berth.scenario.settings import FromWorkload, GivenCluster, Poisson, names_of

__all__ = ["MACHINE_RESOURCES", "across_selection", "port_names", "resource_names", "scope_of"]

MACHINE_RESOURCES = ("cpu", "memory", "gpu")
RESOURCE_KINDS, TYPES, GANGS = 3, 8, 30


def resource_names(settings: SelectionSettings) -> list[str]:
    """The names of the cluster's resources."""
    cluster = settings.cluster
    if isinstance(cluster, GivenCluster):
        return names_of(cluster.resources)
    if cluster.draw == "machines":
        return list(MACHINE_RESOURCES)
    return [f"resource-{k}" for k in range(cluster.resource_kinds or RESOURCE_KINDS)]


def port_names(settings: SelectionSettings) -> list[str]:
    """The names of the job types, before they are split into roles or copies."""
    ports = settings.ports
    if isinstance(ports, DrawnTypes):
        return [f"port-{j}" for j in range(ports.count or (GANGS if ports.draw == "gangs" else TYPES))]
    return [port.name for port in ports]


def scope_of(settings: SelectionSettings) -> str:
    """Whether capacity belongs to each server or to one pool for the whole cluster."""
    if settings.capacity is not None and settings.capacity.scope is not None:
        return settings.capacity.scope
    drawn = isinstance(settings.cluster, DrawnServers) and settings.cluster.draw == "papers"
    return "cluster" if drawn else "server"


def has_gangs(settings: SelectionSettings) -> bool:
    """Whether jobs have roles."""
    ports = settings.ports
    return ports.draw == "gangs" if isinstance(ports, DrawnTypes) else any(port.roles for port in ports)


def across_selection(settings: SelectionSettings) -> Iterator[Mistake]:
    """Mistakes across the keys of a selection scenario."""
    resources = resource_names(settings)
    if isinstance(settings.cluster, GivenCluster):
        yield from check_cluster(settings.cluster, resources)
    elif settings.cluster.draw == "machines" and settings.cluster.resource_kinds is not None:
        yield Mistake(("cluster", "resource_kinds"), "this key only with draw: papers", settings.cluster.resource_kinds)
    yield from _ports(settings, resources)
    yield from _capacity(settings, resources)
    yield from _gains(settings, resources)
    yield from _arrivals(settings)
    if settings.outages is not None and scope_of(settings) == "cluster":
        yield Mistake(("outages",), "capacity.scope server", found="servers that fail where capacity is one pool")
    if settings.delay is not None and settings.delay.least > settings.delay.most:
        yield Mistake(("delay", "least"), f"at most `most`, {settings.delay.most}", settings.delay.least)
    yield from check_policies(settings)


def _ports(settings: SelectionSettings, resources: list[str]) -> Iterator[Mistake]:
    ports = settings.ports
    if isinstance(ports, DrawnTypes):
        if ports.draw == "gangs" and resources != list(MACHINE_RESOURCES):
            expected = f"a cluster of {', '.join(MACHINE_RESOURCES)}, such as draw: machines"
            yield Mistake(("ports", "draw"), expected, found=f"one of {', '.join(resources)}")
        if ports.draw == "gangs" and ports.demand is not None:
            yield Mistake(("ports", "demand"), "this key only with draw: papers", found="amounts beside draw: gangs")
        return
    yield from check_names([port.name for port in ports], [("ports", i, "name") for i in range(len(ports))], "port")
    servers = reachable(settings.cluster)
    for i, port in enumerate(ports):
        yield from _port(port, ("ports", i), resources)
        yield from check_reach(port.servers, ("ports", i, "servers"), servers)


def _port(port: SelectionPort, key: Key, resources: list[str]) -> Iterator[Mistake]:
    if (port.demand is None) == (port.roles is None):
        found = "neither demand nor roles" if port.demand is None else "both demand and roles"
        yield Mistake(key, "one of them", found=found)
    demands: list[tuple[Key, Mapping[str, float] | None]] = [((*key, "demand"), port.demand)]
    roles = port.roles or []
    demands += [((*key, "roles", c, "demand"), role.demand) for c, role in enumerate(roles)]
    yield from check_demands(demands, resources)
    yield from check_names(
        [role.name for role in roles], [(*key, "roles", c, "name") for c in range(len(roles))], "role"
    )
    for c, role in enumerate(roles):
        if role.most is not None and role.minimum > role.most:
            yield Mistake((*key, "roles", c, "minimum"), f"at most `most`, {role.most}", role.minimum)
    if roles and not any(role.minimum for role in roles):
        yield Mistake((*key, "roles"), "at least one role with a minimum", found="a job that starts without any task")


def _capacity(settings: SelectionSettings, resources: list[str]) -> Iterator[Mistake]:
    each = None if settings.capacity is None else settings.capacity.each
    if isinstance(each, dict):
        yield from check_known(each, resources, ("capacity", "each"), "resource")
        missing = [name for name in resources if name not in each]
        if missing:
            yield Mistake(("capacity", "each"), "a number for every resource", found=f"none for {', '.join(missing)}")
    own = not (isinstance(settings.cluster, DrawnServers) and settings.cluster.draw == "papers")
    if each is not None and own and scope_of(settings) == "server":
        yield Mistake(
            ("capacity", "each"), "this key only with scope: cluster", found="servers that have their own capacity"
        )


def _gains(settings: SelectionSettings, resources: list[str]) -> Iterator[Mistake]:
    gains, drift, costs = settings.gains, settings.drift, settings.costs
    yield from check_range(gains.mean, ("gains", "mean"))
    if gains.distribution == "empirical" and gains.samples is None:
        yield Mistake(("gains", "samples"), "this key, for distribution: empirical", found="nothing")
    if gains.distribution != "empirical" and gains.samples is not None:
        yield Mistake(("gains", "samples"), "distribution: empirical beside it", found=f"{gains.distribution}")
    measured = gains.distribution == "measured"
    for name, values in (("between", gains.between), ("within", gains.within)):
        if measured and values is None:
            yield Mistake(("gains", name), "this key, for distribution: measured", found="nothing")
        if values is not None and values != sorted(values):
            yield Mistake(("gains", name), "quantiles, the lowest first", found="numbers that fall")
    given = ("speed", gains.speed), ("speeds", gains.speeds), ("between", gains.between), ("within", gains.within)
    for name, told in (*given, ("server_spread", gains.server_spread or None)):
        if told is not None and not measured:
            yield Mistake(("gains", name), "distribution: measured beside it", found=f"{gains.distribution}")
    if gains.speed is not None:
        yield from check_known(gains.speed, reachable(settings.cluster), ("gains", "speed"), "server or group")
    if gains.speeds is not None and isinstance(settings.ports, DrawnTypes):
        yield Mistake(("gains", "speeds"), "ports that are listed beside it", found="ports that are drawn")
    for type_, row in (gains.speeds or {}).items():
        yield from check_known([type_], port_names(settings), ("gains", "speeds"), "job type")
        yield from check_known(row, reachable(settings.cluster), ("gains", "speeds", type_), "server or group")
    if gains.distribution == "lognormal" and min(gains.mean if isinstance(gains.mean, list) else [gains.mean]) <= 0:
        yield Mistake(("gains", "mean"), "means > 0, for distribution: lognormal", gains.mean)
    yield from check_range(costs, ("costs",))
    if isinstance(costs, dict):
        yield from check_known(costs, resources, ("costs",), "resource")
    if drift is None:
        return
    if not isinstance(gains.mean, list) or gains.mean[0] == gains.mean[1]:
        yield Mistake(("gains", "mean"), "a range, [lowest, highest], where there is drift", gains.mean)
    for name, kind in (("every", "redraw"), ("share", "redraw"), ("step", "walk")):
        if getattr(drift, name) is not None and drift.kind != kind:
            yield Mistake(("drift", name), f"kind: {kind} beside it", found=f"{name} beside kind: {drift.kind}")


def _arrivals(settings: SelectionSettings) -> Iterator[Mistake]:
    arrivals, ports = settings.arrivals, settings.ports
    names = port_names(settings)
    own = [] if isinstance(ports, DrawnTypes) else [i for i, p in enumerate(ports) if p.probability is not None]
    yield from check_arrivals(arrivals, len(names), own, settings.horizon)
    if isinstance(arrivals, FromWorkload):
        from berth.scenario.workload import check_workload  # imports the trace readers, which few scenarios need

        yield from check_workload(settings, names)
    if isinstance(arrivals, Poisson) and has_gangs(settings):
        yield Mistake(("arrivals", "process"), "at most one job a slot where there are gangs", "poisson")
    if isinstance(arrivals, SelectionBernoulli):
        for d, port in enumerate(arrivals.dead):
            if isinstance(port, str) and port not in names:
                yield Mistake(("arrivals", "dead", d), f"the name of a port{did_you_mean(port, names)}", port)
            elif isinstance(port, int) and port >= len(names):
                yield Mistake(("arrivals", "dead", d), f"a number below {len(names)}, or the name of a port", port)
