"""Traces on a pool: one machine instead of many.

Axes: R rows of machines, K resources.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from berth.capacity import TOLERANCE
from berth.errors import InvalidInput, UnknownName
from berth.model import Floats
from berth.traces.trace import CORES, GPUS, MACHINE_COLUMNS, Trace, filled

__all__ = ["merged", "places_for", "pooled", "spoken_merging"]


def pooled(trace: Trace, processors: float, resource: str | None = None) -> Trace:
    """Put the trace on one machine with this many units of one resource: each job is one piece, the sum of its pieces.

    The resource defaults to the first that any job requests. If no job gives amounts, each piece takes one unit.

    >>> trace = Trace.of({"submit_s": [0.0], "run_s": [60.0], "pieces": [4], "cpu": [2.0]})
    >>> pooled(trace, 16).jobs.select("pieces", "cpu").row(0)
    (1, 8.0)
    """
    if not (np.isfinite(processors) and processors > 0):
        raise InvalidInput("a number above 0", value=processors, key="processors")
    names = [kind.name for kind in trace.resources]
    if resource is not None and resource not in names:
        raise UnknownName("resource of this trace", resource, names)
    asked = [name for name in names if (trace.jobs[name].fill_null(0) > 0).any()]
    if asked and resource not in (None, *asked):
        raise InvalidInput(f"a resource that jobs ask for: {', '.join(asked)}", value=resource, key="resource")
    chosen = resource or next(iter(asked or names), CORES.name)
    kept = tuple(kind for kind in trace.resources or (CORES,) if kind.name == chosen)
    size = (pl.col(chosen) if asked else pl.lit(1.0)) * pl.col("pieces").fill_null(1)
    jobs = trace.jobs.drop([name for name in names if name != chosen]).with_columns(
        size.alias(chosen), pl.lit(None, dtype=pl.String).alias("needs"), pl.lit(1, dtype=pl.Int64).alias("pieces")
    )
    table: dict[str, list[object]] = {"machine": ["pool"], "count": [1], "speed": [1.0], chosen: [float(processors)]}
    return trace.replace(jobs=jobs, machines=filled(table, MACHINE_COLUMNS, kept), resources=kept)


def merged(trace: Trace) -> Trace | None:
    """The usable trace with all machines merged into one; None where the choice of machines matters.

    It makes no difference where all pieces of all jobs are equal and machines are equally fast: a machine then has room
    for a fixed number of pieces. The pool has what those take, and nothing of what no piece can use.

    >>> columns = {"submit_s": [0.0], "run_s": [60.0], "pieces": [4], "cpu": [1.5]}
    >>> merged(Trace.of(columns, {"machine": ["m"], "count": [16], "cpu": [5.0]})).machines["cpu"].to_list()
    [72.0]
    """
    names, machines, jobs = [kind.name for kind in trace.resources], trace.machines, trace.jobs
    if not names or not len(jobs) or machines["count"].sum() <= 1:
        return None
    speeds, pieces = machines["speed"].fill_null(1.0).unique(), jobs.select(names).unique()
    if len(speeds) > 1 or len(pieces) > 1 or not _all_reached(trace):
        return None
    piece, capacity = pieces.to_numpy()[0], machines.select(names).to_numpy()
    if not piece.any() or _shares_devices(names, piece, capacity):
        return None
    places = (places_for(piece, capacity) * machines["count"].to_numpy()).sum()
    table: dict[str, list[object]] = {"machine": ["pool"], "count": [1], "speed": [float(speeds[0])]}
    table |= {name: [float(places * amount)] for name, amount in zip(names, piece, strict=True)}
    everywhere = pl.lit(None, dtype=pl.String).alias("needs")
    return trace.replace(jobs=jobs.with_columns(everywhere), machines=filled(table, MACHINE_COLUMNS, trace.resources))


def places_for(piece: Floats, capacity: Floats) -> Floats:
    """How many such pieces (K,) each of these machines (R, K) has room for, (R,)."""
    asked = piece > 0
    places: Floats = np.floor((capacity[:, asked] / piece[asked]).min(axis=1) + TOLERANCE)
    return places


def spoken_merging(trace: Trace) -> str:
    """What is merged, and why it may be, in words."""
    names = [kind.name for kind in trace.resources]
    piece, capacity = trace.jobs.select(names).to_numpy()[0], trace.machines.select(names).to_numpy()
    places = (places_for(piece, capacity) * trace.machines["count"].to_numpy()).sum()
    equal = ", ".join(f"{name} {amount:g}" for name, amount in zip(names, piece, strict=True) if amount)
    many = trace.machines["count"].sum()
    return f"{many:,} machines are one pool of {places:,.0f} places, as all pieces are equal ({equal})"


def _all_reached(trace: Trace) -> bool:
    """Whether every job may be on every machine."""
    labels = set(trace.machines["label"].fill_null("").to_list())
    return all(not kind or labels <= set(kind.split("|")) for kind in trace.jobs["needs"].fill_null("").unique())


def _shares_devices(names: list[str], piece: Floats, capacity: Floats) -> bool:
    """Whether pieces take shares of whole devices: then it matters which."""
    if GPUS.name not in names:
        return False
    k = names.index(GPUS.name)
    return bool(0 < piece[k] < 1) and bool((capacity[:, k] == np.floor(capacity[:, k])).all())
