"""Build a world of the placement family from settings and a seed.

Each attribute of a task has its own random stream, and so has each failing server: a longer run or more servers only
add to what a seed draws, and a changed setting shifts nothing else.

Axes: N tasks, T batches, R servers, K resources.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from berth.families.placement.problem import PlacementProblem, Tasks
from berth.families.placement.scenario.checks import counts, plain_cluster
from berth.families.placement.scenario.settings import (
    Draw,
    DrawnTasks,
    Failures,
    GivenSizes,
    PlacementSettings,
    PlacementTask,
    PoissonSizes,
    Value,
    WorkloadTasks,
)
from berth.families.placement.world import Failure, PlacementWorld
from berth.model import Floats, Instance, Ints, JobType
from berth.random import stream
from berth.scenario.drawing import given_cluster, uniforms
from berth.scenario.settings import names_of

__all__ = ["build_placement"]


def build_placement(
    settings: PlacementSettings, horizon: int, seed: int, arrivals_known: bool = True
) -> PlacementWorld:
    """Build the world of this seed; a policy always sees the tasks that have arrived."""
    del arrivals_known
    problem = _problem(settings, horizon)
    runs = None
    if isinstance(settings.tasks, WorkloadTasks):
        problem, tasks, runs = _of_workload(settings, settings.tasks, problem, horizon, seed)
    elif isinstance(settings.tasks, DrawnTasks):
        sizes = _sizes(settings, horizon, seed)
        arrival = settings.period * np.repeat(np.arange(horizon), sizes).astype(np.float64)
        tasks = _drawn(settings.tasks, arrival, float(problem.speed.min()), names_of(settings.cluster.resources), seed)
    else:
        tasks = _given(settings.tasks, settings.period, names_of(settings.cluster.resources))
    length = settings.period * horizon
    failures = [] if settings.failures is None else _failures(settings.failures, problem, length, seed)
    return PlacementWorld(problem, tasks, horizon, settings.period, failures, runs)


def _problem(settings: PlacementSettings, horizon: int) -> PlacementProblem:
    """Servers and their costs, with one port whose tasks may use any server that they fit."""
    kinds, names = settings.cluster.servers, names_of(settings.cluster.resources)
    cluster = given_cluster(plain_cluster(settings.cluster))
    servers = len(cluster.servers)
    kind = np.repeat(np.arange(len(kinds)), counts(settings.cluster))
    speed = np.array([entry.speed for entry in kinds])[kind]
    launch = settings.launch_cost.factor * (cluster.capacity @ _weights(settings.launch_cost.weights, names))
    rate = settings.execution_cost.factor * speed**settings.execution_cost.clock_power
    for r, q in enumerate(kind):
        launch[r] = launch[r] if kinds[q].launch is None else kinds[q].launch
        rate[r] = rate[r] if kinds[q].rate is None else kinds[q].rate
    channels = np.stack([np.zeros(servers, dtype=np.int64), np.arange(servers)], axis=1)
    graph = Instance(cluster, (JobType("tasks", cluster.capacity.max(axis=0)),), channels)
    weight = _weights(settings.execution_cost.weights, names)
    return PlacementProblem(graph, speed, launch, rate, weight, settings.idle, horizon)


def _weights(given: dict[str, float] | None, names: list[str]) -> Floats:
    return np.ones(len(names)) if given is None else np.array([given.get(name, 0.0) for name in names])


# ---------------------------------------------------------------------------- tasks


def _sizes(settings: PlacementSettings, horizon: int, seed: int) -> Ints:
    """Number of tasks in each batch, (T,)."""
    arrivals = settings.arrivals
    if isinstance(arrivals, GivenSizes):
        return np.array(arrivals.sizes[:horizon], dtype=np.int64)
    return stream(seed, "batches").poisson((arrivals or PoissonSizes()).mean, horizon).astype(np.int64)


def _drawn(chosen: DrawnTasks, arrival: Floats, slowest: float, names: list[str], seed: int) -> Tasks:
    size = len(arrival)
    value = _values(chosen.value, stream(seed, "tasks", "value").random(size))
    work = _amounts(chosen.work, "work", seed, value, value)
    demand = np.zeros((size, len(names)))
    for k, name in enumerate(names):
        if name in chosen.demand:
            demand[:, k] = _amounts(chosen.demand[name], f"demand of {name}", seed, work, value)
    sensitivity = np.array(chosen.sensitivity)
    decay = sensitivity[(stream(seed, "tasks", "sensitivity").random(size) * len(sensitivity)).astype(np.int64)]
    low, high = chosen.deadline.stretch
    stretch = low + (high - low) * stream(seed, "tasks", "deadline").random(size)
    deadline = arrival + stretch * work / (chosen.deadline.speed or slowest)
    return Tasks(arrival, demand, work, value, decay, deadline)


def _values(chosen: Value, luck: Floats) -> Floats:
    """Draw from the normal distribution truncated below at `least`, by its inverse."""
    mean = chosen.mean
    spread = math.sqrt(2 * mean if chosen.variance is None else chosen.variance)
    least = 0.1 * mean if chosen.least is None else chosen.least
    if spread == 0:
        return np.full(len(luck), mean)
    # use the upper tail, where floats resolve the normal distribution better
    above = ndtr((mean - least) / spread)
    drawn: Floats = mean - spread * ndtri((1 - luck) * above)
    return np.maximum(drawn, least)


def _amounts(chosen: Draw | float, name: str, seed: int, work: Floats, value: Floats) -> Floats:
    """A number for each task, (N,)."""
    size = len(value)
    if not isinstance(chosen, Draw):
        return np.full(size, chosen)
    luck = stream(seed, "tasks", name).random(size)
    drawn: Floats
    if chosen.integers is not None:
        low, high = chosen.integers
        drawn = low + np.floor(luck * (high - low + 1))
    elif chosen.uniform is not None:
        drawn = chosen.uniform[0] + (chosen.uniform[1] - chosen.uniform[0]) * luck
    elif chosen.choices is not None:
        drawn = np.array(chosen.choices)[(luck * len(chosen.choices)).astype(np.int64)]
    else:
        drawn = chosen.per_work * work if chosen.per_work is not None else (chosen.per_value or 0.0) * value
    if chosen.probability < 1:
        drawn = np.where(stream(seed, "tasks", name, "any").random(size) < chosen.probability, drawn, 0.0)
    return drawn


def _of_workload(
    settings: PlacementSettings, chosen: WorkloadTasks, problem: PlacementProblem, horizon: int, seed: int
) -> tuple[PlacementProblem, Tasks, Floats | None]:
    """Jobs of the workload as tasks, the problem with the tasks' needs, and true run times if they differ."""
    from berth.scenario.workload import planned  # imports the trace readers, which few scenarios need

    plan = planned(settings.workload)
    slot_seconds, faster = plan.pace()
    trace = plan.jobs(horizon, seed, faster, slot_seconds)
    names = names_of(settings.cluster.resources)
    jobs = trace.jobs
    batch = np.minimum((jobs["submit_s"].to_numpy() / slot_seconds).astype(np.int64), horizon - 1)
    run = jobs["run_s"].to_numpy() / slot_seconds * settings.period
    said = jobs["estimate_s"].fill_null(jobs["run_s"]).to_numpy() / slot_seconds * settings.period
    pieces, demand = jobs["pieces"].to_numpy(), np.array(jobs.select(names).to_numpy())
    port = np.zeros(len(jobs), dtype=np.int64)
    if chosen.needs:
        labels, port = plan.needs(trace)
        kinds = zip(settings.cluster.servers, counts(settings.cluster), strict=True)
        homes = plan.homes(labels, [kind.name for kind, n in kinds for _ in range(n)])
        problem = _with_ports(problem, homes, labels)
    demand, pieces = _that_fit(demand, pieces, port, problem)
    owner = jobs["user"].fill_null("").rank("dense").to_numpy().astype(np.int64) - 1
    if not chosen.gangs:
        each = np.repeat(np.arange(len(jobs)), pieces)
        batch, run, said, port, owner = batch[each], run[each], said[each], port[each], owner[each]
        demand, pieces = demand[each], np.ones(len(each), dtype=np.int64)
    size = len(batch)
    work = run if chosen.known == "run" else said
    drawn = _values(chosen.value, stream(seed, "tasks", "value").random(size)) / chosen.value.mean
    value = chosen.worth * drawn * work * pieces * (demand @ problem.weight)
    if chosen.power != 1.0 and size:
        amount = work * pieces * (demand @ problem.weight)
        mean = max(float(amount.mean()), 1e-300)
        value = chosen.worth * drawn * mean * (amount / mean) ** chosen.power
    sensitivity = np.array(chosen.sensitivity)
    luck = stream(seed, "tasks", "sensitivity").random(size)
    decay = sensitivity[(luck * len(sensitivity)).astype(np.int64)] * value / work
    low, high = chosen.deadline.stretch
    stretch = low + (high - low) * stream(seed, "tasks", "deadline").random(size)
    arrival = settings.period * batch.astype(np.float64)
    deadline = arrival + stretch * work / (chosen.deadline.speed or float(problem.speed.min()))
    unit = [resource.unit for resource in problem.instance.cluster.resources]
    device = unit.index("device") if chosen.devices and "device" in unit and len(unit) > 1 else None
    problem = problem.replace(
        gangs=chosen.gangs and bool((plan.pieces > 1).any() or (pieces > 1).any()),
        exact=chosen.known == "run",
        devices=device,
    )
    tasks = Tasks(arrival, demand, work, value, decay, deadline, pieces, port, owner)
    return problem, tasks, None if chosen.known == "run" else run


def _with_ports(problem: PlacementProblem, homes: NDArray[np.bool_], labels: list[str]) -> PlacementProblem:
    """Give each set of labels a port with channels to the servers that have one of them; `homes` is (L, R)."""
    most = problem.instance.capacity.max(axis=0)
    ports = tuple(JobType(label, most) for label in labels)
    return problem.replace(instance=Instance(problem.instance.cluster, ports, np.argwhere(homes)))


def _that_fit(demand: Floats, pieces: Ints, port: Ints, problem: PlacementProblem) -> tuple[Floats, Ints]:
    """Cap demands and pieces that no server, or the whole cluster, could ever hold."""
    capacity = problem.instance.capacity
    shapes, kind = np.unique(np.hstack([capacity, problem.reach.T]), axis=0, return_inverse=True)
    number = np.bincount(kind.reshape(-1), minlength=len(shapes))
    resources = capacity.shape[1]
    room, best, share = np.zeros(len(demand)), np.zeros(len(demand), dtype=np.int64), np.zeros(len(demand))
    safe = np.where(demand > 0, demand, 1.0)
    for q, shape in enumerate(shapes):
        part = np.where(demand > 0, np.minimum(shape[:resources] / safe, 1e9), 1e9).min(axis=1)
        part = np.where(shape[resources:][port] > 0, part, -1.0)
        room += number[q] * np.floor(np.maximum(part, 0.0) + 1e-9)
        best, share = np.where(part > share, q, best), np.maximum(part, share)
    large = np.flatnonzero(room < 1)
    demand[large] = np.minimum(demand[large], shapes[best[large], :resources])
    room[large] = np.maximum(1.0, number[best[large]])
    return demand, np.minimum(pieces, np.minimum(room, 2**31).astype(np.int64))


def _given(tasks: list[PlacementTask], period: float, names: list[str]) -> Tasks:
    listed = sorted(tasks, key=lambda task: task.batch)
    demand = np.array([[task.demand.get(name, 0.0) for name in names] for task in listed]).reshape(-1, len(names))

    def column(name: str) -> Floats:
        return np.array([getattr(task, name) for task in listed], dtype=np.float64)

    return Tasks(
        period * column("batch"), demand, column("work"), column("value"), column("sensitivity"), column("deadline")
    )


# ---------------------------------------------------------------------------- failures


def _failures(chosen: Failures, problem: PlacementProblem, length: float, seed: int) -> list[Failure]:
    """All failures in a run of this length, in order of time."""
    names = problem.instance.cluster.servers
    servers = len(names)
    found = [
        Failure(entry.time, names.index(entry.server), np.inf if entry.until is None else entry.until)
        for entry in chosen.given
    ]
    permanent = chosen.permanent
    if permanent is not None:
        luck = uniforms(seed, servers, 2, "failures", "permanent")
        lost = luck[:, 0] < (permanent.probability or 0.0)
        if permanent.share is not None:
            lost = luck[:, 0].argsort(kind="stable").argsort() < round(permanent.share * servers)
        when = length * luck[:, 1] if permanent.time is None else np.full(servers, permanent.time)
        found += [Failure(float(when[r]), int(r)) for r in np.flatnonzero(lost)]
    if chosen.transient is not None:
        for r in range(servers):
            found += _spells(chosen.transient.up, chosen.transient.down, r, length, seed)
    return sorted(found)


def _spells(up: float, down: float, server: int, length: float, seed: int) -> list[Failure]:
    """Downtimes of one server, which alternates between up and down with these mean times."""
    rng = stream(seed, "failures", "transient", server)
    spells: list[Failure] = []
    time = up * rng.standard_exponential()
    while time < length:
        until = time + down * rng.standard_exponential()
        if until > time:
            spells.append(Failure(float(time), server, float(until)))
        time = until + up * rng.standard_exponential()
    return spells
