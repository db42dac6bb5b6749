"""Routes of the API for explanations, dry runs, shadow policies and what-if replays."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from berth.errors import InvalidInput
from berth.files.wording import Spec
from berth.live.core.dispatcher import FALLBACK
from berth.live.core.dry_run import Spare, plan, spare_of
from berth.live.core.explain import explain
from berth.live.core.jobs import Job
from berth.live.core.specs import JobSpec
from berth.live.service.authenticator import Allow, Name, check_ceilings, known_job
from berth.live.service.problems import Refused
from berth.live.service.scheduler import Scheduler
from berth.live.service.store import Store
from berth.live.service.tokens import Caller, Visibility
from berth.live.service.views import PlaceView, places_view
from berth.live.whatif import what_if

__all__ = ["explaining_routes", "trying_routes"]

PATIENCE = 600.0
"""Seconds that a replay may take."""
MOST = 1_000_000
"""The most events of a replay."""


class ExplanationView(BaseModel):
    """Why a job is in its phase; `text` is the explanation for users, `why` its parts."""

    model_config = ConfigDict(frozen=True)

    job: str
    phase: str
    text: str
    why: dict[str, Any]


class PlanView(BaseModel):
    """Where a job would go if it were submitted now; `text` is the answer for users."""

    model_config = ConfigDict(frozen=True)

    starts: bool
    places: list[PlaceView]
    by: str
    text: str
    waits: dict[str, Any] | None


def explaining_routes(v1: APIRouter, scheduler: Scheduler, allow: Allow) -> None:
    """Explanations and dry runs."""

    @v1.get("/jobs/{job}/explain", tags=["jobs"])
    async def why(job: Name, caller: Caller = allow.read) -> ExplanationView:
        """Why a job waits: what holds it back, the smallest changes that would help, and when it may start."""
        record = await known_job(scheduler, job)
        if job in scheduler.dispatcher.state.jobs:
            found = await scheduler.think(
                lambda dispatcher: dispatcher.state.copied() if job in dispatcher.state.jobs else None,
                lambda state, now: None if state is None else explain(state, job, now),
            )
            if found is not None:
                if found.phase in ("waiting", "starting") and (paused := scheduler.health.paused) is not None:
                    found = replace(found, blocks=(*found.blocks, paused))
                return ExplanationView(job=job, phase=found.phase, text=str(found), why=found.as_dict())
            record = await known_job(scheduler, job)  # it ended in between
        shown = Visibility(caller).record(record)
        said = ": ".join(part for part in (f"job {job} is {record.phase}", shown.reason, shown.last_output) if part)
        return ExplanationView(job=job, phase=record.phase, text=said, why={})

    @v1.post("/plan", tags=["jobs"])
    async def dry_run(spec: JobSpec, caller: Caller = allow.read) -> PlanView:
        """Where a job would go now, and what it would wait for. Nothing is submitted."""
        job = spec.job(spec.name or "planned", caller.user)
        check_ceilings(scheduler, job, caller)
        scheduler.dispatcher.state.check_queue(job)
        job = scheduler.sized(job)
        found = await scheduler.think(spare_of, lambda spare, now: plan(spare, [_unused(job, spare)], now)[0])
        places = found.chosen or (found.fallback if found.note else ())
        return PlanView(
            starts=bool(places),
            places=places_view(tuple(places)),
            by=found.policy,
            text=str(found),
            waits=None if found.waits is None else found.waits.as_dict(),
        )


def _unused(job: Job, spare: Spare) -> Job:
    """The job under an unused name."""
    return job.replace(id=f"{job.id[:100]}.planned") if job.id in spare.state.jobs else job


class Candidate(Spec):
    """A policy to try."""

    policy: Annotated[str, Field(min_length=1, max_length=500)]


class Question(Candidate):
    """Replay the last hours with another policy."""

    hours: Annotated[float, Field(gt=0, le=24 * 366, allow_inf_nan=False)] = 24.0


class Against(BaseModel):
    """What a policy would have gained or lost against the current policy; `text` is the answer for users."""

    model_config = ConfigDict(frozen=True)

    policy: str | None
    text: str
    report: dict[str, Any]


class ShadowView(Against):
    """What the shadow policy would have gained, if there is one; and the fallback, if it is not the policy."""

    fallback: Against | None = None


class Answer(BaseModel):
    """The result of a replay; `text` is the answer for users."""

    model_config = ConfigDict(frozen=True)

    text: str
    report: dict[str, Any]


def trying_routes(v1: APIRouter, scheduler: Scheduler, allow: Allow) -> None:
    """Routes that try policies: as shadow policy, and in a replay of the journal."""
    busy = asyncio.Lock()

    def seen() -> ShadowView:
        base = scheduler.baseline.report()
        beside = None if base is None else Against(policy=base.policy, text=str(base), report=base.as_dict())
        if scheduler.shadow is None:
            return ShadowView(policy=None, text="no shadow policy is set", report={}, fallback=beside)
        found = scheduler.shadow.report()
        return ShadowView(policy=found.policy, text=str(found), report=found.as_dict(), fallback=beside)

    @v1.get("/shadow", tags=["policies"])
    async def shadow(caller: Caller = allow.read) -> ShadowView:
        """What the shadow policy would have gained or lost so far."""
        return seen()

    @v1.put("/shadow", tags=["policies"])
    async def try_shadow(candidate: Candidate, caller: Caller = allow.operate) -> ShadowView:
        """Set a shadow policy: it sees everything and decides nothing."""
        await scheduler.change_shadow(candidate.policy, caller.user)
        return seen()

    @v1.delete("/shadow", tags=["policies"])
    async def end_shadow(caller: Caller = allow.operate) -> ShadowView:
        """Remove the shadow policy."""
        last = seen()
        if scheduler.shadow is not None:
            await scheduler.change_shadow(None, caller.user)
        return last

    @v1.post("/what-if", tags=["policies"])
    async def would_have(question: Question, caller: Caller = allow.operate) -> Answer:
        """Replay the last hours of the journal, with the actual policy and with another."""
        await asyncio.to_thread(scheduler.dispatcher.warm, question.policy)  # raises if it is no policy
        if busy.locked():
            raise Refused(429, "busy", "another replay is running", Retry_After="30")
        async with busy:
            since = scheduler.clock() - 3600.0 * question.hours
            work = scheduler.settings.store, question.policy, since, scheduler.settings.seed
            pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
            try:
                running = asyncio.get_running_loop().run_in_executor(pool, play_again, *work)
                text, report = await asyncio.wait_for(running, PATIENCE)
            except (TimeoutError, BrokenProcessPool):
                raise Refused(503, "too long", f"the replay took longer than {PATIENCE:g} s") from None
            finally:
                for process in list((pool._processes or {}).values()):
                    process.kill()
                pool.shutdown(wait=False, cancel_futures=True)
        return Answer(text=text, report=report)


def play_again(where: str, policy: str, since: float, seed: int) -> tuple[str, dict[str, Any]]:
    """Replay the journal of a store; in a process of its own, since it may take minutes.

    The replay begins with the newest snapshot before `since`, or else with the journal.
    """
    store = Store(where)
    try:
        seq, begin = store.begin_of(since)
        events = [event for _, event in store.events(seq, limit=MOST + 1)]
    finally:
        store.close()
    if len(events) > MOST:
        raise InvalidInput(f"hours with at most {MOST:,} events", found=f"more, after event {seq:,}", key="hours")
    if begin is None:
        since = since if events and since > events[0].time else -math.inf
    found = what_if(events, policy, actual=FALLBACK, since=since, seed=seed, begin=begin)
    return str(found), found.as_dict()
