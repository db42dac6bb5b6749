"""Effects of what is learned of speeds, as columns: the groups of all cells, and the effect that was fitted to each.

Axes: n cells, L factors, G groups of all factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from berth.kernels.effects import NONE
from berth.live.core.cells import Cell
from berth.live.core.levels import FACTORS, SERVER, TYPE_SERVER, Group, groups_of
from berth.model import Floats, Ints

__all__ = ["Effects", "Groups"]

NOTHING = 0.0, 0.0


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of cells, numbered in each factor in the order of cells; nothing of it is changed.

    `of` (n, L) has the number of each cell's group in each factor, or `NONE`, and `first` (L + 1,) the row of the first
    group of each factor among all groups. `classes` has the classes of the servers that cells are of.
    """

    number: Mapping[Group, int] = field(default_factory=dict)
    first: Ints = field(default_factory=lambda: np.zeros(len(FACTORS) + 1, dtype=np.int64))
    of: Ints = field(default_factory=lambda: np.zeros((0, len(FACTORS)), dtype=np.int64))
    servers: Sequence[str] = ()
    classes: Mapping[str, str] = field(default_factory=dict)

    def grown(self, cells: Iterable[Cell], class_of: Callable[[str], str]) -> Groups:
        """The groups of these cells as well."""
        number, count = dict(self.number), np.diff(self.first).tolist()
        servers, classes, rows = list(self.servers), dict(self.classes), list[list[int]]()
        for type_, server, spread in cells:
            if server not in classes:
                servers.append(server)
                classes[server] = class_of(server)
            row = [NONE] * len(FACTORS)
            for factor, key in enumerate(groups_of(type_, server, classes[server], spread)):
                if key is not None:
                    row[factor] = number.setdefault(key, count[factor])
                    count[factor] += row[factor] == count[factor]
            rows.append(row)
        first = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        of = np.array(rows, dtype=np.int64).reshape(-1, len(FACTORS))
        return Groups(number, first, np.concatenate([self.of, of]), servers, classes)

    def row(self, key: Group) -> int:
        """The row of a group among all groups; -1 if no cell is in it."""
        number = self.number.get(key)
        return -1 if number is None else int(self.first[key[0]]) + number

    def rows(self, factor: int, name: str, others: Iterable[str]) -> Ints:
        """The rows of the groups of a factor that have this name, one for each other name."""
        number = self.number
        found = np.array([number.get((factor, name, other), -1) for other in others], dtype=np.int64)
        return np.where(found < 0, -1, self.first[factor] + found)


class Effects:
    """The effect of each group (G,), and the number of runs behind it (G,)."""

    def __init__(self, groups: Groups, value: Floats, runs: Floats) -> None:
        self.groups, self._value, self._runs = groups, value, runs
        self._first: list[int] = groups.first.tolist()

    @classmethod
    def of(cls, effects: Mapping[Group, tuple[float, float]]) -> Effects:
        """These effects."""
        number, count = dict[Group, int](), [0] * len(FACTORS)
        for key in effects:
            number[key] = count[key[0]]
            count[key[0]] += 1
        groups = Groups(number, np.concatenate([[0], np.cumsum(count)]).astype(np.int64))
        ordered = [effects[key] for key in sorted(number, key=groups.row)]
        return cls(groups, *np.array(ordered, dtype=np.float64).reshape(-1, 2).T)

    def get(self, key: Group) -> tuple[float, float]:
        """The effect of a group, and the number of runs behind it."""
        number = self.groups.number.get(key)
        if number is None:
            return NOTHING
        row = self._first[key[0]] + number
        return float(self._value[row]), float(self._runs[row])

    def at(self, rows: Ints) -> Floats:
        """The effects of groups, by their rows, and 0 for rows below 0."""
        return _at(self._value, rows)

    def runs_at(self, rows: Ints) -> Floats:
        """The numbers of runs behind the effects of groups, likewise."""
        return _at(self._runs, rows)

    def faded(self, share: Floats) -> Effects:
        """Less of what is known of single servers, and of types on them: this share for each of `groups.servers`."""
        groups, value, runs = self.groups, self._value.copy(), self._runs.copy()
        server = np.zeros(np.diff(groups.first)[TYPE_SERVER], dtype=np.int64)
        server[groups.of[:, TYPE_SERVER]] = groups.of[:, SERVER]
        for factor, shares in ((SERVER, share), (TYPE_SERVER, share[server])):
            rows = slice(groups.first[factor], groups.first[factor + 1])
            value[rows] *= shares
            runs[rows] *= shares
        return Effects(groups, value, runs)

    def __iter__(self) -> Iterator[tuple[Group, float, float]]:
        value, runs = self._value.tolist(), self._runs.tolist()
        for key in sorted(self.groups.number, key=self.groups.row):
            row = self.groups.row(key)
            yield key, value[row], runs[row]


def _at(values: Floats, rows: Ints) -> Floats:
    found: Floats = np.append(values, 0.0)[np.maximum(rows, -1)]
    return found
