"""Curves and HTML report of a sweep, of comparisons or of replays."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from berth.lab.run.store import ResultDirectory
from berth.lab.run.sweep import Sweep
from berth.lab.show.canvas import STYLE, finish, line_looks, new_figure, save_figure, short_number
from berth.lab.show.page import page
from berth.lab.show.words import MISSING, in_words
from berth.statistics import Estimate

__all__ = ["Measure", "SweepLine", "SweepTable", "draw_curves", "table_of", "value_text", "write_sweep_report"]

PANELS = 4
"""Rows of panels in a figure: combinations of the keys that are not on the horizontal axis."""
LINES = 400
"""Lines of the table in the report."""
FACTOR = 10.0
"""Largest value over the smallest from which on an axis is logarithmic."""


@dataclass(frozen=True)
class Measure:
    """A number that a sweep compares: its label, and how a value is written."""

    label: str
    show: Callable[[Estimate | None], str] = in_words
    scale: float = 1.0
    """What the values of the axis are divided by."""


@dataclass(frozen=True)
class SweepLine:
    """Results of a policy at a point; `setting` tells apart several of a policy at one point."""

    point: Mapping[str, Any]
    policy: str
    values: Mapping[str, Estimate | None]
    setting: str = ""


@dataclass(frozen=True, eq=False)
class SweepTable:
    """All lines of a sweep, the swept keys, and the measures by name."""

    title: str
    keys: tuple[str, ...]
    measures: Mapping[str, Measure]
    lines: Sequence[SweepLine]
    failed: Mapping[str, str]
    left_out: Mapping[str, str]

    @property
    def policies(self) -> list[str]:
        """All policies, in the order of the lines."""
        return list(dict.fromkeys(line.policy for line in self.lines))


def table_of(result: Sweep, title: str = "") -> SweepTable:
    """The rewards of a sweep of comparisons."""
    several = len({row.information for rows in result.rows.values() for row in rows}) > 1
    lines = [
        SweepLine(
            point.changes,
            row.policy,
            {"reward": row.reward, "ratio": row.ratio},
            f"arrivals {row.information}" if several else "",
        )
        for point in result.points
        for row in result.rows.get(point.number, ())
    ]
    return SweepTable(
        title,
        result.keys,
        {"reward": Measure("reward a slot"), "ratio": Measure("reward, relative to the baseline")},
        lines,
        {f"point {n}, {cell}": error for n, found in result.failed.items() for cell, error in found.items()},
        {who: why for found in result.left_out.values() for who, why in found.items()},
    )


# --- curves


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _axes_keys(found: SweepTable) -> list[str]:
    """Keys to draw against: all with several numbers; else the first with several values."""
    values = {key: {value_text(line.point.get(key)) for line in found.lines} for key in found.keys}
    several = [key for key in found.keys if len(values[key]) > 1]
    numbers = [key for key in several if all(_is_number(line.point.get(key)) for line in found.lines)]
    return numbers or several[:1]


def value_text(value: Any) -> str:
    """A swept value, files without their folders."""
    if isinstance(value, float):
        return f"{value:g}"
    return Path(value).name if isinstance(value, str) else json.dumps(value)


def draw_curves(found: SweepTable, key: str) -> Figure:
    """Every measure against a key: a column each; a row for each combination of the other keys, if there are few.

    If there are many, as with random points, one row has a dot for every point.
    """
    others = [name for name in found.keys if name != key]
    groups: dict[tuple[str, ...], list[SweepLine]] = {}
    for line in found.lines:
        named = (*(value_text(line.point.get(name)) for name in others), line.setting)
        groups.setdefault(named, []).append(line)
    joined = len(groups) <= PANELS
    panels = groups if joined else {("",): list(found.lines)}
    with mpl.rc_context(STYLE):
        width = 3.0 + 3.2 * len(found.measures)
        figure, grid = new_figure(width, 0.5 + 2.7 * len(panels), len(found.measures), len(panels))
        for (named, lines), row in zip(panels.items(), grid, strict=True):
            words = [f"{name} = {value}" for name, value in zip(others, named, strict=False)] if joined else []
            words += [named[-1]] if joined and named[-1] else []
            for (name, measure), axes in zip(found.measures.items(), row, strict=True):
                _curves(axes, found, lines, key, name, joined)
                axes.set_ylabel(measure.label)
                axes.set_xlabel(key)
            row[0].set_title(", ".join(words))
        finish(figure, grid[0][0], top=0.35, between=0.34)
        figure.subplots_adjust(hspace=0.45)
    return figure


def _curves(axes: Axes, found: SweepTable, lines: Sequence[SweepLine], key: str, name: str, joined: bool) -> None:
    measure, looks = found.measures[name], line_looks(found.policies)
    names = list(dict.fromkeys(value_text(line.point.get(key)) for line in lines))
    numeric = all(_is_number(line.point.get(key)) for line in lines)
    shown: list[float] = []
    for policy in found.policies:
        points = []
        for line in lines:
            value = line.values.get(name)
            if line.policy == policy and value is not None:
                given: Any = line.point.get(key)
                points.append((float(given) if numeric else float(names.index(value_text(given))), value))
        points.sort(key=lambda one: one[0])
        if not points:
            continue
        places = [place for place, _ in points]
        means = [value.mean / measure.scale for _, value in points]
        look = looks[policy] if joined and numeric else {**looks[policy], "linestyle": "none"}
        axes.plot(places, means, marker="o", markersize=4, label=policy, **look)
        spread = [(place, value) for place, value in points if value.low is not None and value.high is not None]
        shown += means
        if spread:
            low = [float(value.low) / measure.scale for _, value in spread if value.low is not None]
            high = [float(value.high) / measure.scale for _, value in spread if value.high is not None]
            axes.vlines([place for place, _ in spread], low, high, color=look["color"], linewidth=1.2, alpha=0.6)
    if not numeric:
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
    if shown and min(shown) > 0 and max(shown) > FACTOR * min(shown):
        axes.set_yscale("log")
        axes.set_ylim(min(shown) / 2, max(shown) * 2)
    else:
        axes.yaxis.set_major_formatter(FuncFormatter(short_number))


# --- the page


def write_sweep_report(directory: ResultDirectory, found: SweepTable, manifest: Mapping[str, Any]) -> None:
    """Write plots/curves-KEY.svg and .png, and report.html."""
    drawn: dict[str, str] = {}
    for key in _axes_keys(found) if found.lines else ():
        name = f"curves-{''.join(letter if letter.isalnum() else '-' for letter in key)}"
        drawn[key] = save_figure(draw_curves(found, key), directory, name)
    directory.write_text("report.html", _page(found, drawn, manifest))


def _page(found: SweepTable, drawn: Mapping[str, str], manifest: Mapping[str, Any]) -> str:
    facts = {
        "Points": f"{len(manifest.get('points', ())):,}, of {', '.join(found.keys)}",
        "Policies": ", ".join(found.policies),
    }
    settings = any(line.setting for line in found.lines)

    def cells(line: SweepLine) -> Iterator[str]:
        yield from (value_text(line.point.get(key)) for key in found.keys)
        yield from [line.setting] if settings else []
        for name, measure in found.measures.items():
            value = line.values.get(name)
            yield MISSING if value is None else measure.show(value)

    return page(
        "sweep.html",
        found.title or "Sweep",
        facts,
        manifest,
        {**({"curves": "Curves"} if drawn else {}), "table": "Table"},
        drawn=drawn,
        looks=line_looks(found.policies),
        keys=list(found.keys),
        labels=[measure.label for measure in found.measures.values()],
        settings=settings,
        lines=[{"policy": line.policy, "cells": [*cells(line)]} for line in found.lines[:LINES]],
        more=len(found.lines) - LINES,
        failed=[*itertools.islice(found.failed.items(), LINES)],
        left_out=[*itertools.islice(found.left_out.items(), LINES)],
    )
