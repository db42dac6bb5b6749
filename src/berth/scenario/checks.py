"""What must match across the keys of a scenario.

`across_allocation` and what families share are here; `berth.families.selection.scenario.checks` has the selection
family.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from berth.errors import BerthError, InvalidInput, did_you_mean
from berth.files.wording import Mistake
from berth.files.yaml_tree import Key, key_text
from berth.scenario.drawing import RESOURCES, server_names
from berth.scenario.settings import (
    Bernoulli,
    Common,
    DrawnCluster,
    DrawnPorts,
    FromWorkload,
    Given,
    GivenCluster,
    Poisson,
    PortEntry,
    Settings,
    Switching,
)

__all__ = ["across_allocation", "resource_names"]

LARGEST_TABLE = 500_000_000
"""The most slots × job types: about what fits into memory."""


def resource_names(settings: Settings) -> list[str]:
    """The names of the cluster's resources."""
    if isinstance(settings.cluster, DrawnCluster):
        return [resource.name for resource in RESOURCES]
    return [entry if isinstance(entry, str) else entry.name for entry in settings.cluster.resources]


def across_allocation(settings: Settings) -> Iterator[Mistake]:
    """What does not match in a scenario of the allocation family."""
    resources = resource_names(settings)
    if isinstance(settings.cluster, GivenCluster):
        yield from check_cluster(settings.cluster, resources)
    yield from _ports(settings, resources)
    yield from _utilities(settings, resources)
    ports = settings.ports
    types = ports.count if isinstance(ports, DrawnPorts) else len(ports)
    own = [] if isinstance(ports, DrawnPorts) else [i for i, p in enumerate(ports) if p.probability is not None]
    yield from check_arrivals(settings.arrivals, types, own, settings.horizon)
    names = [f"port-{i}" for i in range(types)] if isinstance(ports, DrawnPorts) else [port.name for port in ports]
    yield from check_workload(settings, names)
    yield from _gangs(settings)
    yield from check_policies(settings)


def check_names(names: Iterable[str], keys: Iterable[Key], what: str) -> Iterator[Mistake]:
    first: dict[str, Key] = {}
    for name, key in zip(names, keys, strict=True):
        if name in first:
            yield Mistake(key, f"a {what} name not already used at {key_text(first[name])}", name)
        else:
            first[name] = key


def check_known(given: Iterable[str], known: Sequence[str], key: Key, what: str) -> Iterator[Mistake]:
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            yield Mistake((*key, name), f"one of {', '.join(known)}{hint}", found=f"an unknown {what}")


def check_range(bounds: object, key: Key) -> Iterator[Mistake]:
    if isinstance(bounds, list) and bounds[0] > bounds[1]:
        yield Mistake(key, "[lowest, highest] in this order", bounds)


def check_cluster(cluster: GivenCluster, resources: list[str]) -> Iterator[Mistake]:
    """Names of resources and servers."""
    keys: list[Key] = [
        ("cluster", "resources", i) if isinstance(entry, str) else ("cluster", "resources", i, "name")
        for i, entry in enumerate(cluster.resources)
    ]
    yield from check_names(resources, keys, "resource")
    # a group may not be called like a server either: `servers: [a]` must mean one thing
    taken = [
        (name, i)
        for i, entry in enumerate(cluster.servers)
        for name in ([entry.name] if entry.count > 1 else []) + server_names(entry)
    ]
    yield from check_names([name for name, _ in taken], [("cluster", "servers", i, "name") for _, i in taken], "server")
    for i, entry in enumerate(cluster.servers):
        yield from check_known(entry.capacity, resources, ("cluster", "servers", i, "capacity"), "resource")


def _ports(settings: Settings, resources: list[str]) -> Iterator[Mistake]:
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


def check_demands(demands: Iterable[tuple[Key, Mapping[str, float] | None]], resources: list[str]) -> Iterator[Mistake]:
    """What jobs or tasks request, by key."""
    for place, demand in demands:
        if demand is not None:
            yield from check_known(demand, resources, place, "resource")
            if not any(demand.values()):
                yield Mistake(place, "more than 0 of some resource", found="a job that requests nothing")


def check_reach(named: str | list[str] | None, key: Key, servers: list[str]) -> Iterator[Mistake]:
    """The servers that a port names."""
    if isinstance(named, list):
        if not named:
            yield Mistake(key, "at least one server", found="a port with no channel")
        for s, name in enumerate(named):
            if name not in servers:
                hint = did_you_mean(name, servers)
                yield Mistake((*key, s), f"the name of a server or group{hint}", name)


def reachable(cluster: Any) -> list[str]:
    """The names that a port may list under `servers`; drawn servers are numbered."""
    if not isinstance(cluster, GivenCluster):
        return [f"server-{r}" for r in range(cluster.servers)]
    return [*(entry.name for entry in cluster.servers), *(n for e in cluster.servers for n in server_names(e))]


def _utilities(settings: Settings, resources: list[str]) -> Iterator[Mistake]:
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
    from berth.errors import UnknownName
    from berth.families.allocation.utility import utility_named

    try:
        utility_named(kind)
    except UnknownName as error:
        yield Mistake(key, f"one of {', '.join(error.known)}{did_you_mean(kind, error.known)}", kind)
    except InvalidInput as error:
        yield Mistake(key, error.expected, kind)


def check_workload(settings: Any, names: Sequence[str]) -> Iterator[Mistake]:
    """Arrivals of a workload: there is one, and the job types are its own."""
    if not isinstance(settings.arrivals, FromWorkload):
        return
    if settings.workload is None:
        yield Mistake(("arrivals", "process"), "the key workload beside it", "workload")
        return
    from berth.scenario.workload import planned

    known = planned(settings.workload).names
    for i, name in enumerate(names):
        if name not in known:
            own: Key = ("ports", i, "name") if isinstance(settings.ports, list) else ("ports",)
            expected = f"a job type of the workload{did_you_mean(name, known)}, or arrivals of its own"
            yield Mistake(own, expected, name)


def check_arrivals(
    arrivals: Bernoulli | Switching | Poisson | Given | FromWorkload,
    types: int,
    own: Sequence[int],
    horizon: int | None,
) -> Iterator[Mistake]:
    """Lists of numbers for each of `types` job types; `own` are the ports that give their own probability."""
    lists: list[tuple[str, object]] = []
    if isinstance(arrivals, Bernoulli):
        lists.append(("probability", arrivals.probability))
        if own and isinstance(arrivals.probability, list):
            key: Key = ("ports", own[0], "probability")
            yield Mistake(key, "it here or in the list arrivals.probability", found="a probability twice")
    elif own:
        place: Key = ("ports", own[0], "probability")
        yield Mistake(place, "arrivals.process bernoulli", found=f"a probability beside process {arrivals.process}")
    if isinstance(arrivals, Poisson):
        lists.append(("mean", arrivals.mean))
    for name, values in lists:
        if isinstance(values, list) and len(values) != types:
            yield Mistake(("arrivals", name), f"{types} numbers, one for each job type", found=f"{len(values)} of them")
    if isinstance(arrivals, Switching) and arrivals.low > arrivals.high:
        yield Mistake(("arrivals", "low"), f"at most high, {arrivals.high:g}", arrivals.low)
    if isinstance(arrivals, Given):
        for t, row in enumerate(arrivals.slots):
            if len(row) != types:
                expected = f"{types} numbers, one for each job type"
                yield Mistake(("arrivals", "slots", t), expected, found=f"{len(row)} of them")
        if horizon is not None and horizon > len(arrivals.slots):
            yield Mistake(("horizon",), f"at most the {len(arrivals.slots)} slots given in arrivals", horizon)
    elif (horizon or 2000) * types > LARGEST_TABLE:
        expected = f"at most {LARGEST_TABLE} slots × job types"
        yield Mistake(("horizon",), expected, found=f"{(horizon or 2000) * types}")


def _gangs(settings: Settings) -> Iterator[Mistake]:
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


def check_policies(settings: Common) -> Iterator[Mistake]:
    """Policies and baseline."""
    from berth.errors import UnknownName
    from berth.registry import PolicySpec, policy_names

    given: list[tuple[Key, str]] = [(("policies", i), text) for i, text in enumerate(settings.policies or [])]
    if settings.baseline is not None:
        given.append((("baseline",), settings.baseline))
    for key, text in given:
        if text in policy_names():
            continue  # a bare known name needs no import of the policy, which takes its time
        try:
            PolicySpec.parse(text)
        except UnknownName as error:
            near = did_you_mean(error.name, error.known)
            yield Mistake(key, f"a known {error.what}{near or ' (known: ' + ', '.join(error.known) + ')'}", text)
        except InvalidInput as error:
            yield Mistake(key, error.expected, text)
        except BerthError as error:
            yield Mistake(key, f"a policy ({error})", text)
