"""Drivers: how policies of each family decide for a live cluster.

A driver makes a problem of the servers and jobs that there are, shows the policy its slots, reads its decisions as
places for jobs, and tells it what came of them. When servers or types of jobs come that the problem does not have,
problem and policy are made anew, and the policy is shown the runs that are remembered.
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
    """What the dispatcher needs of a policy."""

    gathers: bool = True
    """Whether gangs are to take the fewest servers; not where the policy scatters them on purpose."""
    decides: bool = False
    """Whether its decisions are final: no gang is gathered, and no job waits that it starts."""
    waits: Waits
    """Which of the jobs that could start do better to wait for faster servers."""

    def propose(self, view: View, /) -> Placing:
        """Who of the view starts now, and where."""
        ...

    def learn(self, outcome: Outcome, /) -> None:
        """A job came to its end."""
        ...

    def warm(self) -> None:
        """Compile what made-up decisions do not reach."""


def driver_of(spec: PolicySpec) -> Any:
    """The class of the driver of a policy, None where the policy is of no family that berth knows."""
    family = FAMILIES.get(str(getattr(spec.load(), "family", None)))
    return None if family is None else family.driver


def make_driver(policy: str, seed: int, memory: Iterable[Outcome]) -> Driver:
    """The driver of a policy, as a person writes it.

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
