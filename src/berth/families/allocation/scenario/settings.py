"""Keys of a scenario file of the allocation family; `berth.scenario.settings` holds the keys of all families."""

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
    Common,
    Few,
    GivenCluster,
    Minimum,
    Name,
    Outages,
    Port,
    Positive,
    PositiveRange,
    Servers,
    Types,
    cluster_form,
    list_or_mapping,
    list_or_one,
    shape_of,
)

__all__ = ["AllocationSettings", "DrawnCluster", "DrawnPorts", "PortEntry"]


class DrawnCluster(Part):
    """Servers drawn like those of the Alibaba trace: six resources, three kinds of machine."""

    draw: Literal["alibaba-like"] = "alibaba-like"
    servers: Servers = 128


class DrawnPorts(Part):
    """Job types drawn like those of the Alibaba trace; `contention` multiplies what they request."""

    draw: Literal["alibaba-like"] = "alibaba-like"
    count: Types = 10
    contention: Positive = 10.0


class ComponentEntry(Part):
    """One task component of a gang job."""

    name: Name | None = None
    demand: dict[str, Amount]


class PortEntry(Port):
    """One job type: what a job can use on one server, and the servers that it can reach."""

    components: Annotated[list[ComponentEntry], Field(min_length=1)] | None = Field(
        None, description="the task components of an all-or-nothing job, instead of demand"
    )
    minimum: Minimum | None = Field(None, description="number of components that must be seated; default: all")


class Channels(Part):
    """Channels of job types that name no servers.

    `density` is the mean number of job types that a server serves: 3 draws 2, 3 or 4 of them, 2.5 draws 1 to 4, 2 draws
    1 to 3; in general uniformly from max(1, ⌊d⌋ − 1) to the same distance above d. A density between halves mixes its
    two neighbours to meet the mean. A server never serves more than all job types. A type that no server drew gets one
    channel to a random server. `all`: every type reaches every server.
    """

    density: Annotated[
        Annotated[Literal["all"], said("a number ≥ 1, or all"), Tag("<text>")]
        | Annotated[float, Field(ge=1), said("a number ≥ 1, or all"), Tag("<number>")],
        Discriminator(lambda value: "<text>" if isinstance(value, str) else "<number>"),
    ] = 3.0
    listed: bool = Field(
        False,
        description="draw the job types of each server one by one: for very many servers; the draws are others",
    )


class FixedUtility(Part):
    kind: Name
    alpha: Positive = 1.0


class UtilitySettings(Part):
    """Utilities: a kind and an α drawn for every server and resource; `fixed` sets both for a resource."""

    kinds: Annotated[list[Name], Field(min_length=1)] = Field(default=["linear", "log", "reciprocal", "poly"])
    alpha: Annotated[
        Annotated[PositiveRange, Tag("<list>")]
        | Annotated[Positive, said("a number > 0, or two, [lowest, highest]"), Tag("<one>")],
        Discriminator(list_or_one),
    ] = Field(default=[1.0, 1.5])
    fixed: dict[str, FixedUtility] = Field(default_factory=dict, description="by resource")


class Gangs(Part):
    """All-or-nothing jobs: every job type's request is split at random into this number of components."""

    components: Few | None = Field(None, description="number of components; leave out if the ports list their own")
    minimum: Minimum | None = Field(None, description="number of components that must be seated; default: all")
    share: Annotated[float, Field(ge=0, le=1), said("a share, 0 to 1")] = Field(
        0.5, description="share of its request at which a component is seated"
    )


class AllocationSettings(Common):
    """A whole scenario of the allocation family."""

    family: Literal["allocation"] = Field("allocation", description="how much of each server each job gets")
    arrivals_known: Literal["hidden", "revealed", "both"] = Field(
        "both", description="whether policies see the arrivals of a slot before they decide"
    )
    oracles: list[Literal["stationary", "slot"]] | None = Field(
        None, description="the best stationary decision, and the optimum of each slot"
    )
    cluster: Annotated[
        Annotated[DrawnCluster, Tag("<drawn>")] | Annotated[GivenCluster, Tag("<given>")],
        Discriminator(cluster_form),
        CLUSTER,
    ] = Field(description="servers and their capacity")
    ports: Annotated[
        Annotated[DrawnPorts, Tag("<mapping>")] | Annotated[list[PortEntry], Field(min_length=1), Tag("<list>")],
        Discriminator(list_or_mapping),
        DRAW,
    ] = Field(description="job types")
    channels: Channels | None = Field(None, description="default: density 3 for drawn ports, else all")
    utilities: UtilitySettings = Field(
        default_factory=UtilitySettings, description="value to a job of an amount of a resource on a server"
    )
    overhead: Annotated[
        Annotated[AmountRange, Tag("<list>")]
        | Annotated[dict[str, Amount], Tag("<mapping>")]
        | Annotated[Amount, said("a number ≥ 0, a range [lowest, highest], or one for each resource"), Tag("<one>")],
        Discriminator(shape_of),
    ] = Field(
        [0.3, 0.5],
        description="overhead weight β: one number, a range to draw from for each resource, or one number by resource",
    )
    arrivals: Arrivals[Bernoulli] = Field(default_factory=Bernoulli, description="when jobs come")
    gangs: Gangs | None = Field(None, description="default: no gangs")
    outages: Outages | None = Field(None, description="default: servers never fail")
