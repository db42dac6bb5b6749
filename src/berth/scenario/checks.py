"""Consistency checks across the keys of a scenario.

These are the checks that families share; each family adds its own in `scenario/checks.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from berth.errors import BerthError, InvalidInput, UnknownName, did_you_mean
from berth.files.wording import Mistake
from berth.files.yaml_tree import Key, key_text
from berth.registry import PolicySpec, in_family, policy_names
from berth.scenario.drawing import server_names
from berth.scenario.settings import (
    Bernoulli,
    Common,
    FromWorkload,
    Given,
    GivenCluster,
    Poisson,
    Switching,
)

LARGEST_TABLE = 500_000_000
"""Largest number of slots × job types: about what fits into memory."""


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
    """Check the names of resources and servers."""
    keys: list[Key] = [
        ("cluster", "resources", i) if isinstance(entry, str) else ("cluster", "resources", i, "name")
        for i, entry in enumerate(cluster.resources)
    ]
    yield from check_names(resources, keys, "resource")
    # a group may not share its name with a server: `servers: [a]` must be unambiguous
    taken = [
        (name, i)
        for i, entry in enumerate(cluster.servers)
        for name in ([entry.name] if entry.count > 1 else []) + server_names(entry)
    ]
    yield from check_names([name for name, _ in taken], [("cluster", "servers", i, "name") for _, i in taken], "server")
    for i, entry in enumerate(cluster.servers):
        yield from check_known(entry.capacity, resources, ("cluster", "servers", i, "capacity"), "resource")


def check_demands(demands: Iterable[tuple[Key, Mapping[str, float] | None]], resources: list[str]) -> Iterator[Mistake]:
    """Check the requests of jobs or tasks, by key."""
    for place, demand in demands:
        if demand is not None:
            yield from check_known(demand, resources, place, "resource")
            if not any(demand.values()):
                yield Mistake(place, "more than 0 of some resource", found="a job that requests nothing")


def check_reach(named: str | list[str] | None, key: Key, servers: list[str]) -> Iterator[Mistake]:
    """Check the servers that a port names."""
    if isinstance(named, list):
        if not named:
            yield Mistake(key, "at least one server", found="a port with no channel")
        for s, name in enumerate(named):
            if name not in servers:
                hint = did_you_mean(name, servers)
                yield Mistake((*key, s), f"the name of a server or group{hint}", name)


def reachable(cluster: Any) -> list[str]:
    """Names that a port may list under `servers`; drawn servers are numbered."""
    if not isinstance(cluster, GivenCluster):
        return [f"server-{r}" for r in range(cluster.servers)]
    return [*(entry.name for entry in cluster.servers), *(n for e in cluster.servers for n in server_names(e))]


def check_arrivals(
    arrivals: Bernoulli | Switching | Poisson | Given | FromWorkload,
    types: int,
    own: Sequence[int],
    horizon: int | None,
) -> Iterator[Mistake]:
    """Check lists with a number for each of `types` job types; `own` are the ports with their own probability."""
    lists: list[tuple[str, object]] = []
    if isinstance(arrivals, Bernoulli):
        lists.append(("probability", arrivals.probability))
        if own and isinstance(arrivals.probability, list):
            key: Key = ("ports", own[0], "probability")
            yield Mistake(key, "one, here or in the list arrivals.probability", found="a probability twice")
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


def check_policies(settings: Common) -> Iterator[Mistake]:
    """Check policies and baseline."""
    given: list[tuple[Key, str]] = [(("policies", i), text) for i, text in enumerate(settings.policies or [])]
    if settings.baseline is not None:
        given.append((("baseline",), settings.baseline))
    for key, text in given:
        if text in policy_names():
            continue  # a bare known name needs no import of the policy, which is slow
        try:
            PolicySpec.parse(text)
        except UnknownName as error:
            error = in_family(error, str(settings.family))
            yield Mistake(key, f"a known {error.what}{error.hint}", text)
        except InvalidInput as error:
            yield Mistake(key, error.expected, text)
        except BerthError as error:
            yield Mistake(key, f"a policy ({error})", text)
