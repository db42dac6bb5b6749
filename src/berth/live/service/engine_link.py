"""The link to the engine: reconciles the journal with it, listens to its events, and executes commands.

A command is retried until it succeeds or is obsolete. For each attempt only the latest command matters: a cancellation
replaces the start before it, which may or may not have arrived. Commands of one attempt never run in parallel; those
of different attempts do not wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import suppress

from berth.errors import BerthError, InvalidInput
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Cancel, Cancelled, Command, Start, Submitted
from berth.live.core.jobs import Job
from berth.live.core.records import ENDED, JobRecord
from berth.live.engines import (
    Engine,
    EngineError,
    Interrupting,
    Logging,
    NoLogs,
    Noting,
    Paused,
    Pausing,
    Recalling,
    Refusing,
    Remembering,
    Sizing,
    Snapshot,
)
from berth.live.service.journal_loop import FIRST_WAIT, LONGEST_WAIT, Closed, JournalLoop
from berth.live.service.reconcile import differences, is_news, orphans, outstanding
from berth.live.service.rounds import Conflict, Round, Submission
from berth.random import stream

__all__ = ["Commander", "EngineLink"]

log = logging.getLogger(__name__)
PARALLEL = 16
"""The most commands that run in parallel."""
FIRST_RETRY, LONGEST_RETRY = 0.05, 10.0
"""Seconds until a failed command is retried, at first and at most; they double in between, and up to half is cut off
at random."""
Key = tuple[str, int]


class EngineLink:
    """Runs until `close`; retries while the engine cannot be reached."""

    def __init__(self, engine: Engine, dispatcher: Dispatcher, journal: JournalLoop) -> None:
        self.trouble: str | None = "not asked yet"
        """The engine's latest error."""
        self.tried = asyncio.Event()
        """Set after the first contact with the engine, successful or not."""
        self.refusal: InvalidInput | None = None
        """Why the engine's settings are invalid, if that was its first answer."""
        self._engine, self._dispatcher, self._journal = engine, dispatcher, journal
        self._refusing = engine if isinstance(engine, Refusing) else None
        self._sizing = engine if isinstance(engine, Sizing) else None
        self._commander = Commander(engine, self._look)
        self._ignored: dict[str, tuple[Job, str]] = {}
        """Jobs that wait at the engine and that no queue takes, and why."""
        self._offering: set[asyncio.Task[None]] = set()
        journal.act = self._commander.want
        if isinstance(engine, Remembering):
            journal.settle = engine.settled
        journal.recall = self._recall
        journal.queues_changed = self._offer_again
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
        if self._refusing is None:
            return
        reason = self._refusing.refusal(self._dispatcher.state.queues.limited(job))
        if reason is not None:
            raise BerthError(f"job {job.id}: {reason}")

    def sized(self, job: Job) -> Job:
        """The job with what its tasks take of their servers."""
        return job if self._sizing is None else self._sizing.sized(job)

    async def logs(self, record: JobRecord, task: int | None, tail: int) -> str:
        """The last lines of each task of a job's last attempt; `NoLogs` if the engine has none."""
        if not record.attempt:
            raise NoLogs(f"job {record.job.id} has not begun")
        if isinstance(self._engine, Logging):
            return await self._engine.logs(record.job.id, record.attempt, task, tail)
        details = ", ".join(f"{name}: {value}" for name, value in record.details.items())
        where = f"the details of job {record.job.id} say where its output is (berth job show {record.job.id})"
        raise NoLogs(f"berth cannot read output on this engine; {where}{f': {details}' if details else ''}")

    @property
    def paused(self) -> str | None:
        """Why the engine takes no starts now; None if it takes them."""
        return self._engine.paused if isinstance(self._engine, Pausing) else None

    @property
    def interrupts(self) -> bool:
        """Whether the engine can interrupt jobs."""
        return isinstance(self._engine, Interrupting) and self._engine.interrupts

    @property
    def notes(self) -> bool:
        """Whether the engine can show why jobs wait."""
        return isinstance(self._engine, Noting)

    async def note(self, job: str, text: str) -> None:
        """Show at the engine why a job waits."""
        if isinstance(self._engine, Noting) and self.trouble is None:
            await self._engine.note(job, text)

    async def _recall(self) -> Collection[str] | None:
        """The jobs that the engine still knows; None if it does not say."""
        if not isinstance(self._engine, Recalling):
            return None
        try:
            return await self._engine.recalled()
        except Exception as error:  # an engine may fail in any way, and the snapshot must be written
            log.info("no ended jobs are deleted now: %s", error)
            return None

    async def _listen(self) -> None:
        wait = FIRST_WAIT
        while True:
            try:
                await self._reconcile()
                wait = FIRST_WAIT
                async for event in self._engine.events():
                    if isinstance(event, Submitted):
                        await self._adopt(event.job)
                        continue
                    if isinstance(event, Cancelled):
                        self._ignored.pop(event.job, None)
                    self._journal.tell(event)
                raise EngineError("the engine's event stream ended")
            except Closed:
                return
            except Exception as error:  # an engine may fail in any way, and must not stop the scheduler
                self._journal.deciding = False
                self.trouble = str(error)
                self.tried.set()
                if self.refusal is not None:  # retrying would not help: the start is refused
                    return
                log.warning("engine: %s; retrying in %.2g s", error, wait)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    async def _reconcile(self) -> None:
        """Reconcile journal and engine while no command runs."""
        await self._commander.pause()
        try:
            snapshot = await self._engine.snapshot()
        except InvalidInput as error:
            self.refusal = None if self.tried.is_set() else error
            raise
        await self._journal.ask_in_steps(lambda round_: self._compare(round_, snapshot), patient=True)
        self._journal.settle([(one.job, one.attempt) for one in snapshot.attempts if one.end is not None])
        self._ignored.clear()
        await asyncio.gather(*(self._adopt(job) for job in snapshot.waiting))
        self._commander.go_on()
        self.trouble, self._journal.deciding = None, True
        self._journal.wake()
        self.tried.set()

    async def _adopt(self, job: Job, again: bool = False) -> None:
        """Accept a job that a user submitted to the engine; if it was cancelled in berth, cancel it at the engine.

        A job that no queue takes is ignored, and offered `again` when queues change.
        """
        queues = self._dispatcher.state.queues
        try:
            submission = Submission.of([queues.capped(job)], "", None)
            await self._journal.ask_in_steps(lambda round_: round_.submit(submission), submission, patient=True)
        except Conflict:
            self._ignored.pop(job.id, None)
            known = await self._journal.ask(lambda round_: round_.record(job.id), job=job.id, patient=True)
            if known is None:
                return
            if (known.job.origin, known.job.user) != (job.origin, job.user):
                whose = f"a job of {known.job.user} has its name"
                log.warning("job %s of %s waits at the engine and is ignored: %s", job.id, job.user, whose)
                return
            if known.phase not in ENDED:
                return
            if known.phase == "cancelled" and known.reason != f"cancelled by {job.origin}":
                self._commander.want([Cancel(job.id, 0)])
            else:
                log.warning("job %s waits at the engine again, has %s in berth, and is ignored", job.id, known.phase)
        except InvalidInput as error:
            known_why = self._ignored.get(job.id, (job, ""))[1]
            if again and not known_why:  # it is gone meanwhile
                return
            self._ignored[job.id] = job, str(error)
            if str(error) != known_why:
                log.warning("job %s waits at the engine and is ignored: %s", job.id, error)
                await self._say(job.id, f"berth does not take it: {error}")
            if self._dispatcher.state.queues is not queues:  # they changed in between
                self._offer_again()
        else:
            self._ignored.pop(job.id, None)

    async def _say(self, job: str, text: str) -> None:
        """Show at the engine why a job is not taken."""
        if isinstance(self._engine, Noting):
            try:
                await self._engine.note(job, text)
            except BerthError as error:
                log.warning("job %s: %s could not be shown at the engine: %s", job, text, error)

    def _offer_again(self) -> None:
        """Offer the ignored jobs to the queues again, which have changed."""
        task = asyncio.create_task(self._adopt_ignored())
        self._offering.add(task)
        task.add_done_callback(self._offering.discard)

    async def _adopt_ignored(self) -> None:
        for job, _ in list(self._ignored.values()):
            if job.id in self._ignored:
                with suppress(Closed):
                    await self._adopt(job, again=True)

    def _compare(self, round_: Round, snapshot: Snapshot) -> Generator[None, None, None]:
        state = self._dispatcher.state
        for event in differences(state, snapshot, round_.now):
            if is_news(state, event):
                round_.note(event)
            yield
        round_.commands.extend([*orphans(state, snapshot), *outstanding(state)])

    async def close(self) -> None:
        """Stop listening, stop commands, and close the engine."""
        tasks = [self._listening, *self._offering]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._commander.close()
        await self._engine.close()


class Commander:
    """Executes commands. `look` says whether a command is wanted, and gives its job (None: not in the journal).

    A wanted command is in exactly one place: in the queue, being executed, or waiting for its next try. So a command
    that is wanted again changes nothing, and each command has at most one pending try.
    """

    def __init__(
        self,
        engine: Engine,
        look: Callable[[Command], tuple[bool, Job | None]],
        draw: Callable[[], float] | None = None,
    ) -> None:
        self._engine, self._look = engine, look
        self._draw = draw or stream(0, "retries").random
        """Numbers in [0, 1), which spread the tries of commands that failed together."""
        self._wanted: dict[Key, Command] = {}
        self._busy: set[Key] = set()
        self._tries: dict[Key, int] = {}
        self._queue: asyncio.Queue[Key] = asyncio.Queue()
        self._queued: set[Key] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._paused: set[Key] = set()
        """Starts that the engine does not take now."""
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._workers = [asyncio.create_task(self._work()) for _ in range(PARALLEL)]

    def want(self, commands: Iterable[Command]) -> None:
        """Execute these commands, each instead of an earlier one for the same attempt."""
        for command in commands:
            key = command.job, command.attempt
            if self._wanted.get(key) != command:
                self._wanted[key] = command
                self._tries.pop(key, None)
                self._enqueue(key)

    def _enqueue(self, key: Key) -> None:
        """Try a command now; one that is being executed is followed by the next when it is done."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._paused.discard(key)
        if key not in self._busy and key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)

    async def pause(self) -> None:
        """Start no more commands, and wait until none runs."""
        self._open.clear()
        await self._idle.wait()

    def go_on(self) -> None:
        """Start, or resume: the engine has just answered, so failed commands are tried at once."""
        for key in list(self._timers):
            self._enqueue(key)
        self._open.set()

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            while not self._open.is_set():
                await self._open.wait()
            self._queued.discard(key)
            command = self._wanted.get(key)
            if command is None:
                continue
            wanted, job = self._look(command)
            if not wanted:
                self._done(key, command)
                continue
            self._busy.add(key)
            self._idle.clear()
            try:
                await self._engine.execute(command, job)
                self._done(key, command)
                self._resume()
            except Paused as error:  # the engine has said so, once
                if self._wanted.get(key) == command:
                    self._paused.add(key)
                    self._try_after(key, error.seconds * (1.0 + 0.5 * self._draw()))
            except Exception as error:  # an engine may fail in any way, and the command must not be lost
                if self._wanted.get(key) == command:
                    self._later(key, command, error)
            finally:
                self._busy.discard(key)
                if not self._busy:
                    self._idle.set()
            if key in self._wanted and key not in self._timers:
                self._enqueue(key)
            await asyncio.sleep(0)  # an engine may answer at once

    def _done(self, key: Key, command: Command) -> None:
        if self._wanted.get(key) == command:
            del self._wanted[key]
            self._tries.pop(key, None)

    def _resume(self) -> None:
        """Try paused starts at once if the engine takes starts again."""
        if self._paused and not (isinstance(self._engine, Pausing) and self._engine.paused):
            for key in tuple(self._paused):
                self._enqueue(key)

    def _later(self, key: Key, command: Command, error: Exception) -> None:
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        longest = min(FIRST_RETRY * 2 ** min(tries - 1, 20), LONGEST_RETRY)
        wait = longest * (1.0 - 0.5 * self._draw())
        kind = type(command).__name__.lower()
        log.warning("%s of job %s failed, retrying in %.2g s: %s", kind, key[0], wait, error)
        self._try_after(key, wait)

    def _try_after(self, key: Key, wait: float) -> None:
        self._timers[key] = asyncio.get_running_loop().call_later(wait, self._enqueue, key)

    async def close(self) -> None:
        """Stop; running commands may or may not take effect."""
        for worker in self._workers:
            worker.cancel()
        for timer in self._timers.values():
            timer.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
