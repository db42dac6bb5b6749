"""Consistency checks across the keys of an allocation scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from berth.errors import InvalidInput, UnknownName, did_you_mean
from berth.families.allocation.scenario.settings import AllocationSettings, DrawnCluster, DrawnPorts, PortEntry
from berth.families.allocation.utility import utility_named
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
from berth.scenario.drawing import RESOURCES
from berth.scenario.settings import FromWorkload, GivenCluster, Poisson, names_of

__all__ = ["across_allocation", "resource_names"]


def resource_names(settings: AllocationSettings) -> list[str]:
    """The names of the cluster's resources."""
    if isinstance(settings.cluster, DrawnCluster):
        return [resource.name for resource in RESOURCES]
    return names_of(settings.cluster.resources)


def across_allocation(settings: AllocationSettings) -> Iterator[Mistake]:
    """Mistakes across the keys of an allocation scenario."""
    resources = resource_names(settings)
    if isinstance(settings.cluster, GivenCluster):
        yield from check_cluster(settings.cluster, resources)
    yield from _ports(settings, resources)
    yield from _utilities(settings, resources)
    ports = settings.ports
    types = ports.count if isinstance(ports, DrawnPorts) else len(ports)
    own = [] if isinstance(ports, DrawnPorts) else [i for i, p in enumerate(ports) if p.probability is not None]
    yield from check_arrivals(settings.arrivals, types, own, settings.horizon)
    if isinstance(settings.arrivals, FromWorkload):
        from berth.scenario.workload import check_workload  # imports the trace readers, which few scenarios need

        names = [f"port-{i}" for i in range(types)] if isinstance(ports, DrawnPorts) else [port.name for port in ports]
        yield from check_workload(settings, names)
    yield from _gangs(settings)
    yield from check_policies(settings)


def _ports(settings: AllocationSettings, resources: list[str]) -> Iterator[Mistake]:
    ports = settings.ports
    if isinstance(ports, DrawnPorts):
        drawn = [resource.name for resource in RESOURCES]
        for name in resources:
            if name not in drawn:
                yield Mistake(
                    ("ports", "draw"), f"a cluster of {', '.join(drawn)} only", found=f"one with the resource {name!r}"
                )
        return
    yield from check_names([port.name for port in ports], [("ports", i, "name") for i in range(len(ports))], "port")
    servers = reachable(settings.cluster)
    if settings.channels is not None and settings.channels.listed:
        named = next((port.name for port in ports if port.servers is not None), None)
        if named is not None:
            yield Mistake(
                ("channels", "listed"), "false if ports name their servers", found=f"true, and {named!r} does"
            )
    for i, port in enumerate(ports):
        yield from _port(port, ("ports", i), resources, servers)


def _port(port: PortEntry, key: Key, resources: list[str], servers: list[str]) -> Iterator[Mistake]:
    if (port.demand is None) == (port.components is None):
        found = "neither demand nor components" if port.demand is None else "both demand and components"
        yield Mistake(key, "one of them", found=found)
    demands: list[tuple[Key, Mapping[str, float] | None]] = [((*key, "demand"), port.demand)]
    demands += [((*key, "components", c, "demand"), entry.demand) for c, entry in enumerate(port.components or [])]
    yield from check_demands(demands, resources)
    if port.minimum is not None:
        if port.components is None:
            yield Mistake((*key, "minimum"), "components beside it", found="a minimum alone")
        elif port.minimum > len(port.components):
            yield Mistake((*key, "minimum"), f"at most the {len(port.components)} components there are", port.minimum)
    yield from check_reach(port.servers, (*key, "servers"), servers)


def _utilities(settings: AllocationSettings, resources: list[str]) -> Iterator[Mistake]:
    utilities = settings.utilities
    yield from check_range(utilities.alpha, ("utilities", "alpha"))
    yield from check_known(utilities.fixed, resources, ("utilities", "fixed"), "resource")
    kinds: list[tuple[Key, str]] = [(("utilities", "kinds", i), kind) for i, kind in enumerate(utilities.kinds)]
    kinds += [(("utilities", "fixed", name, "kind"), entry.kind) for name, entry in utilities.fixed.items()]
    for key, kind in kinds:
        if kind not in ("linear", "log", "reciprocal", "poly"):
            yield from _utility(key, kind)
    overhead = settings.overhead
    yield from check_range(overhead, ("overhead",))
    if isinstance(overhead, dict):
        yield from check_known(overhead, resources, ("overhead",), "resource")
        missing = [name for name in resources if name not in overhead]
        if missing:
            yield Mistake(("overhead",), "a number for every resource", found=f"none for {', '.join(missing)}")


def _utility(key: Key, kind: str) -> Iterator[Mistake]:
    try:
        utility_named(kind)
    except UnknownName as error:
        yield Mistake(key, f"one of {', '.join(error.known)}{did_you_mean(kind, error.known)}", kind)
    except InvalidInput as error:
        yield Mistake(key, error.expected, kind)


def _gangs(settings: AllocationSettings) -> Iterator[Mistake]:
    gangs, ports = settings.gangs, settings.ports
    listed = [] if isinstance(ports, DrawnPorts) else [i for i, p in enumerate(ports) if p.components is not None]
    if gangs is not None:
        if gangs.components is None and not listed:
            yield Mistake(("gangs", "components"), "this key, or components at the ports", found="nothing")
        if gangs.components is not None and listed:
            yield Mistake(("gangs", "components"), "no number where ports list their own components", gangs.components)
        if gangs.minimum is not None and gangs.components is None:
            yield Mistake(("gangs", "minimum"), "components beside it", found="a minimum alone")
        elif gangs.minimum is not None and gangs.components is not None and gangs.minimum > gangs.components:
            yield Mistake(("gangs", "minimum"), f"at most the {gangs.components} components", gangs.minimum)
    if isinstance(settings.arrivals, Poisson) and (gangs is not None or listed):
        yield Mistake(("arrivals", "process"), "at most one job a slot where there are gangs", "poisson")
