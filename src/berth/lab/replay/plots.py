"""Plots of a replay: waiting times, slowdowns and queue length under each policy."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from berth.lab.replay.results import Replay
from berth.lab.run.store import ResultDirectory
from berth.lab.show.canvas import STYLE, line_looks, new_figure, to_png, to_svg
from berth.model import Floats

__all__ = ["draw_replay", "save_replay_plots"]

POINTS = 600


def _shares(axes: Axes, values: Floats, look: dict[str, Any], label: str, least: float) -> None:
    """Plot the share of jobs above each value, both on log scales."""
    ordered = np.sort(np.maximum(values, least))
    above = 1.0 - np.arange(len(ordered)) / len(ordered)
    places = np.unique(np.geomspace(1, len(ordered), POINTS).astype(np.int64))
    thin = np.unique(np.concatenate([len(ordered) - places, [0]]))
    axes.plot(ordered[thin], above[thin], label=label, **look)


def _waiting(axes: Axes, jobs: pl.DataFrame, look: dict[str, Any], label: str) -> None:
    """Plot the number of waiting jobs over time in days."""
    ran = jobs.drop_nulls("start_s")
    submit, start = ran["submit_s"].to_numpy(), ran["start_s"].to_numpy()
    time = np.concatenate([submit, start])
    order = np.argsort(time, kind="stable")
    waiting = np.cumsum(np.concatenate([np.ones(len(submit)), -np.ones(len(start))])[order])
    thin = np.unique(np.linspace(0, len(time) - 1, 2 * POINTS).astype(np.int64))
    axes.plot((time[order][thin] - submit.min()) / 86400, waiting[thin], label=label, linewidth=1.0, **look)


def draw_replay(result: Replay) -> Figure:
    """Waits, bounded slowdowns and the queue, side by side."""
    with mpl.rc_context(STYLE):
        figure, axes = new_figure(12.6, 4.2, columns=3)
        wait, slowdown, queue = axes[0]
        for label, look in line_looks([row["policy"] for row in result.rows]).items():
            jobs = result.jobs.filter(pl.col("policy") == label)
            ran = jobs.drop_nulls("start_s")
            if not len(ran):
                continue
            _shares(wait, ran["wait_s"].to_numpy(), look, label, 1.0)
            _shares(slowdown, ran["bounded_slowdown"].to_numpy(), look, label, 1.0)
            _waiting(queue, jobs, look, label)
        _logs(wait, "wait, seconds (below 1 as 1)", "Share of jobs that wait longer")
        _logs(slowdown, "bounded slowdown", "Share of jobs that are slowed down more")
        queue.set(title="Jobs that wait", xlabel="days", ylim=(0, None))
        handles, labels = wait.get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower center", ncols=min(len(labels), 5) or 1)
        figure.subplots_adjust(0.06, 0.26, 0.99, 0.9, wspace=0.24)
    return figure


def _logs(axes: Axes, label: str, title: str) -> None:
    axes.set(xscale="log", yscale="log", xlabel=label, title=title)


def save_replay_plots(result: Replay, folder: ResultDirectory) -> None:
    """Write waits.png and waits.svg to the folder of plots."""
    figure: Any = draw_replay(result)
    picture = to_png(figure)
    folder.write("plots/waits.png", lambda path: path.write_bytes(picture))
    folder.write_text("plots/waits.svg", to_svg(figure, "replay"))
