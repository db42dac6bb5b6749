"""Summarise the runs of a rehearsal, paired by seed, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from berth.live.engines.simulated.cluster import Latency
from berth.live.twin.runs import PATIENCE, Run, Runner
from berth.live.twin.served import ServedQueues
from berth.live.twin.streams import Stream
from berth.statistics import Estimate, estimate, paired

__all__ = ["Rehearsal", "Row", "rows_of", "share_of_gain"]


@dataclass(frozen=True)
class Rehearsal:
    """What is played: a stream, schedulers, seeds, and the engine's latencies.

    Ratios are to the scheduler `plain`. `told` is the scheduler that is told the speeds: what it gains over `plain` is
    the most that learning can gain.
    """

    stream: Stream
    runners: tuple[Runner, ...]
    seeds: tuple[int, ...]
    plain: Runner
    told: Runner | None = None
    latency: Latency | None = None
    plain_latency: Latency | None = None
    patience: float = PATIENCE
    served: ServedQueues | None = None
    """The queues of a service, in which jobs wait under berth."""

    @property
    def all(self) -> tuple[Runner, ...]:
        """All schedulers, each once: the plain one first, the told one last."""
        told = () if self.told is None else (self.told,)
        return tuple(dict.fromkeys([self.plain, *(one for one in self.runners if one not in told), *told]))


@dataclass(frozen=True)
class Row:
    """A scheduler: means over seeds with 95 % intervals, in seconds.

    `ratio` is that of mean turnarounds to the plain scheduler's, `share` the part of what can be gained: (plain −
    this) / (plain − told) of turnarounds summed over seeds; its interval is by the jackknife.
    """

    runner: str
    turnaround: Estimate | None
    wait: Estimate | None
    longest_wait: Estimate | None
    servers: Estimate | None
    ratio: Estimate | None
    share: Estimate | None
    refused: int
    wrapped: str = ""
    """The policy in its wrappers."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def rows_of(plan: Rehearsal, runs: Iterable[Run]) -> list[Row]:
    """A row for each scheduler."""
    by: dict[str, dict[int, Run]] = {}
    for made in runs:
        by.setdefault(made.runner, {})[made.seed] = made
    mean = {name: {seed: float(made.turnaround.mean()) for seed, made in mine.items()} for name, mine in by.items()}
    plain, told = mean[str(plan.plain)], None if plan.told is None else mean[str(plan.told)]
    return [
        Row(
            name,
            estimate(mean[name].values()),
            estimate(float(made.wait.mean()) for made in mine.values()),
            estimate(float(made.wait.max()) for made in mine.values()),
            estimate(float(made.servers.mean()) for made in mine.values()),
            paired(mean[name], plain),
            None if told is None or name == str(plan.plain) else share_of_gain(mean[name], plain, told),
            sum(made.refused for made in mine.values()),
            next(iter(mine.values())).wrapped,
        )
        for name, mine in by.items()
    ]


def share_of_gain(ours: Mapping[int, float], plain: Mapping[int, float], told: Mapping[int, float]) -> Estimate | None:
    """The part of what can be gained that is gained; None where nothing can be."""
    seeds = sorted(ours)
    gained = np.array([plain[seed] - ours[seed] for seed in seeds])
    there = np.array([plain[seed] - told[seed] for seed in seeds])
    if there.sum() <= 0:
        return None
    whole = float(gained.sum() / there.sum())
    if (there.sum() == there).any():  # all that can be gained is in one seed, perhaps the only one
        return Estimate(whole, None, None, len(seeds))
    without = (gained.sum() - gained) / (there.sum() - there)
    found = estimate((len(seeds) * whole - (len(seeds) - 1) * without).tolist())
    if found is None or found.high is None:
        return None
    return Estimate(whole, whole - (found.high - found.mean), whole + (found.high - found.mean), len(seeds))
