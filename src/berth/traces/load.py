"""Offered load of a trace: measured, reached by rescaling arrivals, and explained.

The offered load is the work of all jobs over the machines' capacity times the time from the first submission to the
last, for the resource where this is largest. Run times with a heavy tail make it a poor guide: if one job has most of
the work, the cluster is nearly idle at an offered load of 0.9.

Axes: N jobs, K resources.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from berth.errors import InvalidInput
from berth.model import Floats
from berth.traces.trace import Trace

__all__ = ["LARGE", "TOLERANCE", "offered", "squeezed", "uneven", "work_shares"]

TOLERANCE = 0.01
"""Relative difference from the requested load that counts as reached."""
LARGE = 0.1
"""A job with this share of all work makes the offered load a poor guide."""


def squeezed(trace: Trace, load: float) -> Trace:
    """Rescale the inter-arrival times of a usable trace to the offered load `load`.

    >>> jobs = {"submit_s": [10.0, 50.0], "run_s": [20.0, 20.0], "pieces": [1, 1], "cpu": [1.0, 1.0]}
    >>> trace = Trace.of(jobs, {"machine": ["m"], "count": [1], "cpu": [2.0]})
    >>> squeezed(trace, 1.0).jobs["submit_s"].to_list()
    [10.0, 30.0]
    """
    if not (np.isfinite(load) and load > 0):
        raise InvalidInput("a number above 0", value=load, key="load")
    if not len(trace.machines) or not len(trace.jobs):
        return trace
    now = offered(trace)
    if now is None:
        raise InvalidInput("jobs that come at more than one moment", key="load")
    first = float(trace.jobs["submit_s"][0])
    drawn = pl.lit(first) + (pl.col("submit_s") - first) * (now / load)
    return trace.replace(jobs=trace.jobs.with_columns(drawn.alias("submit_s")))


def work_shares(trace: Trace) -> Floats:
    """Work of each job over the machines' capacity, in seconds, (N,); of the resource where the sum is largest."""
    names = [resource.name for resource in trace.resources]
    jobs, machines = trace.jobs, trace.machines
    if not len(machines) or not len(jobs) or not names:
        return np.zeros(len(jobs))
    held = (jobs["run_s"] * jobs["pieces"]).to_numpy()[:, None] * jobs.select(names).to_numpy()
    there = machines["count"].fill_null(1).to_numpy() @ machines.select(pl.col(names).fill_null(0.0)).to_numpy()
    shares = held / np.where(there > 0, there, np.inf)
    busiest: Floats = shares[:, int(shares.sum(axis=0).argmax())]
    return busiest


def offered(trace: Trace) -> float | None:
    """Offered load of a usable trace; None if all jobs arrive at one moment."""
    if not len(trace.jobs):
        return None
    span = float(trace.jobs["submit_s"][-1]) - float(trace.jobs["submit_s"][0])
    work = float(work_shares(trace).sum())
    return work / span if span > 0 and work > 0 else None


def uneven(trace: Trace) -> str | None:
    """Why the offered load of a usable trace says little about it, in words; None if no job is that large.

    >>> jobs = {"job": ["a", "b", "c"], "submit_s": [0.0, 5.0, 10.0], "run_s": [1.0, 900.0, 1.0], "pieces": [1, 1, 1]}
    >>> trace = Trace.of({**jobs, "cpu": [1.0, 1.0, 1.0]}, {"machine": ["m"], "count": [1], "cpu": [100.0]})
    >>> uneven(trace)
    'job b has 100 % of all work and runs 90 times as long as jobs arrive; without it the offered load is 0.002'
    """
    load, shares = offered(trace), work_shares(trace)
    if load is None:
        return None
    largest = int(shares.argmax())
    part = float(shares[largest] / shares.sum())
    if part < LARGE:
        return None
    span = float(trace.jobs["submit_s"][-1]) - float(trace.jobs["submit_s"][0])
    long = float(trace.jobs["run_s"][largest]) / span
    ran = f" and runs {long:.3g} times as long as jobs arrive" if long > 1 else ""
    name = trace.jobs["job"][largest] or f"number {largest + 1}"
    return f"job {name} has {100 * part:.0f} % of all work{ran}; without it the offered load is {load * (1 - part):.2g}"
