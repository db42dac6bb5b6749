"""Policies that decide about a whole view: what starts where, and which running jobs are interrupted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Protocol

from berth.live.core.drivers.base import Driver
from berth.live.core.drivers.deferral import Waits
from berth.live.core.records import Outcome
from berth.live.core.view import Placing, View
from berth.random import stream
from berth.registry import PolicySpec

__all__ = ["LIVE_FAMILY", "LiveDriver", "LivePolicy", "interrupts"]

LIVE_FAMILY = "live"


class LivePolicy(Protocol):
    """A policy with `family = "live"`, made as `SomePolicy(rng, **settings)`; it decides alone, without wrappers.

    With `interrupts = True` it may name running jobs in `Placing.interrupt`. They return to waiting with what is left
    of their work, and the policy is asked again once their places are free. It is then asked whenever jobs run or
    wait, and no job starts past it because it has waited longer than the patience. If it has a `next_look`, it is also
    asked then, if nothing happens before.
    """

    def decide(self, view: View, /) -> Placing:
        """Which waiting jobs start now and where, and which running jobs are interrupted."""
        ...

    def observe(self, outcome: Outcome, /) -> None:
        """Learn from the end of a job."""
        ...


class Unhurried(Waits):
    """No job of such a policy is deferred, and it is not told speeds that running jobs only suggest."""

    def begin(self, view: View) -> View:
        return view


class LiveDriver(Driver):
    """Asks such a policy."""

    def __init__(self, spec: PolicySpec, seed: int, memory: Iterable[Outcome]) -> None:
        self.waits, self._spec = Unhurried(), spec
        self._policy: Any = spec.load()(stream(seed, "live", str(spec)), **dict(spec.settings))
        self.interrupts = interrupts(spec)
        for outcome in memory:
            self._policy.observe(outcome)

    def __str__(self) -> str:
        return str(self._spec)

    def learn(self, outcome: Outcome, /) -> None:
        """Show the policy how a job ended."""
        self._policy.observe(outcome)

    def propose(self, view: View, /) -> Placing:
        """Ask the policy."""
        placing: Placing = self._policy.decide(view)
        self.next_look = float(getattr(self._policy, "next_look", math.inf))
        return placing


def interrupts(spec: PolicySpec) -> bool:
    """Whether a policy may interrupt running jobs."""
    found = spec.load()
    return getattr(found, "family", None) == LIVE_FAMILY and bool(getattr(found, "interrupts", False))
