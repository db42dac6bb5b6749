"""What a scenario file of the placement family may say; what it shares with others is in `berth.scenario.settings`."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, PlainSerializer, Tag

from berth.files.wording import Part, said
from berth.scenario.settings import (
    PROCESS,
    WHOLE,
    Amount,
    AmountRange,
    Chance,
    Common,
    Name,
    Positive,
    ResourceEntries,
    Restated,
    list_or_mapping,
)

__all__ = [
    "Draw",
    "DrawnTasks",
    "GivenSizes",
    "PlacementCluster",
    "PlacementSettings",
    "PlacementTask",
    "PoissonSizes",
    "ServerKind",
    "WorkloadTasks",
]

NEVER = "never"

Many = Annotated[int, Field(ge=1, le=1_000_000), said("a whole number from 1 to 1000000")]
Index = Annotated[int, Field(ge=0, le=10_000_000), said("a whole number from 0 to 10000000")]
Share = Annotated[float, Field(ge=0, le=1), said("a share, 0 to 1")]
Idle = Annotated[
    float,
    Field(ge=0, allow_inf_nan=True),
    said(f"a time ≥ 0, or {NEVER}"),
    BeforeValidator(lambda value: math.inf if value == NEVER else value),
    PlainSerializer(lambda value: NEVER if math.isinf(value) else value, return_type=float | str),
]


class ServerKind(Part):
    """Servers that are all alike, called name-0, name-1, … where there are several.

    How many is said by `count`, or by `share` where the cluster has a `count` of its own.
    """

    name: Name
    count: Many | None = Field(default=None, description="1 where left out")
    share: Share | None = Field(default=None, description="of the cluster's count")
    capacity: dict[str, Amount] = Field(description="what each has of each resource; 0 of those left out")
    speed: Positive = Field(default=1.0, description="work done in a unit of time, such as the clock in GHz")
    launch: Amount | None = Field(default=None, description="what it costs to launch one, in place of launch_cost")
    rate: Amount | None = Field(
        default=None, description="what a weighted unit of demand costs in a unit of time, in place of execution_cost"
    )


class PlacementCluster(Part):
    """Resources and kinds of servers by name; ties are broken by what is left of the first resource."""

    resources: ResourceEntries
    count: Many | None = Field(default=None, description="of all servers, where kinds say their share")
    servers: Annotated[list[ServerKind], Field(min_length=1)]


class LaunchCost(Part):
    """Launching a server costs factor · Σ weight · capacity."""

    factor: Amount = 0.04
    weights: dict[str, Amount] | None = Field(
        default=None, description="by resource, 0 for those left out; 1 for every resource where all are left out"
    )


class ExecutionCost(Part):
    """Running a task costs factor · speed ^ clock_power · Σ weight · demand for each unit of time that it takes."""

    factor: Amount = 0.02
    clock_power: Amount = Field(
        default=1.0, description="with 1 a task costs the same on every server; real clocks are near 3"
    )
    weights: dict[str, Amount] | None = Field(
        default=None, description="by resource, 0 for those left out; 1 for every resource where all are left out"
    )


class PoissonSizes(Part):
    """Batches of so many tasks on average."""

    process: Literal["poisson"] = "poisson"
    mean: Annotated[float, Field(ge=0, le=1_000_000), said("a number from 0 to 1000000")] = 10.0


class GivenSizes(Part):
    """How many tasks each batch has."""

    process: Literal["given"]
    sizes: Annotated[list[Index], Field(min_length=1)]


def _process(value: Any) -> str:
    process = value.get("process", "poisson") if isinstance(value, dict) else getattr(value, "process", "poisson")
    return f"<{process}>"


class Draw(Part):
    """A number drawn for each task: one of `integers`, `uniform`, `choices`, `per_work` and `per_value`.

    With a `probability` it is 0 for all other tasks.
    """

    integers: Annotated[list[Index], Field(min_length=2, max_length=2), said("two whole numbers ≥ 0")] | None = Field(
        default=None, description="[lowest, highest], each as likely as the others"
    )
    uniform: AmountRange | None = None
    choices: Annotated[list[Amount], Field(min_length=1)] | None = Field(default=None, description="one of these")
    per_work: Amount | None = Field(default=None, description="so much for each unit of work")
    per_value: Amount | None = Field(default=None, description="so much for each unit of value")
    probability: Chance = 1.0


def _number_or_draw(value: Any) -> str:
    return "<mapping>" if isinstance(value, (dict, Draw)) else "<one>"


Quantity = Annotated[
    Annotated[Draw, Tag("<mapping>")]
    | Annotated[Amount, said("a number ≥ 0, or how it is drawn (key: value)"), Tag("<one>")],
    Discriminator(_number_or_draw),
]


class Value(Part):
    """What a task is worth at once: normal, drawn again where it falls below `least`."""

    mean: Positive = 6.0
    variance: Amount | None = Field(default=None, description="twice the mean where left out")
    least: Amount | None = Field(default=None, description="a tenth of the mean where left out")


class Deadline(Part):
    """Arrival plus `stretch`, drawn from a range, times the time that the task takes at this speed."""

    stretch: AmountRange = Field(default=[1.0, 3.0])
    speed: Positive | None = Field(default=None, description="that of the slowest server where left out")


class DrawnTasks(Part):
    """Tasks that need no list."""

    value: Value = Field(default_factory=Value, description="earned where the task ends at once")
    work: Annotated[Quantity, WHOLE] = Field(
        default_factory=lambda: Draw(per_value=1.0),
        description="a number, or how it is drawn; it takes work / speed of the server; default: {per_value: 1}",
    )
    demand: dict[str, Annotated[Quantity, WHOLE]] = Field(
        description="a number or how it is drawn, by resource; 0 of those left out"
    )
    sensitivity: Annotated[list[Amount], Field(min_length=1)] = Field(
        default=[0.5, 1.0, 2.0], description="value lost in each unit of time until the task is done: one of these"
    )
    deadline: Deadline = Field(default_factory=Deadline, description="after it the task is worth nothing")


class WorkloadTasks(Part):
    """Tasks that are the jobs of the scenario's workload: when they come, what they request, how long they run.

    Work is the run time, in units of the period, on a server of speed 1. What a task is worth is not in any trace: for
    each weighted unit of demand and each unit of work `worth`, times a number drawn as `value` says over its mean. Its
    sensitivity, one of these, is the share of that value lost in the time of its work. All other names mean what they
    do where tasks are drawn.
    """

    draw: Literal["workload"] = Field(description="tasks of the workload")
    worth: Positive = Field(
        default=0.2,
        description="value of a weighted unit of demand and of work; by default ten times its usual cost",
    )
    value: Value = Field(
        default_factory=Value, description="drawn as for other tasks, over its mean: a factor of worth"
    )
    sensitivity: Annotated[list[Amount], Field(min_length=1)] = Field(
        default=[0.2, 0.4, 0.8],
        description="share of its value that a task loses in the time of its work: one of these",
    )
    deadline: Deadline = Field(default_factory=Deadline, description="as for other tasks")
    known: Literal["run", "estimate"] = Field(
        default="run", description="what policies know of how long a task runs: all, or what its user said"
    )
    gangs: bool = Field(default=True, description="pieces start together; else each is a task of its own")
    needs: bool = Field(default=True, description="tasks use only servers with a label that they need; else any")
    devices: bool = Field(default=True, description="shares of a GPU are of one device; else GPUs are like cores")


class PlacementTask(Part):
    """One task."""

    batch: Index = Field(default=0, description="the number of the batch with which it arrives, from 0")
    demand: dict[str, Amount]
    work: Positive
    value: Amount
    sensitivity: Amount = 0.0
    deadline: Amount = Field(description="a time, from the start of the run")


class Permanent(Part):
    """Servers that are lost for good: each with this probability, or this share of them."""

    probability: Chance | None = None
    share: Share | None = None
    time: Amount | None = Field(
        default=None, description="when; at any time of the run, each at its own, where left out"
    )


class Transient(Part):
    """Servers that fail and come back: mean times, exponentially distributed."""

    up: Positive
    down: Positive


class GivenFailure(Part):
    """A server that is down for a while."""

    server: Name
    time: Amount
    until: Positive | None = Field(default=None, description="for good where left out")


class Failures(Part):
    """Servers that fail: their tasks are lost and wait again."""

    permanent: Annotated[Permanent | None, WHOLE] = None
    transient: Transient | None = None
    given: list[GivenFailure] = Field(default_factory=list)


def _tasks_form(value: Any) -> str:
    if isinstance(value, WorkloadTasks) or (isinstance(value, dict) and "draw" in value):
        return "<workload>"
    return list_or_mapping(value)


class PlacementSettings(Common):
    """A whole scenario of the placement family; its slots are the times between two batches."""

    family: Literal["placement"] = Field(description="which server runs each task, and when; tasks come in batches")
    arrivals_known: Annotated[
        Literal["revealed"], said("revealed: in the placement family policies always see the tasks that have arrived")
    ] = Field("revealed", description="policies always see the tasks that have arrived")
    oracles: list[Literal["slot"]] | None = Field(None, description="a bound for one who knows all tasks")
    period: Positive = Field(default=1.0, description="time between two batches")
    idle: Idle = Field(
        default=0.0, description=f"time after its last task at which a server is switched off, or {NEVER}"
    )
    cluster: PlacementCluster = Field(description="servers and what they have")
    launch_cost: LaunchCost = Field(default_factory=LaunchCost, description="paid whenever a server is switched on")
    execution_cost: ExecutionCost = Field(default_factory=ExecutionCost, description="paid while a task runs")
    arrivals: (
        Annotated[
            Annotated[PoissonSizes, Tag("<poisson>")] | Annotated[GivenSizes, Tag("<given>")],
            Discriminator(_process),
            PROCESS,
        ]
        | None
    ) = Field(default=None, description="tasks of each batch; default: Poisson with mean 10 where tasks are drawn")
    tasks: Annotated[
        Annotated[DrawnTasks, Tag("<mapping>")]
        | Annotated[WorkloadTasks, Tag("<workload>")]
        | Annotated[list[PlacementTask], Tag("<list>")],
        Discriminator(_tasks_form),
        Restated(lambda below, above: "draw" in below and "demand" in above),
    ] = Field(description="drawn, those of the workload, or a list")
    failures: Failures | None = Field(None, description="default: servers never fail")
