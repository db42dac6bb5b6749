"""Gantt charts of a replay that stay readable with any number of jobs.

Rows are units of the resource: each job takes the lowest that are free. These are not the machines that the policy
chose, which makes no difference to when and how much is in use. Few jobs are drawn one by one; many become a picture of
fixed size, in which every dot is the mean of what it covers.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from berth.lab.replay.results import Replay
from berth.lab.show.canvas import STYLE, new_figure
from berth.model import Floats, Ints

__all__ = ["Blocks", "blocks", "coverage", "draw_gantt", "draw_queue", "raster", "time_unit"]

COLUMNS, ROWS = 900, 160
"""Dots of a picture."""
SINGLY = 1500
"""Blocks that are drawn one by one; more become a picture."""
POLICIES = 6
"""Policies with a chart of their own."""
WAITS = LinearSegmentedColormap.from_list("waits", ["#0072B2", "#8fb8c9", "#E69F00", "#D55E00", "#8b1a1a"])
LEAST, MOST = 60.0, 7 * 86400.0
"""Waits at the ends of the colours, in seconds."""
AROUND = 300
"""Starts shown around the longest queue."""


class Blocks(NamedTuple):
    """Rectangles of a chart: `low` to `high` of the resource from `start` to `end`, by the number of the job."""

    start: Floats
    end: Floats
    low: Floats
    high: Floats
    job: Ints


def blocks(start: Floats, end: Floats, size: Floats, capacity: float) -> Blocks:
    """Give each job the lowest free part of [0, capacity); a job has several blocks if that is not in one piece.

    >>> found = blocks(np.array([0.0, 0.0, 5.0]), np.array([5.0, 9.0, 9.0]), np.array([1.0, 2.0, 3.0]), 5.0)
    >>> list(zip(found.job.tolist(), found.low.tolist(), found.high.tolist()))
    [(0, 0.0, 1.0), (1, 1.0, 3.0), (2, 0.0, 1.0), (2, 3.0, 5.0)]
    """
    count = len(start)
    time = np.concatenate([end, start])
    order = np.lexsort((np.repeat([0, 1], count), time))  # ends before starts
    free = [(0.0, capacity)]
    held: dict[int, list[tuple[float, float]]] = {}
    found: list[tuple[int, float, float]] = []
    for event in order.tolist():
        job = event % count
        if event < count:
            for part in held.pop(job, ()):
                _release(free, part)
        elif end[job] > start[job]:
            taken = held[job] = _take(free, float(size[job]))
            found.extend((job, low, high) for low, high in taken)
    jobs = np.array([job for job, _, _ in found], dtype=np.int64)
    low, high = (np.array([one[k] for one in found], dtype=np.float64) for k in (1, 2))
    return Blocks(start[jobs], end[jobs], low, high, jobs)


def _take(free: list[tuple[float, float]], size: float) -> list[tuple[float, float]]:
    """Remove `size` from the lowest free parts."""
    taken: list[tuple[float, float]] = []
    while size > 0 and free:
        low, high = free[0]
        part = min(high - low, size)
        taken.append((low, low + part))
        size -= part
        if low + part < high:
            free[0] = (low + part, high)
        else:
            free.pop(0)
    return taken


def _release(free: list[tuple[float, float]], part: tuple[float, float]) -> None:
    """Add a part to the free ones, in one piece with its neighbours."""
    low, high = part
    place = bisect_left(free, part)
    if place < len(free) and free[place][0] == high:
        high = free.pop(place)[1]
    if place and free[place - 1][1] == low:
        low = free.pop(place - 1)[0]
        place -= 1
    free.insert(place, (low, high))


# --- pictures


def time_unit(span: float) -> tuple[float, str]:
    """The unit in which to show a time of this many seconds: its length and name.

    >>> time_unit(300.0), time_unit(30 * 86400.0)
    ((60.0, 'minutes'), (86400.0, 'days'))
    """
    return next(
        (length, name)
        for least, length, name in (
            (3 * 86400.0, 86400.0, "days"),
            (3 * 3600.0, 3600.0, "hours"),
            (0.0, 60.0, "minutes"),
        )
        if span >= least
    )


def _edges(low: Floats, high: Floats, size: int) -> tuple[Ints, Floats]:
    """Places and weights, (4, N), whose running sum is how much of each cell [low, high) covers, in cells."""
    places, weights = [], []
    for edge, sign in ((np.clip(high, 0, size), 1.0), (np.clip(low, 0, size), -1.0)):
        whole = np.floor(edge)
        rest = edge - whole
        places += [whole, whole + 1]
        weights += [sign * (rest - 1.0), -sign * rest]
    return np.array(places).astype(np.int64), np.array(weights)


def coverage(low: Floats, high: Floats, weight: Floats, size: int) -> Floats:
    """Weight of intervals in each of `size` cells of length 1, (size,); a part of a cell counts as this part.

    >>> coverage(np.array([0.5]), np.array([2.25]), np.array([4.0]), 3).tolist()
    [2.0, 4.0, 1.0]
    """
    places, weights = _edges(low, high, size)
    found = np.zeros(size + 2)
    np.add.at(found, places, weights * weight)
    return np.asarray(np.cumsum(found)[:size])


def raster(found: Blocks, value: Floats, begin: float, end: float, capacity: float) -> tuple[Floats, Floats]:
    """The share of each dot that is in use, and the mean of `value` of the jobs there, (ROWS, COLUMNS)."""
    scale, height = COLUMNS / (end - begin), ROWS / capacity
    across, shares = _edges((found.start - begin) * scale, (found.end - begin) * scale, COLUMNS)
    along, parts = _edges(found.low * height, found.high * height, ROWS)
    sums = np.zeros((2, ROWS + 2, COLUMNS + 2))
    for x, share in zip(across, shares, strict=True):
        for y, part in zip(along, parts, strict=True):
            np.add.at(sums[0], (y, x), share * part)
            np.add.at(sums[1], (y, x), share * part * value[found.job])
    used, total = (np.cumsum(np.cumsum(one, axis=0), axis=1)[:ROWS, :COLUMNS] for one in sums)
    return np.clip(used, 0.0, 1.0), np.divide(total, used, out=np.zeros_like(total), where=used > 1e-9)


def _panel(
    axes: Axes, found: Blocks, wait: Floats, span: tuple[float, float], capacity: float, origin: float, unit: float
) -> None:
    begin, end = span
    norm = LogNorm(LEAST, MOST, clip=True)
    shown = np.flatnonzero((found.end > begin) & (found.start < end))
    left, right = (begin - origin) / unit, (end - origin) / unit
    if len(shown) <= SINGLY:
        x0, x1 = ((np.clip(t[shown], begin, end) - origin) / unit for t in (found.start, found.end))
        y0, y1 = found.low[shown], found.high[shown]
        corners = np.stack([np.stack([x0, x1, x1, x0], 1), np.stack([y0, y0, y1, y1], 1)], 2)
        colours = WAITS(norm(np.maximum(wait[found.job[shown]], LEAST)))
        axes.add_collection(PolyCollection(list(corners), facecolors=colours, edgecolors="white", linewidths=0.4))
    else:
        part = Blocks(found.start[shown], found.end[shown], found.low[shown], found.high[shown], found.job[shown])
        used, mean = raster(part, np.log(np.clip(wait, LEAST, MOST)), begin, end, capacity)
        picture = WAITS(norm(np.clip(np.exp(mean), LEAST, MOST)))
        picture[..., 3] = used
        axes.imshow(picture, extent=(left, right, 0, capacity), origin="lower", aspect="auto", interpolation="nearest")
    axes.set(xlim=(left, right), ylim=(0, capacity))
    axes.grid(visible=False)


def _chart(result: Replay, names: list[str], span: tuple[float, float], origin: float) -> Figure:
    """A panel for each policy, with a common scale of colours."""
    with mpl.rc_context(STYLE):
        unit, word = time_unit(span[1] - origin)
        figure, grid = new_figure(12.6, 0.9 + 1.6 * len(names), rows=len(names), sharex=True)
        for (axes,), name in zip(grid, names, strict=True):
            jobs, capacity = _jobs(result, name)
            start, end, wait = (jobs[column].to_numpy() for column in ("start_s", "end_s", "wait_s"))
            found = blocks(start, end, jobs["held"].to_numpy(), capacity)
            _panel(axes, found, wait, span, capacity, origin, unit)
            axes.set_title(name)
            axes.set_ylabel(str(result.rows[0].get("resource", "")))
        grid[-1][0].set_xlabel(f"{word} since the first submission")
        height = figure.get_size_inches()[1]
        figure.subplots_adjust(0.06, 0.5 / height, 0.9, 1 - 0.32 / height, hspace=0.32)
        bar = figure.add_axes((0.915, 0.5 / height, 0.012, 1 - 0.82 / height))
        scale: Any = mpl.cm.ScalarMappable(LogNorm(LEAST, MOST), WAITS)
        colours = figure.colorbar(scale, cax=bar)
        ticks = {60: "≤ 1 min", 600: "10 min", 3600: "1 h", 6 * 3600: "6 h", 86400: "1 d", MOST: "≥ 7 d"}
        colours.set_ticks(list(ticks), labels=list(ticks.values()))
        colours.ax.minorticks_off()
        colours.set_label("wait of the job")
    return figure


def _jobs(result: Replay, policy: str) -> tuple[pl.DataFrame, float]:
    """Jobs of a policy in the first sample that started, and the capacity of the resource."""
    row = next(row for row in result.rows if row["policy"] == policy)
    mine = (pl.col("policy") == policy) & (pl.col("sample") == result.samples[0])
    return result.jobs.filter(mine).drop_nulls("start_s"), float(row.get("capacity") or 1.0)


def _drawn(result: Replay) -> list[str]:
    return [row["policy"] for row in result.rows if "mean_wait_seconds" in row][:POLICIES]


def draw_gantt(result: Replay) -> Figure | None:
    """All jobs of the first sample under each policy; None if no policy started any."""
    names = _drawn(result)
    if not names:
        return None
    each = [_jobs(result, name)[0] for name in names]
    origin = min(float(jobs["submit_s"].min()) for jobs in each)  # type: ignore[arg-type]
    last = max(float(jobs["end_s"].max()) for jobs in each)  # type: ignore[arg-type]
    return _chart(result, names, (origin, last), origin)


def draw_queue(result: Replay) -> Figure | None:
    """The time around the longest queue under the baseline; None if it shows little less than everything."""
    names = _drawn(result)
    if result.baseline not in names:
        return None
    jobs, _ = _jobs(result, result.baseline)
    if len(jobs) < 4 * AROUND:
        return None
    submit, start = (np.sort(jobs[name].to_numpy()) for name in ("submit_s", "start_s"))
    waiting = np.arange(1, len(submit) + 1) - np.searchsorted(start, submit, side="right")
    middle = int(np.searchsorted(start, submit[int(np.argmax(waiting))]))
    first = min(max(middle - AROUND // 2, 0), len(start) - AROUND)
    span = (float(start[first]), float(start[first + AROUND - 1]))
    return _chart(result, names, span, float(submit[0])) if span[0] < span[1] else None
