"""Protocols of policies, problems and environments. Read this first.

A **problem** is what the scheduler knows. A **policy** is built from a problem and a random stream, `decide`s once a
slot and `observe`s the outcome. An **environment** knows the truth: it yields slots and answers decisions with
outcomes. `berth.simulate` runs the loop.

Slots, decisions and outcomes have no base class: each family has its own, see `berth.families`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from berth.capacity import Violation
from berth.model import Berth, Instance

__all__ = ["Environment", "Observer", "Policy", "Problem"]

Slot = TypeVar("Slot", contravariant=True)
Decision = TypeVar("Decision", covariant=True)
Outcome = TypeVar("Outcome", contravariant=True)


@runtime_checkable
class Policy(Protocol[Slot, Decision, Outcome]):
    """Built as `SomePolicy(problem, rng, **settings)`; the constructor refuses a problem it cannot serve.

    Outcomes carry their slot number: they may arrive late, out of order, or never.
    """

    def decide(self, slot: Slot, /) -> Decision: ...

    def observe(self, outcome: Outcome, /) -> None: ...


class Problem(Protocol):
    """What the scheduler knows."""

    @property
    def instance(self) -> Instance: ...

    def violations(self, slot: Any, decision: Any) -> Sequence[Violation]:
        """Every constraint that the decision breaks; empty if it is feasible."""
        ...

    def repaired(self, slot: Any, decision: Any) -> Any:
        """A feasible version of the decision, which the simulator plays instead."""
        ...

    def berths(self, slot: Any, decision: Any) -> Sequence[Berth]:
        """Berths that the decision gives to the jobs of this slot."""
        ...


class Environment(Protocol):
    """What the scheduler does not know: yields slots and answers each decision with its outcome."""

    @property
    def problem(self) -> Problem: ...

    @property
    def measures(self) -> Sequence[str]:
        """Names of the numbers that a run records for each slot besides `reward`."""
        ...

    def measured(self, outcome: Any) -> Sequence[float]:
        """Values of `measures` for the slot just played; some may be hidden from the policy."""
        ...

    def feedback(self, outcome: Any) -> Sequence[Any]:
        """Outcomes that reach the policy at the end of this slot: this one, unless feedback is delayed or lost."""
        ...

    def __iter__(self) -> Iterator[Any]: ...

    def step(self, decision: Any) -> Any:
        """Play a feasible decision; the outcome has at least `slot` and `reward`."""
        ...

    def score(self, decision: Any) -> float:
        """Reward that any decision, feasible or not, would have in the current slot; has no side effect."""
        ...


class Observer(Protocol):
    """Watches a run: called once a slot with the slot, the decision and the outcome."""

    def __call__(self, slot: Any, decision: Any, outcome: Any, /) -> None: ...
