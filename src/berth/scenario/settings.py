"""Keys of a scenario file, with types and defaults. The reference page is generated from them.

These are the keys that families share; each family adds its own in `scenario/settings.py`. Numbers are strict: `true`
is not a number and `2.0` not a count. `checks` validates across keys: names that must exist, lists that must match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Discriminator, Field, Tag

from berth.files.wording import Part, said

__all__ = ["Common"]


@dataclass(frozen=True)
class Restated:
    """Mark on a key that a layer above may give in another form, which replaces the layer below as a whole.

    `when` decides from the mappings below and above. A plain text stands for a mapping with the key `short`, if it is
    set.
    """

    when: Callable[[dict[str, Any], dict[str, Any]], bool]
    short: str | None = None


def changed(*keys: str, missing: Any = ..., short: str | None = None) -> Restated:
    """Replace the layer below if one of these keys changes; a key absent below is `missing`, or else no change."""

    def when(below: dict[str, Any], above: dict[str, Any]) -> bool:
        return any(k in above and above[k] != below.get(k, above[k] if missing is ... else missing) for k in keys)

    return Restated(when, short)


WHOLE = Restated(lambda below, above: True)
PROCESS = changed("process", missing="bernoulli")
DRAW = changed("draw")


def _other_cluster(below: dict[str, Any], above: dict[str, Any]) -> bool:
    """Whether the cluster is drawn in another way, or changes between drawn and listed."""
    listed = ("resources" in above) != ("resources" in below) and ("resources" in above or "draw" in above)
    return listed or DRAW.when(below, above)


CLUSTER = Restated(_other_cluster)

Name = Annotated[str, Field(min_length=1, max_length=200), said("a text")]
Text = Annotated[str, said("a text")]
Amount = Annotated[float, Field(ge=0), said("a number ≥ 0")]
Positive = Annotated[float, Field(gt=0), said("a number > 0")]
Chance = Annotated[float, Field(ge=0, le=1), said("a probability, 0 to 1")]
Count = Annotated[int, Field(ge=1, le=10_000_000), said("a whole number from 1 to 10000000")]
Servers = Annotated[int, Field(ge=1, le=1_000_000), said("a whole number from 1 to 1000000")]
Types = Annotated[int, Field(ge=1, le=100_000), said("a whole number from 1 to 100000")]
Few = Annotated[int, Field(ge=1, le=1000), said("a whole number from 1 to 1000")]
Minimum = Annotated[int, Field(ge=0, le=1000), said("a whole number from 0 to 1000")]
AmountRange = Annotated[list[Amount], Field(min_length=2, max_length=2), said("two numbers ≥ 0, [lowest, highest]")]
PositiveRange = Annotated[list[Positive], Field(min_length=2, max_length=2), said("two numbers > 0, [lowest, highest]")]


def shape_of(value: Any) -> str:
    return "<list>" if isinstance(value, list) else "<mapping>" if isinstance(value, dict) else "<one>"


def list_or_one(value: Any) -> str:
    return "<list>" if isinstance(value, list) else "<one>"


def list_or_mapping(value: Any) -> str:
    return "<list>" if isinstance(value, list) else "<mapping>"


Chances = Annotated[
    Annotated[Chance, Tag("<one>")] | Annotated[list[Chance], Tag("<list>")],
    Discriminator(list_or_one),
]
Reach = Annotated[
    Annotated[Literal["all"], said("all, or a list of server names"), Tag("<one>")]
    | Annotated[list[Name], Tag("<list>")],
    Discriminator(list_or_one),
]


# pydantic also asks these about built models, when it dumps them
def cluster_form(value: Any) -> str:
    given = isinstance(value, dict) and ("resources" in value or isinstance(value.get("servers"), list))
    return "<given>" if given or hasattr(value, "resources") else "<drawn>"


def process_of(value: Any) -> str:
    process = value.get("process", "bernoulli") if isinstance(value, dict) else getattr(value, "process", "bernoulli")
    return f"<{process}>"


def resource_form(value: Any) -> str:
    return "<full>" if isinstance(value, (dict, BaseModel)) else "<name>"


class ResourceEntry(Part):
    name: Name
    unit: Text = ""


class ServerEntry(Part):
    """One server, or `count` identical ones named name-0, name-1, …"""

    name: Name
    count: Servers = 1
    capacity: dict[str, Amount] = Field(description="capacity by resource; default: 0")


ResourceEntries = Annotated[
    list[
        Annotated[
            Annotated[Name, Tag("<name>")] | Annotated[ResourceEntry, Tag("<full>")], Discriminator(resource_form)
        ]
    ],
    Field(min_length=1),
]


def names_of(resources: Iterable[str | ResourceEntry]) -> list[str]:
    """The names of the resources that a cluster lists."""
    return [entry if isinstance(entry, str) else entry.name for entry in resources]


class GivenCluster(Part):
    """Resources and servers by name."""

    resources: ResourceEntries
    servers: Annotated[list[ServerEntry], Field(min_length=1)]


class Port(Part):
    """Keys of a job type in every family."""

    name: Name
    demand: dict[str, Amount] | None = None
    servers: Reach | None = Field(
        None, description="all, or names of servers or server groups; default: as `channels` says"
    )
    probability: Chance | None = Field(
        None, description="probability of a job in a slot, overrides arrivals.probability"
    )


class Bernoulli(Part):
    """At most one job a slot with this probability, independently: one number, or one for each job type."""

    process: Literal["bernoulli"] = "bernoulli"
    probability: Chances = 0.7


class Switching(Part):
    """Probabilities of every job type, redrawn between `low` and `high` every `every` slots."""

    process: Literal["switching"]
    every: Count = 250
    low: Chance = 0.1
    high: Chance = 0.9


class Poisson(Part):
    """Several jobs a slot: Poisson with this mean (one number, or one for each job type), capped at `most`."""

    process: Literal["poisson"]
    mean: Annotated[
        Annotated[Amount, Tag("<one>")] | Annotated[list[Amount], Tag("<list>")],
        Discriminator(list_or_one),
    ]
    most: Few


class Given(Part):
    """Arrivals listed slot by slot: 1 if the job type has a job, else 0."""

    process: Literal["given"]
    slots: Annotated[list[list[Annotated[int, Field(ge=0, le=1), said("0 or 1")]]], Field(min_length=1)]


class FromWorkload(Part):
    """Arrivals of the scenario's workload: 1 in slots with at least one job of the type."""

    process: Literal["workload"]


Chosen = TypeVar("Chosen", bound=Bernoulli)
Arrivals = Annotated[
    Annotated[Chosen, Tag("<bernoulli>")]
    | Annotated[Switching, Tag("<switching>")]
    | Annotated[Poisson, Tag("<poisson>")]
    | Annotated[Given, Tag("<given>")]
    | Annotated[FromWorkload, Tag("<workload>")],
    Discriminator(process_of),
    PROCESS,
]
"""Arrival process; families differ in the process `bernoulli` only."""


class Outages(Part):
    """Servers that fail and recover, each with a probability per slot."""

    probability: Chance
    repair: Chance


class WorkloadSettings(Part):
    """A real workload that sets cluster, job types, channels and arrivals; other keys of the file override it.

    Give one of `name`, `fit` and `trace`. From a fit every seed draws its own jobs; from a trace every seed takes its
    own window. With fewer servers than the workload has, jobs arrive proportionally less often.
    """

    name: Name | None = Field(None, description="name of a shipped workload; see `berth workload list`")
    fit: Name | None = Field(None, description="a file that `berth workload fit` wrote")
    trace: Name | None = Field(None, description="a trace in any format that berth reads")
    format: Name | None = Field(None, description="format of the trace, if it is not recognised")
    since: Amount | None = Field(None, description="leave out jobs submitted before this second of the trace")
    servers: Servers = Field(
        40, description="number of servers, split among shapes by share, the largest remainders rounded up"
    )
    load: Positive | None = Field(
        None,
        description="offered load: mean requested share of the scarcest resource; default: unchanged; if jobs last "
        "one slot, each job stands for as many equal jobs as reach this load",
    )
    slot_seconds: Positive | None = Field(
        None, description="length of a slot; default: the most common type averages 0.7 jobs a slot"
    )
    ports: Literal["demand", "kind", "needs", "size", "user"] = Field(
        "demand", description="definition of job types: clusters of requests, or a column of the trace"
    )
    types: Few = Field(8, description="largest number of job types; rarer ones form one type, other")
    digest: Name | None = Field(None, description="SHA-256 of the file; filled in by berth, and checked")


Workloads = Annotated[
    Annotated[Name, Tag("<name>")] | Annotated[WorkloadSettings, Tag("<full>")], Discriminator(resource_form)
]


class Common(Part):
    """Keys of every scenario."""

    name: Name | None = Field(None, description="default: the name of the file")
    title: Text = Field("", description="one line, shown above tables and plots")
    description: Text = Field("", description="free text")
    family: str
    horizon: Count | None = Field(None, description="slots of a run; default: 2000, or the slots that the file lists")
    arrivals_known: str
    seeds: Types = Field(4, description="how many seeds `berth compare` runs")
    policies: Annotated[list[Name], Field(min_length=1)] | None = Field(
        None, description="policies that `berth compare` runs"
    )
    baseline: Name | None = Field(None, description="the policy that `berth compare` compares the others with")
    oracles: Any = None
    workload: Annotated[Workloads | None, changed("name", "fit", "trace", missing=None, short="name")] = Field(
        None, description="a real workload, by name or as a mapping"
    )
