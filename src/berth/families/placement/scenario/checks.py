"""Consistency checks across the keys of a placement scenario."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from berth.errors import did_you_mean
from berth.families.placement.scenario.settings import (
    Draw,
    DrawnTasks,
    Failures,
    GivenSizes,
    Permanent,
    PlacementCluster,
    PlacementSettings,
    PlacementTask,
    PoissonSizes,
    WorkloadTasks,
)
from berth.files.wording import Mistake
from berth.files.yaml_tree import Key
from berth.scenario.checks import check_cluster, check_known, check_policies, check_range
from berth.scenario.drawing import server_names
from berth.scenario.settings import GivenCluster, ServerEntry, names_of

__all__ = ["BATCHES", "across_placement", "counts", "plain_cluster", "slots_of"]

BATCHES = 100
"""Default number of batches in a run."""
MOST_TASKS = 20_000_000
"""Largest number of tasks in a run: about what fits into memory."""
FORMS = ("integers", "uniform", "choices", "per_work", "per_value")


def counts(cluster: PlacementCluster) -> list[int]:
    """Number of servers of each kind: shares of the count, the largest remainders rounded up."""
    if cluster.count is None:
        return [1 if kind.count is None else kind.count for kind in cluster.servers]
    total = sum(kind.share or 0.0 for kind in cluster.servers)
    exact = [cluster.count * (kind.share or 0.0) / total for kind in cluster.servers]
    whole = [math.floor(part + 1e-9) for part in exact]
    by_rest = sorted(range(len(exact)), key=lambda q: whole[q] - exact[q])
    for q in by_rest[: cluster.count - sum(whole)]:
        whole[q] += 1
    return whole


def plain_cluster(cluster: PlacementCluster) -> GivenCluster:
    """Convert the cluster to the form of the other families, without kinds that have no server."""
    kinds = zip(cluster.servers, counts(cluster), strict=True)
    servers = [ServerEntry(name=kind.name, count=n, capacity=kind.capacity) for kind, n in kinds if n]
    return GivenCluster(resources=list(cluster.resources), servers=servers)


def slots_of(settings: PlacementSettings) -> int:
    """Default number of batches in a run."""
    if isinstance(settings.arrivals, GivenSizes):
        return len(settings.arrivals.sizes)
    if isinstance(settings.tasks, list):
        return max((task.batch for task in settings.tasks), default=0) + 1
    return BATCHES


def across_placement(settings: PlacementSettings) -> Iterator[Mistake]:
    """Mistakes across the keys of a placement scenario."""
    resources = names_of(settings.cluster.resources)
    wrong = list(_cluster(settings.cluster, resources))
    yield from wrong
    for name in ("launch_cost", "execution_cost"):
        yield from check_known(getattr(settings, name).weights or {}, resources, (name, "weights"), "resource")
    if isinstance(settings.tasks, DrawnTasks):
        yield from _drawn(settings.tasks, resources)
    elif isinstance(settings.tasks, WorkloadTasks):
        yield from _from_workload(settings, settings.tasks, resources)
    else:
        for i, task in enumerate(settings.tasks):
            yield from _task(task, ("tasks", i), resources, settings)
    yield from _arrivals(settings)
    if settings.failures is not None and not wrong:
        names = [name for entry in plain_cluster(settings.cluster).servers for name in server_names(entry)]
        yield from _failures(settings.failures, names)
    yield from check_policies(settings)


def _cluster(cluster: PlacementCluster, resources: list[str]) -> Iterator[Mistake]:
    shared = cluster.count is not None
    amiss = False
    for i, kind in enumerate(cluster.servers):
        if shared and kind.count is not None:
            amiss = True
            yield Mistake(("cluster", "servers", i, "count"), "a share of cluster.count in its place", kind.count)
        elif shared and kind.share is None:
            amiss = True
            yield Mistake(("cluster", "servers", i, "share"), "this key, beside cluster.count", found="nothing")
        elif not shared and kind.share is not None:
            amiss = True
            yield Mistake(("cluster", "servers", i, "share"), "cluster.count beside it", kind.share)
    if amiss:
        return
    total = sum(kind.share or 0.0 for kind in cluster.servers)
    if shared and abs(total - 1) > 1e-6:
        yield Mistake(("cluster", "servers"), "shares that add up to 1", found=f"a sum of {total:g}")
        return
    entries = [
        ServerEntry(name=kind.name, count=max(n, 1), capacity=kind.capacity)
        for kind, n in zip(cluster.servers, counts(cluster), strict=True)
    ]
    yield from check_cluster(GivenCluster(resources=list(cluster.resources), servers=entries), resources)


def _drawn(tasks: DrawnTasks, resources: list[str]) -> Iterator[Mistake]:
    yield from check_known(tasks.demand, resources, ("tasks", "demand"), "resource")
    for name, amount in tasks.demand.items():
        yield from _draw(amount, ("tasks", "demand", name))
    yield from _draw(tasks.work, ("tasks", "work"))
    work: Key = ("tasks", "work")
    if isinstance(tasks.work, Draw):
        if tasks.work.per_work is not None:
            yield Mistake((*work, "per_work"), "another way to draw work itself", tasks.work.per_work)
        if tasks.work.probability < 1:
            yield Mistake((*work, "probability"), "1: every task has some work", tasks.work.probability)
        least = _least(tasks.work)
        if least is not None and least <= 0:
            yield Mistake(work, "work > 0", found=f"work that may be {least:g}")
    elif tasks.work <= 0:
        yield Mistake(work, "work > 0", tasks.work)
    value = tasks.value
    if value.least is not None and value.least > value.mean:
        yield Mistake(("tasks", "value", "least"), f"at most the mean, {value.mean:g}", value.least)
    if _per_value(tasks.work) and value.least == 0:
        yield Mistake(("tasks", "value", "least"), "a number > 0 where work grows with value", value.least)
    yield from check_range(tasks.deadline.stretch, ("tasks", "deadline", "stretch"))


def _from_workload(settings: PlacementSettings, tasks: WorkloadTasks, resources: list[str]) -> Iterator[Mistake]:
    if settings.workload is None:
        yield Mistake(("tasks", "draw"), "the key workload beside it", "workload")
        return
    from berth.scenario.workload import planned

    asked = [entry.name for entry in planned(settings.workload).workload.resources]
    if resources != asked:
        yield Mistake(
            ("cluster", "resources"), f"those of the workload, {', '.join(asked)}", found=", ".join(resources)
        )
    if tasks.value.least is not None and tasks.value.least > tasks.value.mean:
        yield Mistake(("tasks", "value", "least"), f"at most the mean, {tasks.value.mean:g}", tasks.value.least)
    yield from check_range(tasks.deadline.stretch, ("tasks", "deadline", "stretch"))


def _per_value(work: Draw | float) -> bool:
    return isinstance(work, Draw) and work.per_value is not None


def _least(draw: Draw) -> float | None:
    """Lower bound of a draw, None if it depends on another number."""
    for bounds in (draw.integers, draw.uniform, draw.choices):
        if bounds is not None:
            return float(min(bounds))
    return draw.per_value if draw.per_value == 0 else None


def _draw(amount: Draw | float, key: Key) -> Iterator[Mistake]:
    if not isinstance(amount, Draw):
        return
    given = [name for name in FORMS if getattr(amount, name) is not None]
    if len(given) != 1:
        yield Mistake(key, f"one of {', '.join(FORMS)}", found=" and ".join(given) or "none of them")
    for name in ("integers", "uniform"):
        yield from check_range(getattr(amount, name), (*key, name))


def _task(task: PlacementTask, key: Key, resources: list[str], settings: PlacementSettings) -> Iterator[Mistake]:
    yield from check_known(task.demand, resources, (*key, "demand"), "resource")
    if settings.horizon is not None and task.batch >= settings.horizon:
        yield Mistake((*key, "batch"), f"a number below the horizon, {settings.horizon}", task.batch)


def _arrivals(settings: PlacementSettings) -> Iterator[Mistake]:
    arrivals, horizon = settings.arrivals, settings.horizon
    if arrivals is not None and not isinstance(settings.tasks, DrawnTasks):
        what = "a list of tasks" if isinstance(settings.tasks, list) else "tasks of a workload"
        yield Mistake(("arrivals",), "tasks that are drawn", found=f"arrivals beside {what}")
    elif isinstance(arrivals, GivenSizes):
        if horizon is not None and horizon > len(arrivals.sizes):
            yield Mistake(("horizon",), f"at most the {len(arrivals.sizes)} batches given in arrivals", horizon)
        if sum(arrivals.sizes) > MOST_TASKS:
            yield Mistake(("arrivals", "sizes"), f"at most {MOST_TASKS} tasks", found=f"{sum(arrivals.sizes)}")
    elif isinstance(settings.tasks, DrawnTasks):
        expected = (horizon or BATCHES) * (arrivals or PoissonSizes()).mean
        if expected > MOST_TASKS:
            yield Mistake(("horizon",), f"at most {MOST_TASKS} tasks", found=f"about {expected:.0f} of them")


def _failures(failures: Failures, names: list[str]) -> Iterator[Mistake]:
    if failures.permanent is not None:
        yield from _permanent(failures.permanent)
    for i, failure in enumerate(failures.given):
        key: Key = ("failures", "given", i)
        if failure.server not in names:
            yield Mistake(
                (*key, "server"), f"the name of a server{did_you_mean(failure.server, names)}", failure.server
            )
        if failure.until is not None and failure.until <= failure.time:
            yield Mistake((*key, "until"), f"a time after {failure.time:g}", failure.until)


def _permanent(permanent: Permanent) -> Iterator[Mistake]:
    given: Mapping[str, float | None] = {"probability": permanent.probability, "share": permanent.share}
    there = [name for name, value in given.items() if value is not None]
    if len(there) != 1:
        found = " and ".join(there) or "neither"
        yield Mistake(("failures", "permanent"), "one of probability, share", found=found)
