"""Run-time estimates as users give them: few round values up to a limit, and run times as a part of them.

After Tsafrir, Etsion and Feitelson, Modeling User Runtime Estimates (2005): a few values are very popular, nobody
asks for more than the limit, and jobs use any part of what they asked for, a peak of them all of it. A job first draws
its estimate, then its run time given the estimate; so both keep their distributions, and estimates stay above run
times as often as in the trace.

Axes: N jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from berth.model import Floats
from berth.traces.fitting.distributions import Mix, Part, Quantiles, Share

__all__ = ["Estimates", "Menu", "RunShare"]

POPULAR = 3
"""A value that fewer jobs of the trace share is rare: the fit keeps quantiles of rare values, not the values."""
GROUPS, LEAST = 8, 120
"""Largest number of groups of a class of jobs, and the fewest jobs of a group."""
USED_POINTS, RARE_POINTS = 21, 11
"""Points of the quantile functions of run times and of rare values."""


class Menu:
    """The values that users of a trace choose from: `popular`, and `limit_s`, the largest that several jobs share.

    >>> menu = Menu(np.array([600.0] * 5 + [3600.0] * 3 + [7000.0, 9e9]))
    >>> menu.popular.tolist(), menu.limit_s
    ([600.0, 3600.0], 3600.0)
    """

    def __init__(self, estimates: Floats) -> None:
        values, counts = np.unique(estimates, return_counts=True)
        often = counts >= POPULAR
        self.popular: Floats = values[often]
        chosen = counts[often].sum() >= 0.5 * counts.sum()  # else estimates are computed, and nobody chooses them
        self.limit_s = float(self.popular[-1]) if chosen and often.any() else np.inf
        rare = values[~often]
        minutes = len(rare) > 0 and float((rare % 60 == 0).mean()) >= 0.8
        self.step_s = 60.0 if minutes else 1.0 if bool(np.all(values == np.floor(values))) else 0.0


class RunShare(Part):
    """Jobs with similar estimates, `share` of their class: the estimates, and the part of them that jobs use."""

    share: Share
    estimate_s: Mix
    over: Share = Field(default=0.0, description="share of the jobs that run past their estimate")
    used: Quantiles = Field(description="run time over estimate of the other jobs")


class Estimates(Part):
    """Estimates of a class of jobs, and the run times of the jobs that have one."""

    known: Share = Field(description="share of the jobs with an estimate")
    groups: Annotated[list[RunShare], Field(min_length=1)]
    overrun_s: Quantiles | None = Field(default=None, description="seconds past the estimate, of jobs that run past it")
    step_s: Annotated[float, Field(ge=0)] = Field(default=0.0, description="rare estimates are multiples of it; 0: any")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        total = sum(group.share for group in self.groups)
        if abs(total - 1) > 1e-3:
            raise ValueError(f"shares of groups that add up to 1, not to {total:g}")
        if self.overrun_s is None and any(group.over for group in self.groups):
            raise ValueError("overrun_s, as some jobs run past their estimate")
        return self

    def draw(self, choice: Floats, use: Floats) -> tuple[Floats, Floats]:
        """Estimates and run times for uniform numbers in [0, 1), both (N,)."""
        ends = np.cumsum([group.share for group in self.groups])
        place = np.searchsorted(ends[:-1], choice, side="right")
        estimate, run = np.empty(len(choice)), np.empty(len(choice))
        for number, group in enumerate(self.groups):
            rows = np.flatnonzero(place == number)
            if not len(rows):
                continue
            start = float(ends[number - 1]) if number else 0.0
            within = ((choice[rows] - start) / max(group.share, 1e-12)).clip(0.0, np.nextafter(1.0, 0.0))
            value = self._rounded(group.estimate_s, within)
            ended = 1.0 - group.over
            part = group.used.draw((use[rows] / max(ended, 1e-12)).clip(0.0, 1.0))
            past = use[rows] >= ended
            estimate[rows], run[rows] = value, np.minimum(part, 1.0) * value
            if self.overrun_s is not None and past.any():
                luck = ((use[rows][past] - ended) / max(group.over, 1e-12)).clip(0.0, 1.0)
                run[rows[past]] = value[past] + self.overrun_s.draw(luck)
        return estimate, run

    def _rounded(self, mix: Mix, luck: Floats) -> Floats:
        value = mix.draw(luck)
        if not self.step_s:
            return value
        rare = ~np.isin(value, mix.values)
        rounded: Floats = np.where(rare, np.maximum(np.rint(value / self.step_s), 1.0) * self.step_s, value)
        return rounded

    def limit_s(self) -> float:
        """Largest estimate."""
        rests = [group.estimate_s.rest for group in self.groups]
        common = [value for group in self.groups for value in group.estimate_s.values]
        return max([*common, *(rest.values[-1] for rest in rests if rest is not None)])

    @classmethod
    def of(cls, estimate: Floats, run: Floats, known: float, menu: Menu) -> Self:
        """Fit estimates and run times (N,) of the jobs of a class that have an estimate."""
        estimate = np.minimum(estimate, menu.limit_s)
        past = run > estimate
        rows = np.argsort(estimate, kind="stable")
        parts = _cut(estimate[rows], max(LEAST, len(rows) // GROUPS))
        groups = [_group(estimate[part], run[part], menu, len(rows)) for part in np.split(rows, parts)]
        overrun = Quantiles.even((run - estimate)[past], RARE_POINTS) if past.any() else None
        return cls(known=round(known, 4), groups=groups, overrun_s=overrun, step_s=menu.step_s)


def _cut(ordered: Floats, least: int) -> Sequence[int]:
    """Positions that cut ascending values into groups of at least `least`; equal values stay together."""
    cuts: list[int] = []
    begin = 0
    for place in np.flatnonzero(np.diff(ordered) > 0) + 1:
        if place - begin >= least and len(ordered) - place >= least:
            cuts.append(int(place))
            begin = int(place)
    return cuts


def _group(estimate: Floats, run: Floats, menu: Menu, total: int) -> RunShare:
    past = run > estimate
    used = (run / estimate)[~past] if not past.all() else np.ones(1)
    return RunShare(
        share=round(len(estimate) / total, 6),
        estimate_s=Mix.of_values(estimate, menu.popular, RARE_POINTS),
        over=round(float(past.mean()), 5),
        used=Quantiles.even(used, USED_POINTS),
    )
