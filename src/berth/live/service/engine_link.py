"""The engine's end of the scheduler: agrees with the engine, hears what it tells, and has commands executed."""

from __future__ import annotations

import asyncio
import logging

from berth.errors import BerthError, InvalidInput
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Cancel, Command, Start, Submitted
from berth.live.core.jobs import Job
from berth.live.core.records import ENDED
from berth.live.engines import Engine, EngineError, Refusing, Snapshot
from berth.live.service.commander import Commander
from berth.live.service.journal_loop import FIRST_WAIT, LONGEST_WAIT, Closed, Pump
from berth.live.service.reconcile import differences, is_news, orphans, outstanding
from berth.live.service.rounds import Conflict, Round, Submission

__all__ = ["Contact"]

log = logging.getLogger(__name__)


class Contact:
    """Runs until `close`; when the engine cannot be reached, it tries again and again."""

    def __init__(self, engine: Engine, dispatcher: Dispatcher, pump: Pump) -> None:
        self.trouble: str | None = "not asked yet"
        """What is wrong with the engine."""
        self.tried = asyncio.Event()
        """Set when the engine was asked for the first time, whatever it said."""
        self.refusal: InvalidInput | None = None
        """Why the settings of the engine cannot be right, where that was its first answer."""
        self._engine, self._dispatcher, self._pump = engine, dispatcher, pump
        self._commander = Commander(engine, self._look)
        pump.act = self._commander.want
        self._listening = asyncio.create_task(self._listen())

    def _look(self, command: Command) -> tuple[bool, Job | None]:
        """Whether a command is still wanted, and its job."""
        record = self._dispatcher.state.jobs.get(command.job)
        if record is None:
            return not isinstance(command, Start), None
        out = record.phase == "starting" and record.attempt == command.attempt
        return out or not isinstance(command, Start), record.job

    def check(self, job: Job) -> None:
        """Refuse a job that the engine could never run."""
        if not isinstance(self._engine, Refusing):
            return
        reason = self._engine.refusal(self._dispatcher.state.queues.limited(job))
        if reason is not None:
            raise BerthError(f"job {job.id}: {reason}")

    async def _listen(self) -> None:
        wait = FIRST_WAIT
        while True:
            try:
                await self._agree()
                wait = FIRST_WAIT
                async for event in self._engine.events():
                    if isinstance(event, Submitted):
                        await self._adopt(event.job)
                    else:
                        self._pump.tell(event)
                raise EngineError("the engine tells nothing more")
            except Closed:
                return
            except Exception as error:  # an engine may fail in any way, and the scheduler must go on
                self._pump.deciding = False
                self.trouble = str(error)
                self.tried.set()
                if self.refusal is not None:  # asking again would not help: the start is refused
                    return
                log.warning("engine: %s; again in %.2g s", error, wait)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    async def _agree(self) -> None:
        """Compare paper and engine while nothing is under way between them."""
        await self._commander.pause()
        try:
            snapshot = await self._engine.snapshot()
        except InvalidInput as error:
            self.refusal = None if self.tried.is_set() else error
            raise
        await self._pump.ask(lambda round_: self._compare(round_, snapshot), patient=True)
        await asyncio.gather(*(self._adopt(job) for job in snapshot.waiting))
        self._commander.go_on()
        self.trouble, self._pump.deciding = None, True
        self._pump.wake()
        self.tried.set()

    async def _adopt(self, job: Job) -> None:
        """Take a job that somebody gave to the engine; what was cancelled on paper, not there, is to end there."""
        try:
            submission = Submission.of([self._dispatcher.state.queues.capped(job)], "", None)
            await self._pump.ask(lambda round_: round_.submit(submission), submission=submission, patient=True)
        except Conflict:
            known = await self._pump.ask(lambda round_: round_.record(job.id), job=job.id, patient=True)
            if known is None or known.phase not in ENDED:
                return
            if known.phase == "cancelled" and known.reason != f"cancelled by {job.origin}":
                self._commander.want([Cancel(job.id, 0)])
            else:
                log.warning("job %s waits at the engine again, has %s here, and is not taken", job.id, known.phase)
        except InvalidInput as error:
            log.warning("job %s waits at the engine and is not taken: %s", job.id, error)

    def _compare(self, round_: Round, snapshot: Snapshot) -> None:
        state = self._dispatcher.state
        for event in differences(state, snapshot, round_.now):
            if is_news(state, event):
                round_.note(event)
        round_.commands.extend([*orphans(state, snapshot), *outstanding(state)])

    async def close(self) -> None:
        """Hear no more, do no more, and let go of the engine."""
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await self._commander.close()
        await self._engine.close()
