"""Who may ask what: the dependencies that routes have in common."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Request

from berth.files.wording import NAME
from berth.live.core.jobs import Job
from berth.live.core.records import JobRecord
from berth.live.service.authenticator import Doorkeeper
from berth.live.service.problems import Refused
from berth.live.service.scheduler import Scheduler
from berth.live.service.tokens import Caller, RoleName

__all__ = ["Allow", "Name", "check_ceilings", "known_job"]

Name = Annotated[str, Path(pattern=NAME)]


class Allow:
    """Dependencies that give the caller, where it has the role."""

    def __init__(self, keeper: Doorkeeper) -> None:
        self._keeper = keeper
        self.metrics, self.read = self._needs("metrics"), self._needs("read")
        self.submit, self.operate = self._needs("submit"), self._needs("operate")

    async def caller(self, request: Request, role: RoleName) -> Caller:
        """The caller of a request; `Refused` where it does not have this role, or its token is no longer valid."""
        found = await self._keeper.caller(request.headers.get("authorization"))
        if not found.may(role):
            raise Refused(403, "not allowed", f"this needs a token with the role {role}")
        return found

    def _needs(self, role: RoleName) -> Any:
        async def allowed(request: Request) -> Caller:
            return await self.caller(request, role)

        return Depends(allowed)


async def known_job(scheduler: Scheduler, job: str) -> JobRecord:
    """The record of a job, or a refusal that says there is none."""
    record = await scheduler.get(job)
    if record is None:
        raise Refused(404, "no such job", f"{job!r} was never submitted", "job")
    return record


def check_ceilings(scheduler: Scheduler, job: Job, caller: Caller) -> None:
    """Refuse a job that is above a ceiling for its user; operators have none."""
    if not caller.may("operate") and (found := scheduler.dispatcher.state.queues.refusal(job)) is not None:
        field, said = found
        raise Refused(403, "not allowed", said, field)
