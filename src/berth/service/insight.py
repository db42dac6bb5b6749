"""The part of the API that says why: explanations, dry runs, shadows, and what would have been."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from berth.dispatch.explain import explain
from berth.dispatch.plan import plan
from berth.dispatch.specs import JobSpec
from berth.service.access import Allow, Name, known_job
from berth.service.scheduler import Scheduler
from berth.service.tokens import Caller
from berth.service.views import PlaceView, places_view

__all__ = ["explaining_routes"]


class ExplanationView(BaseModel):
    """Why a job is as it is; `text` is the whole for people, `why` its parts."""

    model_config = ConfigDict(frozen=True)

    job: str
    phase: str
    text: str
    why: dict[str, Any]


class PlanView(BaseModel):
    """Where a job would go if it were submitted now; `text` is the whole for people."""

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
        """Why a job waits: all that is in its way, the smallest change that would help, and when it may start."""
        record = await known_job(scheduler, job)
        state = scheduler.dispatcher.state
        if job not in state.jobs:
            said = f"job {job} is {record.phase}" + (f": {record.reason}" if record.reason else "")
            return ExplanationView(job=job, phase=record.phase, text=said, why={})
        found = explain(state, job, scheduler.clock())
        return ExplanationView(job=job, phase=found.phase, text=str(found), why=found.as_dict())

    @v1.post("/plan", tags=["jobs"])
    async def dry_run(spec: JobSpec, caller: Caller = allow.read) -> PlanView:
        """Where would this job go now, and what would it wait for? Nothing is submitted."""
        job = spec.job(spec.name or "planned", caller.user)
        scheduler.dispatcher.state.check_queue(job)
        if job.id in scheduler.dispatcher.state.jobs:
            job = job.replace(id=f"{job.id[:100]}.planned")
        found = plan(scheduler.dispatcher, [job], scheduler.clock())[0]
        places = found.chosen or (found.fallback if found.note else ())
        return PlanView(
            starts=bool(places),
            places=places_view(tuple(places)),
            by=found.policy,
            text=str(found),
            waits=None if found.waits is None else found.waits.as_dict(),
        )
