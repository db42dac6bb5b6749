"""Generate jobs from a fitted workload: any number, cluster and load, seeded.

Each quantity has its own random stream with one number per job, so a longer run only adds jobs.

Axes: N jobs, K resources.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl

from berth.errors import InvalidInput
from berth.model import Floats, Ints
from berth.random import stream
from berth.traces.fitting.fit import seconds, weekly
from berth.traces.fitting.workload import JobClass, Users, Workload
from berth.traces.load import TOLERANCE, offered
from berth.traces.trace import Source, Trace

__all__ = ["generate", "job_rate", "machine_mix", "offered_load"]

ROUNDS = 25
"""Most arrival rates tried for a load."""
LONGEST = 50_000_000
"""Largest number of jobs in a run: about what fits into memory."""


def machine_mix(workload: Workload, machines: int | None = None) -> list[int]:
    """Number of machines of each shape in a cluster of this size: shares, the largest remainders rounded up.

    >>> from berth.traces.fitting.workload import load_workload
    >>> machine_mix(load_workload("openb"), 10)[:2]
    [4, 3]
    """
    counts = [machine.count for machine in workload.machines]
    if machines is None:
        return counts
    if machines < 1:
        raise InvalidInput("a whole number ≥ 1", value=machines, key="machines")
    exact = [machines * count / sum(counts) for count in counts]
    whole = [math.floor(part + 1e-9) for part in exact]
    for place in sorted(range(len(exact)), key=lambda i: whole[i] - exact[i])[: machines - sum(whole)]:
        whole[place] += 1
    return whole


def job_rate(workload: Workload) -> float:
    """Jobs per second, on all machines of the workload."""
    return workload.arrivals.events_per_hour / 3600.0 * workload.arrivals.batch.mean()


def _mean_amounts(entry: JobClass, size: int) -> Floats:
    mean: Floats = sum((d.share * np.array(d.amounts) for d in entry.demands), np.zeros(size))
    left = max(0.0, 1.0 - sum(d.share for d in entry.demands))
    if entry.rest is not None:
        mean = mean + left * np.array([quantiles.mean() for quantiles in entry.rest])
    return mean


def offered_load(workload: Workload) -> Floats:
    """Mean use of each resource as a share of the capacity of all machines, (K,)."""
    size = len(workload.resources)
    work = sum(
        (e.share * e.pieces.mean() * e.run_s.mean() * _mean_amounts(e, size) for e in workload.classes), np.zeros(size)
    )
    total = sum((m.count * np.array(m.capacity) for m in workload.machines), np.zeros(size))
    load: Floats = np.divide(job_rate(workload) * work, total, out=np.zeros(size), where=total > 0)
    return load


def generate(
    workload: Workload,
    *,
    jobs: int | None = None,
    hours: float | None = None,
    load: float | None = None,
    machines: int | None = None,
    seed: int = 0,
) -> Trace:
    """Generate a number of jobs, or those of a number of hours, as a trace.

    With `machines` the mix of shapes is kept, and jobs arrive proportionally less often on fewer machines; a job with
    more pieces than the cluster holds is cut to that number. `load` is the offered load of `berth.traces.load`, reached
    to its `TOLERANCE` by changing the arrival rate once the jobs are drawn; the hours of the day stay. If a few jobs
    have most of the work of `hours`, no rate may reach it: the nearest is taken.

    >>> from berth.traces.fitting.workload import load_workload
    >>> workload = load_workload("sdsc-sp2")
    >>> short, long = (generate(workload, jobs=n, seed=3).jobs for n in (100, 200))
    >>> short.equals(long.head(100))
    True
    """
    if (jobs is None) == (hours is None):
        raise InvalidInput("one of jobs and hours", found="both" if jobs is not None else "neither")
    if jobs is not None and not 0 <= jobs <= LONGEST:
        raise InvalidInput(f"a number from 0 to {LONGEST}", value=jobs, key="jobs")
    if hours is not None and not 0 <= hours < math.inf:
        raise InvalidInput("a number ≥ 0", value=hours, key="hours")
    if load is not None and not 0 < load < math.inf:
        raise InvalidInput("a number > 0", value=load, key="load")
    counts = machine_mix(workload, machines)
    rate = sum(counts) / sum(machine.count for machine in workload.machines)
    if load is not None:
        return _loaded(workload, jobs, hours, load, counts, seed)
    return _trace(workload, _submit(workload, jobs, hours, rate, seed), counts, seed)


def _loaded(
    workload: Workload, jobs: int | None, hours: float | None, load: float, counts: Sequence[int], seed: int
) -> Trace:
    """Jobs at the arrival rate whose offered load is nearest to `load`: bisection, guided by the load at each rate."""
    faster, slow, fast = _faster(workload, counts, load), 0.0, math.inf
    drawn: Trace | None = None
    best, distance = None, math.inf
    for _ in range(ROUNDS):
        submit = _submit(workload, jobs, hours, faster, seed)
        if drawn is None or len(submit) > len(drawn):
            drawn = _trace(workload, submit, counts, seed)
        found = drawn.replace(jobs=drawn.jobs.head(len(submit)).with_columns(pl.Series("submit_s", submit)))
        now = offered(found)
        if now is None:  # too few jobs for a load
            return found if best is None else best
        if abs(math.log(now / load)) < distance:
            best, distance = found, abs(math.log(now / load))
        if distance < TOLERANCE / 10:
            break
        slow, fast = (faster, fast) if now < load else (slow, faster)
        faster *= load / now
        if not slow < faster < fast:
            faster = math.sqrt(slow * fast) if slow > 0 and fast < math.inf else faster
    return best if best is not None else found


def _faster(workload: Workload, counts: Sequence[int], load: float) -> float:
    """Factor on the arrival rate for this load on these numbers of machines."""
    total = np.array([m.capacity for m in workload.machines]).T
    whole, there = total @ [m.count for m in workload.machines], total @ np.array(counts)
    natural = np.divide(offered_load(workload) * whole, there, out=np.zeros(len(there)), where=there > 0)
    if not natural.max() > 0:
        raise InvalidInput("a workload whose jobs take something of these machines", found="none", key="load")
    return load / float(natural.max())


def _submit(workload: Workload, jobs: int | None, hours: float | None, faster: float, seed: int) -> Floats:
    """Sorted submission times, (N,)."""
    arrivals = workload.arrivals
    gaps, sizes = stream(seed, "workload", "gap"), stream(seed, "workload", "batch")
    clock = weekly(np.array(arrivals.hours), np.array(arrivals.days))
    mean = 3600.0 / (arrivals.events_per_hour * faster)
    end = math.inf if hours is None else hours * 3600.0
    expected = jobs if jobs is not None else end / mean * arrivals.batch.mean()
    if expected > LONGEST:
        raise InvalidInput(f"at most {LONGEST} jobs", found=f"about {expected:.0f}", key="hours")
    step = max(1000, int(1.1 * expected / arrivals.batch.mean()) + 100)
    found: list[Floats] = []
    passed, count = 0.0, 0
    while True:
        times = passed + np.cumsum(arrivals.gap.draw(gaps.random(step))) * mean
        passed = float(times[-1])
        batch = np.maximum(1, np.rint(arrivals.batch.draw(sizes.random(step)))).astype(np.int64)
        times = seconds(times, clock)
        if arrivals.whole_seconds:
            times = np.floor(times)
        found.append(np.repeat(times, batch))
        count += len(found[-1])
        if (jobs is not None and count >= jobs) or found[-1][-1] >= end:
            break
        if count > 4 * LONGEST:
            raise InvalidInput("arrivals that go on", found="no time between them", key="arrivals.gap")
    submit = np.concatenate(found)
    return submit[:jobs] if jobs is not None else submit[submit < end]


def _trace(workload: Workload, submit: Floats, counts: Sequence[int], seed: int) -> Trace:
    size, names = len(submit), [entry.name for entry in workload.resources]

    def luck(name: str) -> Floats:
        return stream(seed, "workload", name).random(size)

    fresh = luck("fresh") >= workload.arrivals.repeat
    fresh[:1] = True
    last = np.maximum.accumulate(np.where(fresh, np.arange(size), 0))
    ends = np.cumsum([entry.share for entry in workload.classes])
    of_job = np.searchsorted(ends[:-1], luck("class")[last], side="right")
    draws = {name: luck(name) for name in ("pieces", "run", "estimate", "estimated", "vector")}
    rest = [luck(f"rest of {name}") for name in names]
    table = _Table(size, [entry.unit for entry in workload.resources])
    for place, entry in enumerate(workload.classes):
        rows = np.flatnonzero(of_job == place)
        if len(rows):
            table.fill(entry, rows, {name: values[rows] for name, values in draws.items()}, [u[rows] for u in rest])
    _held(workload, counts, table)
    columns = {
        "job": pl.int_range(1, size + 1, eager=True).cast(pl.String),
        "submit_s": submit,
        "run_s": table.run,
        "estimate_s": pl.Series(table.estimate, nan_to_null=True),
        "pieces": table.pieces,
        "user": _users(workload.users, luck("user")[last]),
        "kind": _texts([entry.kind or entry.name for entry in workload.classes], of_job),
        "needs": _texts(table.labels, table.needs),
        **{name: table.amounts[:, k] for k, name in enumerate(names)},
    }
    machines: dict[str, list[Any]] = {
        "machine": [f"shape-{place}" for place, n in enumerate(counts) if n],
        "count": [n for n in counts if n],
        "label": [m.label for m, n in zip(workload.machines, counts, strict=True) if n],
        "speed": [m.speed for m, n in zip(workload.machines, counts, strict=True) if n],
        **{
            name: [m.capacity[k] for m, n in zip(workload.machines, counts, strict=True) if n]
            for k, name in enumerate(names)
        },
    }
    notes = {"workload": workload.name, "seed": str(seed)}
    if table.cut:
        notes["cut"] = f"{table.cut} jobs had more pieces than the cluster can hold"
    frame = pl.DataFrame(columns)
    return Trace.of(frame, machines, workload.units(), Source("generated", (), notes))


class _Table:
    """Drawn columns of jobs."""

    def __init__(self, size: int, units: Sequence[str]) -> None:
        self.devices = [unit == "device" for unit in units]  # requests are a share of one device, or whole devices
        self.pieces = np.ones(size, dtype=np.int64)
        self.run, self.estimate = np.zeros(size), np.full(size, np.nan)
        self.amounts = np.zeros((size, len(units)))
        self.needs: Ints = np.zeros(size, dtype=np.int64)
        self.labels: list[str | None] = [None]
        self.cut = 0

    def fill(self, entry: JobClass, rows: Ints, luck: dict[str, Floats], rest: list[Floats]) -> None:
        """Draw the jobs of one class; `luck` has a uniform number for each of these rows."""
        self.pieces[rows] = np.maximum(1, np.rint(entry.pieces.draw(luck["pieces"]))).astype(np.int64)
        run = entry.run_s.draw(luck["run"])
        if entry.estimates is not None:
            known = luck["estimated"] < entry.estimates.known
            self.estimate[rows[known]], run[known] = entry.estimates.draw(luck["estimate"][known], luck["run"][known])
        self.run[rows] = np.maximum(1.0, np.rint(run)) if entry.whole_seconds else run
        ends = np.cumsum([demand.share for demand in entry.demands])
        chosen = np.searchsorted(ends, luck["vector"], side="right")
        if entry.rest is None:
            chosen = np.minimum(chosen, len(ends) - 1)
        common = chosen < len(ends)
        if common.any():
            vectors = np.array([demand.amounts for demand in entry.demands])
            codes = np.array([self._label(demand.needs) for demand in entry.demands])
            self.amounts[rows[common]] = vectors[chosen[common]]
            self.needs[rows[common]] = codes[chosen[common]]
        if entry.rest is not None and not common.all():
            others = ~common
            self.needs[rows[others]] = self._label(entry.needs)
            for k, quantiles in enumerate(entry.rest):
                amount = quantiles.draw(rest[k][others])
                if self.devices[k]:
                    amount = np.where(amount > 1, np.rint(amount), amount)
                self.amounts[rows[others], k] = amount

    def _label(self, needs: str | None) -> int:
        if needs not in self.labels:
            self.labels.append(needs)
        return self.labels.index(needs)


def _held(workload: Workload, counts: Sequence[int], table: _Table) -> None:
    """Cut the pieces of jobs that the empty cluster cannot hold."""
    capacity = np.array([m.capacity for m in workload.machines])
    room = np.zeros(len(table.pieces))
    for row, n in zip(capacity, counts, strict=True):
        if n:
            fits = np.where(table.amounts > 0, np.floor(row / np.maximum(table.amounts, 1e-12) + 1e-9), np.inf)
            room += n * np.where(np.isfinite(each := fits.min(axis=1)), each, 1e9)
    most = np.maximum(1, room.clip(0, 1e15)).astype(np.int64)
    table.cut = int((table.pieces > most).sum())
    np.minimum(table.pieces, most, out=table.pieces)


def _texts(labels: Iterable[str | None], codes: Ints) -> pl.Series:
    return pl.Series(list(labels), dtype=pl.String).gather(codes)


def _users(users: Users | None, luck: Floats) -> pl.Series:
    if users is None:
        return pl.Series([None], dtype=pl.String).new_from_index(0, len(luck))
    ranks, shares = np.array([0, *users.ranks], dtype=np.float64), np.array([0.0, *users.cumulative])
    rank = np.ceil(np.interp(luck * shares[-1], shares, ranks)).clip(1).astype(np.int64)
    return pl.select(pl.concat_str(pl.lit("user-"), pl.Series(rank).cast(pl.String))).to_series()
