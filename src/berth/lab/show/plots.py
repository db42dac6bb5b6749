"""Pictures of a comparison, one set for each information setting.

A policy has the same colour in every picture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from berth.errors import InvalidInput, UnknownName
from berth.lab.run.results import Comparison, spoken
from berth.lab.run.store import ResultDirectory
from berth.lab.show.canvas import (
    DASHES,
    INK,
    STYLE,
    finish,
    line_looks,
    margins,
    new_figure,
    save_figure,
    short_number,
)
from berth.model import Floats
from berth.regret import Band, band, growth_exponent

__all__ = ["PICTURES", "TITLES", "draw", "oracle_looks", "palette", "picture", "save_plots"]

BASELINE, ORACLE = "#7b8794", "#9aa5b1"
SLOW = 0.75
"""The exponent of T below which regret counts as growing slowly: linear growth would hide the rest of a picture."""
SEEDS_BELOW = 0.2
"""How far under the line of its mean and interval each seed of a policy is drawn, in rows."""
POINTS = 400
"""Slots that a curve shows at most: about one for each two dots of the picture."""

TITLES = {
    "differences": "Difference to the baseline",
    "average-reward": "Average reward so far",
    "ratio": "Cumulative reward, relative to the baseline",
    "cumulative-reward": "Cumulative reward",
    "regret": "Cumulative regret",
    "gain-overhead": "Where the reward comes from",
    "allocation": "Who holds what",
}


def palette(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """Line colour and dashes of each policy: grey for the baseline."""
    looks = line_looks([policy for policy in comparison.policies if policy != comparison.baseline])
    return {**looks, comparison.baseline: {"color": BASELINE, "linestyle": "-", "linewidth": 2.4}}


def oracle_looks(comparison: Comparison) -> dict[str, dict[str, Any]]:
    """Line colour and dashes of each oracle."""
    return {
        name: {"color": ORACLE, "linestyle": DASHES[1 + place], "linewidth": 1.5}
        for place, name in enumerate(comparison.oracles)
    }


def _thin(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """At most `POINTS` slots, the last one among them."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(np.int64))


def _line(axes: Axes, slots: Any, curve: Band, look: dict[str, Any], label: str, shade: float = 0.16) -> None:
    axes.plot(slots + 1, curve.mean[slots], label=label, **look)
    if curve.low is not None and curve.high is not None:
        axes.fill_between(slots + 1, curve.low[slots], curve.high[slots], color=look["color"], alpha=shade, linewidth=0)


def _rewards(comparison: Comparison, information: str, policy: str) -> Floats:
    return np.array([run.reward for run in comparison.runs(information, policy).values()])


def _slot_axis(axes: Axes) -> None:
    axes.set_xlabel("slot")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.margins(x=0.01)


def _over_time(
    comparison: Comparison, information: str, change: Callable[[Floats], Floats], label: str, focus: bool
) -> Figure:
    """Every policy, and the oracles in dashed grey, after `change` of their rewards (S, T).

    Without bands: instances differ so much from seed to seed that these would hide the policies;
    pictures that compare seed by seed have them.
    """
    figure, grid = new_figure()
    axes = grid[0][0]
    looks = palette(comparison)
    settled: list[Floats] = []
    for name, look in oracle_looks(comparison).items():
        runs = comparison.oracle(name)
        if runs:
            mean = change(np.array([run.reward for run in runs.values()])).mean(axis=0)
            slots = _thin(len(mean))
            axes.plot(slots + 1, mean[slots], label=comparison.family.oracle_words[name].legend, **look)
            settled.append(mean[len(mean) // 10 :])
    for policy in comparison.served(information):
        mean = change(_rewards(comparison, information, policy)).mean(axis=0)
        slots = _thin(len(mean))
        axes.plot(slots + 1, mean[slots], label=policy, **looks[policy])
        settled.append(mean[len(mean) // 10 :])
    if focus and settled:
        _focus(axes, settled)
    axes.set_ylabel(label)
    if not focus:
        axes.yaxis.set_major_formatter(FuncFormatter(short_number))
    _slot_axis(axes)
    finish(figure, axes)
    return figure


def _focus(axes: Axes, curves: list[Floats]) -> None:
    """Limits from what comes after the first tenth: the first slots swing too far to see the rest."""
    values = np.concatenate(curves)
    values = values[np.isfinite(values)]
    if values.size:
        low, high = float(values.min()), float(values.max())
        room = 0.06 * ((high - low) or abs(high) or 1.0)
        axes.set_ylim(low - room, high + room)


def _running_mean(rewards: Floats) -> Floats:
    return np.asarray(np.cumsum(rewards, axis=1) / np.arange(1, rewards.shape[1] + 1))


def differences(comparison: Comparison, information: str) -> Figure | None:
    """Reward a slot less that of the baseline under the same seed: every seed, the mean and its interval."""
    base = {seed: run.mean("reward") for seed, run in comparison.runs(information, comparison.baseline).items()}
    rows = [
        row
        for row in comparison.rows
        if row.information == information and row.policy != comparison.baseline and row.difference is not None
    ]
    if not rows:
        return None
    figure, grid = new_figure(height=1.0 + 0.38 * len(rows))
    axes = grid[0][0]
    looks = palette(comparison)
    for place, row in enumerate(reversed(rows)):
        found = row.difference
        if found is None:
            continue
        colour = looks[row.policy]["color"]
        runs = comparison.runs(information, row.policy)
        each = [run.mean("reward") - base[seed] for seed, run in runs.items() if seed in base]
        axes.plot(
            each, [place - SEEDS_BELOW] * len(each), "o", color=colour, alpha=0.5, markersize=4, markeredgewidth=0
        )
        if found.low is not None and found.high is not None:
            axes.plot([found.low, found.high], [place, place], color=colour, linewidth=2.4)
        axes.plot(found.mean, place, "D", color=colour, markersize=6)
    axes.axvline(0.0, color=BASELINE, linewidth=2.0)
    axes.set_yticks(range(len(rows)), [row.policy for row in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(FuncFormatter(short_number))
    axes.set_title(spoken(information))
    axes.set_xlabel(f"reward a slot, less that of {comparison.baseline} under the same seed")
    margins(figure, 0.35 + 0.085 * max(len(row.policy) for row in rows), 0.2, 0.35, 0.6)
    return figure


def average_reward(comparison: Comparison, information: str) -> Figure:
    """Mean reward over the slots so far."""
    return _over_time(comparison, information, _running_mean, "reward a slot, mean so far", focus=True)


def cumulative_reward(comparison: Comparison, information: str) -> Figure:
    """Reward summed over the slots so far."""
    return _over_time(comparison, information, lambda r: np.cumsum(r, axis=1), "cumulative reward", focus=False)


def ratio(comparison: Comparison, information: str) -> Figure | None:
    """Cumulative reward over that of the baseline, seed by seed."""
    base = comparison.runs(information, comparison.baseline)
    if not base or comparison.served(information) == [comparison.baseline]:
        return None
    figure, grid = new_figure()
    axes = grid[0][0]
    looks = palette(comparison)
    settled: list[Floats] = [np.ones(1)]
    axes.axhline(1.0, color=BASELINE, linewidth=2.0, label=f"{comparison.baseline} (baseline)")
    for policy in comparison.served(information):
        runs = comparison.runs(information, policy)
        seeds = sorted(runs.keys() & base.keys())
        if policy == comparison.baseline or not seeds:
            continue
        ours = np.cumsum([runs[s].reward for s in seeds], axis=1)
        theirs = np.cumsum([base[s].reward for s in seeds], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            curve = band(np.where(theirs > 0, ours / theirs, np.nan))
        _line(axes, _thin(len(curve.mean)), curve, looks[policy], policy)
        settled += [c[len(c) // 10 :] for c in (curve.mean, curve.low, curve.high) if c is not None]
    _focus(axes, settled)
    axes.set_ylabel(f"reward ÷ reward of {comparison.baseline}")
    _slot_axis(axes)
    finish(figure, axes)
    return figure


def regret(comparison: Comparison, information: str) -> Figure | None:
    """Cumulative regret to each oracle, with the interval over seeds."""
    oracles = [name for name in comparison.regretted if comparison.oracle(name)]
    if not oracles:
        return None
    family = comparison.family
    # regret that grows like ln T is a straight line where slots are on a logarithmic scale
    panels = [(oracle, scale) for oracle in oracles for scale in ("linear", "log")[: 2 if family.logarithmic else 1]]
    figure, grid = new_figure(columns=len(panels))
    looks = palette(comparison)
    for axes, (oracle, scale) in zip(grid[0], panels, strict=True):
        axes.axhline(0.0, color=INK, linewidth=0.8)
        served = comparison.served(information)
        title = family.oracle_words[oracle].title
        if scale == "log":
            slow = _slow(comparison, information, oracle)
            served, title = (
                slow or served,
                "against ln T" + (f", below T^{SLOW:g}" if 0 < len(slow) < len(served) else ""),
            )
        for policy in served:
            curves = comparison.regret(information, policy, oracle)
            if curves.size:
                curve = band(curves)
                _line(axes, _thin(len(curve.mean)), curve, looks[policy], policy)
        axes.set_title(title)
        axes.yaxis.set_major_formatter(FuncFormatter(short_number))
        _slot_axis(axes)
        if scale == "log":
            axes.set_xscale("log")
    grid[0][0].set_ylabel("cumulative regret")
    finish(figure, grid[0][0], top=0.4, between=0.2)
    return figure


def _slow(comparison: Comparison, information: str, oracle: str) -> list[str]:
    """The policies whose regret grows slowly."""
    found = []
    for policy in comparison.served(information):
        curves = comparison.regret(information, policy, oracle)
        if curves.size and growth_exponent(curves.mean(axis=0)) < SLOW:
            found.append(policy)
    return found


def gain_overhead(comparison: Comparison, information: str) -> Figure:
    """Gain to the right, overhead or cost to the left, and the reward that is left of both."""
    expense = comparison.family.expense
    found = [(row, getattr(row, expense)) for row in comparison.rows if row.information == information and row.gain]
    spent = {row.policy: part for row, part in found if part is not None}
    rows = [row for row, part in found if part is not None]
    figure, grid = new_figure(height=1.3 + 0.42 * len(rows))
    axes = grid[0][0]
    looks = palette(comparison)
    for place, row in enumerate(reversed(rows)):
        if row.gain is None or row.reward is None:
            continue
        colour = looks[row.policy]["color"]
        axes.barh(place, row.gain.mean, height=0.62, color=colour, alpha=0.85)
        axes.barh(place, -spent[row.policy].mean, height=0.62, color=colour, alpha=0.35)
        axes.plot(row.reward.mean, place, "D", color="white", markeredgecolor="#111111", markersize=6)
        axes.annotate(
            f"{row.reward.mean:.4g}",
            (max(row.gain.mean, 0.0), place),
            (5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row.policy for row in reversed(rows)])
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.09)
    axes.set_xlabel(f"← {expense}  |  gain →   (a slot, mean over seeds; diamond and number: the reward)")
    margins(figure, 0.35 + 0.085 * max((len(row.policy) for row in rows), default=1), 0.2, 0.1, 0.6)
    return figure


def allocation(comparison: Comparison, information: str) -> Figure | None:
    """The mean share of each server that each port holds, one small map a policy, for the first seed."""
    maps = {}
    for policy in comparison.served(information):
        runs = comparison.runs(information, policy)
        share = runs[min(runs)].share
        if share is not None:
            maps[policy] = share
    if not maps:
        return None
    columns = min(3, len(maps))
    rows = -(-len(maps) // columns)
    size = next(iter(maps.values())).shape
    names = [_cut(name) for name in comparison.ports] if size[0] == len(comparison.ports) else []
    each = max(1.95, 0.5 + 0.12 * len(names))
    figure, grid = new_figure(height=0.7 + each * rows, columns=columns, rows=rows, sharex=True, sharey=True)
    margins(figure, 0.5 + 0.065 * max(map(len, names), default=1), 0.15, 0.35, 0.55, 0.08)
    figure.subplots_adjust(hspace=0.3 * 1.95 / each)
    top = max(float(share.max()) for share in maps.values()) or 1.0
    flat = list(grid.ravel())
    image = None
    for axes, (policy, share) in zip(flat, maps.items(), strict=False):
        image = axes.imshow(share, aspect="auto", cmap="cividis", vmin=0.0, vmax=top, interpolation="nearest")
        axes.set_title(policy)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        if names:
            axes.set_yticks(range(len(names)), names, fontsize=8)
        else:
            axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    for axes in flat[len(maps) :]:
        axes.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("port" if names else "group of ports")
    for place, axes in enumerate(flat[: len(maps)]):
        if place + columns >= len(maps):
            axes.set_xlabel("server" if size[1] == comparison.servers else "group of neighbouring servers")
            axes.xaxis.set_tick_params(labelbottom=True)
    if image is not None:
        figure.subplots_adjust(right=0.86)
        bar = figure.colorbar(image, cax=figure.add_axes((0.88, 0.25, 0.016, 0.5)))
        bar.set_label(f"mean share of {comparison.family.share_of}")
        bar.outline.set_visible(False)
    return figure


def _cut(name: str, most: int = 24) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


PICTURES: dict[str, Callable[[Comparison, str], Figure | None]] = {
    "differences": differences,
    "average-reward": average_reward,
    "ratio": ratio,
    "cumulative-reward": cumulative_reward,
    "regret": regret,
    "gain-overhead": gain_overhead,
    "allocation": allocation,
}


def draw(comparison: Comparison) -> dict[tuple[str, str], Figure]:
    """Every picture there is something to show in, by setting and name (the keys of `TITLES`)."""
    with mpl.rc_context(STYLE):
        drawn = {
            (information, name): drawer(comparison, information)
            for information in comparison.information
            if comparison.served(information)
            for name, drawer in PICTURES.items()
        }
    return {key: figure for key, figure in drawn.items() if figure is not None}


def picture(comparison: Comparison, name: str, information: str) -> Figure:
    """One picture by its name, one of `PICTURES`; "reward" is "average-reward"."""
    name = "average-reward" if name == "reward" else name
    if name not in PICTURES:
        raise UnknownName("picture", name, PICTURES)
    if information not in comparison.information:
        raise InvalidInput(" or ".join(comparison.information), value=information, key="arrivals")
    with mpl.rc_context(STYLE):
        drawn = PICTURES[name](comparison, information) if comparison.served(information) else None
    if drawn is None:
        raise InvalidInput("a comparison that has something to show in it", found="nothing", key=f"picture {name!r}")
    return drawn


def save_plots(comparison: Comparison, directory: ResultDirectory) -> dict[tuple[str, str], str]:
    """Write every picture to DIR/plots as PNG and SVG; the SVG texts, by setting and name."""
    texts: dict[tuple[str, str], str] = {}
    written: set[str] = set()
    for (information, name), figure in draw(comparison).items():
        stem = f"{name}-{information}"
        texts[information, name] = save_figure(figure, directory, stem)
        written |= {f"{stem}.svg", f"{stem}.png"}
    for path in (directory.path / "plots").iterdir():
        # left by an earlier comparison in this directory that had more to show
        if path.name not in written and path.stem.rpartition("-")[0] in PICTURES:
            path.unlink()
    return texts
