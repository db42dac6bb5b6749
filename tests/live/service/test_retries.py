"""Tries of failed commands: one pending try for each command, whatever asks for the command again."""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Cancel, Command, Event, Start
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines import EngineError, Paused, Snapshot
from berth.live.service.engine_link import FIRST_RETRY, LONGEST_RETRY, Commander, EngineLink
from berth.live.service.journal_loop import REISSUE

JOB = Job("a", "t", (Role("w", 1, {"cpu": 1000}),))
START = Start("a", 1, (Place("n1", "w", 1),))
CANCEL = Cancel("a", 1)


class Ahead(selectors.SelectSelector):
    """A selector that never waits: it moves the clock of its loop on instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "nothing is due, and nothing will be"
        self.now += max(timeout, 0.0)
        return super().select(0)


def in_virtual_time(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine on a loop whose clock jumps from timer to timer."""
    selector = Ahead()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        loop.run_until_complete(run())
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.close()


class Engine:
    """An engine that notes when commands come; it refuses the first `failures`."""

    def __init__(self, failures: float = float("inf"), seconds: float = 0.0) -> None:
        self.failures, self.seconds = failures, seconds
        self.calls: list[tuple[float, Command]] = []
        self.parallel = 0

    async def execute(self, command: Command, job: Job | None, /) -> None:
        self.calls.append((asyncio.get_running_loop().time(), command))
        self.parallel += 1
        assert self.parallel == 1, "two commands of one attempt run in parallel"
        await asyncio.sleep(self.seconds)
        self.parallel -= 1
        if len(self.calls) <= self.failures:
            raise EngineError("no")


def commander(engine: Engine, draw: float = 0.0) -> Commander:
    made = Commander(engine, lambda command: (True, JOB), lambda: draw)  # type: ignore[arg-type]
    made.go_on()
    return made


@pytest.mark.parametrize("draw", [0.0, 0.5])
def test_a_failing_command_has_one_pending_try(draw: float) -> None:
    """However often it is wanted again: its tries follow each other at pauses that double up to the longest."""

    async def run() -> None:
        engine = Engine()
        made = commander(engine, draw)
        for _ in range(20):
            made.want([START])
            await asyncio.sleep(REISSUE)
        times = [time for time, _ in engine.calls]
        pauses = [after - before for before, after in itertools.pairwise(times)]
        longest = [min(FIRST_RETRY * 2**i, LONGEST_RETRY) for i in range(len(pauses))]
        assert pauses == pytest.approx([pause * (1 - draw / 2) for pause in longest])
        assert 20 * REISSUE - times[-1] <= LONGEST_RETRY
        await made.close()

    in_virtual_time(run)


def test_a_command_that_is_done_is_executed_again_when_it_is_wanted_again() -> None:
    async def run() -> None:
        engine = Engine(failures=1)
        made = commander(engine)
        made.want([START])
        await asyncio.sleep(REISSUE)
        made.want([START, START])
        await asyncio.sleep(REISSUE)
        assert [time for time, _ in engine.calls] == pytest.approx([0.0, FIRST_RETRY, REISSUE])
        await made.close()

    in_virtual_time(run)


def test_a_cancellation_does_not_wait_for_the_next_try_of_the_start() -> None:
    async def run() -> None:
        engine = Engine(failures=10)
        made = commander(engine)
        made.want([START])
        await asyncio.sleep(5.0)
        tries = len(engine.calls)
        made.want([CANCEL, CANCEL])
        await asyncio.sleep(0.0)
        await asyncio.sleep(100.0)
        first, *rest = engine.calls[tries:]
        assert first[1] == CANCEL
        assert first[0] == pytest.approx(5.0)
        assert {command for _, command in rest} == {CANCEL}
        assert len(engine.calls) == 11  # ten failed, and then it was done
        await made.close()

    in_virtual_time(run)


def test_a_cancellation_follows_a_start_that_is_being_executed() -> None:
    async def run() -> None:
        engine = Engine(failures=1, seconds=3.0)
        made = commander(engine)
        made.want([START])
        await asyncio.sleep(1.0)
        made.want([CANCEL])
        made.want([CANCEL])
        await asyncio.sleep(100.0)
        assert [command for _, command in engine.calls] == [START, CANCEL]
        assert [time for time, _ in engine.calls] == pytest.approx([0.0, 3.0])
        await made.close()

    in_virtual_time(run)


def test_commands_are_tried_at_once_when_the_engine_answers_again() -> None:
    async def run() -> None:
        engine = Engine()
        made = commander(engine)
        made.want([START])
        await asyncio.sleep(55.0)
        await made.pause()
        tries = len(engine.calls)
        await asyncio.sleep(100.0)
        assert len(engine.calls) == tries
        engine.failures = 0
        made.go_on()
        await asyncio.sleep(100.0)
        assert [time for time, _ in engine.calls[tries:]] == pytest.approx([155.0])
        await made.close()

    in_virtual_time(run)


class PausingEngine:
    """An engine that takes no starts until `until`; `tries` is how often one was tried."""

    def __init__(self, until: float) -> None:
        self.until, self.tries = until, 0
        self.taken: list[tuple[float, str]] = []

    @property
    def paused(self) -> str | None:
        return "no" if asyncio.get_running_loop().time() < self.until else None

    async def execute(self, command: Command, job: Job | None, /) -> None:
        now = asyncio.get_running_loop().time()
        if isinstance(command, Start):
            self.tries += 1
            if self.paused:
                raise Paused("no", 20.0)
        self.taken.append((now, command.job))


def test_paused_starts_wait_as_long_as_the_engine_says_and_go_on_together(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        engine = PausingEngine(until=30.0)
        draws = iter([0.0, 0.1, 0.2, *[0.5] * 100])
        made = Commander(engine, lambda command: (True, JOB), lambda: next(draws))  # type: ignore[arg-type]
        made.go_on()
        starts = [Start(name, 1, ()) for name in "abc"]
        made.want(starts)
        await asyncio.sleep(15.0)
        made.want([*starts, Cancel("x", 1)])
        await asyncio.sleep(4.0)
        assert (engine.tries, [job for _, job in engine.taken]) == (3, ["x"])  # a pause does not keep others waiting
        await asyncio.sleep(100.0)
        # tried again at 20, 21 and 22 s; the first of the next tries, at 45 s, is taken, and so are the others with it
        assert engine.tries == 9
        assert sorted(job for _, job in engine.taken) == ["a", "b", "c", "x"]
        assert [time for time, _ in engine.taken[1:]] == pytest.approx([45.0] * 3)
        await made.close()

    in_virtual_time(run)
    assert not caplog.records


def test_a_pause_waits_for_the_command_that_runs_and_no_other_begins() -> None:
    async def run() -> None:
        engine = Engine(failures=0, seconds=10.0)
        made = commander(engine)
        made.want([START])
        await asyncio.sleep(1.0)
        assert engine.parallel == 1
        await made.pause()
        assert (engine.parallel, asyncio.get_running_loop().time()) == (0, 10.0)
        made.want([CANCEL])
        await asyncio.sleep(100.0)
        assert [command for _, command in engine.calls] == [START]
        made.go_on()
        await asyncio.sleep(1.0)
        assert [command for _, command in engine.calls] == [START, CANCEL]

    in_virtual_time(run)


class Slow:
    """An engine whose connection breaks after 5 s each, while a command of 10 s runs."""

    def __init__(self) -> None:
        self.running = 0
        self.found: list[tuple[float, int]] = []
        """When it was asked for snapshots, and how many commands ran then."""

    async def snapshot(self) -> Snapshot:
        self.found.append((asyncio.get_running_loop().time(), self.running))
        return Snapshot((), ())

    async def events(self) -> AsyncIterator[Event]:
        await asyncio.sleep(5.0)
        return
        yield

    async def execute(self, command: Command, job: Job | None, /) -> None:
        self.running += 1
        await asyncio.sleep(10.0)
        self.running -= 1

    async def close(self) -> None:
        pass


class Rounds:
    """The journal's loop, as far as the link uses it."""

    deciding = False

    async def ask_in_steps(self, run: object, **_: object) -> None:
        pass

    def settle(self, ended: object) -> None:
        pass

    def wake(self) -> None:
        pass


def test_the_journal_is_reconciled_while_no_command_runs() -> None:
    """The command that runs may or may not be in what the engine says."""

    async def run() -> None:
        engine, journal = Slow(), Rounds()
        link = EngineLink(engine, Dispatcher(), journal)  # type: ignore[arg-type]
        await link.tried.wait()
        journal.act([CANCEL])  # type: ignore[attr-defined]
        await asyncio.sleep(12.0)
        assert engine.found == [(0.0, 0), (pytest.approx(10.0), 0)]
        await link.close()

    in_virtual_time(run)
