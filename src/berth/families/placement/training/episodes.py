"""What is learned from: runs of one or several placement scenarios, and what a plain rule earns in each; and where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from berth.errors import BerthError, InvalidInput, MissingExtra, UnsupportedProblem
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.families.placement.rule_runs import run_rule
from berth.families.placement.world import PlacementWorld

__all__ = ["Episode", "Source", "check_device"]

Build = Callable[[int], PlacementWorld]


class Episode(NamedTuple):
    """One run: servers, tasks, what greedy with a queue gains, which world it is of, and the time between batches."""

    problem: PlacementProblem
    tasks: Tasks
    plain: float
    world: int
    period: float


@dataclass(frozen=True)
class Source:
    """Runs by number, of every world in turn; `builds` make the world of a seed."""

    builds: Sequence[Build]

    def __post_init__(self) -> None:
        if not self.builds:
            raise InvalidInput("at least one scenario", key="scenarios")

    def episode(self, number: int) -> Episode:
        """Run `number`: the same every time."""
        which = number % len(self.builds)
        world = self.builds[which](number // len(self.builds))
        if world.failures:
            raise UnsupportedProblem(
                "training runs have no failures: train without (--set failures=null), then compare with them"
            )
        world.problem.require_single("training", exact=True)
        plain = run_rule(world.problem, world.tasks, np.zeros(len(world.tasks))).gain
        return Episode(world.problem, world.tasks, plain, which, world.period)

    def some(self, first: int, count: int) -> list[Episode]:
        """`count` runs of every world from number `first` of each; those that can earn nothing are left out."""
        worlds = len(self.builds)
        found = (self.episode(number) for number in range(first * worlds, (first + count) * worlds))
        return [episode for episode in found if episode.plain > 0]


def check_device(device: str) -> None:
    """Refuse a device that torch does not know or that is not there."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("training with torch", "train") from error
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise BerthError(f"unknown device {device!r}: cpu, or cuda for a GPU") from error
    if kind not in ("cpu", "cuda"):
        raise BerthError(f"unknown device {device!r}: cpu, or cuda for a GPU")
    if kind == "cuda" and not torch.cuda.is_available():
        raise BerthError(f"no GPU for device {device!r}; leave it out to train on the CPU")
