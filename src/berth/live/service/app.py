"""The REST API of a scheduler.

`create_app` makes a FastAPI application around a `Scheduler`. Roles are in `berth.live.service.tokens`; errors are
problems (`berth.live.service.problems`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from functools import partial
from itertools import islice
from pathlib import Path as Folder
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from berth.about import VERSION
from berth.files.wording import NAME, TYPE
from berth.live.core import FALLBACK, LIVE
from berth.live.core.events import write_event
from berth.live.core.reasons import out_of_reach, queue_page
from berth.live.core.records import JobRecord, Phase
from berth.live.core.specs import sbatch_lines
from berth.live.core.state import State
from berth.live.engines import EngineError, NoLogs
from berth.live.service.api_page import api_page
from berth.live.service.authenticator import Allow, Authenticator, Name, check_ceilings, known_job
from berth.live.service.bodies import OneOrMany, read_specs
from berth.live.service.history import History
from berth.live.service.insight import explaining_routes, trying_routes
from berth.live.service.metrics import Metrics
from berth.live.service.middleware import Limits, RateLimit, SameOrigin
from berth.live.service.problems import PROBLEM, Refused, answer_problems
from berth.live.service.scheduler import Conflict, Scheduler, aside, fresh_ids
from berth.live.service.settings import QueuesSpec
from berth.live.service.tokens import Caller, Visibility
from berth.live.service.views import (
    Accepted,
    DecisionView,
    HolderView,
    JobPage,
    JobView,
    LearnedView,
    LogsView,
    MinuteView,
    PolicyChange,
    PolicyView,
    QueueView,
    ServerView,
    decision_view,
    holder_views,
    job_view,
    learned_views,
    queue_view,
    server_view,
    servers_json,
)

__all__ = ["create_app"]

PAGES = Folder(__file__).parent / "dashboard"
LARGEST = 8 * 2**20
"""The most bytes of a request."""
RATE, BURST = 2000.0, 4000
"""The most requests of one client: a second, and in a burst."""
WARNINGS = 20
"""The most `#SBATCH` lines of a request that the answer warns about."""
ALIVE = 15.0
"""Seconds after which a quiet event stream sends a keep-alive comment."""

Filter = Annotated[str | None, Query(pattern=NAME)]
Type = Annotated[str | None, Query(pattern=TYPE, max_length=128)]
After = Annotated[int | None, Query(ge=0, le=2**62)]
Limit = Annotated[int, Query(ge=1, le=1000)]


def create_app(
    scheduler: Scheduler,
    authenticator: Authenticator,
    metrics: Metrics,
    history: History,
    *,
    hosts: list[str] | None = None,
    names: Collection[str] = (),
    rate: RateLimit | None = None,
) -> FastAPI:
    """Make the application around an open scheduler; the caller closes the scheduler.

    With `hosts`, requests under another host name are refused: a foreign page in a browser on this machine cannot talk
    to the service. `names` are other names of the service, such as that of a proxy.
    """
    app = FastAPI(
        title="berth",
        version=VERSION,
        summary="Places jobs that need several servers at once, learns from their runs, and explains its decisions",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    answer_problems(app)
    app.add_middleware(SameOrigin, names=names)
    app.add_middleware(Limits, largest=LARGEST, rate=rate or RateLimit(RATE, BURST))
    if hosts is not None:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    refusals: dict[int | str, dict[str, Any]] = {
        code: {"description": text, "content": {PROBLEM: {}}}
        for code, text in {
            400: "malformed request",
            401: "no or unknown token",
            403: "not allowed",
            404: "not found",
            405: "method not allowed",
            409: "conflict with an earlier request",
            413: "too large",
            415: "not JSON",
            422: "invalid",
            429: "too many requests",
            503: "temporarily unavailable",
        }.items()
    }
    v1 = APIRouter(prefix="/v1", responses=refusals)
    allow = Allow(authenticator)
    _jobs(v1, scheduler, allow)
    _cluster(v1, scheduler, allow)
    _policies(v1, scheduler, allow)
    _events(v1, scheduler, allow)
    explaining_routes(v1, scheduler, allow)
    trying_routes(v1, scheduler, allow)

    @app.get("/healthz", tags=["service"])
    async def healthy() -> dict[str, str]:
        """Whether the process is alive."""
        return {"status": "ok", "version": VERSION}

    @app.get("/metrics", tags=["service"], response_class=Response)
    async def numbers(request: Request, caller: Caller = allow.metrics) -> Response:
        """Metrics for Prometheus."""
        body, kind = metrics.render(request.headers.get("accept", ""))
        return Response(body, media_type=kind)

    @v1.get("/history", tags=["service"])
    async def steps(caller: Caller = allow.read, steps: Annotated[int, Query(ge=1, le=1440)] = 240) -> list[MinuteView]:
        """Statistics of each minute since the service began."""
        return [MinuteView(**minute) for minute in history.as_list(steps)]

    app.router.routes.extend(v1.routes)  # `include_router` would make them all again, at the first request

    @app.get("/v1/docs", include_in_schema=False, response_class=HTMLResponse)
    async def documented() -> str:
        return api_page(app.openapi())

    @app.get("/readyz", tags=["service"], responses={503: {"description": "not ready"}})
    async def ready(response: Response) -> dict[str, Any]:
        """Whether the store and the engine can be reached; `paused` says why the engine takes no starts for a while."""
        health = await scheduler.checked_health()
        response.status_code = 200 if health.ready else 503
        troubles = {"store": health.store, "engine": health.engine, "paused": health.paused}
        return {"ready": health.ready, **troubles, "sequence": health.seq}

    app.mount("/", StaticFiles(directory=PAGES, html=True), name="pages")
    app.add_middleware(Answers, trouble=lambda: scheduler.health.trouble, stored=scheduler.stored)
    return app


class Answers:
    """Headers that restrict what a browser may do with the pages, and one that reports trouble.

    An answer is made from the state, and sent once all that the state has is stored. If the store or the engine cannot
    be reached, a header of the answer says so.
    """

    SAFE = (
        (b"content-security-policy", b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    )

    def __init__(self, app: ASGIApp, trouble: Callable[[], str | None], stored: Callable[[], Awaitable[None]]) -> None:
        self._app, self._trouble, self._stored = app, trouble, stored

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                if _of_state(scope):
                    await self._stored()
                message["headers"] = [*message["headers"], *self.SAFE]
                if scope["path"].startswith("/v1/") and message["status"] < 300 and (trouble := self._trouble()):
                    plain = " ".join(trouble.split())[:300].encode("ascii", "replace")
                    message["headers"].append((b"berth-trouble", plain))
            await send(message)

        await self._app(scope, receive, with_headers)


def _of_state(scope: Scope) -> bool:
    """Whether an answer is made from the state; that to a submission is made of what was stored for it."""
    submission = scope["method"] == "POST" and scope["path"] == "/v1/jobs"
    return scope["path"].startswith(("/v1/", "/metrics")) and not submission


def _jobs(v1: APIRouter, scheduler: Scheduler, allow: Allow) -> None:
    def sight(caller: Caller) -> Visibility:
        return Visibility(caller, scheduler.settings.show_commands)

    @v1.post("/jobs", status_code=201, tags=["jobs"], response_model=Accepted)
    async def submit(
        specs: OneOrMany,
        caller: Caller = allow.submit,
        idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
    ) -> Any:
        """Submit one or several jobs: all are accepted or none. Accepted jobs are durable."""
        given = await read_specs(specs)
        ids = fresh_ids(len(given), idempotency_key, caller.user)
        named = list(zip(given, ids, strict=True))
        jobs = await aside(len(given), lambda: [spec.job(spec.name or made, caller.user) for spec, made in named])
        if idempotency_key is None or not await scheduler.was_accepted(idempotency_key, caller.user):
            for job in jobs:
                check_ceilings(scheduler, job, caller)
        try:
            records = await scheduler.submit(jobs, idempotency_key, caller.user)
        except Conflict as error:
            raise Refused(409, "conflict", str(error)) from None
        warnings = await _warnings(scheduler.dispatcher.state, records)
        seen = sight(caller)

        def accepted() -> str:
            return Accepted(jobs=[job_view(record, seen) for record in records], warnings=warnings).model_dump_json()

        return Response(await aside(len(records), accepted), 201, media_type="application/json")

    @v1.get("/jobs", tags=["jobs"])
    async def jobs(
        caller: Caller = allow.read,
        phase: Annotated[list[Phase] | None, Query()] = None,
        user: Filter = None,
        team: Filter = None,
        queue: Filter = None,
        type: Type = None,
        after: After = None,
        limit: Limit = 100,
    ) -> JobPage:
        """Jobs that match all filters, latest first."""
        page = await scheduler.list_jobs(
            phases=phase or (), user=user, team=team, queue=queue, type_=type, after=after, limit=limit
        )
        return JobPage(jobs=[job_view(record, sight(caller)) for record in page.records], after=page.after)

    @v1.get("/jobs/{job}", tags=["jobs"])
    async def job(job: Name, caller: Caller = allow.read) -> JobView:
        """A job, also after its end."""
        return job_view(await known_job(scheduler, job), sight(caller))

    @v1.get("/jobs/{job}/logs", tags=["jobs"])
    async def logs(
        job: Name,
        caller: Caller = allow.read,
        task: Annotated[int | None, Query(ge=0, le=100_000)] = None,
        tail: Annotated[int, Query(ge=1, le=100_000)] = 1000,
    ) -> LogsView:
        """The last lines that each task of a job wrote, or one task; only for its owner and operators."""
        record = await known_job(scheduler, job)
        if not caller.may_see(record.job.user):
            raise Refused(403, "not allowed", f"job {job} belongs to {record.job.user}")
        try:
            text = await scheduler.logs(record, task, tail)
        except NoLogs as error:
            raise Refused(404, "no logs", str(error)) from None
        except EngineError as error:
            raise Refused(503, "temporarily unavailable", str(error), Retry_After="5") from None
        return LogsView(job=job, attempt=record.attempt, text=text)

    @v1.delete("/jobs/{job}", tags=["jobs"])
    async def cancel(job: Name, caller: Caller = allow.submit) -> JobView:
        """Cancel a job; a job that has ended stays as it is."""
        record = await known_job(scheduler, job)
        if not caller.may_change(record.job.user):
            raise Refused(403, "not allowed", f"job {job} belongs to {record.job.user}")
        after = await scheduler.cancel(job, caller.user)
        return job_view(after or record, sight(caller))


async def _warnings(state: State, records: Sequence[JobRecord]) -> list[str]:
    """Warnings about new jobs that wait. New shapes are compared with all servers beside the event loop."""
    waiting = [record for record in records if record.phase == "waiting"]
    if any(record.job.shape not in state.fits for record in waiting):
        found = await asyncio.to_thread(out_of_reach, state.with_own_tables(), waiting)
    else:
        found = out_of_reach(state, waiting)
    return [*_sbatch_warnings(waiting), *found]


def _sbatch_warnings(records: Sequence[JobRecord]) -> list[str]:
    """Warnings about `#SBATCH` lines, which berth does not read."""
    found = (
        f"{record.job.id}: line {number} of its script, {words}, is not read: {instead}"
        for record in records
        for number, words, instead in sbatch_lines(str(record.job.payload.get("script") or ""))
    )
    return list(islice(found, WARNINGS))


def _cluster(v1: APIRouter, scheduler: Scheduler, allow: Allow) -> None:
    def known(server: str) -> str:
        if server not in scheduler.dispatcher.state.servers:
            raise Refused(404, "no such server", f"{server!r} never joined", "server")
        return server

    @v1.get("/servers", tags=["cluster"], response_model=list[ServerView])
    async def servers(caller: Caller = allow.read) -> Any:
        """All servers and their free resources."""
        records, state = scheduler.servers(), scheduler.dispatcher.state.with_own_tables()
        return Response(await aside(len(records), partial(servers_json, records, state)), media_type="application/json")

    @v1.post("/servers/{server}/drain", tags=["cluster"])
    async def drain(server: Name, caller: Caller = allow.operate) -> ServerView:
        """Start nothing new on a server; running jobs go on."""
        return server_view(await scheduler.drain(known(server), caller.user), scheduler.dispatcher.state)

    @v1.post("/servers/{server}/resume", tags=["cluster"])
    async def resume(server: Name, caller: Caller = allow.operate) -> ServerView:
        """Use a drained server again."""
        return server_view(await scheduler.resume(known(server), caller.user), scheduler.dispatcher.state)

    @v1.get("/queue", tags=["cluster"], response_model=QueueView)
    async def queue(caller: Caller = allow.read, limit: Limit = 200) -> Any:
        """Waiting jobs in queue order, and why each waits."""
        sight = Visibility(caller, scheduler.settings.show_commands)
        page = queue_page(scheduler.dispatcher.state, scheduler.clock(), limit)
        text = await asyncio.to_thread(lambda: queue_view(page, sight).model_dump_json())
        return Response(text, media_type="application/json")

    @v1.get("/holders", tags=["cluster"])
    async def holders(caller: Caller = allow.read) -> list[HolderView]:
        """What every user, team and queue with running jobs or a limit holds."""
        return holder_views(scheduler.dispatcher.state)

    @v1.get("/queues", tags=["cluster"])
    async def queues(caller: Caller = allow.read) -> QueuesSpec:
        """Queues, shares and quotas."""
        return QueuesSpec.of(scheduler.dispatcher.state.queues)

    @v1.put("/queues", tags=["cluster"])
    async def change_queues(spec: QueuesSpec, caller: Caller = allow.operate) -> QueuesSpec:
        """Replace queues, shares and quotas."""
        await scheduler.change_queues(spec.queues_(), caller.user)
        return QueuesSpec.of(scheduler.dispatcher.state.queues)


def _policies(v1: APIRouter, scheduler: Scheduler, allow: Allow) -> None:
    def current() -> PolicyView:
        dispatcher = scheduler.dispatcher
        return PolicyView(
            policy=dispatcher.state.policy,
            wrapped=dispatcher.wrapped,
            fallback=FALLBACK,
            refusals=dict(dispatcher.refusals),
            preparing=scheduler.preparing,
        )

    @v1.get("/policy", tags=["policies"])
    async def policy(caller: Caller = allow.read) -> PolicyView:
        """The current policy."""
        return current()

    @v1.put("/policy", tags=["policies"])
    async def change_policy(change: PolicyChange, caller: Caller = allow.operate) -> PolicyView:
        """Change the policy; the journal records who changed it and why."""
        await scheduler.change_policy(change.policy, caller.user, change.reason)
        return current()

    @v1.get("/policies", tags=["policies"])
    async def policies(caller: Caller = allow.read) -> list[str]:
        """All policies by name; one that cannot decide on a live cluster is refused when it is chosen."""
        from berth.registry import policy_names

        return [*LIVE, *sorted(policy_names())]

    @v1.get("/decisions", tags=["policies"])
    async def decisions(caller: Caller = allow.read, after: After = None, limit: Limit = 100) -> list[DecisionView]:
        """Decisions after a journal number, or the latest."""
        return [decision_view(number, decided) for number, decided in await scheduler.decisions(after, limit)]

    @v1.get("/learned", tags=["policies"])
    async def learned(caller: Caller = allow.read, type: Type = None) -> list[LearnedView]:
        """The expected speed of each job type that ran, on each server where it ran and on the others of each class."""
        known = scheduler.dispatcher.state.learned
        return [view for kind in known.types if type is None or kind == type for view in learned_views(known, kind)]


def _events(v1: APIRouter, scheduler: Scheduler, allow: Allow) -> None:
    @v1.get("/events", tags=["service"], response_class=StreamingResponse)
    async def events(
        request: Request,
        caller: Caller = allow.read,
        after: After = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=2**62)] = None,
    ) -> StreamingResponse:
        """Journal events from now on, or after a number, as server-sent events.

        The stream ends when the token is revoked or expires.
        """

        async def look() -> Visibility:
            nonlocal caller
            try:
                caller = await allow.caller(request, "read")
            except Refused as error:
                if error.status != 503:  # while the store cannot be reached, the token stays valid
                    raise
            return Visibility(caller, scheduler.settings.show_commands)

        begin = last_event_id if last_event_id is not None else after
        return StreamingResponse(_stream(scheduler, begin, look), media_type="text/event-stream")


async def _stream(
    scheduler: Scheduler, after: int | None, look: Callable[[], Awaitable[Visibility]]
) -> AsyncIterator[str]:
    """Events as server-sent events, with keep-alive comments; `look` says what the caller may see."""
    source = scheduler.subscribe(after)
    waiting: asyncio.Task[Any] | None = None
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(anext(source))
            done, _ = await asyncio.wait({waiting}, timeout=ALIVE)
            try:
                sight = await look()
                found = waiting.result() if done else None
            except (Refused, StopAsyncIteration):
                return
            if found is None:
                yield ": alive\n\n"
                continue
            waiting = None
            event = sight.event(found.event)
            yield f"id: {found.seq}\nevent: {event.kind}\ndata: {write_event(event)}\n\n"
    finally:
        if waiting is not None:
            waiting.cancel()
