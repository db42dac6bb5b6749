"""What a scenario file may say: the keys, their types and defaults. The reference page is made from this.

Here is what families share; each has its own keys in `settings` of its folder `scenario`. Numbers are strict: `true` is
no number and `2.0` no count. Meaning across keys (names that must exist, lists that must match) is checked in `checks`.
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
    """Marks a key that a layer above can give in another form: then nothing of the layer below stays in it.

    `when` says whether it does, from the mappings below and above. A plain text stands for a mapping with the key
    `short`, where there is one.
    """

    when: Callable[[dict[str, Any], dict[str, Any]], bool]
    short: str | None = None


def changed(*keys: str, missing: Any = ..., short: str | None = None) -> Restated:
    """In another form where one of these keys changes; one that the layer below lacks is `missing`, or no change."""

    def when(below: dict[str, Any], above: dict[str, Any]) -> bool:
        return any(k in above and above[k] != below.get(k, above[k] if missing is ... else missing) for k in keys)

    return Restated(when, short)


WHOLE = Restated(lambda below, above: True)
PROCESS = changed("process", missing="bernoulli")
DRAW = changed("draw")


def _other_cluster(below: dict[str, Any], above: dict[str, Any]) -> bool:
    """It is drawn in another way, or listed in place of drawn, or drawn in place of listed."""
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


# these are also asked about what is already built, when it is dumped
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
    """One server, or `count` alike, which are then called name-0, name-1, …"""

    name: Name
    count: Servers = 1
    capacity: dict[str, Amount] = Field(description="what it has of each resource; 0 of those left out")


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
    """What job types of every family say."""

    name: Name
    demand: dict[str, Amount] | None = None
    servers: Reach | None = Field(
        None, description="all, or names of servers or of server groups; as `channels` says where left out"
    )
    probability: Chance | None = Field(None, description="of a job in a slot, in place of arrivals.probability")


class Bernoulli(Part):
    """A job with this probability, independently each slot: one number, or one for each job type."""

    process: Literal["bernoulli"] = "bernoulli"
    probability: Chances = 0.7


class Switching(Part):
    """Probabilities drawn anew between `low` and `high` for every job type every so many slots."""

    process: Literal["switching"]
    every: Count = 250
    low: Chance = 0.1
    high: Chance = 0.9


class Poisson(Part):
    """Several jobs a slot: Poisson with this mean (one number, or one for each job type), at most `most`."""

    process: Literal["poisson"]
    mean: Annotated[
        Annotated[Amount, Tag("<one>")] | Annotated[list[Amount], Tag("<list>")],
        Discriminator(list_or_one),
    ]
    most: Few


class Given(Part):
    """Slot by slot, for each job type, 1 where it has a job and 0 where it has none."""

    process: Literal["given"]
    slots: Annotated[list[list[Annotated[int, Field(ge=0, le=1), said("0 or 1")]]], Field(min_length=1)]


class FromWorkload(Part):
    """As jobs of the scenario's workload come: 1 where a slot has any of that job type."""

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
"""How jobs come; families differ in the process `bernoulli` only."""


class Outages(Part):
    """Servers that fail and come back: the chance of each, in a slot."""

    probability: Chance
    repair: Chance


class WorkloadSettings(Part):
    """A real workload, which gives cluster, job types, channels and arrivals; other keys of the file still hold.

    One of `name`, `fit` and `trace`. From a fit every seed draws jobs of its own; of a trace every seed takes another
    window. With fewer servers than the workload has, jobs come as much more rarely.
    """

    name: Name | None = Field(None, description="of a workload that comes with berth; `berth workload list`")
    fit: Name | None = Field(None, description="a file that `berth workload fit` wrote")
    trace: Name | None = Field(None, description="a trace in any format that berth reads")
    format: Name | None = Field(None, description="of the trace, where it is not recognised")
    since: Amount | None = Field(None, description="second of the trace before which jobs are left out")
    servers: Servers = Field(40, description="as many of each shape as its share, the largest remainders rounded up")
    load: Positive | None = Field(
        None,
        description="mean share of the scarcest resource that is requested, as it is where left out; where jobs last "
        "one slot, the job of a type then stands for as many like it as give this load",
    )
    slot_seconds: Positive | None = Field(
        None, description="how long a slot is; so that the commonest type has 0.7 jobs in it where left out"
    )
    ports: Literal["demand", "kind", "needs", "size", "user"] = Field(
        "demand", description="what job types are: clusters of what jobs request, or a column of the trace"
    )
    types: Few = Field(8, description="the most job types; rarer ones become one type, other")
    digest: Name | None = Field(None, description="SHA-256 of the file; filled in, and refused if the file is another")


Workloads = Annotated[
    Annotated[Name, Tag("<name>")] | Annotated[WorkloadSettings, Tag("<full>")], Discriminator(resource_form)
]


class Common(Part):
    """What the scenarios of every family say."""

    name: Name | None = Field(None, description="default: the name of the file")
    title: Text = Field("", description="one line, shown above tables and plots")
    description: Text = Field("", description="free text")
    family: str
    horizon: Count | None = Field(None, description="slots of a run; default: 2000, or as many as the file gives")
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
