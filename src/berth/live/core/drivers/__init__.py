"""Drivers: how policies of each family decide for a live cluster.

A driver makes a problem of the servers and jobs that there are, shows the policy its slots, reads its decisions as
places for jobs, and tells it what came of them. When servers or types of jobs come that the problem does not have,
problem and policy are made anew, and the policy is shown the runs that are remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from berth.errors import InvalidInput, UnknownName
from berth.live.core import FALLBACK
from berth.live.core.records import Outcome
from berth.live.core.view import Placing, View
from berth.registry import PolicySpec

__all__ = ["Driver", "family_of", "make_driver"]


class Driver(Protocol):
    """What the dispatcher needs of a policy."""

    def propose(self, view: View, /) -> Placing:
        """Who of the view starts now, and where."""
        ...

    def learn(self, outcome: Outcome, /) -> None:
        """A job came to its end."""
        ...


def family_of(spec: PolicySpec) -> str | None:
    """The family of a policy, where it has one."""
    family = getattr(spec.load(), "family", None)
    return family if isinstance(family, str) else None


def make_driver(policy: str, seed: int, memory: Iterable[Outcome]) -> Driver:
    """The driver of a policy, as a person writes it.

    >>> type(make_driver("best-fit", 0, [])).__name__
    'PlacementDriver'
    """
    try:
        spec = PolicySpec.parse(policy)
    except UnknownName as error:
        raise (
            UnknownName(error.what, error.name, [FALLBACK, *error.known]) if error.what == "policy" else error
        ) from None
    family = family_of(spec)
    if family == "placement":
        from berth.live.core.drivers.placement import PlacementDriver

        return PlacementDriver(spec, seed, memory)
    if family == "selection":
        from berth.live.core.drivers.selection import SelectionDriver

        return SelectionDriver(spec, seed, memory)
    if family == "allocation":
        from berth.live.core.drivers.allocation import AllocationDriver

        return AllocationDriver(spec, seed, memory)
    raise InvalidInput("a policy of the placement, selection or allocation family", value=policy, key="policy")
