"""Answers of the API: records as JSON, quantities with units, times as ISO 8601."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from berth.files.quantities import format_amounts
from berth.files.wording import Spec
from berth.live.core.events import Decided
from berth.live.core.jobs import Place
from berth.live.core.limits import limits_of
from berth.live.core.reasons import QueuePage
from berth.live.core.records import HOLDING, JobRecord, ServerRecord
from berth.live.core.speeds import Learned
from berth.live.core.state import State
from berth.live.service.tokens import Visibility

__all__ = [
    "Accepted",
    "DecisionView",
    "HolderView",
    "JobPage",
    "JobView",
    "LearnedView",
    "LogsView",
    "MinuteView",
    "PolicyChange",
    "PolicyView",
    "QueueView",
    "QueuedView",
    "ServerView",
    "decision_view",
    "holder_views",
    "iso",
    "job_view",
    "learned_views",
    "queue_view",
    "server_view",
    "servers_json",
]

Quantities = dict[str, str]


def iso(time: float | None) -> str | None:
    """A time in ISO 8601.

    >>> iso(0.5)
    '1970-01-01T00:00:00.500Z'
    """
    if time is None:
        return None
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class PlaceView(_View):
    """Tasks of a role on a server."""

    server: str
    role: str
    tasks: int


class RoleView(_View):
    """Equal tasks."""

    count: int
    minimum: int
    resources: Quantities


class JobView(_View):
    """A job and its phase.

    `payload` is what the job runs. Values that the caller may not see are null, and `last_output` is then empty.
    """

    id: str
    type: str
    phase: Literal["waiting", "starting", "running", "ending", "finished", "failed", "cancelled"]
    user: str
    team: str
    queue: str
    priority: int
    roles: dict[str, RoleView]
    needs: dict[str, str]
    work: float | None
    estimate: float | None
    limit: float | None
    value: float
    decay: float
    deadline: float | None
    retries: int
    attempt: int
    failures: int
    interruptions: int
    done: float
    places: list[PlaceView]
    submitted: str | None
    started: str | None
    ended: str | None
    reason: str
    last_output: str
    details: dict[str, str]
    payload: dict[str, Any]


def places_view(places: tuple[Place, ...]) -> list[PlaceView]:
    """Places, as JSON."""
    return [PlaceView(server=place.server, role=place.role, tasks=place.count) for place in places]


def job_view(record: JobRecord, sight: Visibility) -> JobView:
    """A job, as JSON, without what the caller may not see."""
    record = sight.record(record)
    job = record.job
    return JobView(
        id=job.id,
        type=job.type,
        phase=record.phase,
        user=job.user,
        team=job.team,
        queue=job.queue,
        priority=job.priority,
        roles={
            role.name: RoleView(count=role.count, minimum=role.minimum, resources=format_amounts(role.requests))
            for role in job.roles
        },
        needs=dict(job.needs),
        work=job.work,
        estimate=job.estimate,
        limit=job.limit,
        value=job.value,
        decay=job.decay,
        deadline=job.deadline,
        retries=job.retries,
        attempt=record.attempt,
        failures=record.failures,
        interruptions=record.interruptions,
        done=record.done,
        places=places_view(record.places),
        submitted=iso(record.submitted - record.submitted_moved),
        started=None if record.started is None else iso(record.started - record.started_moved),
        ended=iso(record.ended),
        reason=record.reason,
        last_output=record.last_output,
        details=dict(record.details),
        payload=dict(job.payload),
    )


class LogsView(_View):
    """What the last attempt of a job wrote; if several tasks did, each line begins with a task's role and rank."""

    job: str
    attempt: int
    text: str


class Accepted(_View):
    """Accepted jobs, in the order given; `warnings` name those that cannot start on the cluster as it is."""

    jobs: list[JobView]
    warnings: list[str] = Field(default_factory=list)


class JobPage(_View):
    """Jobs, latest first; `after` asks for the next page."""

    jobs: list[JobView]
    after: int | None


class QueuedView(_View):
    """A waiting job: its position in the queue, how many seconds it has waited, and why."""

    position: int
    waits: float
    why: str
    job: JobView


class QueueView(_View):
    """The number of waiting jobs, and the first of them in queue order."""

    waiting: int
    jobs: list[QueuedView]


def queue_view(page: QueuePage, sight: Visibility) -> QueueView:
    """The queue, as JSON."""
    return QueueView(
        waiting=page.waiting,
        jobs=[
            QueuedView(
                position=i,
                waits=max(page.time - one.record.submitted, 0.0),
                why=one.why,
                job=job_view(one.record, sight),
            )
            for i, one in enumerate(page.reasons(), 1)
        ],
    )


class HolderView(_View):
    """What the jobs of a user, a team or a queue hold now, and their limits."""

    kind: Literal["user", "team", "queue"]
    name: str
    jobs: int
    held: Quantities
    limit: Quantities


def holder_views(state: State) -> list[HolderView]:
    """What each user, team and queue holds, as JSON."""
    limits = limits_of(state)
    jobs = Counter(owner for r in state.jobs.values() if r.phase in HOLDING for owner in state.owners(r.job))
    return [
        HolderView.model_validate(
            {
                "kind": owner.partition(":")[0],
                "name": owner.partition(":")[2],
                "jobs": jobs[owner],
                "held": format_amounts(state.held.get(owner, {})),
                "limit": format_amounts(limits.get(owner, {})),
            }
        )
        for owner in sorted({*jobs, *state.held, *limits})
    ]


class ServerView(_View):
    """A server, its free resources, and what foreign jobs have taken."""

    name: str
    state: Literal["up", "closed", "drained", "lost"]
    closed: str | None
    labels: dict[str, str]
    speed: float
    capacity: Quantities
    free: Quantities
    taken: Quantities
    kept_for: str | None
    until: str | None
    until_reason: str | None


def server_view(record: ServerRecord, state: State) -> ServerView:
    """A server, as JSON."""
    row = record.index
    columns = {name: k for name, k in state.resources.items() if state.capacity[row, k] > 0}
    left = {name: max(int(state.capacity[row, k] - state.used[row, k]), 0) for name, k in columns.items()}
    return ServerView(
        name=record.server.name,
        state=record.standing,
        closed=record.server.closed or None,
        labels=dict(record.server.labels),
        speed=record.server.speed,
        capacity=format_amounts({name: int(state.capacity[row, k]) for name, k in columns.items()}),
        free=format_amounts(left),
        taken=format_amounts({name: milli for name, milli in record.server.taken.items() if milli}),
        kept_for=state.reserved.get(record.server.name),
        until=iso(record.server.until),
        until_reason=record.server.until_reason or None,
    )


def servers_json(records: Sequence[ServerRecord], state: State) -> bytes:
    """Servers, as the text of JSON."""
    parts = (server_view(record, state).model_dump_json().encode() for record in records)
    return b"[" + b",".join(parts) + b"]"


class StartView(_View):
    """A job that was started."""

    job: str
    attempt: int
    places: list[PlaceView]


class DecisionView(_View):
    """A decision: who decided, what, and why the policy's own decision was refused, if it was."""

    number: int
    time: str | None
    by: str
    waiting: int
    seconds: float
    refused: str | None
    kept: dict[str, str]
    starts: list[StartView]
    interrupts: list[str]


def decision_view(number: int, decided: Decided) -> DecisionView:
    """A decision, as JSON."""
    return DecisionView(
        number=number,
        time=iso(decided.time),
        by=decided.by,
        waiting=decided.waiting,
        seconds=decided.seconds,
        refused=decided.refused,
        kept=dict(decided.reserved),
        starts=[StartView(job=s.job, attempt=s.attempt, places=places_view(s.places)) for s in decided.starts],
        interrupts=[one.job for one in decided.interrupts],
    )


class LearnedView(_View):
    """The expected speed of a job type on a server of a class, with a 95 % interval from `low` to `high`.

    Servers of a class on which the type never ran share a row: `server` is the first of them, `servers` their number.
    `runs` counts the type's runs there; of them `cut` were cut off, and count because they were slow already. The
    estimate pools all runs; `level` is the nearest level with enough runs. `deviation` is the spread of the logarithm
    of one run's speed.
    """

    type: str
    server: str
    servers: int
    group: str
    runs: int
    cut: int
    speed: float
    low: float
    high: float
    level: str
    deviation: float


def learned_views(learned: Learned, type_: str) -> list[LearnedView]:
    """What is learned of a type on each server where it ran, and of each class on the others."""
    seen = learned.seen(type_)
    others: dict[str, list[str]] = {}
    for server in learned.servers:
        if server not in seen:
            others.setdefault(learned.class_of(server), []).append(server)
    lines = [*((server, 1) for server in seen), *((names[0], len(names)) for names in others.values())]
    return [_learned_view(learned, type_, server, many) for server, many in lines]


def _learned_view(learned: Learned, type_: str, server: str, many: int) -> LearnedView:
    known = learned.speed(type_, server)
    return LearnedView(
        type=type_,
        server=server,
        servers=many,
        group=learned.class_of(server),
        runs=known.runs,
        cut=known.cut,
        speed=known.mean,
        low=known.low,
        high=known.high,
        level=known.level,
        deviation=known.deviation,
    )


class MinuteView(_View):
    """One step of the history; `waits` is a sum of seconds, `used` the mean share of each resource over the step."""

    time: float
    submitted: int
    started: int
    finished: int
    failed: int
    waits: float
    decisions: int
    refused: int
    slowest: float
    waiting: int
    used: dict[str, float]
    seen: float


class PolicyView(_View):
    """The current policy, its fallback, the refused decisions, and the policy that is being warmed up.

    `wrapped` names the policy in its wrappers: `Leveled(Deferring(Gathering(best-fit)))`.
    """

    policy: str
    wrapped: str
    fallback: str
    refusals: dict[str, int]
    preparing: str | None = None


class PolicyChange(Spec):
    """A new policy, and why."""

    policy: Annotated[str, Field(min_length=1, max_length=500)]
    reason: Annotated[str, Field(max_length=1000)] = ""
