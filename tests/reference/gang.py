"""Referees for gangs: every answer in turn, and an integer programme with tangents in place of the root.

Also the gang extension as the papers print it, to show what it says about small cases.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.families.selection.solvers import GangQuestion

Ints = NDArray[np.int64]


def is_gang(question: GangQuestion, tasks: Any) -> bool:
    """Whether these tasks (n,) are an answer at all: whole, arrived, within pools, gangs complete."""
    tasks = np.asarray(tasks)
    if (tasks < 0).any() or not question.fits(tasks):
        return False
    placed = np.bincount(question.port, weights=tasks, minlength=len(question.minimum))
    for job in range(len(question.arrived)):
        roles = np.flatnonzero(question.job_of_port == job)
        if not placed[roles].any():
            continue
        if not question.arrived[job]:
            return False
        if (placed[roles] < question.minimum[roles]).any() or (placed[roles] > question.most[roles]).any():
            return False
    return True


def caps(question: GangQuestion) -> Ints:
    """How many tasks each channel holds alone, (n,)."""
    cap = question.most[question.port].astype(np.float64)
    for e, (take, pool) in enumerate(zip(question.takes, question.pool, strict=True)):
        for k in np.flatnonzero(take > 0):
            cap[e] = min(cap[e], math.floor(max(question.free[pool, k], 0.0) / take[k] + 1e-9))
    return np.asarray(cap, dtype=np.int64)


def every_answer(question: GangQuestion) -> Iterator[Ints]:
    for counts in itertools.product(*(range(c + 1) for c in caps(question))):
        tasks = np.array(counts, dtype=np.int64)
        if is_gang(question, tasks):
            yield tasks


def best_by_enumeration(question: GangQuestion) -> float:
    """The optimum, by trying everything."""
    return max(question.value(tasks) for tasks in every_answer(question))


class Solved(NamedTuple):
    tasks: Ints
    value: float
    bound: float


def best_by_programme(question: GangQuestion, gap: float = 1e-6, seconds: float = 60.0, rounds: int = 12) -> Solved:
    """HiGHS on the integer programme; tangents of the root are added where the last answer lies, until they agree."""
    import highspy

    n, jobs = len(question.gain), len(question.arrived)
    cap = caps(question)
    root, spreads = n + jobs, n + jobs + 1
    model = highspy.Highs()
    for option, setting in (("output_flag", False), ("time_limit", seconds), ("mip_rel_gap", gap), ("threads", 1)):
        model.setOptionValue(option, setting)
    infinity = highspy.kHighsInf
    for e in range(n):
        model.addVar(0.0, float(cap[e]))
        model.changeColCost(e, -float(question.gain[e]))
    for job in range(jobs):
        model.addVar(0.0, float(question.arrived[job]))
    for column in range(n + jobs):
        model.changeColIntegrality(column, highspy.HighsVarType.kInteger)
    model.addVar(0.0, infinity)
    model.addVar(0.0, infinity)
    model.changeColCost(root, -1.0)

    def row(low: float, high: float, columns: Any, values: Any) -> None:
        columns = np.asarray(columns, dtype=np.int32)
        model.addRow(low, high, len(columns), columns, np.asarray(values, dtype=np.float64))

    for role in range(len(question.minimum)):
        starts = n + int(question.job_of_port[role])
        channels = np.flatnonzero(question.port == role)
        columns, ones = np.append(channels, starts), np.ones(len(channels))
        row(0.0, infinity, columns, np.append(ones, -float(question.minimum[role])))
        row(-infinity, 0.0, columns, np.append(ones, -float(question.most[role])))
        for channel in channels:
            row(-infinity, 0.0, [channel, starts], [1.0, -float(cap[channel])])
    for g, k in np.ndindex(question.free.shape):
        channels = np.flatnonzero((question.pool == g) & (question.takes[:, k] > 0))
        if channels.size:
            row(-infinity, max(float(question.free[g, k]), 0.0), channels, question.takes[channels, k])
    row(0.0, 0.0, np.append(np.arange(n), spreads), np.append(question.spread, -1.0))

    def tangent(y: float) -> None:
        y = max(y, 1e-9)
        row(-infinity, 0.5 * math.sqrt(y), [root, spreads], [1.0, -0.5 / math.sqrt(y)])

    top = max(float(question.spread @ cap), 1e-6)
    for y in np.geomspace(1e-4 * top, top, 12):
        tangent(float(y))
    best, value, bound = np.zeros(n, dtype=np.int64), 0.0, math.inf
    for _ in range(rounds):
        model.run()
        info, solution = model.getInfo(), model.getSolution().col_value
        bound = min(bound, -info.mip_dual_bound)
        if not len(solution):
            break
        tasks = np.round(np.array(solution[:n])).astype(np.int64)
        if question.value(tasks) > value:
            best, value = tasks, question.value(tasks)
        if bound - value <= 2.0 * gap * max(abs(bound), 1e-3):
            break
        tangent(float(question.spread @ tasks))
    return Solved(best, value, bound)


# ---------------------------------------------------------------------------- as printed


class PrintedJob(NamedTuple):
    """A job as in section 3.4: tasks q with what each takes, and a minimum over all of them together."""

    takes: tuple[float, ...]
    minimum: int


def printed_answers(jobs: list[PrintedJob], capacity: tuple[float, ...]) -> list[list[NDArray[np.int64]]]:
    """All x in {0, 1} per job, task and server with Σ over tasks and servers ≥ minimum for *every* job, and Σ a x ≤ c.

    One array (tasks, servers) for each job.
    """
    servers = len(capacity)
    shapes = [(len(job.takes), servers) for job in jobs]
    sizes = [rows * columns for rows, columns in shapes]
    found = []
    for bits in itertools.product((0, 1), repeat=sum(sizes)):
        parts, at = [], 0
        for shape, size in zip(shapes, sizes, strict=True):
            parts.append(np.array(bits[at : at + size], dtype=np.int64).reshape(shape))
            at += size
        used = sum(np.array(job.takes) @ part for job, part in zip(jobs, parts, strict=True))
        enough = all(part.sum() >= job.minimum for job, part in zip(jobs, parts, strict=True))
        if enough and bool((used <= np.array(capacity)).all()):
            found.append(parts)
    return found
