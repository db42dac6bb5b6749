"""Where a job would go if it were submitted now: a dry run that changes nothing, not even the policy."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from berth.dispatch.dispatcher import Dispatcher, proposed
from berth.dispatch.explain import Explanation, explain
from berth.dispatch.jobs import Job, Place
from berth.dispatch.state import JobRecord, State
from berth.dispatch.view import View, make_view, placed_in_order, violations
from berth.dispatch.wording import tasks_of

__all__ = ["Plan", "plan"]


@dataclass(frozen=True)
class Plan:
    """The places that a job would get now in order (`fallback`) and from the policy, none where it would wait.

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


def plan(dispatcher: Dispatcher, jobs: Sequence[Job], time: float) -> tuple[Plan, ...]:
    """Where these jobs would go, were they submitted now, one after another."""
    state = _with(dispatcher.state, jobs, time)
    view = make_view(state, time, state.reserved)
    fallback = {start.job: start.places for start in view.starts(placed_in_order(view))}
    chosen, note = _asked(dispatcher, view, fallback)
    return tuple(
        Plan(
            job.id,
            fallback.get(job.id, ()),
            dispatcher.state.policy,
            chosen.get(job.id, ()),
            note,
            None if job.id in fallback else explain(state, job.id, time),
        )
        for job in jobs
    )


def _with(state: State, jobs: Sequence[Job], time: float) -> State:
    """The state as it would be with these jobs; what is known of servers is shared."""
    made = copy.copy(state)
    made.jobs, made.fits, made.waiting = dict(state.jobs), dict(state.fits), state.waiting.copied()
    for job in jobs:
        made.check_new(job)
        made.jobs[job.id] = record = JobRecord(job, made.submissions, time, since=time)
        made.waiting.put(record)
        made.submissions += 1
    return made


def _asked(dispatcher: Dispatcher, view: View, fallback: dict[str, tuple[Place, ...]]) -> tuple[dict[str, Any], str]:
    """What a copy of the policy would start, or why it could not be asked."""
    driver = dispatcher.driver
    if driver is None:
        return fallback, ""
    try:
        spare = copy.deepcopy(driver, {id(dispatcher.memory): dispatcher.memory})
    except Exception as error:  # a policy may be anybody's code
        return {}, f"cannot be asked without being changed: {type(error).__name__}: {error}"
    try:
        placing = proposed(spare, view)
        broken = violations(view, placing)
    except Exception as error:
        return {}, f"raised {type(error).__name__}: {error}"
    if broken:
        return {}, f"infeasible: {broken[0]}"
    return {start.job: start.places for start in view.starts(placing)}, ""
