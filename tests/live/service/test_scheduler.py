"""The scheduler: what is accepted is durable, done once, and there again after a restart."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from numba import typeof

from berth.errors import BerthError, InvalidInput
from berth.live.core import table
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Cancel, Command, Decided, Event, Failed, ServerResumed, Start, Started, Submitted
from berth.live.core.jobs import Job, Role
from berth.live.core.kernels.waiting import first_waiting
from berth.live.core.queues import Queue, Queues
from berth.live.core.reasons import queue_page
from berth.live.core.records import ENDED, JobRecord, Phase
from berth.live.engines import Attempt, EngineError, Snapshot
from berth.live.engines.clock import Clock
from berth.live.engines.simulated.engine import SimulatedEngine, example_cluster
from berth.live.service import scheduler as module
from berth.live.service.scheduler import Closed, Conflict, Scheduler, fresh_ids
from berth.live.service.settings import ServiceSettings
from berth.live.service.store import InUse, Store, StoreError
from tests.harness.waiting import eventually_async


def job(name: str, seconds: float = 10.0, **changes: Any) -> Job:
    """A small job."""
    return Job(name, "x", changes.pop("roles", (Role("w", 2, {"cpu": 1000}),)), work=seconds, **changes)


def settings(where: str | Path, **changes: Any) -> ServiceSettings:
    """An impatient scheduler, whose clock runs fast."""
    return ServiceSettings(store=str(where), faster=200.0, tick=0.05, soon=0.0, budget=60.0).replace(**changes)


@asynccontextmanager
async def opened(given: ServiceSettings) -> AsyncIterator[Scheduler]:
    """A scheduler that is closed afterwards."""
    scheduler = await Scheduler.open(given)
    try:
        yield scheduler
    finally:
        await scheduler.close()


async def until(check: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Wait until this is so."""
    await eventually_async(check)


async def phases(scheduler: Scheduler, names: Sequence[str]) -> set[Phase | None]:
    """The phases of these jobs."""
    found = [await scheduler.get(name) for name in names]
    return {None if record is None else record.phase for record in found}


async def ended(scheduler: Scheduler, names: Sequence[str]) -> None:
    """Wait until these jobs have ended."""

    async def check() -> bool:
        return await phases(scheduler, names) <= ENDED

    await until(check)


def agree(where: str) -> Dispatcher:
    """Check that the journal, the jobs and the latest snapshot tell the same; what the journal leads to."""
    store = Store(where)
    whole, records = Dispatcher(), {}
    for _, event in store.events():
        records.update({record.job.id: record for record in whole.note(event).changed})
    assert {r.job.id: r for r in store.list_jobs({}, limit=10**6)} == records
    times = [event.time for _, event in store.events()]
    assert times == sorted(times)
    snapshot = store.snapshot()
    if snapshot is not None:
        tail = Dispatcher().load(snapshot[1])
        for _, event in store.events(after=snapshot[0]):
            tail.note(event)
        assert replace(tail.dump(), refusals=None, watched={}) == replace(whole.dump(), refusals=None, watched={})
    store.close()
    return whole


def test_jobs_run_and_are_there_after_a_restart(where: str) -> None:
    async def run() -> None:
        names = [f"j{i}" for i in range(30)]
        async with opened(settings(where, snapshot_every=7)) as scheduler:
            assert scheduler.health.ready
            records = await scheduler.submit([job(name) for name in names])
            assert [record.job.id for record in records] == names
            await ended(scheduler, names)
            assert await phases(scheduler, names) == {"finished"}
            assert len(scheduler.servers()) == 8
            before = scheduler.dispatcher.dump()
            decided = await scheduler.decisions()
            assert sum(len(decision.starts) for _, decision in decided) == 30
            assert await scheduler.decisions(after=decided[0][0]) == decided[1:]
        async with opened(settings(where)) as scheduler:
            assert await phases(scheduler, names) == {"finished"}
            assert scheduler.dispatcher.dump().memory == before.memory
            assert scheduler.dispatcher.dump().state.learned == before.state.learned
            page = await scheduler.list_jobs(limit=20)
            rest = await scheduler.list_jobs(limit=20, after=page.after)
            assert [r.job.id for r in (*page.records, *rest.records)] == names[::-1]
            assert rest.after is None
            assert (await scheduler.list_jobs(phases=["waiting", "running"])).records == ()

    asyncio.run(run())
    agree(where)


def test_all_or_none_and_ids_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(settings(tmp_path / "db")) as scheduler:
            await scheduler.submit([job("a")])
            with pytest.raises(Conflict, match="there is a job 'a' already"):
                await scheduler.submit([job("b"), job("a")])
            with pytest.raises(InvalidInput, match="each job id once"):
                await scheduler.submit([job("b"), job("b")])
            with pytest.raises(InvalidInput, match="a queue that takes jobs"):
                await scheduler.submit([job("b"), job("c", queue="none")])
            with pytest.raises(InvalidInput, match="written as JSON"):
                await scheduler.submit([job("b", payload={"x": object()})])
            assert await scheduler.get("b") is None
            await ended(scheduler, ["a"])
            with pytest.raises(Conflict, match="there is a job 'a' already"):
                await scheduler.submit([job("a")])
            both = await asyncio.gather(*(scheduler.submit([job("t")]) for _ in range(2)), return_exceptions=True)
            assert sorted(isinstance(answer, Conflict) for answer in both) == [False, True]

    asyncio.run(run())
    agree(str(tmp_path / "db"))


def test_idempotency_keys(where: str) -> None:
    async def run() -> None:
        async with opened(settings(where)) as scheduler:
            together = await asyncio.gather(*(scheduler.submit([job("a"), job("b")], "k", "ada") for _ in range(3)))
            assert [[record.job.id for record in records] for records in together] == 3 * [["a", "b"]]
            await ended(scheduler, ["a", "b"])
            with pytest.raises(Conflict, match="key 'k' was used for something else"):
                await scheduler.submit([job("a")], "k", "ada")
            await scheduler.submit([job("c")], "k", "bob")
            with pytest.raises(InvalidInput, match="idempotency key"):
                await scheduler.submit([job("d")], "a b", "ada")
        async with opened(settings(where)) as scheduler:
            again = await scheduler.submit([job("a"), job("b")], "k", "ada")
            assert [record.phase for record in again] == ["finished", "finished"]
            assert len((await scheduler.list_jobs()).records) == 3

    asyncio.run(run())
    assert fresh_ids(3, "k", "ada") == fresh_ids(3, "k", "ada") != fresh_ids(3, "k", "bob")
    assert len({*fresh_ids(3, None, "ada"), *fresh_ids(3, None, "ada")}) == 6


def test_cancelling(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(settings(tmp_path / "db")) as scheduler:
            await scheduler.submit([job("long", 1e6), job("never", 1e6, needs={"class": "none"})])

            async def runs() -> bool:
                return await phases(scheduler, ["long"]) == {"running"}

            await until(runs)
            for name, phase in (("long", "ending"), ("never", "cancelled")):
                record = await scheduler.cancel(name, "ada")
                assert record is not None
                assert (record.phase, record.reason) == (phase, "cancelled by ada")
            await ended(scheduler, ["long"])
            assert await phases(scheduler, ["long", "never"]) == {"cancelled"}
            again = await scheduler.cancel("long", "bob")
            assert again is not None
            assert again.reason == "cancelled by ada"
            assert await scheduler.cancel("nobody") is None

    asyncio.run(run())
    agree(str(tmp_path / "db"))


def test_servers_queues_and_policies(tmp_path: Path) -> None:
    async def run() -> None:
        given = settings(tmp_path / "db", policy="best-fit", queues=Queues({"a": Queue(), "default": Queue()}))
        async with opened(given) as scheduler:
            assert scheduler.dispatcher.state.policy == "best-fit"
            for name in [server.server.name for server in scheduler.servers()]:
                assert (await scheduler.drain(name, "ada")).drained
            seq = scheduler.health.seq
            await scheduler.drain("cpu-0", "ada")
            assert scheduler.health.seq == seq
            await scheduler.submit([job("a", queue="a")])
            assert not (await scheduler.resume("cpu-1", "ada")).drained
            await ended(scheduler, ["a"])
            events = [event for _, event in scheduler.store.events()]
            (resumed,) = (i for i, event in enumerate(events) if isinstance(event, ServerResumed))
            (placed,) = (i for i, event in enumerate(events) if isinstance(event, Decided) and event.starts)
            assert resumed < placed, "a job was placed on a drained server"
            record = await scheduler.get("a")
            assert record is not None
            assert {place.server for place in record.places} == {"cpu-1"}
            with pytest.raises(InvalidInput, match="a server that is known"):
                await scheduler.drain("nowhere")
            with pytest.raises(BerthError, match="unknown policy"):
                await scheduler.change_policy("best-fitt")
            await scheduler.change_policy("escb-v", "ada", "to learn")
            await scheduler.change_queues(Queues(), "ada")
        async with opened(settings(tmp_path / "db")) as scheduler:
            assert scheduler.dispatcher.state.policy == "escb-v"
            assert list(scheduler.dispatcher.state.queues.queues) == ["default"]
            await scheduler.submit([job("b")])
            await ended(scheduler, ["b"])
            last = (await scheduler.decisions())[-1][1]
            assert (last.by, last.refused) == ("escb-v", None)

    asyncio.run(run())
    agree(str(tmp_path / "db"))


def test_following(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.live.service.journal_loop.RECENT", 5)

    async def first(scheduler: Scheduler, after: int | None, count: int) -> list[tuple[int, Event]]:
        found = []
        async for one in scheduler.subscribe(after):
            found.append((one.seq, one.event))
            if len(found) == count:
                break
        return found

    async def run() -> None:
        async with opened(settings(where)) as scheduler:
            later = asyncio.create_task(first(scheduler, None, 1))
            ends = asyncio.create_task(first(scheduler, None, 10**6))
            await asyncio.sleep(0)
            for i in range(20):
                await scheduler.submit([job(f"j{i}")])
            await ended(scheduler, [f"j{i}" for i in range(20)])
            async with asyncio.timeout(240):
                seq, event = (await later)[0]
                assert isinstance(event, Submitted)
                assert event.job.id == "j0"
                whole = await first(scheduler, 0, scheduler.health.seq)
                stored = await scheduler._journal.read(lambda: list(scheduler.store.events()))
                assert whole == stored[: len(whole)]  # an event may have come since
                assert await first(scheduler, seq - 1, 1) == [(seq, event)]
        async with asyncio.timeout(240):
            assert (await ends)[0] == (seq, event)

    asyncio.run(run())


def test_closed_scheduler_and_second_scheduler(where: str) -> None:
    async def run() -> None:
        async with opened(settings(where)) as scheduler:
            with pytest.raises(InUse, match="is in use by"):
                await Scheduler.open(settings(where))
        with pytest.raises(Closed):
            await scheduler.submit([job("a")])
        assert not scheduler.health.ready

    asyncio.run(run())


def test_policy_that_is_gone(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(settings(tmp_path / "db", policy="best-fit")) as scheduler:
            await scheduler.submit([job("a")])

        def gone(*_: object, **__: object) -> None:
            raise InvalidInput("a policy that is installed", value="best-fit", key="policy")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("berth.live.core.dispatcher.make_driver", gone)
            with pytest.raises(BerthError, match="'best-fit' cannot be used any more, start with another"):
                await Scheduler.open(settings(tmp_path / "db"))
            async with opened(settings(tmp_path / "db", policy="in-order-best-fit")) as scheduler:
                assert scheduler.dispatcher.state.policy == "in-order-best-fit"

    asyncio.run(run())


def test_missing_event_is_noticed(tmp_path: Path) -> None:
    where = str(tmp_path / "db")

    async def run() -> None:
        async with opened(settings(where)) as scheduler:
            await scheduler.submit([job("a")])

    asyncio.run(run())
    store = Store(where)
    store._database.write(lambda c: c.exec_driver_sql("DELETE FROM snapshots"))
    store._database.write(lambda c: c.exec_driver_sql("DELETE FROM journal WHERE seq = 3"))
    store.close()
    with pytest.raises(BerthError, match="event 3 is missing"):
        asyncio.run(Scheduler.open(settings(where)))


def test_store_that_fails_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests wait, nothing is lost, and nothing is done twice."""
    failing, refused = True, 0
    write = Store.write

    def fails(store: Store, batch: Any) -> None:
        nonlocal refused
        if failing:
            refused += 1
            raise StoreError("the disk is full")
        write(store, batch)

    async def run() -> None:
        nonlocal failing
        failing = False
        async with opened(settings(tmp_path / "db")) as scheduler:
            failing = True
            asked = asyncio.create_task(scheduler.submit([job("a")]))
            await eventually_async(lambda: refused, lambda times: times >= 3)
            assert not asked.done()
            assert scheduler.health.store == "the disk is full"
            failing = False
            await asked
            await ended(scheduler, ["a"])
            assert scheduler.health.ready

    monkeypatch.setattr(Store, "write", fails)
    asyncio.run(run())
    agree(str(tmp_path / "db"))


class Unreliable:
    """An engine that fails every other time, forgets what it is told to forget, and runs what nobody asked for."""

    def __init__(self) -> None:
        self.inner = SimulatedEngine(example_cluster(), Clock(200.0))
        self.calls = 0
        self.cut = asyncio.Event()
        self.commands: list[Command] = []
        self.hidden: set[str] = set()
        self.more: tuple[Attempt, ...] = ()
        self.waiting: tuple[Job, ...] = ()

    async def snapshot(self) -> Snapshot:
        self.calls += 1
        if self.calls % 2:
            raise EngineError("not now")
        there = await self.inner.snapshot()
        known = (*(a for a in there.attempts if a.job not in self.hidden), *self.more)
        return Snapshot(there.servers, known, self.waiting)

    async def events(self) -> AsyncIterator[Event]:
        self.cut.clear()
        cutting = asyncio.ensure_future(self.cut.wait())
        inner = self.inner.events()
        while True:
            nearest = asyncio.ensure_future(anext(inner))
            await asyncio.wait([nearest, cutting], return_when=asyncio.FIRST_COMPLETED)
            if cutting.done():
                nearest.cancel()
                with suppress(asyncio.CancelledError):
                    await nearest
                raise EngineError("the line was cut")
            yield nearest.result()

    async def execute(self, command: Command, job: Job | None, /) -> None:
        self.calls += 1
        if self.calls % 2:
            raise EngineError("not now")
        self.commands.append(command)
        await self.inner.execute(command, job)

    async def close(self) -> None:
        self.cut.set()
        await self.inner.close()


@pytest.fixture
def unreliable(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Unreliable]:
    """Puts an unreliable engine in the place of every engine; the engine."""
    made: list[Unreliable] = []

    def make(*_: object) -> Unreliable:
        made.append(Unreliable())
        return made[-1]

    monkeypatch.setattr(module, "make_engine", make)
    return lambda: made[-1]


async def is_ready(scheduler: Scheduler) -> None:
    """Wait until the engine was heard."""

    async def check() -> bool:
        return scheduler.health.ready

    await until(check)


def test_engine_that_fails_every_other_time(
    tmp_path: Path, unreliable: Callable[[], Unreliable], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, snapshot = asyncio.Event(), Unreliable.snapshot

    async def held(engine: Unreliable) -> Snapshot:
        if engine.calls:
            await looked.wait()
        return await snapshot(engine)

    monkeypatch.setattr(Unreliable, "snapshot", held)

    async def run() -> None:
        async with opened(settings(tmp_path / "db")) as scheduler:
            assert scheduler.health.engine == "not now"
            looked.set()
            names = [f"j{i}" for i in range(40)]
            await scheduler.submit([job(name, 100.0) for name in names])
            await is_ready(scheduler)
            for _ in range(3):
                await eventually_async(lambda: not unreliable().cut.is_set(), what="it listens again")
                unreliable().cut.set()
            await ended(scheduler, names)
            assert await phases(scheduler, names) == {"finished"}
            assert all(record.attempt == 1 for record in (await scheduler.list_jobs()).records)
            assert max(unreliable().inner.cluster.started.values()) == 1

    asyncio.run(run())
    agree(str(tmp_path / "db"))


def test_attempts_that_engine_or_paper_do_not_know(tmp_path: Path, unreliable: Callable[[], Unreliable]) -> None:
    async def run() -> None:
        async with opened(settings(tmp_path / "db")) as scheduler:
            await is_ready(scheduler)
            await scheduler.submit([job("forgotten", 1e6), job("kept", 1e6)])

            async def run_now() -> bool:
                return await phases(scheduler, ["forgotten", "kept"]) == {"running"}

            await until(run_now)
            engine = unreliable()
            engine.hidden, engine.more = {"forgotten"}, (Attempt("strange", 3), Attempt("kept", 7))
            engine.cut.set()

            async def again() -> bool:
                record = await scheduler.get("forgotten")
                return record is not None and (record.attempt, record.unlucky) == (2, 1)

            await until(again)

            async def cancelled() -> bool:
                return {Cancel("strange", 3), Cancel("kept", 7)} <= set(engine.commands)

            await until(cancelled)
            kept = await scheduler.get("kept")
            assert kept is not None
            assert (kept.attempt, kept.phase) == (1, "running")

    asyncio.run(run())
    agree(str(tmp_path / "db"))


def test_jobs_that_wait_at_the_engine_are_taken_once_and_end_there_when_they_end_here(
    tmp_path: Path, unreliable: Callable[[], Unreliable]
) -> None:
    async def run() -> None:
        async with opened(settings(tmp_path / "db")) as scheduler:
            await is_ready(scheduler)
            engine = unreliable()
            huge = (Role("w", 1, {"cpu": 10**9}),)
            theirs = [job("runs", origin="there"), *(job(n, origin="there", roles=huge) for n in ("unwanted", "gone"))]
            engine.waiting = tuple(theirs)
            engine.cut.set()
            await until(lambda: known(scheduler, ["runs", "unwanted", "gone"]))
            await ended(scheduler, ["runs"])
            await scheduler.cancel("unwanted")

            async def cancelled_there() -> bool:
                return Cancel("unwanted", 0) in engine.commands

            await until(cancelled_there)
            engine.commands.clear()
            engine.waiting = (theirs[1],)  # it did not go away there, and the other one did
            engine.cut.set()
            await until(cancelled_there)
            await ended(scheduler, ["gone"])
            assert await phases(scheduler, ["unwanted", "gone"]) == {"cancelled"}
            gone = await scheduler.get("gone")
            assert gone is not None
            assert gone.reason == "cancelled by there"
            await eventually_async(lambda: engine.commands, lambda done: Cancel("gone", 0) in done)  # as every end is
            engine.commands.clear()
            engine.waiting = tuple(theirs)  # all of them come back, and only what was cancelled here is to end
            engine.cut.set()
            await until(cancelled_there)
            assert set(engine.commands) == {Cancel("unwanted", 0)}
            assert len((await scheduler.list_jobs()).records) == 3

    asyncio.run(run())
    agree(str(tmp_path / "db"))


def test_a_job_that_waits_at_the_engine_is_not_above_the_ceiling_of_its_queue(
    tmp_path: Path, unreliable: Callable[[], Unreliable]
) -> None:
    async def run() -> None:
        async with opened(settings(tmp_path / "db")) as scheduler:
            await is_ready(scheduler)
            engine = unreliable()
            engine.waiting = (job("high", origin="there", priority=999_999), job("low", origin="there", priority=-9))
            engine.cut.set()
            await until(lambda: known(scheduler, ["high", "low"]))
            found = [await scheduler.get(name) for name in ("high", "low")]
            assert [record.job.priority for record in found if record is not None] == [0, -9]

    asyncio.run(run())


async def known(scheduler: Scheduler, names: Sequence[str]) -> bool:
    """Whether all of these jobs were accepted."""
    return None not in await phases(scheduler, names)


def test_the_kernel_of_the_queue_page_is_compiled_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def noted(*given: Any) -> int:
        calls.append((threading.current_thread() is threading.main_thread(), [typeof(one) for one in given]))
        return int(first_waiting(*given))

    async def run() -> None:
        async with opened(settings(tmp_path / "db")) as scheduler:
            await scheduler.submit([job(f"j{i}") for i in range(20)])
            queue_page(scheduler.dispatcher.state, scheduler.clock(), 10)

    monkeypatch.setattr(table, "first_waiting", noted)
    asyncio.run(run())
    (first, compiled), *_, (last, wanted) = calls
    assert (first, last) == (False, True)
    assert compiled == wanted


def test_restart_with_what_the_simulated_engine_forgot_or_remembers(tmp_path: Path) -> None:
    async def run(name: str, state: str | None) -> JobRecord:
        given = settings(tmp_path / name, engine_state=state)
        for attempt in range(2):
            async with opened(given) as scheduler:
                if not attempt:
                    await scheduler.submit([job("a", 1e6)])

                async def runs(scheduler: Scheduler = scheduler) -> bool:
                    return await phases(scheduler, ["a"]) == {"running"}

                await until(runs)
                record = await scheduler.get("a")
        agree(str(tmp_path / name))
        assert record is not None
        return record

    forgot = asyncio.run(run("forgot", None))
    assert (forgot.attempt, forgot.unlucky) == (2, 1)
    remembers = asyncio.run(run("remembers", str(tmp_path / "state")))
    assert (remembers.attempt, remembers.unlucky) == (1, 0)


def test_a_decision_is_on_paper_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the engine is told to start is in a journal that another connection can read by then."""
    seen: list[tuple[str, int]] = []
    where = str(tmp_path / "db")
    execute = SimulatedEngine.execute

    async def watched(engine: SimulatedEngine, command: Command, job: Job | None) -> None:
        store = Store(where)
        starts = {(s.job, s.attempt) for _, e in store.events() if isinstance(e, Decided) for s in e.starts}
        store.close()
        assert isinstance(command, Start)
        assert (command.job, command.attempt) in starts
        seen.append((command.job, command.attempt))
        await execute(engine, command, job)

    async def run() -> None:
        async with opened(settings(where)) as scheduler:
            names = [f"j{i}" for i in range(5)]
            for name in names:
                await scheduler.submit([job(name)])
            await ended(scheduler, names)

    monkeypatch.setattr(SimulatedEngine, "execute", watched)
    asyncio.run(run())
    assert sorted(seen) == [(f"j{i}", 1) for i in range(5)]


def test_times_never_run_backwards(tmp_path: Path, unreliable: Callable[[], Unreliable]) -> None:
    async def run() -> None:
        async with opened(settings(tmp_path / "db")) as scheduler:
            await is_ready(scheduler)
            await scheduler.submit([job("a", 1e6)])

            async def runs() -> bool:
                return await phases(scheduler, ["a"]) == {"running"}

            await until(runs)
            for event in (Started(0.0, "a", 1), Failed(1.0, "a", 1), Failed(1e300, "a", 2), Failed(1e300, "b", 1)):
                scheduler._journal.tell(event)
            await ended(scheduler, ["a"])

    asyncio.run(run())
    assert agree(str(tmp_path / "db")).state.time < 1e300  # what is told with such a time is told now


moves = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 4)),
        st.tuples(st.just("cancel"), st.integers(0, 12)),
        st.tuples(st.sampled_from(["drain", "resume"]), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.sampled_from([1, 20])),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    max_size=12,
)


@hypothesis.settings(max_examples=15, suppress_health_check=[hypothesis.HealthCheck.too_slow])
@hypothesis.given(moves)
def test_any_life_ends_well(chosen: list[tuple[str, Any]]) -> None:
    """Whatever is asked, and however often it is restarted: all that was accepted ends, and is told the same by all."""

    async def run(where: str, state: str) -> list[str]:
        given = settings(where, engine_state=state, snapshot_every=5)
        scheduler = await Scheduler.open(given)
        names: list[str] = []
        for kind, what in chosen:
            if kind == "submit":
                new = [f"j{len(names) + i}" for i in range(what)]
                names += [r.job.id for r in await scheduler.submit([job(name, 50.0) for name in new], f"k{new[0]}")]
            elif kind == "cancel":
                assert (await scheduler.cancel(f"j{what}") is not None) == (f"j{what}" in names)
            elif kind == "drain":
                await scheduler.drain(f"cpu-{what}")
            elif kind == "resume":
                await scheduler.resume(f"cpu-{what}")
            elif kind == "wait":
                await asyncio.sleep(what / 1000)
            else:
                await scheduler.close()
                scheduler = await Scheduler.open(given.replace(engine_state=state if what else None))
        await ended(scheduler, names)
        await scheduler.close()
        return names

    with tempfile.TemporaryDirectory() as folder:
        names = asyncio.run(run(f"{folder}/db", f"{folder}/state"))
        agree(f"{folder}/db")
        store = Store(f"{folder}/db")
        assert sorted(record.job.id for record in store.list_jobs({}, limit=1000)) == sorted(names)
        store.close()
