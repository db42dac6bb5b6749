"""What a comparison needs to know of each family: its oracles, what regret is measured in, its words.

A new family adds a record to `FAMILIES`; nothing else in the lab asks which family a scenario is of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from berth.families.allocation import oracle as oracles
from berth.families.allocation.world import AllocationWorld
from berth.families.placement.oracle import placement_bound
from berth.families.placement.world import PlacementWorld
from berth.families.selection.world import SelectionWorld
from berth.lab.run.shares import MeanShare, PlacementShare, SelectionShare
from berth.model import Floats

__all__ = ["FAMILIES", "HIDDEN", "REVEALED", "LabFamily", "OracleWords"]

HIDDEN, REVEALED = "hidden", "revealed"


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
    """One family."""

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
    logarithmic: bool = False
    """Whether regret may grow as slowly as ln T: then tables show it, and whether it does."""
    known: str = "Every policy here knows which ports have a job before it decides."
    """What policies know that see arrivals before they decide."""
    captions: Mapping[str, str] = field(default_factory=dict)
    """Words under a picture, where they are not those of all families."""


def _stationary(world: AllocationWorld) -> tuple[Floats, float]:
    best = oracles.best_stationary(world)
    return best.reward, float(best.bound)


def _slot(world: AllocationWorld) -> tuple[Floats, float]:
    optima = oracles.slot_optima(world)
    return optima.reward, float(np.sum(optima.bound))


def _first_allocation(world: AllocationWorld, slots: int) -> AllocationWorld:
    return AllocationWorld(world.problem, world.arrivals[:slots], None if world.up is None else world.up[:slots])


ALLOCATION = LabFamily(
    name="allocation",
    information=(HIDDEN, REVEALED),
    oracles={"stationary": _stationary, "slot": _slot},
    oracle_words={
        "stationary": OracleWords(
            "y* (best stationary)", "y* (best stationary)", "y*", "y*", "y*", "to y*, the best stationary decision"
        ),
        "slot": OracleWords(
            "slot optimum",
            "optimum of each slot",
            "slot optimum",
            "opt.",
            "the slot optimum",
            "to the optimum of each slot",
        ),
    },
    measured_in="reward",
    expense="overhead",
    share=lambda problem: MeanShare(problem.instance),
    share_of="the server",
    shortened=_first_allocation,
    left_out=frozenset({"expected", "cost", "regret_log_fit"}),
)


def _knows_the_means(world: SelectionWorld) -> tuple[Floats, float]:
    optima = oracles.selection_optima(world)
    return optima.reward, float(np.sum(optima.bound))


def _first_selection(world: SelectionWorld, slots: int) -> SelectionWorld:
    up, delay = (None if part is None else part[:slots] for part in (world.up, world.delay))
    return SelectionWorld(world.problem, world.arrivals[:slots], world.gains, up, delay)


SELECTION = LabFamily(
    name="selection",
    information=(REVEALED,),
    oracles={"slot": _knows_the_means},
    oracle_words={
        "slot": OracleWords(
            "oracle (knows the means)",
            "oracle that knows the means",
            "oracle",
            "oracle",
            "the oracle",
            "to the oracle that knows the mean gains",
        )
    },
    measured_in="expected",
    expense="cost",
    share=SelectionShare,
    share_of="its pool",
    shortened=_first_selection,
    left_out=frozenset({"overhead", "fraction_of_stationary", "regret_stationary", "regret_stationary_growth"}),
    logarithmic=True,
    captions={
        "regret": "What the oracle that knows the mean gains earns more, on average over the luck of the slots, summed "
        "over the slots so far. On the right, only policies whose regret grows slowly, against ln T: what grows like "
        "ln T is a straight line there. Bands are 95 % intervals over seeds.",
        "gain-overhead": "Gain minus cost is the reward.",
        "allocation": "The mean share that each port holds through each server, of what that server, or the whole "
        "cluster where it is one pool, has; for the first seed.",
    },
)


def _clairvoyant(world: PlacementWorld) -> tuple[Floats, float]:
    """The bound of a whole run; when it would be earned is not known, so every slot gets the same."""
    gain = placement_bound(world).gain
    return np.full(len(world), gain / len(world)), gain


PLACEMENT = LabFamily(
    name="placement",
    information=(REVEALED,),
    oracles={"slot": _clairvoyant},
    oracle_words={
        "slot": OracleWords(
            "clairvoyant bound, spread evenly",
            "clairvoyant bound",
            "bound",
            "bound",
            "the clairvoyant bound",
            "to the bound of one who knows all tasks",
        )
    },
    measured_in="reward",
    expense="cost",
    share=PlacementShare,
    share_of="the server",
    shortened=PlacementWorld.first,
    left_out=frozenset(
        {
            "overhead",
            "expected",
            "fraction_of_stationary",
            "regret_stationary",
            "regret",
            "regret_stationary_growth",
            "regret_growth",
            "regret_log_fit",
        }
    ),
    known="Every policy here sees the tasks that have arrived, and none that will. A slot is the time between two "
    "batches, and the last one goes on until every task has ended.",
    captions={
        "gain-overhead": "Gain is the value of the tasks that were started; cost is that of running them and of "
        "launching servers. Gain minus cost is the reward.",
        "allocation": "The mean share of each server that tasks hold, over the whole run, for the first seed.",
    },
)

FAMILIES = {family.name: family for family in (ALLOCATION, SELECTION, PLACEMENT)}
"""By the `family` of a scenario and of a policy."""
