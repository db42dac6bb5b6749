"""Estimates of speeds: of each type on each server, from all runs together.

The logarithm of a run's speed is a sum of effects: of all runs; of the type, and of each path that leads to it (a type
`train/resnet50/b64` belongs to `train` and `train/resnet50`); of the server's class; of path × class and type × class;
of the server, and of type × server; and, for a gang on several servers, of being spread, by path and type. Effects are
shrunk towards 0 as far as what was seen of them is little or noisy, with variances that are estimated from the runs
(empirical Bayes); where too little is known an effect counts as much as one run.

Axes: R servers.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Container, Mapping, Sequence
from itertools import islice

import numpy as np

from berth.kernels.effects import fit_effects
from berth.live.core.cells import NOISE, NOISE_RUNS, Cell, Cells
from berth.live.core.classes import classes_of
from berth.live.core.effects import Effects, Groups
from berth.live.core.levels import FACTORS, LEAST, SERVER, SPREAD, TYPE_SERVER, Speed, groups_of
from berth.live.core.records import ServerRecord
from berth.model import Floats, Ints

__all__ = ["EQUAL", "Estimates"]

DOUBT, ROUNDS = 2.0, 15
"""How many groups the variance that is assumed of a factor counts, and rounds of estimation."""
IDLE = 10
"""What is known of a server counts half after this many runs a server elsewhere."""
EQUAL = 1.05
"""Servers count as equally fast where their speeds differ by less than this factor."""


class Estimates(Cells):
    """Runs by cell (type, server, whether spread), and the effects that were estimated from them."""

    def __init__(self, servers: Mapping[str, ServerRecord] | None = None, learn_by: str | None = None) -> None:
        super().__init__()
        self.learn_by = learn_by
        self._servers: Mapping[str, ServerRecord] = servers if servers is not None else {}
        self._last: dict[str, int] = {}
        """The number of the latest run of each server."""
        self._classes: dict[str, str] | None = None
        self._grouped: tuple[dict[str, str] | None, Groups] = None, Groups()
        """The classes of all servers, and the groups of the first cells, which depend on them."""
        self._fit_classes: Mapping[str, str] = {}
        """The classes of servers with runs when effects were estimated."""
        self._effects = Effects.of({})
        self._variance = [NOISE**2] * len(FACTORS)
        self._fleet: tuple[list[str], Ints, Floats] | None = None
        """The classes of servers; the class of each server (R,), and the logarithm of its stated speed (R,)."""
        self._placed: tuple[object, int, Ints] = None, 0, np.zeros(0, dtype=np.int64)
        self._share: tuple[tuple[Groups, int, int], Floats] = (Groups(), 0, 0), np.zeros(0)
        self._rows: tuple[Groups, dict[tuple[int, str], Ints]] = Groups(), {}
        """Of these groups the rows of a factor and type on each server (R,)."""
        self.version = 0
        """Changes whenever estimates do."""
        self._changed()

    def servers_changed(self) -> None:
        """Forget which servers are alike."""
        self._classes, self._fleet, self._rows = None, None, (Groups(), {})
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._known: dict[str, Floats] = {}
        self._tiers: dict[str, tuple[Ints, Floats]] = {}
        self._tiered: tuple[tuple[str, ...], tuple[Ints, Floats, Floats]] | None = None
        self._apart: dict[str, float] = {}
        self._outlooks: dict[str, tuple[Floats, Floats]] = {}
        self._whole: dict[str, tuple[Floats, Floats, Floats]] = {}
        """What `outlook` gave for types of which no run was seen since then."""

    def class_of(self, server: str) -> str:
        """The class of a server; its own name where nothing is known of it."""
        if self._classes is None:
            now = self._classes = classes_of(self._servers, self.learn_by)
            self._fit_classes = self._fit_classes or {cell[1]: now.get(cell[1], cell[1]) for cell in self._row}
            if any(now.get(name, name) != class_ for name, class_ in self._fit_classes.items()):
                self._fit()
        return self._classes.get(server, server)

    def _stated(self, server: str) -> float:
        """The logarithm of the speed that a server is said to have."""
        record = self._servers.get(server)
        return 0.0 if record is None else math.log(record.server.speed)

    def _fresh(self, server: str) -> float:
        """How much of what was seen of a server still counts, after the runs elsewhere."""
        idle = self._total - self._last.get(server, self._total)
        return float(0.5 ** (idle / (IDLE * max(len(self._servers), 1))))

    def _shares(self, groups: Groups) -> Floats:
        """The same of all servers that runs were seen of."""
        key = groups, self._total, len(self._servers)
        if self._share[0] != key:
            last, total, each = self._last, self._total, IDLE * max(len(self._servers), 1)
            shares = [0.5 ** ((total - last.get(server, total)) / each) for server in groups.servers]
            self._share = key, np.array(shares, dtype=np.float64)
        return self._share[1]

    def _put(self, cell: Cell, seen: Sequence[float], count: Sequence[int]) -> None:
        super()._put(cell, seen, count)
        self._whole.pop(cell[0], None)

    def _forget(self, gone: Container[Cell]) -> None:
        super()._forget(gone)
        self._grouped, self._whole = (None, Groups()), {}

    def _fit(self) -> None:
        """Estimate noise, variances and effects from all cells."""
        self._changed()
        groups = self._groups()
        seen = self._seen[: len(self._row)]
        weight, mean = np.ascontiguousarray(seen[:, 0]), np.ascontiguousarray(seen[:, 1])
        spare = np.maximum(weight - 1.0, 0.0)
        self._noise = (NOISE_RUNS * NOISE**2 + float(seen[spare > 0, 2].sum())) / (NOISE_RUNS + float(spare.sum()))
        self._noise = max(self._noise, LEAST**2)
        variance = np.full(len(FACTORS), self._noise)
        effects = fit_effects(groups.of, groups.first, weight, mean, self._noise, variance, DOUBT, ROUNDS)
        self._variance, self._effects = variance.tolist(), Effects(groups, *effects).faded(self._shares(groups))
        self._fit_classes = groups.classes

    def _groups(self) -> Groups:
        """The groups of all cells."""
        self.class_of("")  # servers may have changed
        classes, groups = self._grouped
        if classes != self._classes:
            groups = Groups()
        if len(groups.of) < len(self._row):
            groups = groups.grown(islice(self._row, len(groups.of), None), self.class_of)
        self._grouped = self._classes, groups
        return groups

    def _mean(self, type_: str, server: str) -> float:
        """The logarithm of the expected speed of a type on a server."""
        return self._of_class(type_, self.class_of(server)) + self._own(type_, server)

    def _of_class(self, type_: str, class_: str) -> float:
        """The part of it that all servers of a class share."""
        return sum(self._effects.get(key)[0] for key in groups_of(type_, "", class_, False)[:SERVER] if key)

    def _own(self, type_: str, server: str) -> float:
        """The part of it that is the server's own."""
        effects = self._effects
        own = effects.get((SERVER, "", server))[0] + effects.get((TYPE_SERVER, type_, server))[0]
        return self._stated(server) + own

    def apart(self, type_: str) -> float:
        """The speed of gangs of a type on several servers, relative to that on one."""
        known = self._apart.get(type_)
        if known is None:
            keys = groups_of(type_, "", "", True)[SPREAD:]
            known = math.exp(min(sum(self._effects.get(key)[0] for key in keys if key), 0.0))
            self._apart[type_] = known
        return known

    def speeds(self, type_: str) -> Floats:
        """The expected speed of jobs of a type on each server (R,), in the order of the servers; not to be changed."""
        known = self._known.get(type_)
        if known is None:
            names, classes, stated = self._columns()
            of_class = np.array([self._of_class(type_, class_) for class_ in names], dtype=np.float64)
            own = stated + self._effects.at(self._rows_of(SERVER, ""))
            means = own + of_class[classes] if names else own
            known = np.exp(means + self._effects.at(self._rows_of(TYPE_SERVER, type_)))
            known.flags.writeable = False
            self._known[type_] = known
        return known

    def outlook(self, type_: str) -> tuple[Floats, Floats, Floats]:
        """The means of `speed` on each server (R,), their spreads and their deviations."""
        known = self._whole.get(type_)
        if known is None:
            mean, unsure = self._outlook(type_)
            rows = np.flatnonzero(self._type[: len(self._row)] == self._types.get(type_, -1))
            place, many, seen = self._server_places(), len(self._places) + 1, self._seen[rows]
            spare = np.bincount(self._place[rows], np.maximum(seen[:, 0] - 1.0, 0.0), many)[place]
            squares = np.bincount(self._place[rows], np.where(seen[:, 0] > 1.0, seen[:, 2], 0.0), many)[place]
            deviation = np.sqrt((NOISE_RUNS * self._noise + squares) / (NOISE_RUNS + spare))
            known = np.exp(mean), np.maximum(np.hypot(deviation, unsure), LEAST), deviation
            self._whole[type_] = known
        return known

    def means(self, type_: str) -> Floats:
        """The logarithms of the means of `speed` on each server (R,)."""
        return self._outlook(type_)[0]

    def _outlook(self, type_: str) -> tuple[Floats, Floats]:
        """The logarithms of the means of `speed` on each server (R,), and their standard errors."""
        known = self._outlooks.get(type_)
        if known is None:
            names, classes, mean = self._columns()
            unsure = np.zeros(len(mean))
            keys, row = [groups_of(type_, "", class_, False)[:SERVER] for class_ in names], self._effects.groups.row
            for factor, variance in enumerate(self._variance[:SPREAD]):
                if factor in (SERVER, TYPE_SERVER):
                    rows = self._rows_of(factor, type_ if factor == TYPE_SERVER else "")
                elif of_class := [row(one) for key in keys if (one := key[factor]) is not None]:
                    rows = np.array(of_class)[classes]
                else:
                    continue
                mean = mean + self._effects.at(rows)
                unsure = 1.0 / (self._effects.runs_at(rows) / self._noise + 1.0 / (unsure + variance))
            known = self._outlooks[type_] = mean, np.sqrt(unsure)
        return known

    def _columns(self) -> tuple[list[str], Ints, Floats]:
        """The classes, the class of each server (R,), and the logarithm of its stated speed (R,)."""
        if self._fleet is None:
            class_of = [self.class_of(name) for name in self._servers]
            number = {name: i for i, name in enumerate(dict.fromkeys(class_of))}
            classes = np.array([number[name] for name in class_of], dtype=np.int64)
            stated = np.array([self._stated(name) for name in self._servers], dtype=np.float64)
            self._fleet = list(number), classes, stated
        return self._fleet

    def _server_places(self) -> Ints:
        """The number of each server (R,) among those that runs were seen of; -1 of others."""
        fleet, many = self._columns(), len(self._places)
        if self._placed[0] is not fleet or self._placed[1] != many:
            places = [self._places.get(name, -1) for name in self._servers]
            self._placed = fleet, many, np.array(places, dtype=np.int64)
        return self._placed[2]

    def _rows_of(self, factor: int, type_: str) -> Ints:
        """The rows of the effects of a factor, on all types or on one, of each server (R,); -1 where there is none."""
        groups = self._effects.groups
        if self._rows[0] is not groups:
            self._rows = groups, {}
        known = self._rows[1]
        if (factor, type_) not in known:
            known[factor, type_] = groups.rows(factor, type_, self._servers)
        return known[factor, type_]

    def tiers(self, type_: str) -> tuple[Ints, Floats]:
        """The tier of each server (R,) for a type, 0 the fastest, and the speed of each tier.

        Servers of one tier are about equally fast: the fastest by no more than `EQUAL` faster than any other.
        """
        known = self._tiers.get(type_)
        if known is None:
            speed = self.speeds(type_)
            order = np.argsort(-speed, kind="stable")
            falling, first = speed[order], [0]
            rising = (-falling).tolist()
            while (after := bisect_right(rising, rising[first[-1]] / EQUAL)) < len(order):
                first.append(after)
            tier = np.zeros(len(order), dtype=np.int64)
            tier[order] = np.repeat(np.arange(len(first)), np.diff([*first, len(order)]))
            known = tier, np.add.reduceat(falling, first) / np.diff([*first, len(order)])
            self._tiers[type_] = known
        return known

    def tiers_of(self, types: Sequence[str]) -> tuple[Ints, Floats, Floats]:
        """Of several types the tier of each server (T, R), the speed of each tier (T, L), 0 where there is none, and
        that of gangs on several servers (T,); kept for the last types that were asked for, until estimates change."""
        if self._tiered is None or self._tiered[0] != tuple(types):
            tiers = [self.tiers(type_) for type_ in types]
            pace = np.zeros((len(types), max((len(one) for _, one in tiers), default=1)))
            for row, (_, one) in enumerate(tiers):
                pace[row, : len(one)] = one
            tier = np.array([one for one, _ in tiers], dtype=np.int64).reshape(len(types), len(self._servers))
            self._tiered = tuple(types), (tier, pace, np.array([self.apart(type_) for type_ in types]))
        return self._tiered[1]

    def slowest(self, type_: str, servers: Sequence[str]) -> float:
        """The expected speed of a job of a type on these servers together."""
        speed = math.exp(min(self._mean(type_, server) for server in servers))
        return speed * self.apart(type_) if len(set(servers)) > 1 else speed

    def remembered(self, type_: str, server: str) -> float:
        """The speed of a type on a server, if that is as it was when jobs of the type last ran there."""
        row = self._row.get((type_, server, False))
        weight, seen = (0.0, 0.0) if row is None else self._seen[row, :2].tolist()
        mean = self._mean(type_, server) + weight * (seen + self._stated(server))
        return math.exp(mean / (1.0 + weight))

    def speed(self, type_: str, server: str) -> Speed:
        """What is known of a type on a server."""
        keys = groups_of(type_, server, self.class_of(server), False)
        mean, level, unsure = self._stated(server), "all", 0.0
        for key, variance in zip(keys, self._variance, strict=True):
            if key is None:
                continue
            effect, runs = self._effects.get(key)
            mean += effect
            unsure = 1.0 / (runs / self._noise + 1.0 / (unsure + variance))
            if runs * variance >= self._noise:
                level = FACTORS[key[0]]
        rows = [self._row[cell] for apart in (False, True) if (cell := (type_, server, apart)) in self._row]
        count, cuts = self._counts[rows].sum(axis=0).tolist()
        half = 1.96 * math.sqrt(unsure)
        deviation = math.sqrt(self._noise_of(self._seen[rows]))
        return Speed(count, math.exp(mean), deviation, cuts, math.exp(mean - half), math.exp(mean + half), level)
