"""Interface of a family to comparisons: oracles, the series that regret uses, labels, shares for the heat map.

Each family has one record, `LAB` in its module `lab`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from berth.model import Floats, Instance

__all__ = ["HIDDEN", "REVEALED", "LabFamily", "MeanShare", "OracleWords", "grouped", "most_wanted"]

HIDDEN, REVEALED = "hidden", "revealed"
MOST = 64
"""Largest number of rows or columns of a heat map; neighbours are averaged beyond it."""


class Share(Protocol):
    """Observer of a run that returns the share of each server that each port held."""

    def __call__(self, slot: Any, decision: Any, outcome: Any, /) -> None: ...

    def mean(self) -> Floats: ...


@dataclass(frozen=True)
class OracleWords:
    """Labels of an oracle: in a legend, in a table row, over its fractions and regrets, and over a plot."""

    legend: str
    row: str
    short: str
    narrow: str
    of: str
    title: str


@dataclass(frozen=True)
class LabFamily:
    """Interface of one family to a comparison."""

    name: str
    information: tuple[str, ...]
    """Information settings that a comparison may have."""
    oracles: Mapping[str, Callable[[Any], tuple[Floats, float]]]
    """Oracle rewards of a world slot by slot (T,), and a certified upper bound on the total."""
    oracle_words: Mapping[str, OracleWords]
    measured_in: str
    """Series compared with oracles: `reward`, or its mean to leave out noise (pseudo-regret)."""
    expense: str
    """Measure subtracted from `gain` to give the reward; also the field of `Row`."""
    share: Callable[[Any], Share]
    """Builds the observer for the heat map from a problem."""
    share_of: str
    """Quantity whose shares the heat map shows."""
    shortened: Callable[[Any, int], Any]
    """The same world cut to its first slots, to compile kernels with."""
    left_out: frozenset[str]
    """Fields of `Row` that do not apply to this family."""
    learners: tuple[str, ...] = ()
    """Oracles that learn: a policy may do better and has no regret against them."""
    logarithmic: bool = False
    """Whether regret may grow like ln T: tables then show the fit."""
    known: str = "Every policy here knows which ports have a job before it decides."
    """What policies know if they see arrivals before they decide."""
    captions: Mapping[str, str] = field(default_factory=dict)
    """Captions of plots that differ from those of other families."""
    remarks: Callable[[Any], Sequence[str]] = lambda problem: ()
    """Why a comparison on this problem may tell policies badly apart, in sentences."""
    solver: str | None = None
    """Package of the family's solver: its kernels are the largest and compile first."""


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


def most_wanted(wanted: Floats, capacity: Floats) -> float:
    """Largest share of a capacity that is wanted at once; both (servers or pools, resources).

    >>> most_wanted(np.array([[1.0, 0.0]]), np.array([[4.0, 0.0]]))
    0.25
    """
    return float(np.divide(wanted, capacity, out=np.zeros_like(wanted), where=capacity > 0).max(initial=0.0))


class MeanShare:
    """Observer that averages the share of each server that each port holds.

    `share` converts the sum of all decisions to the share of its server that each channel holds, (E,).
    """

    def __init__(self, instance: Instance, share: Callable[[Any], Floats]) -> None:
        self._instance, self._share = instance, share
        self._total: Any = 0.0
        self._slots = 0

    def __call__(self, slot: Any, decision: Any, outcome: Any, /) -> None:
        self._total = self._total + decision
        self._slots += 1

    def mean(self) -> Floats:
        """Mean share, (ports, servers), with neighbours averaged if there are many."""
        graph = self._instance
        table = np.zeros((len(graph.ports), len(graph.cluster.servers)))
        table[graph.channel_port, graph.channel_server] = self._share(self._total) / max(self._slots, 1)
        return grouped(grouped(table, 0), 1)
