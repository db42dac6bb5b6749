"""What a comparison needs to know of a family: oracles, what regret is measured in, words, shares for its heat map.

Each family has one such record, `LAB` in its module `lab`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from berth.model import Floats, Instance

__all__ = ["HIDDEN", "REVEALED", "Board", "LabFamily", "MeanShare", "OracleWords", "grouped"]

HIDDEN, REVEALED = "hidden", "revealed"
MOST = 64
"""Rows or columns that a map has at most; beyond, neighbours are averaged."""


@dataclass(frozen=True)
class Board:
    """A scenario of the leaderboard, how many slots are played, and how many in the quick version."""

    scenario: str
    slots: int
    quick: int
    oracle: bool = True
    """Whether an oracle is computed: the bound for placement takes long where there are many tasks."""


class Share(Protocol):
    """Watches a run and says in the end which part of what there is each port held on each server."""

    def __call__(self, slot: Any, decision: Any, outcome: Any, /) -> None: ...

    def mean(self) -> Floats: ...


@dataclass(frozen=True)
class OracleWords:
    """How an oracle is called: in a legend, in a row of a table, over its fractions and regrets, and over a picture."""

    legend: str
    row: str
    short: str
    narrow: str
    of: str
    title: str


@dataclass(frozen=True)
class LabFamily:
    """One family, as a comparison sees it."""

    name: str
    information: tuple[str, ...]
    """The information settings that a comparison may have."""
    oracles: Mapping[str, Callable[[Any], tuple[Floats, float]]]
    """What could have been earned in a world, slot by slot (T,), and a certified upper bound on the total."""
    oracle_words: Mapping[str, OracleWords]
    measured_in: str
    """The series that is compared with oracles: `reward`, or its mean where luck is not to count (pseudo-regret)."""
    expense: str
    """The measure that is subtracted from `gain` to give the reward; also the field of `Row`."""
    share: Callable[[Any], Share]
    """Made from a problem, for the heat map."""
    share_of: str
    """What the heat map shows shares of."""
    shortened: Callable[[Any, int], Any]
    """The same world with its first slots only, to compile with."""
    left_out: frozenset[str]
    """Fields of `Row` that mean nothing in this family."""
    learners: tuple[str, ...] = ()
    """Of the oracles those that learn: a policy may do better, and has no regret to them."""
    logarithmic: bool = False
    """Whether regret may grow as slowly as ln T: then tables show it, and whether it does."""
    known: str = "Every policy here knows which ports have a job before it decides."
    """What policies know that see arrivals before they decide."""
    captions: Mapping[str, str] = field(default_factory=dict)
    """Words under a picture, where they are not those of all families."""
    solver: str | None = None
    """The package of its solver: the largest kernel, compiled before others."""
    boards: tuple[Board, ...] = ()
    """Its scenarios of the leaderboard."""
    baseline: str = ""
    """The policy that others are compared with on the leaderboard: a plain one that serves all scenarios of the family
    except, for allocation, those with gangs."""


def grouped(values: Floats, axis: int, most: int = MOST) -> Floats:
    """Average neighbours along an axis until at most `most` groups are left.

    >>> grouped(np.array([[1.0, 3.0, 5.0, 7.0]]), axis=1, most=2)
    array([[2., 6.]])
    """
    size = values.shape[axis]
    if size <= most:
        return values
    edges = np.linspace(0, size, most + 1).astype(np.int64)
    total = np.add.reduceat(values, edges[:-1], axis=axis)
    shape = [1] * values.ndim
    shape[axis] = most
    return np.asarray(total / np.diff(edges).reshape(shape))


class MeanShare:
    """Watches a run and averages what each port holds of each server.

    `share` turns the sum of all decisions into what the channels hold of their servers, (E,).
    """

    def __init__(self, instance: Instance, share: Callable[[Any], Floats]) -> None:
        self._instance, self._share = instance, share
        self._total: Any = 0.0
        self._slots = 0

    def __call__(self, slot: Any, decision: Any, outcome: Any, /) -> None:
        self._total = self._total + decision
        self._slots += 1

    def mean(self) -> Floats:
        """The mean share, (ports, servers), neighbours averaged where there are many."""
        graph = self._instance
        table = np.zeros((len(graph.ports), len(graph.cluster.servers)))
        table[graph.channel_port, graph.channel_server] = self._share(self._total) / max(self._slots, 1)
        return grouped(grouped(table, 0), 1)
