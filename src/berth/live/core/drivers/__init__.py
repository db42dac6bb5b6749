"""Drivers: adapters through which policies of each family decide for a live cluster.

A driver builds a problem from the servers and jobs, shows the policy its slots, turns its decisions into places for
jobs, and reports the results to it. When servers or job types appear that the problem does not have, the driver builds
problem and policy anew, and shows the policy the remembered runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from berth.errors import InvalidInput, UnknownName
from berth.families import FAMILIES
from berth.live.core import COMPLETION, LIVE
from berth.live.core.drivers.base import Driver, proposed
from berth.live.core.drivers.completion import CompletionDriver
from berth.live.core.drivers.deferral import Waits
from berth.live.core.drivers.live import LIVE_FAMILY, LiveDriver, interrupts
from berth.live.core.drivers.promises import rule_driver
from berth.live.core.drivers.wrappers import Deferring, Gathering, Leveled
from berth.live.core.records import Outcome
from berth.live.core.reservations import IN_ORDER, in_order
from berth.registry import PolicySpec

__all__ = ["Driver", "driver_of", "in_order", "interrupting", "make_driver", "proposed"]


def driver_of(spec: PolicySpec) -> Any:
    """The driver class of a policy; None if its family is unknown."""
    family = FAMILIES.get(str(getattr(spec.load(), "family", None)))
    return None if family is None else family.driver


def interrupting(policy: str) -> bool:
    """Whether a policy, given as a user writes it, may interrupt running jobs.

    >>> interrupting("completion"), interrupting("best-fit")
    (False, False)
    """
    return policy not in LIVE and interrupts(_parsed(policy))


def _parsed(policy: str) -> PolicySpec:
    """A policy of the registry; the error for an unknown one also knows those that only the live scheduler has."""
    try:
        return PolicySpec.parse(policy)
    except UnknownName as error:
        raise (
            UnknownName(error.what, error.name, [*LIVE, *error.known]) if error.what == "policy" else error
        ) from None


def make_driver(
    policy: str,
    seed: int,
    memory: Iterable[Outcome],
    *,
    bare: bool = False,
    waits: Waits | None = None,
    mixes: bool = True,
) -> Driver:
    """The driver of a policy, given as a user writes it, in its wrappers.

    A `bare` policy decides as in the lab: gangs are not gathered on few servers, and no job is deferred. `mixes` is for
    `completion`.

    >>> print(make_driver("best-fit", 0, []))
    Leveled(Deferring(Gathering(best-fit)))
    """
    waits = waits or Waits()
    if policy == COMPLETION:
        return Leveled(CompletionDriver(waits, mixes=mixes), IN_ORDER)
    spec = _parsed(policy)
    if getattr(spec.load(), "family", None) == LIVE_FAMILY:
        return LiveDriver(spec, seed, memory)
    driver = driver_of(spec)
    if driver is None:
        *names, last = reversed(FAMILIES)
        raise InvalidInput(f"a policy of the {', '.join(names)} or {last} family", value=policy, key="policy")
    made: Driver = rule_driver(spec, waits) or driver(spec, seed, memory, waits)
    if bare:
        return Leveled(made)
    # policies that draw servers at random or spread tasks on purpose keep their places
    return Leveled(Deferring(made if getattr(spec.load(), "scatters", False) else Gathering(made)))
