"""A service with a part switched off or replaced: what it knows of speeds, waiting for faster servers, mixing of tiers.

Each part's share of what is gained is measured so, in the twin and on real clusters (`benchmarks.real_clusters`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.live.core import COMPLETION
from berth.live.core.cells import Runs
from berth.live.core.dispatcher import FALLBACK, Dispatcher
from berth.live.core.drivers import Driver, make_driver
from berth.live.core.drivers.deferral import Waits
from berth.live.core.effects import Effects
from berth.live.core.jobs import Job, Place, Role
from berth.live.core.kernels import Releases
from berth.live.core.levels import FACTORS, SERVER
from berth.live.core.records import Outcome, ServerRecord
from berth.live.core.speeds import Learned
from berth.live.core.view import View
from berth.live.twin.streams import CLASS, Stream

__all__ = ["PARTS", "Pairs", "PartDispatcher", "Told", "Unlearned", "tell"]

SHOWN = 25
"""Exact runs of each type on each server that a policy is shown before the run, where it is told the speeds."""
TYPE_CLASS, TYPE_SPREAD = (FACTORS.index(name) for name in ("type × class", "type × spread"))


class Told(Learned):
    """True speeds; of being spread over several servers, the mean effect over classes."""

    def __init__(self, servers: Mapping[str, ServerRecord], stream: Stream, effects: Mapping[str, float]) -> None:
        super().__init__(servers)
        self._true = stream.speeds
        log = {(SERVER, "", name): (math.log(effect), math.inf) for name, effect in effects.items()}
        self._effects = self._true_effects = Effects.of(log)
        self._class_label = {server.name: server.labels[CLASS] for server in stream.servers}
        self._ratios: dict[str, list[float]] = {}
        for type_, class_, spread in self._true:
            if spread:
                ratio = self._true[type_, class_, True] / self._true[type_, class_, False]
                self._ratios.setdefault(type_, []).append(ratio)

    def class_of(self, server: str) -> str:
        return self._class_label.get(server, server)

    def supposing(self, runs: Runs) -> Learned:
        return self

    def _of_class(self, type_: str, class_: str) -> float:
        return math.log(self._true.get((type_, class_, False), 1e-9))

    def _fit(self) -> None:
        super()._fit()
        self._effects = self._true_effects

    def _stated(self, server: str) -> float:
        return 0.0  # the true speeds are those of the servers as they are

    def apart(self, type_: str) -> float:
        return math.exp(min(float(np.mean(np.log(self._ratios.get(type_, [1.0])))), 0.0))


class Pairs(Learned):
    """Speeds of each type on each class of server, learned apart from all others.

    An estimate is the mean of logarithms of speeds, shrunk towards speed 1 as if one run had shown that.
    """

    def _fit(self) -> None:
        super()._fit()
        sums: dict[tuple[int, str, str], tuple[float, float]] = {}
        for (type_, server, spread), (weight, mean, _), _ in self._cells():
            keys = [(TYPE_CLASS, type_, self.class_of(server))] if not spread else [(TYPE_SPREAD, type_, "")]
            for key in keys:
                total, runs = sums.get(key, (0.0, 0.0))
                expected = 0.0 if not spread else sums.get((TYPE_CLASS, type_, self.class_of(server)), (0.0, 0.0))[0]
                sums[key] = total + weight * (mean - expected), runs + weight
        self._effects = Effects.of({key: (total / (runs + 1.0), runs) for key, (total, runs) in sums.items()})


class Unlearned(Learned):
    """Nothing is learned: every server is as fast as it is said to be."""

    def _fit(self) -> None:
        super()._fit()
        self._effects = Effects.of({})

    def supposing(self, runs: Runs) -> Learned:
        return self


class Eager(Waits):
    """Nobody waits for faster servers: no release is in sight."""

    def _coming(self, view: View) -> Releases:
        none = np.zeros(0, dtype=np.int64)
        return Releases(
            np.zeros(0), none, np.zeros((0, len(view.state.resources)), dtype=np.int64), np.zeros(1, dtype=np.int64)
        )


PARTS = {"unpooled": Pairs, "unlearned": Unlearned, "eager": None, "unmixed": None}
"""What may be switched off, and what then stands for the learned speeds."""


class PartDispatcher(Dispatcher):
    """A dispatcher without one of its `PARTS`."""

    def __init__(self, policy: str = FALLBACK, *, without: str, **settings: Any) -> None:
        self._without = without
        super().__init__(policy, **settings)
        if (kind := PARTS[without]) is not None:
            self.state.learned = kind(self.state.servers, self.state.learn_by)

    def _make_driver(self, policy: str) -> Driver | None:
        if policy == FALLBACK:
            return None
        unmixed = self._without == "unmixed"
        if unmixed and policy != COMPLETION:
            raise InvalidInput("the policy completion, which alone can be unmixed", value=policy, key="policy")
        waits = Eager() if self._without == "eager" else None
        return make_driver(policy, self.seed, self.memory, bare=self.bare, waits=waits, mixes=not unmixed)


def tell(dispatcher: Dispatcher, stream: Stream, seed: int) -> None:
    """Tell a service the true speeds: those that it waits by, and exact runs for the policy to learn from."""
    effects = stream.effects(seed)
    dispatcher.state.learned = Told(dispatcher.state.servers, stream, effects)
    for (type_, class_, spread), speed in stream.speeds.items():
        names = tuple(server.name for server in stream.servers if server.labels[CLASS] == class_)
        if spread:
            continue
        job = Job("told", type_, (Role("task", 1, stream.demand),), work=1.0)
        for number in range(SHOWN):
            for name in names:
                there = speed * effects.get(name, 1.0)
                dispatcher.memory.append(Outcome(number, job, (Place(name, "task", 1),), there))
