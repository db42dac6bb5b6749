"""What a scenario file of the selection family may say; what it shares with others is in `berth.scenario.settings`."""

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
    """Servers that need no list.

    `papers`: servers with no capacity of their own, of `resource_kinds` resources; `capacity.each` is what there is.
    `machines`: 96 cores and 384 GB, 64 cores, 256 GB and 4 GPUs, or 96 cores, 768 GB and 8 GPUs (40, 30, 30 %).
    """

    draw: Literal["papers", "machines"] = "papers"
    servers: Servers = 40
    resource_kinds: Annotated[int, Field(ge=1, le=64), said("a whole number from 1 to 64")] | None = Field(
        default=None, description="how many resources there are; 3 where left out; only for draw: papers"
    )


class DrawnTypes(Part):
    """Job types that need no list.

    `papers`: every channel takes, of each resource, one of the amounts under `demand`, drawn for each of them.
    `gangs`: training jobs of 1 or 2 parameter servers and 2 to 16 GPU workers (70 %), and jobs of 4 to 32 tasks without
    GPUs; a job starts with 25 to 100 % of its tasks.
    """

    draw: Literal["papers", "gangs"] = "papers"
    count: Types | None = Field(default=None, description="8 where left out, 30 for draw: gangs")
    demand: Annotated[list[Amount], Field(min_length=1)] | None = Field(
        default=None, description="[1, 2] where left out; only for draw: papers"
    )


class RoleEntry(Part):
    """One role of a gang job: what a task takes, and how many tasks of it a started job has at least and at most."""

    name: Name
    demand: dict[str, Amount]
    minimum: Annotated[int, Field(ge=0, le=100_000), said("a whole number from 0 to 100000")] = 1
    most: Types | None = Field(None, description="as many as `minimum`, at least 1, where left out")


class SelectionPort(Port):
    """One job type: what its job takes on a server, and the servers that it can reach."""

    roles: Annotated[list[RoleEntry], Field(min_length=1)] | None = Field(
        None, description="in place of demand: the roles of an all-or-nothing job"
    )


class EdgeChannels(Part):
    """Which servers the job types reach that do not name them.

    Each pair of job type and server with this probability; a type that reaches none gets one, and where there are fewer
    than `least` channels in all, more are drawn.
    """

    probability: Chance = 0.1
    least: Index = 8


class Capacity(Part):
    """What limits the open channels: what each server has, or one pool for the whole cluster, as in the papers."""

    scope: Literal["server", "cluster"] | None = Field(
        None, description="cluster where servers are drawn: papers, else server"
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
        description="of each resource, in the pool or on each server: one number, or by resource; 2 for draw: papers",
    )


class GainSettings(Part):
    """How much a task gains through each channel: a mean drawn for every channel, and luck around it every slot.

    `spread` is the standard deviation, as a share of the mean. `bounded`: normal, cut off at 0 and 1. `papers`: normal,
    and cut off so that between 0 and 1 is left after the costs. `empirical`: the mean, shifted as a drawn sample lies
    away from the average of all samples. `measured`: the mean times the speed of the server, or of the job type there,
    times how a worker's mean speed was found to lie from that of its equals (`between`); around it, normal with a
    coefficient of variation as found (`within`), cut off at 0 and 1.
    """

    distribution: Literal["normal", "bounded", "lognormal", "empirical", "papers", "measured"] = "papers"
    mean: Annotated[
        Annotated[NumberRange, Tag("<list>")]
        | Annotated[Number, said("a number, or two, [lowest, highest]"), Tag("<one>")],
        Discriminator(list_or_one),
    ] = Field(default=[0.1, 1.0])
    spread: Amount = 0.5
    samples: Annotated[list[Number], Field(min_length=1)] | None = Field(
        default=None, description="for distribution: empirical, gains once measured"
    )
    speed: dict[str, Positive] | None = Field(
        default=None, description="for distribution: measured, by server or group; 1 for those left out"
    )
    speeds: dict[str, dict[str, Positive]] | None = Field(
        default=None, description="for distribution: measured, by job type and by server or group; 1 for those left out"
    )
    server_spread: Amount = Field(
        default=0.0, description="for distribution: measured, spread of the logarithm of each server's own speed"
    )
    between: Annotated[list[Positive], Field(min_length=2)] | None = Field(
        default=None, description="for distribution: measured, evenly spaced quantiles"
    )
    within: Annotated[list[Amount], Field(min_length=2)] | None = Field(
        default=None, description="for distribution: measured, evenly spaced quantiles"
    )


class Price(Part):
    """What a task pays for a resource: this much times the amount that it takes, its square or its root."""

    price: Amount
    shape: Literal["linear", "quadratic", "sqrt"] = "linear"


class Drift(Part):
    """How mean gains change.

    `redraw`: every so many slots, this share of the channels gets a new mean. `walk`: in every slot, every mean makes a
    normal step of this size and is turned back at the ends of its range.
    """

    kind: Literal["redraw", "walk"]
    every: Count | None = Field(None, description="slots between redraws; 1000 where left out")
    share: Chance | None = Field(None, description="of the channels that are redrawn; 0.3 where left out")
    step: Positive | None = Field(None, description="of a walk; 0.01 where left out")


class Delay(Part):
    """Feedback that comes late: so many slots, drawn anew each slot, and sometimes never."""

    least: Index = 0
    most: Index = 0
    lost: Chance = 0.0


PriceEntry = Annotated[
    Annotated[Amount, said("a number ≥ 0, or {price, shape}"), Tag("<one>")] | Annotated[Price, Tag("<full>")],
    Discriminator(lambda value: "<full>" if isinstance(value, dict | Price) else "<one>"),
]


class SelectionBernoulli(Bernoulli):
    """A job with this probability, independently each slot: one number, or one for each job type.

    Job types listed in `dead`, by name or number, never have one.
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
        description="slot: the best choice of each slot for known mean gains; information: a learner that is told what "
        "the gains were drawn from; default: both, without information where mean gains drift",
    )
    cluster: Annotated[
        Annotated[DrawnServers, Tag("<drawn>")] | Annotated[GivenCluster, Tag("<given>")],
        Discriminator(cluster_form),
        CLUSTER,
    ] = Field(default_factory=DrawnServers, description="servers and what they have")
    ports: Annotated[
        Annotated[DrawnTypes, Tag("<mapping>")] | Annotated[list[SelectionPort], Field(min_length=1), Tag("<list>")],
        Discriminator(list_or_mapping),
        DRAW,
    ] = Field(default_factory=DrawnTypes, description="job types")
    channels: EdgeChannels | None = Field(
        None, description="default: probability 0.1 and at least 8 for drawn ports, else all"
    )
    capacity: Capacity | None = Field(None, description="default: as `cluster` says")
    gains: Annotated[GainSettings, changed("distribution")] = Field(
        default_factory=GainSettings, description="what a task earns, not known to policies"
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
        description="of a task, known to policies: one number, a range to draw from for each channel, or prices of "
        "what it takes, by resource (a number, or {price, shape}); default: 0, or the papers' where gains are so",
    )
    drift: Annotated[Drift | None, changed("kind", missing=None)] = Field(None, description="default: means stay")
    delay: Delay | None = Field(None, description="default: feedback comes in the same slot")
    arrivals: Arrivals[SelectionBernoulli] = Field(default_factory=SelectionBernoulli, description="when jobs come")
    outages: Outages | None = Field(
        None, description="default: servers never fail; only where capacity is that of each server"
    )
