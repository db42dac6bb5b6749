"""Plots of experiments: curves over slots, lines over a key, bars. A policy keeps its colour within a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from berth.lab.reproduce.experiments import Plot, Setting
from berth.lab.reproduce.results import ExperimentResult, Reproduced
from berth.lab.run.store import ResultDirectory
from berth.lab.show.canvas import INK, STYLE, finish, line_looks, new_figure, save_figure
from berth.registry import PolicySpec
from berth.regret import band
from berth.statistics import Estimate, estimate, paired

__all__ = ["draw", "looks_of", "save_plots"]

Looks = Mapping[str, dict[str, Any]]


def _policies(result: ExperimentResult, plot: Plot) -> list[str]:
    """Policies of a plot: its own list, or all that are run."""
    if plot.policies is not None:
        return [str(PolicySpec.parse(text)) for text in plot.policies]
    return _run(result)


def _run(result: ExperimentResult) -> list[str]:
    """All policies that an experiment runs."""
    run = (text for setting in result.settings for text in setting.run.policies or ())
    return list(dict.fromkeys(str(PolicySpec.parse(text)) for text in run))


def looks_of(found: Reproduced) -> Looks:
    """Line colour and dashes of each policy, the same in all experiments."""
    return line_looks(*map(_run, found.experiments))


def _point(result: ExperimentResult, plot: Plot, place: int, policy: str) -> Estimate | None:
    ours = result.values(place, policy, plot.arrivals, plot.metric)
    if plot.over is None:
        return estimate(ours.values())
    return paired(ours, result.values(place, plot.over, plot.arrivals, plot.metric))


def _spoken(plot: Plot) -> str:
    name = {"decide_seconds": "seconds a decision"}.get(plot.metric, f"{plot.metric} a slot")
    return name if plot.over is None else f"{plot.metric} ÷ that of {plot.over}"


def _curve(axes: Axes, result: ExperimentResult, plot: Plot, looks: Looks) -> None:
    place = result.places(plot.where)[-1]
    base = {} if plot.over is None else result.named(place, plot.over, plot.arrivals)
    for policy in _policies(result, plot):
        runs = result.named(place, policy, plot.arrivals)
        seeds = sorted(runs.keys() & base.keys()) if base else sorted(runs)
        if not seeds or policy == plot.over:
            continue
        slots = runs[seeds[0]].slots
        totals = np.array([runs[seed].total for seed in seeds])
        if plot.show == "average":
            totals = totals / slots
        elif plot.show == "ratio":
            totals = totals / np.array([base[seed].total for seed in seeds])
        curve = band(totals)
        axes.plot(slots, curve.mean, label=policy, **looks[policy])
        if plot.show == "ratio" and curve.low is not None and curve.high is not None:
            axes.fill_between(slots, curve.low, curve.high, color=looks[policy]["color"], alpha=0.15, linewidth=0)
    words = {"average": "reward a slot, mean so far", "cumulative": "cumulative reward"}
    if plot.show == "ratio":
        axes.axhline(1.0, color=INK, linewidth=0.8)
    axes.set_ylabel(words.get(plot.show, f"reward ÷ that of {plot.over}"))
    axes.set_xlabel("slot")


def _line(axes: Axes, result: ExperimentResult, plot: Plot, looks: Looks) -> None:
    places = [place for place in result.places(plot.where) if plot.x in result.settings[place].keys]
    xs: list[Any] = [result.settings[place].keys[str(plot.x)] for place in places]
    numeric = all(isinstance(x, int | float) and not isinstance(x, bool) for x in xs)
    at = xs if numeric else list(range(len(xs)))
    for policy in _policies(result, plot):
        found = [(x, _point(result, plot, place, policy)) for x, place in zip(at, places, strict=True)]
        shown = [(x, value) for x, value in found if value is not None]
        if not shown or policy == plot.over:
            continue
        means = [value.mean for _, value in shown]
        axes.plot([x for x, _ in shown], means, label=policy, marker="o", markersize=4, **looks[policy])
        halves = [value.half or 0.0 for _, value in shown]
        axes.errorbar([x for x, _ in shown], means, halves, fmt="none", ecolor=looks[policy]["color"], alpha=0.5)
    if plot.over is not None:
        axes.axhline(1.0, color=INK, linewidth=0.8)
    if numeric:
        axes.set_xscale("log" if plot.log else "linear")
    axes.set_xticks(at, [str(x) for x in xs])
    axes.minorticks_off()
    axes.set_xlabel(str(plot.x))
    axes.set_ylabel(_spoken(plot))


def _bars(axes: Axes, result: ExperimentResult, plot: Plot, looks: Looks) -> None:
    places, policies = result.places(plot.where), _policies(result, plot)
    policies = [policy for policy in policies if policy != plot.over]
    width = 0.8 / max(1, len(policies))
    for step, policy in enumerate(policies):
        found = [(place, _point(result, plot, number, policy)) for place, number in enumerate(places)]
        shown = [(place, value) for place, value in found if value is not None]
        if not shown:
            continue
        axes.bar(
            [place + (step + 0.5) * width - 0.4 for place, _ in shown],
            [value.mean for _, value in shown],
            width,
            yerr=[value.half or 0.0 for _, value in shown],
            label=policy,
            color=looks[policy]["color"],
            error_kw={"ecolor": INK, "elinewidth": 0.8},
        )
    if plot.over is not None:
        axes.axhline(1.0, color=INK, linewidth=0.8)
    labels = [_short(result.settings[number]) for number in places]
    many = len(labels) > 4
    axes.set_xticks(
        range(len(places)), labels, fontsize=8, rotation=20 if many else 0, ha="right" if many else "center"
    )
    axes.grid(axis="x", visible=False)
    axes.set_ylabel(_spoken(plot))


def _cdf(axes: Axes, result: ExperimentResult, plot: Plot, looks: Looks) -> None:
    place = result.places(plot.where)[-1]
    for policy in _policies(result, plot):
        runs = [run for run in result.named(place, policy, plot.arrivals).values() if len(run.seconds)]
        if runs:
            seconds = np.mean([run.seconds for run in runs], axis=0)
            axes.plot(1e3 * seconds, np.arange(101) / 100.0, label=policy, **looks[policy])
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds that deciding took, percentiles averaged over seeds")
    axes.set_ylabel("share of slots")


def _short(setting: Setting) -> str:
    """Axis label of a point: a trace by its file, else a scenario by its name, then keys of the grid."""
    keys = dict(setting.keys)
    scenario, trace = keys.pop("scenario", None), keys.pop("trace", None)
    name = scenario if trace is None else Path(trace).name.split(".")[0]
    return (
        ", ".join([*([name] if name else []), *(f"{key}={value}" for key, value in keys.items())]) or setting.scenario
    )


PICTURES = {"curve": _curve, "line": _line, "bars": _bars, "cdf": _cdf}


def draw(result: ExperimentResult, looks: Looks) -> list[Figure]:
    """Draw the plots of an experiment in order; a plot without results is left out."""
    figures = []
    with mpl.rc_context(STYLE):
        for plot in result.experiment.plots:
            if not result.places(plot.where):
                continue
            figure, grid = new_figure()
            axes = grid[0][0]
            PICTURES[plot.kind](axes, result, plot, looks)
            axes.set_title(plot.title)
            finish(figure, axes, top=0.4, bottom=0.25 if plot.kind == "bars" else 0.0)
            figures.append(figure)
    return figures


def save_plots(found: Reproduced, directory: ResultDirectory) -> dict[str, Sequence[str]]:
    """Write every plot as PNG and SVG; return the SVG texts by experiment."""
    drawn: dict[str, Sequence[str]] = {}
    looks = looks_of(found)
    for result in found.experiments:
        stem = result.experiment.name.replace("/", "-")
        drawn[result.experiment.name] = [
            save_figure(figure, directory, f"{stem}-{number}") for number, figure in enumerate(draw(result, looks), 1)
        ]
    return drawn
