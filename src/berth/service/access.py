"""Who may ask what: the dependencies that routes have in common."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Request

from berth.dispatch.records import JobRecord
from berth.dispatch.wording import NAME
from berth.service.doorkeeper import Doorkeeper
from berth.service.problems import Refused
from berth.service.scheduler import Scheduler
from berth.service.tokens import Caller, RoleName

__all__ = ["Allow", "Name", "known_job"]

Name = Annotated[str, Path(pattern=NAME)]


class Allow:
    """Dependencies that give the caller, where it has the role."""

    def __init__(self, keeper: Doorkeeper) -> None:
        def needs(role: RoleName) -> Any:
            async def allowed(request: Request) -> Caller:
                found = await keeper.caller(request.headers.get("authorization"))
                if not found.may(role):
                    raise Refused(403, "not allowed", f"this needs a token with the role {role}")
                return found

            return Depends(allowed)

        self.read, self.submit, self.operate = needs("read"), needs("submit"), needs("operate")


async def known_job(scheduler: Scheduler, job: str) -> JobRecord:
    """The record of a job, or a refusal that says there is none."""
    record = await scheduler.get(job)
    if record is None:
        raise Refused(404, "no such job", f"{job!r} was never submitted", "job")
    return record
