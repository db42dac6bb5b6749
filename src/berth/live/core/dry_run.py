"""Where a job would go if it were submitted now: a dry run that changes nothing, not even the policy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from berth.errors import InfeasibleDecision
from berth.files.wording import tasks_of
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.drivers import Driver, proposed
from berth.live.core.events import Submitted
from berth.live.core.explain import Explanation, explain
from berth.live.core.jobs import Job, Place
from berth.live.core.limits import Headroom
from berth.live.core.order import view_within_limits
from berth.live.core.state import State
from berth.live.core.view import Placing, View, placed_in_order, violations
from berth.live.core.windows import Windows

__all__ = ["DryRun", "Spare", "plan", "spare_of"]


@dataclass(frozen=True)
class DryRun:
    """The places that a job would get now from the fallback and from the policy; empty if it would wait.

    `note` says why the policy could not be asked. `waits` is what it would wait for.
    """

    job: str
    fallback: tuple[Place, ...]
    policy: str
    chosen: tuple[Place, ...]
    note: str = ""
    waits: Explanation | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"job {self.job}", f"  in order: {_where(self.fallback)}"]
        lines.append(f"  {self.policy}: {self.note or _where(self.chosen)}")
        return "\n".join([*lines, *([str(self.waits)] if self.waits is not None else [])])


def _where(places: Sequence[Place]) -> str:
    return ", ".join(f"{tasks_of(place.count, place.role)} on {place.server}" for place in places) or "it would wait"


@dataclass(frozen=True)
class Spare:
    """Copies of a state and a policy for a dry run; `note` says why the policy could not be copied."""

    state: State
    policy: str
    driver: Driver | None
    note: str = ""


def spare_of(dispatcher: Dispatcher) -> Spare:
    """Copy a dispatcher's state and policy. Copy while the dispatcher is idle; the dry run may then take its time."""
    state, driver, note = dispatcher.state.copied(), dispatcher.driver, ""
    if driver is not None:
        try:
            driver = copy.deepcopy(driver, {id(dispatcher.memory): tuple(dispatcher.memory)})
        except Exception as error:  # a policy may be third-party code
            driver, note = None, f"cannot be asked without being changed: {type(error).__name__}: {error}"
    return Spare(state, dispatcher.state.policy, driver, note)


def plan(spare: Spare, jobs: Sequence[Job], time: float) -> tuple[DryRun, ...]:
    """Where these jobs would go if they were submitted now, one after another. The copies are used up."""
    state = spare.state
    for job in jobs:
        state.handle(Submitted(time, job))
    view = Windows(state, time).allowed(view_within_limits(state, time))
    kept = set(state.reserved.values())  # such jobs start as soon as they fit
    view = view.only([i for i, record in enumerate(view.records) if record.job.id not in kept]) if kept else view
    fallback = _within_limits(view, placed_in_order)
    chosen, note = fallback, spare.note
    if spare.driver is not None:
        driver = spare.driver
        try:
            chosen = _within_limits(view, lambda view: _asked(driver, view))
        except Exception as error:  # a policy may be third-party code
            raised = "" if isinstance(error, InfeasibleDecision) else f"raised {type(error).__name__}: "
            chosen, note = {}, f"{raised}{error}"
    return tuple(
        DryRun(
            job.id,
            fallback.get(job.id, ()),
            spare.policy,
            () if note else chosen.get(job.id, ()),
            note,
            None if job.id in fallback else explain(state, job.id, time),
        )
        for job in jobs
    )


def _within_limits(view: View, place: Callable[[View], Placing]) -> dict[str, tuple[Place, ...]]:
    """Which jobs start where."""
    placing = Headroom(view.state).keep_within(view, place(view))
    return {start.job: start.places for start in view.starts(placing)}


def _asked(driver: Driver, view: View) -> Placing:
    """What a policy would start."""
    placing = proposed(driver, view)
    if broken := violations(view, placing):
        raise InfeasibleDecision(f"infeasible: {broken[0]}")
    return placing
