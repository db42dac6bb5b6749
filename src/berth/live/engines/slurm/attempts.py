"""The follow-up of attempts in Slurm, from their submission to their end.

A job can wait for ever for tasks that were killed together with the slurmd of their node, if that slurmd soon ran
again: Slurm does not notice. Nor does an srun start its tasks if the death of slurmctld cut it off at the wrong
moment. So when a daemon was started after an attempt, berth asks it whether the tasks are there. If the tasks of a
node had ended before, and others run, that looks like a loss.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from berth.live.core.events import Cancelled, Event, Failed, Finished, Started
from berth.live.engines import EngineError
from berth.live.engines.slurm.commands import Refused, Slurm
from berth.live.engines.slurm.companion import ORIGIN
from berth.live.engines.slurm.hooks import Hooks
from berth.live.engines.slurm.interpret import FORGOT, how_it_ended, requeued, twice, when_it_began
from berth.live.engines.slurm.outputs import Mark, Outputs
from berth.live.engines.slurm.parsing import Node, SlurmJob
from berth.live.engines.slurm.spool import AttemptRecord, Spool

__all__ = ["Attempts", "is_ending"]

SLOW = 3.0
"""Seconds after which berth logs why Slurm does not start a job."""
LAUNCHING = 10.0
"""Seconds for which tasks must be missing until they count as lost: they may be about to begin."""
OVER = re.compile("no longer pending|Invalid job id|already (finished|started|completing)")
"""Refusals to hold a job that has begun or ended, which the next poll shows."""
OF_NODES = ("None", "Priority", "Resources", "ReqNodeNotAvail", "Reserved", "Node")
"""How Slurm's reasons begin for which a job waits for its nodes; of others, such as limits and licences, any node is
as good."""
log = logging.getLogger(__name__)


class Attempts:
    """Reports in `told` what happens to attempts, and sets `wake` when Slurm should be polled soon.

    `nodes` and `boot` are the last known nodes, and when slurmctld was started.
    """

    def __init__(
        self,
        patience: float,
        slurm: Slurm,
        spool: Spool,
        outputs: Outputs,
        hooks: Hooks | None,
        told: deque[Event],
        wake: asyncio.Event,
    ) -> None:
        self.unwanted: set[int] = set()
        """Slurm job ids that are to end."""
        self.nodes: Mapping[str, Node] = {}
        self.nodes_due = False
        """Whether the next poll is to include the nodes."""
        self.boot = 0.0
        self._told, self._wake = told, wake
        self._patience, self._slurm, self._spool, self._outputs, self._hooks = patience, slurm, spool, outputs, hooks
        self._returned: list[tuple[AttemptRecord, Failed]] = []

    def one_job(self, record: AttemptRecord, parts: Sequence[SlurmJob]) -> tuple[SlurmJob, ...]:
        """The parts of one job; if Slurm has accepted an attempt twice, the later job is ended."""
        leaders = sorted({job.leader or job.id for job in parts}, key=lambda id: (id != record.slurm, id))
        self.unwanted.update(job.id for job in parts if (job.leader or job.id) in leaders[1:] and not job.ended)
        self._spool.taken(record, leaders[0])
        return tuple(sorted((j for j in parts if (j.leader or j.id) == leaders[0]), key=lambda job: job.id))

    def follow(self, record: AttemptRecord, parts: tuple[SlurmJob, ...], began: float) -> None:
        """Note the state of an attempt; Slurm was asked at `began`."""
        now, clock = time.time(), time.monotonic()
        if self._hooks is not None:
            record.hooked = self._hooks.of(record.key, [job.id for job in parts])
        if not record.since or (is_ending(parts) and not is_ending(record.parts)):
            record.since = clock
        record.parts = parts
        if all(job.ended for job in parts):
            if not record.began and all("COMPLETED" in job.states for job in parts):
                self._runs(record, now)
            end = how_it_ended(record, parts, self.nodes, now, self._outputs.mark(record))
            if isinstance(end, Failed) and end.fault == "cancelled" and not record.verdict:
                if not record.doubted:  # the current state of its nodes may explain it
                    record.doubted = self.nodes_due = True
                    self._wake.set()
                    return
                end = twice(end, parts, self.nodes, self.boot)
            if isinstance(end, Failed) and end.fault == "job" and not record.theirs:
                end = replace(end, last_output=self._outputs.last_words(record))
                late = any("TIMEOUT" in job.states for job in parts)
                if not late and self._outputs.mark(record) is None and self._outputs.has_lost_its_script(record):
                    end = replace(end, fault="engine", reason="slurmd removed its script before it began")
                else:
                    self._runs(record, now)  # so that its number and its output are reported
            self._gone(record, end)
            return
        if record.theirs:
            if parts[0].pending and record.began:
                self._stop(record, "Slurm put it back into its queue")
        elif any(requeued(job) for job in parts):
            self._stop(record, "Slurm wanted to run it again")
        elif record.began and any(job.pending for job in parts):
            self._stop(record, FORGOT, self._outputs.mark(record))
        if any(job.ended for job in parts) or (record.verdict and not record.theirs):
            self.unwanted.update(job.id for job in parts if not job.ended and not is_ending([job]))
        if all(job.running for job in parts):
            self._runs(record, now)
            record.ran = began
        elif any(job.pending for job in parts):
            record.waited = began
            reason = next(job.reason for job in parts if job.pending)
            if clock - record.since > SLOW and reason not in ("", "None", record.kept):
                record.kept = reason
                log.warning("Slurm has not started job %s yet: %s", record.key[0], reason)
            if clock - record.since > self._patience:
                by = tuple(place.server for place in record.places) if reason.startswith(OF_NODES) else ()
                self._stop(record, f"Slurm did not start it in {self._patience:g} s ({reason})", refused_by=by)

    async def look_for_tasks(self) -> None:
        """Stop attempts whose tasks were lost while Slurm says that they run."""
        for record in self._spool.open:
            ours = not record.verdict and not record.theirs
            if ours and (why := await self._parted(record)) is not None:
                self._stop(record, why, self._outputs.mark(record))

    async def _parted(self, record: AttemptRecord) -> str | None:
        """What is wrong with an attempt that should run; None if nothing is, or if it is unknown yet."""
        if not record.parts or not all(job.running for job in record.parts):
            return None
        since = [self.nodes[name].since or 0.0 for job in record.parts for name in job.nodes if name in self.nodes]
        latest = max([self.boot, *since])
        if latest <= record.complete or latest < min(job.start or 0.0 for job in record.parts):
            return None
        try:
            lost = [await self._slurm.lost_steps(job.id) for job in record.parts]
        except EngineError:
            return None
        if not any(lost) and not (record.steps and set(lost) == {None}):
            record.complete, record.parted = latest, None
        elif record.parted is None:
            record.parted = time.monotonic()
        elif time.monotonic() - record.parted > LAUNCHING:
            return "some of its tasks are gone, or never began, after a Slurm daemon was restarted"
        return None

    def _runs(self, record: AttemptRecord, now: float) -> None:
        if not record.began:
            record.began = True
            record.started = min(when_it_began(record, record.parts, now), now)
            self._told.append(Started(record.started, *record.key, self.details(record)))

    def details(self, record: AttemptRecord) -> dict[str, str]:
        """Facts about it for users; companion jobs choose their own output."""
        number = {} if record.slurm is None else {"slurm job": str(record.slurm)}
        return number if record.theirs else {**number, "output": str(self._outputs.output(record))}

    def _stop(
        self, record: AttemptRecord, reason: str, mark: Mark | None = None, refused_by: tuple[str, ...] | None = None
    ) -> None:
        """Let Slurm end it; then this reason is reported. A companion job is held again instead."""
        if record.verdict is not None:
            return
        failed = replace(_failed(record, reason, "engine"), refused_by=refused_by)
        record.since = time.monotonic()
        if record.theirs:
            record.verdict = failed
            self._returned.append((record, failed))
        else:
            self._spool.stopped(record, (mark and mark.end(record.key)) or failed)
            self.unwanted.update(job.id for job in record.parts if not job.ended)

    def missing(self, record: AttemptRecord) -> None:
        """End an attempt that Slurm accepted and no longer knows, unless one of its nodes is silent."""
        if any(self.nodes[place.server].silent for place in record.places if place.server in self.nodes):
            return
        reason = "Slurm no longer knows it: slurmctld was killed right after it took it, or it ended long ago"
        mark = self._outputs.mark(record)
        self._gone(record, (mark and mark.end(record.key)) or record.verdict or _failed(record, reason, "engine"))

    def _gone(self, record: AttemptRecord, end: Finished | Failed) -> None:
        """It has ended, and Slurm has no trace of it; a companion job cannot be retried."""
        self.end(record, end)
        if record.theirs and isinstance(end, Failed) and end.fault in ("server", "engine"):
            self._told.append(Cancelled(end.time, record.key[0], ORIGIN))

    def end(self, record: AttemptRecord, end: Finished | Failed) -> None:
        """Record and report its end."""
        self._spool.ended(record, end)
        if self._hooks is not None:
            self._hooks.forget(record.key)
        self._told.append(end)
        self._wake.set()

    async def hold_again(self) -> None:
        """Hold companion jobs that did not start, or are to start again."""
        while self._returned:
            record, end = self._returned[-1]
            assert record.slurm is not None
            try:
                await self._slurm.hold(record.slurm)
                # a job that ran would have to wait for two minutes more
                changes = {"ReqNodeList": "", **({"StartTime": "now"} if record.began else {})}
                await self._slurm.update(record.slurm, changes)
                self.end(record, end)
            except Refused as error:
                if not OVER.search(str(error)):
                    log.warning("job %s cannot be held again yet: %s", record.key[0], error)
                    return
            self._returned.pop()


def _failed(record: AttemptRecord, reason: str, fault: Literal["job", "server", "engine", "cancelled"]) -> Failed:
    return Failed(time.time(), *record.key, reason, fault)


def is_ending(parts: Sequence[SlurmJob]) -> bool:
    """Whether Slurm is ending one of these."""
    return any("COMPLETING" in job.states for job in parts)
