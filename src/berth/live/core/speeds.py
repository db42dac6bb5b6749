"""How fast jobs of each type run on each server: one model of all runs, so that every run teaches something of all.

The logarithm of a run's speed is a sum of effects: of all runs; of the type, and of each path that leads to it (a type
`train/resnet50/b64` belongs to `train` and `train/resnet50`); of the server's class; of path × class and type × class;
of the server, and of type × server; and, for a gang on several servers, of being spread, by path and type. Effects are
shrunk towards 0 as far as what was seen of them is little or noisy, with variances that are estimated from the runs
(empirical Bayes); where too little is known an effect counts as much as one run. So a type that never ran on a server
is expected to be as fast there as its path on servers of that class, and a new server starts with its class.

* A gang's run time is set by its slowest server, so its speed is credited to those of its servers that are expected to
  be slowest.
* A server whose runs differ from what was expected of it, always in one direction (a cumulative sum), has changed: what
  was seen of it before that began is forgotten.
* What was seen of a server that nothing runs on fades: after a while it is what its class is, and is tried again.

Estimates change after as many runs as are a fiftieth of all, when a server changes its class, and with nothing else: a
replay of the same events gives the same estimates.

Axes: R servers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from berth.kernels.effects import NONE, fit_effects
from berth.live.core.cells import NOISE, NOISE_RUNS, Cells
from berth.live.core.classes import classes_of
from berth.live.core.jobs import Job
from berth.live.core.levels import FACTORS, LEAST, SERVER, SPREAD, TYPE_SERVER, Group, Speed, groups_of
from berth.live.core.records import ServerRecord
from berth.live.core.shapes import own_copy
from berth.model import Floats, Ints

__all__ = ["EQUAL", "LEAST", "MOST_TYPES", "Learned", "Speed"]

DOUBT, ROUNDS = 2.0, 15
"""How many groups the variance that is assumed of a factor counts, and rounds of estimation."""
MOST_TYPES = 5_000
"""The most types that are remembered; with more, the quarter that ran longest ago is forgotten."""
EVERY = 50
"""Estimates change after as many runs as are this part of all."""
SLACK, ALARM, CLIPPED = 0.75, 6.0, 3.0
"""Cumulative sums of differences in spreads: what each is lessened by, when they alarm, and the most a run counts."""
RECENT = 24
"""Runs of a server that are remembered one by one."""
IDLE = 10
"""What is known of a server counts half after this many runs a server elsewhere."""
SLOWEST = 1.1
"""Servers of a gang that are expected to be slower than this times the slowest share its speed."""
EQUAL = 1.05
"""Servers count as equally fast where their speeds differ by less than this factor."""
NOTHING = 0.0, 0.0


class Learned(Cells):
    """Runs by cell (type, server, whether spread), and the effects that were estimated from them."""

    def __init__(self, servers: Mapping[str, ServerRecord] | None = None, learn_by: str | None = None) -> None:
        super().__init__()
        self.learn_by = learn_by
        self._servers: Mapping[str, ServerRecord] = servers if servers is not None else {}
        self._classes: dict[str, str] | None = None
        self._fit_classes: dict[str, str] = {}
        """The classes of servers with runs when effects were estimated."""
        self._latest: dict[str, int] = {}
        """The number of the latest run of each type."""
        self._last: dict[str, int] = {}
        """The number of the latest run of each server."""
        self._sums: dict[str, tuple[float, float, int, int]] = {}
        """Of each server the sums of differences upward and downward, and how many runs ago they were 0."""
        self._recent: dict[str, tuple[tuple[str, bool, float, float], ...]] = {}
        self._effects: dict[Group, tuple[float, float]] = {}
        """The effect of each group, and the number of runs behind it."""
        self._variance = [NOISE**2] * len(FACTORS)
        self._known: dict[str, Floats] = {}
        self._tiers: dict[str, tuple[Ints, Floats]] = {}
        self._apart: dict[str, float] = {}
        self._table: tuple[list[str], Ints, Floats, dict[str, tuple[list[int], list[float]]]] | None = None
        self._fleet: tuple[dict[str, int], list[str], Ints, Floats] | None = None
        """The row of each server, the classes, the class of each row, and the logarithm of its stated speed."""
        self.version = 0
        """Changes whenever estimates do."""
        self.due = False
        """Whether estimates have to be computed anew."""
        self.beside = False
        """Whether they are only computed when `settle` is called, because that takes long."""

    # ------------------------------------------------------------------ servers

    def over(self, servers: Mapping[str, ServerRecord]) -> Learned:
        """The same, looking at this table of servers."""
        self._servers = servers
        self.servers_changed()
        return self

    def servers_changed(self) -> None:
        """Forget which servers are alike."""
        self._classes = self._fleet = None
        self._changed()

    def _changed(self) -> None:
        self.version, self._known, self._tiers, self._apart, self._table = self.version + 1, {}, {}, {}, None

    def class_of(self, server: str) -> str:
        """The class of a server; its own name where nothing is known of it."""
        if self._classes is None:
            now = self._classes = classes_of(self._servers, self.learn_by)
            self._fit_classes = self._fit_classes or {cell[1]: now.get(cell[1], cell[1]) for cell in self._cells}
            if any(now.get(name, name) != class_ for name, class_ in self._fit_classes.items()):
                self._fit()
        return self._classes.get(server, server)

    def _stated(self, server: str) -> float:
        """The logarithm of the speed that a server is said to have."""
        record = self._servers.get(server)
        return 0.0 if record is None else math.log(record.server.speed)

    # ------------------------------------------------------------------ runs

    def add(self, job: Job, servers: Iterable[str], seconds: float) -> float:
        """A job ran so long on these servers; its speed."""
        places = list(dict.fromkeys(servers))
        if job.work is None and job.type not in self._reference:
            self._reference[job.type] = seconds * self.slowest(job.type, places)
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
        self._fit_classes, self._effects = fitted._fit_classes, fitted._effects
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
        self._cells = {cell: runs for cell, runs in self._cells.items() if cell[0] not in gone}
        self._pairs = None
        self._reference = {type_: work for type_, work in self._reference.items() if type_ not in gone}
        return True

    def _credited(self, type_: str, places: Sequence[str]) -> dict[str, float]:
        """The servers that a gang is as slow as, and the logarithm of the speed that is expected of each."""
        expected = {server: self._mean(type_, server) for server in places}
        least = min(expected.values()) + math.log(SLOWEST)
        return {server: mean for server, mean in expected.items() if mean <= least}

    def supposing(self, runs: Iterable[tuple[str, Sequence[str], float]]) -> Learned:
        """A copy that has seen these runs too: type, servers, logarithm of speed."""
        made = own_copy(self)
        for type_, places, speed in runs:
            credited = self._credited(type_, places)
            for server in credited:
                seen = speed - self._stated(server)
                made._add_to((type_, server, len(places) > 1), seen, 1.0 / len(credited), 0, 0)
        made._fit()
        return made

    def _fresh(self, server: str) -> float:
        """How much of what was seen of a server still counts, after the runs elsewhere."""
        idle = self._total - self._last.get(server, self._total)
        return float(0.5 ** (idle / (IDLE * max(len(self._servers), 1))))

    def _fade(self, server: str) -> None:
        """A server runs something again: what was seen of it before counts less."""
        fresh = self._fresh(server)
        if fresh < 0.5:
            for cell in [cell for cell in self._cells if cell[1] == server]:
                weight, mean, squares, runs, cuts = self._cells[cell]
                self._cells[cell] = weight * fresh, mean, squares * fresh, runs, cuts
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
        for cell in [cell for cell in self._cells if cell[1] == server]:
            del self._cells[cell]
        self._pairs = None
        for type_, several, value, weight in since:
            self._add_to((type_, server, several), value, weight, 1, 0)
        del self._sums[server]
        self._recent[server] = since
        return True

    # ------------------------------------------------------------------ estimates

    def _fit(self) -> None:
        """Estimate noise, variances and effects from all cells."""
        self._changed()
        self._fit_classes = {cell[1]: self.class_of(cell[1]) for cell in self._cells}
        cells = list(self._cells)
        table = np.array([self._cells[cell][:3] for cell in cells], dtype=np.float64).reshape(-1, 3)
        spare = np.maximum(table[:, 0] - 1.0, 0.0)
        self._noise = (NOISE_RUNS * NOISE**2 + float(table[spare > 0, 2].sum())) / (NOISE_RUNS + float(spare.sum()))
        self._noise = max(self._noise, LEAST**2)
        numbers: list[dict[Group, int]] = [{} for _ in FACTORS]
        group = np.full((len(cells), len(FACTORS)), NONE, dtype=np.int64)
        for i, (type_, server, spread) in enumerate(cells):
            for factor, key in enumerate(groups_of(type_, server, self.class_of(server), spread)):
                if key is not None:
                    group[i, factor] = numbers[factor].setdefault(key, len(numbers[factor]))
        first = np.concatenate([[0], np.cumsum([len(one) for one in numbers])]).astype(np.int64)
        group = np.where(group == NONE, NONE, group + first[:-1])
        variance = np.full(len(FACTORS), self._noise)
        weight, mean = np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])
        effect, seen = fit_effects(group, first, weight, mean, self._noise, variance, DOUBT, ROUNDS)
        keys = [key for one in numbers for key in one]
        self._variance = variance.tolist()
        self._effects = dict(zip(keys, zip(effect.tolist(), seen.tolist(), strict=True), strict=True))
        for key, (value, runs) in self._effects.items():
            if key[0] in (SERVER, TYPE_SERVER):
                fresh = self._fresh(key[2])
                self._effects[key] = value * fresh, runs * fresh

    def _mean(self, type_: str, server: str) -> float:
        """The logarithm of the expected speed of a type on a server."""
        return self._of_class(type_, self.class_of(server)) + self._own(type_, server)

    def _of_class(self, type_: str, class_: str) -> float:
        """The part of it that all servers of a class share."""
        return sum(self._effects.get(key, NOTHING)[0] for key in groups_of(type_, "", class_, False)[:SERVER] if key)

    def _own(self, type_: str, server: str) -> float:
        """The part of it that is the server's own."""
        effects = self._effects
        own = effects.get((SERVER, "", server), NOTHING)[0] + effects.get((TYPE_SERVER, type_, server), NOTHING)[0]
        return self._stated(server) + own

    def apart(self, type_: str) -> float:
        """The speed of gangs of a type on several servers, relative to that on one."""
        known = self._apart.get(type_)
        if known is None:
            keys = groups_of(type_, "", "", True)[SPREAD:]
            known = math.exp(min(sum(self._effects.get(key, NOTHING)[0] for key in keys if key), 0.0))
            self._apart[type_] = known
        return known

    def speeds(self, type_: str) -> Floats:
        """The expected speed of jobs of a type on each server (R,), in the order of the servers; not to be changed."""
        known = self._known.get(type_)
        if known is None:
            names, classes, own, single = self._columns()
            of_class = np.array([self._of_class(type_, class_) for class_ in names], dtype=np.float64)
            means = own + of_class[classes] if names else own
            rows, values = single.get(type_, ([], []))
            means[rows] += values
            known = np.exp(means)
            known.flags.writeable = False
            self._known[type_] = known
        return known

    def _columns(self) -> tuple[list[str], Ints, Floats, dict[str, tuple[list[int], list[float]]]]:
        """The classes, the class of each server (R,), its effect on all types, and effects on types by row."""
        if self._table is None:
            if self._fleet is None:
                row = {name: r for r, name in enumerate(self._servers)}
                classes = [self.class_of(name) for name in row]
                names = list(dict.fromkeys(classes))
                kind = {name: i for i, name in enumerate(names)}
                said = np.array([self._stated(name) for name in row], dtype=np.float64)
                self._fleet = row, names, np.array([kind[name] for name in classes], dtype=np.int64), said
            index, names, class_, said = self._fleet
            own = said.copy()
            single: dict[str, tuple[list[int], list[float]]] = {}
            for (factor, type_, name), (value, _) in self._effects.items():
                if factor == SERVER and name in index:
                    own[index[name]] += value
                elif factor == TYPE_SERVER and name in index:
                    rows, values = single.setdefault(type_, ([], []))
                    rows.append(index[name])
                    values.append(value)
            self._table = names, class_, own, single
        return self._table

    def tiers(self, type_: str) -> tuple[Ints, Floats]:
        """The tier of each server (R,) for a type, 0 the fastest, and the speed of each tier.

        Servers of one tier are about equally fast: the fastest by no more than `EQUAL` faster than any other.
        """
        known = self._tiers.get(type_)
        if known is None:
            speed = self.speeds(type_)
            order = np.argsort(-speed, kind="stable")
            falling, first = speed[order], [0]
            while (after := int(np.searchsorted(-falling, -falling[first[-1]] / EQUAL, "right"))) < len(order):
                first.append(after)
            tier = np.zeros(len(order), dtype=np.int64)
            tier[order] = np.repeat(np.arange(len(first)), np.diff([*first, len(order)]))
            known = tier, np.add.reduceat(falling, first) / np.diff([*first, len(order)])
            self._tiers[type_] = known
        return known

    def slowest(self, type_: str, servers: Sequence[str]) -> float:
        """The expected speed of a job of a type on these servers together."""
        speed = math.exp(min(self._mean(type_, server) for server in servers))
        return speed * self.apart(type_) if len(set(servers)) > 1 else speed

    def remembered(self, type_: str, server: str) -> float:
        """The speed of a type on a server, if that is as it was when jobs of the type last ran there."""
        weight, seen = self._cells.get((type_, server, False), NOTHING)[:2]
        mean = self._mean(type_, server) + weight * (seen + self._stated(server))
        return math.exp(mean / (1.0 + weight))

    def speed(self, type_: str, server: str) -> Speed:
        """What is known of a type on a server."""
        keys = groups_of(type_, server, self.class_of(server), False)
        mean, level, unsure = self._stated(server), "all", 0.0
        for key, variance in zip(keys, self._variance, strict=True):
            if key is None:
                continue
            effect, runs = self._effects.get(key, (0.0, 0.0))
            mean += effect
            unsure = 1.0 / (runs / self._noise + 1.0 / (unsure + variance))
            if runs * variance >= self._noise:
                level = FACTORS[key[0]]
        cells = [self._cells[cell] for apart in (False, True) if (cell := (type_, server, apart)) in self._cells]
        runs_, cuts = sum(cell[3] for cell in cells), sum(cell[4] for cell in cells)
        half = 1.96 * math.sqrt(unsure)
        deviation = math.sqrt(self._noise_of(cells))
        return Speed(runs_, math.exp(mean), deviation, cuts, math.exp(mean - half), math.exp(mean + half), level)

    @property
    def servers(self) -> list[str]:
        return list(self._servers)

    def __iter__(self) -> Iterator[tuple[str, str, Speed]]:
        for type_, server in sorted({cell[:2] for cell in self._cells}):
            yield type_, server, self.speed(type_, server)

    def dump(self) -> dict[str, Any]:
        """All of it, for JSON."""
        self.settle()
        self.class_of("")  # servers may have changed
        return {
            "cells": [[*key, *value] for key, value in self._cells.items()],
            "reference": dict(self._reference),
            "runs": [self._total, self._fitted],
            "latest": dict(self._latest),
            "last": dict(self._last),
            "sums": {server: list(sums) for server, sums in self._sums.items()},
            "recent": {server: [list(run) for run in runs] for server, runs in self._recent.items()},
            "effects": [[*key, *value] for key, value in self._effects.items()],
            "variance": [self._noise, *self._variance],
        }

    @classmethod
    def load(cls, dumped: Mapping[str, Any], learn_by: str | None = None) -> Learned:
        """What `dump` gave."""
        learned = cls(learn_by=learn_by)
        learned._pairs = None
        learned._reference = {name: float(value) for name, value in dumped["reference"].items()}
        if "cells" not in dumped:  # dumps of before runs were pooled
            for type_, server, runs, mean, squares, *cut in dumped["channels"]:
                value = float(runs), math.log(mean), squares / mean**2, int(runs), int(cut[0]) if cut else 0
                learned._cells[type_, server, False] = value
                learned._latest[type_] = 0
                learned._total += int(runs)
            learned._fitted = learned._total
            learned._fit()
            return learned
        for type_, server, spread, weight, mean, squares, runs, cut in dumped["cells"]:
            learned._cells[type_, server, bool(spread)] = weight, mean, squares, int(runs), int(cut)
        learned._total, learned._fitted = dumped["runs"]
        latest = dumped.get("latest") or dict.fromkeys((*learned._reference, *(cell[0] for cell in learned._cells)), 0)
        learned._latest = {type_: int(run) for type_, run in latest.items()}
        learned._last = {server: int(run) for server, run in dumped["last"].items()}
        for server, (up, down, above, below) in dumped["sums"].items():
            learned._sums[server] = up, down, int(above), int(below)
        for server, recent in dumped["recent"].items():
            learned._recent[server] = tuple((one, bool(apart), y, w) for one, apart, y, w in recent)
        for factor, one, other, effect, runs in dumped["effects"]:
            learned._effects[int(factor), one, other] = effect, runs
        learned._noise, *learned._variance = dumped["variance"]
        return learned
