"""Keys of a scenario file of the placement family; `berth.scenario.settings` holds the keys of all families."""

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
    """Identical servers, named name-0, name-1, … if there are several.

    `count` gives their number, or `share` if the cluster has a `count`.
    """

    name: Name
    count: Many | None = Field(default=None, description="number of servers; default: 1")
    share: Share | None = Field(default=None, description="share of the cluster's count")
    capacity: dict[str, Amount] = Field(description="capacity of each server by resource; default: 0")
    speed: Positive = Field(default=1.0, description="work done per unit of time, such as the clock in GHz")
    launch: Amount | None = Field(default=None, description="cost of launching one server, overrides launch_cost")
    rate: Amount | None = Field(
        default=None, description="cost of a weighted unit of demand per unit of time, overrides execution_cost"
    )


class PlacementCluster(Part):
    """Resources and kinds of servers by name; the free amount of the first resource breaks ties."""

    resources: ResourceEntries
    count: Many | None = Field(default=None, description="number of all servers, if kinds give shares")
    servers: Annotated[list[ServerKind], Field(min_length=1)]


class LaunchCost(Part):
    """Launching a server costs factor · Σ weight · capacity."""

    factor: Amount = 0.04
    weights: dict[str, Amount] | None = Field(
        default=None, description="weight by resource, 0 for those left out; default: 1 for every resource"
    )


class ExecutionCost(Part):
    """Running a task costs factor · speed ^ clock_power · Σ weight · demand per unit of time."""

    factor: Amount = 0.02
    clock_power: Amount = Field(
        default=1.0, description="with 1 a task costs the same on every server; real clocks are near 3"
    )
    weights: dict[str, Amount] | None = Field(
        default=None, description="weight by resource, 0 for those left out; default: 1 for every resource"
    )


class PoissonSizes(Part):
    """Batch sizes drawn from a Poisson distribution."""

    process: Literal["poisson"] = "poisson"
    mean: Annotated[float, Field(ge=0, le=1_000_000), said("a number from 0 to 1000000")] = 10.0


class GivenSizes(Part):
    """Number of tasks in each batch, as a list."""

    process: Literal["given"]
    sizes: Annotated[list[Index], Field(min_length=1)]


def _process(value: Any) -> str:
    process = value.get("process", "poisson") if isinstance(value, dict) else getattr(value, "process", "poisson")
    return f"<{process}>"


class Draw(Part):
    """A number drawn for each task: one of `integers`, `uniform`, `choices`, `per_work` and `per_value`.

    With a `probability`, the number is 0 for all other tasks.
    """

    integers: Annotated[list[Index], Field(min_length=2, max_length=2), said("two whole numbers ≥ 0")] | None = Field(
        default=None, description="[lowest, highest], each as likely as the others"
    )
    uniform: AmountRange | None = None
    choices: Annotated[list[Amount], Field(min_length=1)] | None = Field(default=None, description="one of these")
    per_work: Amount | None = Field(default=None, description="amount per unit of work")
    per_value: Amount | None = Field(default=None, description="amount per unit of value")
    probability: Chance = 1.0


def _number_or_draw(value: Any) -> str:
    return "<mapping>" if isinstance(value, (dict, Draw)) else "<one>"


Quantity = Annotated[
    Annotated[Draw, Tag("<mapping>")]
    | Annotated[Amount, said("a number ≥ 0, or how it is drawn (key: value)"), Tag("<one>")],
    Discriminator(_number_or_draw),
]


class Value(Part):
    """Value of a task that ends at once: normal, drawn again if below `least`."""

    mean: Positive = 6.0
    variance: Amount | None = Field(default=None, description="default: twice the mean")
    least: Amount | None = Field(default=None, description="default: a tenth of the mean")


class Deadline(Part):
    """Deadline: arrival plus a drawn `stretch` times the run time of the task at `speed`."""

    stretch: AmountRange = Field(default=[1.0, 3.0])
    speed: Positive | None = Field(default=None, description="default: the speed of the slowest server")


class DrawnTasks(Part):
    """Tasks drawn from a seed."""

    value: Value = Field(default_factory=Value, description="value of a task that ends at once")
    work: Annotated[Quantity, WHOLE] = Field(
        default_factory=lambda: Draw(per_value=1.0),
        description="a number, or how it is drawn; a task runs for work / speed of its server; default: {per_value: 1}",
    )
    demand: dict[str, Annotated[Quantity, WHOLE]] = Field(
        description="a number or how it is drawn, by resource; default: 0"
    )
    sensitivity: Annotated[list[Amount], Field(min_length=1)] = Field(
        default=[0.5, 1.0, 2.0], description="value lost per unit of time until the task is done, drawn from this list"
    )
    deadline: Deadline = Field(default_factory=Deadline, description="after it the task is worth nothing")


class WorkloadTasks(Part):
    """Tasks taken from the scenario's workload: arrival, request and run time of each job.

    Work is the run time on a server of speed 1, in units of the period. Traces hold no values: the value of a task is
    `worth` for each weighted unit of demand and each unit of work, times a factor drawn as `value` and divided by its
    mean. With a `power` other than 1, demand times work counts as (demand · work) ^ power, scaled so that the mean task
    of the run is worth the same. The sensitivity of a task is the share of its value that it loses in its run time. All
    other keys mean the same as for drawn tasks.
    """

    draw: Literal["workload"] = Field(description="tasks of the workload")
    worth: Positive = Field(
        default=0.2,
        description="value of a weighted unit of demand and of work; default: ten times its usual cost",
    )
    value: Value = Field(
        default_factory=Value, description="factor of worth: drawn as for other tasks, divided by the mean"
    )
    power: Positive = Field(
        default=1.0,
        description="power of demand and work in the value: below 1 large tasks are worth less for each unit, and the "
        "mean task is worth the same",
    )
    sensitivity: Annotated[list[Amount], Field(min_length=1)] = Field(
        default=[0.2, 0.4, 0.8],
        description="share of its value that a task loses in its run time, drawn from this list",
    )
    deadline: Deadline = Field(default_factory=Deadline, description="as for other tasks")
    known: Literal["run", "estimate"] = Field(
        default="run", description="run time that policies see: the true one, or the user's estimate"
    )
    gangs: bool = Field(default=True, description="true: pieces start together; false: each piece is a task")
    needs: bool = Field(
        default=True, description="true: tasks use only servers with a label that they need; false: any server"
    )
    devices: bool = Field(
        default=True, description="true: a share of a GPU lies on one device; false: GPUs are divisible like cores"
    )


class PlacementTask(Part):
    """One listed task."""

    batch: Index = Field(default=0, description="batch in which the task arrives, from 0")
    demand: dict[str, Amount]
    work: Positive
    value: Amount
    sensitivity: Amount = 0.0
    deadline: Amount = Field(description="time since the start of the run")


class Permanent(Part):
    """Servers that fail for good: each with this probability, or this share of them."""

    probability: Chance | None = None
    share: Share | None = None
    time: Amount | None = Field(
        default=None, description="time of the failures; default: a random time for each server"
    )


class Transient(Part):
    """Servers that fail and recover: mean times of exponential distributions."""

    up: Positive
    down: Positive


class GivenFailure(Part):
    """One listed failure of a server."""

    server: Name
    time: Amount
    until: Positive | None = Field(default=None, description="time of recovery; default: never")


class Failures(Part):
    """Failing servers: their tasks are lost and go back to the queue."""

    permanent: Annotated[Permanent | None, WHOLE] = None
    transient: Transient | None = None
    given: list[GivenFailure] = Field(default_factory=list)


def _tasks_form(value: Any) -> str:
    if isinstance(value, WorkloadTasks) or (isinstance(value, dict) and "draw" in value):
        return "<workload>"
    return list_or_mapping(value)


class PlacementSettings(Common):
    """A whole scenario of the placement family; a slot is the time between two batches."""

    family: Literal["placement"] = Field(description="which server runs each task, and when; tasks come in batches")
    arrivals_known: Annotated[
        Literal["revealed"], said("revealed: in the placement family policies always see the tasks that have arrived")
    ] = Field("revealed", description="policies always see the tasks that have arrived")
    oracles: list[Literal["slot"]] | None = Field(
        None, description="slot: an upper bound with all tasks known in advance"
    )
    period: Positive = Field(default=1.0, description="time between two batches")
    idle: Idle = Field(default=0.0, description=f"idle time after which a server is switched off, or {NEVER}")
    cluster: PlacementCluster = Field(description="servers and their capacity")
    launch_cost: LaunchCost = Field(default_factory=LaunchCost, description="paid whenever a server is switched on")
    execution_cost: ExecutionCost = Field(default_factory=ExecutionCost, description="paid while a task runs")
    arrivals: (
        Annotated[
            Annotated[PoissonSizes, Tag("<poisson>")] | Annotated[GivenSizes, Tag("<given>")],
            Discriminator(_process),
            PROCESS,
        ]
        | None
    ) = Field(default=None, description="number of tasks in each batch; default: Poisson with mean 10 for drawn tasks")
    tasks: Annotated[
        Annotated[DrawnTasks, Tag("<mapping>")]
        | Annotated[WorkloadTasks, Tag("<workload>")]
        | Annotated[list[PlacementTask], Tag("<list>")],
        Discriminator(_tasks_form),
        Restated(lambda below, above: "draw" in below and "demand" in above),
    ] = Field(description="drawn tasks, tasks of the workload, or a list")
    failures: Failures | None = Field(None, description="default: servers never fail")
