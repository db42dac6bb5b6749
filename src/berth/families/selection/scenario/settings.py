"""Keys of a scenario file of the selection family; `berth.scenario.settings` holds the keys of all families."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from berth.files.wording import Part, said
from berth.scenario.settings import (
    CLUSTER,
    DRAW,
    Amount,
    AmountRange,
    Arrivals,
    Bernoulli,
    Chance,
    Chances,
    Common,
    Count,
    GivenCluster,
    Name,
    Outages,
    Port,
    Positive,
    Servers,
    Types,
    changed,
    cluster_form,
    list_or_mapping,
    list_or_one,
    shape_of,
)

__all__ = [
    "DrawnServers",
    "DrawnTypes",
    "Drift",
    "RoleEntry",
    "SelectionBernoulli",
    "SelectionPort",
    "SelectionSettings",
]

Number = Annotated[float, said("a number")]
NumberRange = Annotated[list[Number], Field(min_length=2, max_length=2), said("two numbers, [lowest, highest]")]
Index = Annotated[int, Field(ge=0, le=10_000_000), said("a whole number from 0 to 10000000")]


class DrawnServers(Part):
    """Servers drawn from a seed.

    `papers`: servers with no capacity of their own and `resource_kinds` resources; `capacity.each` is the pool.
    `machines`: 96 cores and 384 GB, 64 cores, 256 GB and 4 GPUs, or 96 cores, 768 GB and 8 GPUs (40, 30, 30 %).
    """

    draw: Literal["papers", "machines"] = "papers"
    servers: Servers = 40
    resource_kinds: Annotated[int, Field(ge=1, le=64), said("a whole number from 1 to 64")] | None = Field(
        default=None, description="number of resources; default: 3; only for draw: papers"
    )


class DrawnTypes(Part):
    """Job types drawn from a seed.

    `papers`: each channel draws its demand for each resource from the amounts under `demand`.
    `gangs`: training jobs of 1 or 2 parameter servers and 2 to 16 GPU workers (70 %), and jobs of 4 to 32 tasks without
    GPUs; a job starts with 25 to 100 % of its tasks.
    """

    draw: Literal["papers", "gangs"] = "papers"
    count: Types | None = Field(default=None, description="default: 8, or 30 for draw: gangs")
    demand: Annotated[list[Amount], Field(min_length=1)] | None = Field(
        default=None, description="default: [1, 2]; only for draw: papers"
    )


class RoleEntry(Part):
    """One role of a gang job: the demand of a task, and the least and most tasks of a started job."""

    name: Name
    demand: dict[str, Amount]
    minimum: Annotated[int, Field(ge=0, le=100_000), said("a whole number from 0 to 100000")] = 1
    most: Types | None = Field(None, description="default: `minimum`, but at least 1")


class SelectionPort(Port):
    """One job type: the demand of its job on a server, and the servers that it can reach."""

    roles: Annotated[list[RoleEntry], Field(min_length=1)] | None = Field(
        None, description="the roles of an all-or-nothing job, instead of demand"
    )


class EdgeChannels(Part):
    """Channels of job types that name no servers.

    Each pair of job type and server has a channel with this probability. A type that reaches no server gets one
    channel, and more are drawn while there are fewer than `least` in all.
    """

    probability: Chance = 0.1
    least: Index = 8


class Capacity(Part):
    """Capacity of open channels: of each server, or of one pool for the whole cluster, as in the papers."""

    scope: Literal["server", "cluster"] | None = Field(
        None, description="default: cluster for draw: papers, else server"
    )
    each: (
        Annotated[
            Annotated[dict[str, Amount], Tag("<mapping>")]
            | Annotated[Amount, said("a number ≥ 0, or one for each resource"), Tag("<one>")],
            Discriminator(lambda value: "<mapping>" if isinstance(value, dict) else "<one>"),
        ]
        | None
    ) = Field(
        None,
        description="capacity of the pool or of each server: one number, or one by resource; 2 for draw: papers",
    )


class GainSettings(Part):
    """Gain of a task through each channel: a mean drawn for each channel, and noise around it in each slot.

    `spread` is the standard deviation as a share of the mean. `bounded`: normal, clipped to [0, 1]. `papers`: normal,
    clipped so that the gain after costs lies in [0, 1]. `empirical`: the mean plus the deviation of a drawn sample from
    the average of all samples. `measured`: the mean times the speed of the server (or of the job type there) times the
    measured ratio of a worker's mean speed to that of its peers (`between`), with normal noise of a measured
    coefficient of variation (`within`), clipped to [0, 1].
    """

    distribution: Literal["normal", "bounded", "lognormal", "empirical", "papers", "measured"] = "papers"
    mean: Annotated[
        Annotated[NumberRange, Tag("<list>")]
        | Annotated[Number, said("a number, or two, [lowest, highest]"), Tag("<one>")],
        Discriminator(list_or_one),
    ] = Field(default=[0.1, 1.0])
    spread: Amount = 0.5
    samples: Annotated[list[Number], Field(min_length=1)] | None = Field(
        default=None, description="for distribution: empirical: measured gains"
    )
    speed: dict[str, Positive] | None = Field(
        default=None, description="for distribution: measured: speed by server or group; default: 1"
    )
    speeds: dict[str, dict[str, Positive]] | None = Field(
        default=None, description="for distribution: measured: speed by job type, then by server or group; default: 1"
    )
    server_spread: Amount = Field(
        default=0.0,
        description="for distribution: measured: standard deviation of the logarithm of each server's speed",
    )
    between: Annotated[list[Positive], Field(min_length=2)] | None = Field(
        default=None, description="for distribution: measured: evenly spaced quantiles"
    )
    within: Annotated[list[Amount], Field(min_length=2)] | None = Field(
        default=None, description="for distribution: measured: evenly spaced quantiles"
    )


class Price(Part):
    """Price of a resource: the cost of a task is this price times the amount that it takes, its square or its root."""

    price: Amount
    shape: Literal["linear", "quadratic", "sqrt"] = "linear"


class Drift(Part):
    """Change of mean gains over time.

    `redraw`: every `every` slots, a `share` of the channels gets a new mean. `walk`: in every slot, every mean takes a
    normal step of size `step` and is reflected at the ends of its range.
    """

    kind: Literal["redraw", "walk"]
    every: Count | None = Field(None, description="slots between redraws; default: 1000")
    share: Chance | None = Field(None, description="share of the channels that are redrawn; default: 0.3")
    step: Positive | None = Field(None, description="standard deviation of a step of the walk; default: 0.01")


class Delay(Part):
    """Delayed feedback: a number of slots drawn in each slot; some feedback never arrives."""

    least: Index = 0
    most: Index = 0
    lost: Chance = 0.0


PriceEntry = Annotated[
    Annotated[Amount, said("a number ≥ 0, or {price, shape}"), Tag("<one>")] | Annotated[Price, Tag("<full>")],
    Discriminator(lambda value: "<full>" if isinstance(value, dict | Price) else "<one>"),
]


class SelectionBernoulli(Bernoulli):
    """A job with this probability, independently each slot: one number, or one for each job type.

    Job types listed in `dead`, by name or number, never have a job.
    """

    probability: Chances = 0.9
    dead: list[
        Annotated[
            Annotated[Name, Tag("<text>")] | Annotated[Index, Tag("<number>")],
            Discriminator(lambda value: "<text>" if isinstance(value, str) else "<number>"),
        ]
    ] = Field(default_factory=list)


class SelectionSettings(Common):
    """A whole scenario of the selection family."""

    family: Literal["selection"] = Field(description="on which servers each job starts; gains must be learned")
    arrivals_known: Annotated[
        Literal["revealed"], said("revealed: in the selection family policies always see who has a job")
    ] = Field("revealed", description="policies always see who has a job before they decide")
    oracles: list[Literal["slot", "information"]] | None = Field(
        None,
        description="slot: the best choice of each slot for known mean gains; information: a learner that knows the "
        "distribution of the gains; default: both, or slot alone if mean gains drift",
    )
    cluster: Annotated[
        Annotated[DrawnServers, Tag("<drawn>")] | Annotated[GivenCluster, Tag("<given>")],
        Discriminator(cluster_form),
        CLUSTER,
    ] = Field(default_factory=DrawnServers, description="servers and their capacity")
    ports: Annotated[
        Annotated[DrawnTypes, Tag("<mapping>")] | Annotated[list[SelectionPort], Field(min_length=1), Tag("<list>")],
        Discriminator(list_or_mapping),
        DRAW,
    ] = Field(default_factory=DrawnTypes, description="job types")
    channels: EdgeChannels | None = Field(
        None, description="default: probability 0.1 and at least 8 for drawn ports, else all"
    )
    capacity: Capacity | None = Field(None, description="capacity of servers or of a pool; default: from `cluster`")
    gains: Annotated[GainSettings, changed("distribution")] = Field(
        default_factory=GainSettings, description="gain of a task, unknown to policies"
    )
    costs: (
        Annotated[
            Annotated[AmountRange, Tag("<list>")]
            | Annotated[dict[str, PriceEntry], Tag("<mapping>")]
            | Annotated[Amount, said("a number ≥ 0, a range [lowest, highest], or a price by resource"), Tag("<one>")],
            Discriminator(shape_of),
        ]
        | None
    ) = Field(
        None,
        description="cost of a task, known to policies: one number, a range to draw from for each channel, or prices "
        "by resource (a number, or {price, shape}); default: 0, or the papers' costs with the papers' gains",
    )
    drift: Annotated[Drift | None, changed("kind", missing=None)] = Field(None, description="default: means stay")
    delay: Delay | None = Field(None, description="default: feedback comes in the same slot")
    arrivals: Arrivals[SelectionBernoulli] = Field(default_factory=SelectionBernoulli, description="when jobs come")
    outages: Outages | None = Field(None, description="default: servers never fail; only with capacity per server")
