"""Plots of a replay: waits, slowdowns, queue, utilisation and Gantt charts of each policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from berth.lab.replay.gantt import coverage, draw_gantt, draw_queue, time_unit
from berth.lab.replay.results import Replay
from berth.lab.run.store import ResultDirectory
from berth.lab.show.canvas import STYLE, finish, line_looks, new_figure, save_figure
from berth.model import Floats

__all__ = ["PLOTS", "draw_replay", "draw_utilisation", "save_replay_plots"]

POINTS = 600
BINS = 120
"""Points of a curve of utilisation."""


def _shares(axes: Axes, values: Floats, look: dict[str, Any], label: str, least: float) -> None:
    """Plot the share of jobs above each value, both on log scales."""
    ordered = np.sort(np.maximum(values, least))
    above = 1.0 - np.arange(len(ordered)) / len(ordered)
    places = np.unique(np.geomspace(1, len(ordered), POINTS).astype(np.int64))
    thin = np.unique(np.concatenate([len(ordered) - places, [0]]))
    axes.plot(ordered[thin], above[thin], label=label, **look)


def _waiting(axes: Axes, jobs: pl.DataFrame, look: dict[str, Any], label: str, unit: float) -> None:
    """Plot the number of waiting jobs over time, in this unit."""
    submit, start = jobs["submit_s"].to_numpy(), jobs["start_s"].to_numpy()
    time = np.concatenate([submit, start])
    order = np.argsort(time, kind="stable")
    waiting = np.cumsum(np.concatenate([np.ones(len(submit)), -np.ones(len(start))])[order])
    thin = np.unique(np.linspace(0, len(time) - 1, 2 * POINTS).astype(np.int64))
    passed = (time[order][thin] - submit.min()) / unit
    axes.plot(passed, waiting[thin], label=label, linewidth=1.0, drawstyle="steps-post", **look)


def draw_replay(result: Replay) -> Figure:
    """Waits, bounded slowdowns and the queue, side by side."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure(12.6, 4.2, columns=3)
        wait, slowdown, queue = axes[0]
        started = result.jobs.filter(pl.col("sample") == result.samples[0]).drop_nulls("start_s")
        begin, end = started.select(pl.min("submit_s"), pl.max("start_s")).row(0)
        unit, word = time_unit((end or 0.0) - (begin or 0.0))
        for label, look in line_looks([row["policy"] for row in result.rows]).items():
            jobs = result.jobs.filter(pl.col("policy") == label)
            ran = jobs.drop_nulls("start_s").filter("counted")
            if not len(ran):
                continue
            _shares(wait, ran["wait_s"].to_numpy(), look, label, 1.0)
            _shares(slowdown, ran["bounded_slowdown"].to_numpy(), look, label, 1.0)
            _waiting(queue, started.filter(pl.col("policy") == label), look, label, unit)
        _logs(wait, "wait, seconds (below 1 as 1)", "Share of jobs that wait longer")
        _logs(slowdown, "bounded slowdown", "Share of jobs that are slowed down more")
        queue.set(title="Jobs that wait", xlabel=word, ylim=(0, None))
        handles, labels = wait.get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=min(len(labels), 5) or 1)
        figure.subplots_adjust(0.06, 0.26, 0.99, 0.9, wspace=0.24)
    return figure


def _logs(axes: Axes, label: str, title: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel=label, title=title)


def draw_utilisation(result: Replay) -> Figure | None:
    """Share of the resource in use over time, in the first sample; None if no policy started any job."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure(12.6, 3.2)
        panel = axes[0][0]
        rows = [row for row in result.rows if row.get("capacity")]
        jobs = result.jobs.filter(pl.col("sample") == result.samples[0]).drop_nulls("start_s")
        if not rows or not len(jobs):
            return None
        begin, end = (float(value) for value in jobs.select(pl.min("submit_s"), pl.max("end_s")).row(0))
        step, (unit, word) = (end - begin) / BINS or 1.0, time_unit(end - begin)
        for label, look in line_looks([row["policy"] for row in result.rows]).items():
            mine = jobs.filter(pl.col("policy") == label)
            if not len(mine):
                continue
            start, stop, held = (mine[name].to_numpy() for name in ("start_s", "end_s", "held"))
            share = coverage((start - begin) / step, (stop - begin) / step, held, BINS) / rows[0]["capacity"]
            middle = (np.arange(BINS) + 0.5) * step / unit
            panel.plot(middle, 100 * share, label=label, **{**look, "linewidth": 1.3})
        panel.set(xlabel=f"{word} since the first submission", ylim=(0, 103))
        panel.set_ylabel(f"{rows[0].get('resource', '')} in use, %")
        panel.margins(x=0.01)
        finish(figure, panel)
    return figure


PLOTS: Mapping[str, Callable[[Replay], Figure | None]] = {
    "waits": draw_replay,
    "utilisation": draw_utilisation,
    "gantt": draw_gantt,
    "queue": draw_queue,
}
"""Plots by the name of their file."""


def save_replay_plots(result: Replay, folder: ResultDirectory) -> dict[str, str]:
    """Write every plot to the folder of plots, as PNG and SVG; gives the SVG texts by name."""
    drawn: dict[str, str] = {}
    for name, draw in PLOTS.items():
        figure = draw(result)
        if figure is not None:
            drawn[name] = save_figure(figure, folder, name)
    return drawn
