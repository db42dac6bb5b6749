"""How fast jobs of each type run on each server: one model of all runs, so that every run teaches something of all.

Estimates are in `berth.live.core.estimates`: a type that never ran on a server is expected to be as fast there as its
path on servers of that class, and a new server starts with its class.

* A gang's run time is set by its slowest server, so its speed is credited to those of its servers that are expected to
  be slowest.
* A server whose runs differ from what was expected of it, always in one direction (a cumulative sum), has changed: what
  was seen of it before that began is forgotten.
* What was seen of a server that nothing runs on fades: after a while it is what its class is, and is tried again.

Estimates change after as many runs as are a fiftieth of all, when a server changes its class, and with nothing else: a
replay of the same events gives the same estimates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from berth.kernels.effects import add_runs
from berth.live.core.cells import KEPT, Runs
from berth.live.core.effects import Effects
from berth.live.core.estimates import EQUAL, Estimates
from berth.live.core.jobs import Job
from berth.live.core.levels import LEAST, Speed
from berth.live.core.records import ServerRecord
from berth.live.core.shapes import own_copy

__all__ = ["EQUAL", "LEAST", "MOST_TYPES", "Learned", "Speed"]

MOST_TYPES = 5_000
"""The most types that are remembered; with more, the quarter that ran longest ago is forgotten."""
EVERY = 50
"""Estimates change after as many runs as are this part of all."""
SLACK, ALARM, CLIPPED = 0.75, 6.0, 3.0
"""Cumulative sums of differences in spreads: what each is lessened by, when they alarm, and the most a run counts."""
RECENT = 24
"""Runs of a server that are remembered one by one."""
SLOWEST = 1.1
"""Servers of a gang that are expected to be slower than this times the slowest share its speed."""


class Learned(Estimates):
    """All that was learned of speeds."""

    def __init__(self, servers: Mapping[str, ServerRecord] | None = None, learn_by: str | None = None) -> None:
        super().__init__(servers, learn_by)
        self._latest: dict[str, int] = {}
        """The number of the latest run of each type."""
        self._sums: dict[str, tuple[float, float, int, int]] = {}
        """Of each server the sums of differences upward and downward, and how many runs ago they were 0."""
        self._recent: dict[str, tuple[tuple[str, bool, float, float], ...]] = {}
        self.due = False
        """Whether estimates have to be computed anew."""
        self.beside = False
        """Whether they are only computed when `settle` is called, because that takes long."""

    def over(self, servers: Mapping[str, ServerRecord]) -> Learned:
        """The same, looking at this table of servers."""
        self._servers = servers
        self.servers_changed()
        return self

    # ------------------------------------------------------------------ runs

    def add(self, job: Job, servers: Iterable[str], seconds: float) -> float:
        """A job ran so long on these servers; its speed."""
        places = list(dict.fromkeys(servers))
        if job.work is None and job.type not in self._reference:
            self._reference[job.type] = seconds * self.slowest(job.type, places)
            self.met += 1
        speed = self.work(job) / seconds
        self._count(job.type, places, speed, 0)
        return speed

    def add_cut(self, job: Job, servers: Iterable[str], seconds: float) -> float | None:
        """A job was cut off after so long on these servers; the speed that it did not reach, None if that says nothing.

        >>> from berth.live.core.jobs import Role
        >>> learned, job = Learned(), Job("j", "t", (Role("w", 1, {}),), work=10.0)
        >>> learned.add(job, ["n1"], 5.0), learned.add_cut(job, ["n1"], 3.0), learned.add_cut(job, ["n1"], 20.0)
        (2.0, None, 0.5)
        """
        places = list(dict.fromkeys(servers))
        if job.work is None and job.type not in self._reference:
            return None
        speed = self.work(job) / seconds
        if speed >= self.slowest(job.type, places):
            return None
        self._count(job.type, places, speed, 1)
        return speed

    def _count(self, type_: str, places: Sequence[str], speed: float, cut: int) -> None:
        credited = self._credited(type_, places)
        spread, alarmed = len(places) > 1, False
        self._total += 1
        self._latest[type_] = self._total
        for server, expected in credited.items():
            self._fade(server)
            seen = math.log(speed) - self._stated(server)
            self._add_to((type_, server, spread), seen, 1.0 / len(credited), 1, cut)
            apart = 0.0 if not spread else math.log(self.apart(type_))
            off = math.log(speed) - expected - apart
            alarmed |= self._watch(server, (type_, spread, seen, 1.0 / len(credited)), off, cut)
        alarmed |= self._forget_types()
        if alarmed or (self._total - self._fitted) * EVERY >= self._total:
            self._fitted, self.due = self._total, True
            if not self.beside:
                self.settle()

    def settle(self, fitted: Learned | None = None) -> None:
        """Compute estimates anew if they are due, or take those of a copy that is `fitted`."""
        if not self.due:
            return
        self.due = False
        if fitted is None:
            self._fit()
            return
        self._changed()
        self._grouped, self._fit_classes, self._effects = fitted._grouped, fitted._fit_classes, fitted._effects
        self._noise, self._variance = fitted._noise, fitted._variance

    def fitted(self) -> Learned:
        """This, with its estimates computed anew: for a copy, in another thread."""
        self._fit()
        return self

    def _forget_types(self) -> bool:
        """Forget the types that ran longest ago, if there are too many; whether there were."""
        if len(self._latest) <= MOST_TYPES:
            return False
        order = sorted(self._latest, key=lambda type_: self._latest[type_])
        gone = set(order[: len(order) - MOST_TYPES * 3 // 4])
        self._latest = {type_: run for type_, run in self._latest.items() if type_ not in gone}
        self._forget({cell for cell in self._row if cell[0] in gone})
        self._reference = {type_: work for type_, work in self._reference.items() if type_ not in gone}
        self.met += 1
        return True

    def _credited(self, type_: str, places: Sequence[str]) -> dict[str, float]:
        """The servers that a gang is as slow as, and the logarithm of the speed that is expected of each."""
        expected = {server: self._mean(type_, server) for server in places}
        least = min(expected.values()) + math.log(SLOWEST)
        return {server: mean for server, mean in expected.items() if mean <= least}

    def supposing(self, runs: Runs) -> Learned:
        """A copy that has seen these runs too."""
        made = own_copy(self)
        run, server = runs.places()
        first = np.searchsorted(run, np.arange(len(runs.type)))
        spread = np.diff(first, append=len(run)) > 1
        mean = np.stack([self.means(type_) for type_ in runs.types])[runs.type[run], server]
        credited = mean <= np.minimum.reduceat(mean, first)[run] + math.log(SLOWEST)
        run, server = run[credited], server[credited]
        names, (_, _, stated) = list(self._servers), self._columns()
        columns = runs.type[run].tolist(), server.tolist(), spread[run].tolist()
        cells = [(runs.types[kind], names[row], several) for kind, row, several in zip(*columns, strict=True)]
        for cell in dict.fromkeys(cells):
            if cell not in made._row:
                made._put(cell, (0.0, 0.0, 0.0), (0, 0))
        rows = np.array([made._row[cell] for cell in cells])
        add_runs(made._seen, rows, runs.speed[run] - stated[server], 1.0 / np.bincount(run)[run], KEPT)
        made._fit()
        return made

    def _fade(self, server: str) -> None:
        """A server runs something again: what was seen of it before counts less."""
        fresh = self._fresh(server)
        if fresh < 0.5:
            for row in [row for cell, row in self._row.items() if cell[1] == server]:
                self._seen[row] *= fresh, 1.0, fresh
            self._whole = {}
        self._last[server] = self._total

    def _watch(self, server: str, run: tuple[str, bool, float, float], off: float, cut: int) -> bool:
        """Add to a server's sums; whether it has changed, so that only the runs since then count."""
        spread = self.speed(run[0], server).spread
        score = max(min(off / spread, CLIPPED), -CLIPPED)
        up, down, above, below = self._sums.get(server, (0.0, 0.0, 0, 0))
        up, down = max(up + score - SLACK, 0.0), max(down - score - SLACK, 0.0)
        above, below = above + 1 if up else 0, below + 1 if down else 0
        recent = (*self._recent.get(server, ()), run)[-RECENT:]
        self._sums[server], self._recent[server] = (up, down, above, below), recent
        if max(up, down) < ALARM:
            return False
        since = recent[-(above if up >= ALARM else below) :]
        self._forget({cell for cell in self._row if cell[1] == server})
        for type_, several, value, weight in since:
            self._add_to((type_, server, several), value, weight, 1, 0)
        del self._sums[server]
        self._recent[server] = since
        return True

    # ------------------------------------------------------------------ what is known

    @property
    def servers(self) -> list[str]:
        return list(self._servers)

    def __iter__(self) -> Iterator[tuple[str, str, Speed]]:
        for type_, server in sorted({cell[:2] for cell in self._row}):
            yield type_, server, self.speed(type_, server)

    def dump(self) -> dict[str, Any]:
        """All of it, for JSON."""
        self.settle()
        self.class_of("")  # servers may have changed
        return {
            "cells": [[*cell, *seen, *count] for cell, seen, count in self._cells()],
            "reference": dict(self._reference),
            "runs": [self._total, self._fitted],
            "latest": dict(self._latest),
            "last": dict(self._last),
            "sums": {server: list(sums) for server, sums in self._sums.items()},
            "recent": {server: [list(run) for run in runs] for server, runs in self._recent.items()},
            "effects": [[*key, *value] for key, *value in self._effects],
            "variance": [self._noise, *self._variance],
        }

    @classmethod
    def load(cls, dumped: Mapping[str, Any], learn_by: str | None = None) -> Learned:
        """What `dump` gave."""
        learned = cls(learn_by=learn_by)
        learned._reference = {name: float(value) for name, value in dumped["reference"].items()}
        if "cells" not in dumped:  # dumps of before runs were pooled
            for type_, server, runs, mean, squares, *cut in dumped["channels"]:
                seen = float(runs), math.log(mean), squares / mean**2
                learned._put((type_, server, False), seen, (int(runs), int(cut[0]) if cut else 0))
                learned._latest[type_] = 0
                learned._total += int(runs)
            learned._fitted = learned._total
            learned._fit()
            return learned
        for type_, server, spread, weight, mean, squares, runs, cut in dumped["cells"]:
            learned._put((type_, server, bool(spread)), (weight, mean, squares), (int(runs), int(cut)))
        learned._total, learned._fitted = dumped["runs"]
        latest = dumped.get("latest") or dict.fromkeys((*learned._reference, *(cell[0] for cell in learned._row)), 0)
        learned._latest = {type_: int(run) for type_, run in latest.items()}
        learned._last = {server: int(run) for server, run in dumped["last"].items()}
        for server, (up, down, above, below) in dumped["sums"].items():
            learned._sums[server] = up, down, int(above), int(below)
        for server, recent in dumped["recent"].items():
            learned._recent[server] = tuple((one, bool(apart), y, w) for one, apart, y, w in recent)
        effects = {(int(factor), one, other): (effect, runs) for factor, one, other, effect, runs in dumped["effects"]}
        learned._effects = Effects.of(effects)
        learned._noise, *learned._variance = dumped["variance"]
        return learned
