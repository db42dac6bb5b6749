"""Drivers: adapters through which policies of each family decide for a live cluster.

A driver builds a problem from the servers and jobs, shows the policy its slots, turns its decisions into places for
jobs, and reports the results to it. When servers or job types appear that the problem does not have, the driver builds
problem and policy anew, and shows the policy the remembered runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from berth.errors import InvalidInput, UnknownName
from berth.families import FAMILIES
from berth.live.core import COMPLETION, LIVE
from berth.live.core.drivers.completion import CompletionDriver
from berth.live.core.drivers.deferral import Waits
from berth.live.core.records import Outcome
from berth.live.core.view import Placing, View
from berth.registry import PolicySpec

__all__ = ["Driver", "driver_of", "make_driver"]


class Driver(Protocol):
    """The interface through which the dispatcher uses a policy."""

    gathers: bool = True
    """Whether to gather gangs on the fewest servers; False if the policy scatters them on purpose."""
    decides: bool = False
    """Whether its decisions are final: no gang is gathered, and no job is deferred."""
    waits: Waits
    """Defers jobs that complete earlier on faster servers."""

    def propose(self, view: View, /) -> Placing:
        """Which jobs of the view start now, and where."""
        ...

    def learn(self, outcome: Outcome, /) -> None:
        """Learn from the end of a job."""
        ...

    def warm(self) -> None:
        """Compile what made-up decisions do not reach."""


def driver_of(spec: PolicySpec) -> Any:
    """The driver class of a policy; None if its family is unknown."""
    family = FAMILIES.get(str(getattr(spec.load(), "family", None)))
    return None if family is None else family.driver


def make_driver(policy: str, seed: int, memory: Iterable[Outcome]) -> Driver:
    """The driver of a policy, given as a user writes it.

    >>> type(make_driver("best-fit", 0, [])).__name__
    'PlacementDriver'
    """
    if policy == COMPLETION:
        return CompletionDriver()
    try:
        spec = PolicySpec.parse(policy)
    except UnknownName as error:
        raise (
            UnknownName(error.what, error.name, [*LIVE, *error.known]) if error.what == "policy" else error
        ) from None
    driver = driver_of(spec)
    if driver is None:
        *names, last = reversed(FAMILIES)
        raise InvalidInput(f"a policy of the {', '.join(names)} or {last} family", value=policy, key="policy")
    made: Driver = driver(spec, seed, memory)
    made.waits = Waits()
    made.gathers = not getattr(spec.load(), "scatters", False)
    return made
