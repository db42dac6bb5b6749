"""Engine checks that run concurrently, each case on its own cpus.

Each check is a function whose docstring is the promise. When all checks are done, the tasks that should have begun, and
how often, are compared once more with what the witness saw.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from berth.testing.engines.listener import Spell
from berth.testing.engines.trial import LONG, Case, Run, Trial, told
from berth.testing.subject import Broken

__all__ = ["SIDE_BY_SIDE"]

Check = Callable[[Trial], Awaitable[None]]


async def starts_what_was_asked(trial: Trial) -> None:
    """A start begins exactly the tasks that it names, on the servers that it names."""

    async def tried(case: Case, *where: tuple[str, str, int] | str) -> None:
        run = await case.run(*where).start()
        await run.has_begun()

    async def one(case: Case) -> None:
        await tried(case, *case.servers)

    async def several(case: Case) -> None:
        await tried(case, (case.servers[0], "main", 2))

    async def uneven(case: Case) -> None:
        await tried(case, (case.servers[0], "main", 2), (case.servers[1], "main", 1))

    async def roles(case: Case) -> None:
        a, b = case.servers
        await tried(case, (a, "head", 1), (a, "worker", 1), (b, "worker", 2))

    await asyncio.gather(
        trial.case("a single task", 1, one),
        trial.case("two tasks on one server", 1, several),
        trial.case("a gang over three servers", 3, one),
        trial.case("an uneven gang", 2, uneven),
        trial.case("two roles", 2, roles),
    )


async def all_or_nothing(trial: Trial) -> None:
    """A gang that cannot start whole starts nothing: it fails by fault of the server or engine, or is refused."""

    async def unknown(case: Case) -> None:
        await case.run(*case.servers, "no-such-server", begins=False).refused()

    async def taken(case: Case) -> None:
        a, b = case.servers
        there = await case.run(a, seconds=LONG, cpu=trial.room.cpus[a]).start()
        await there.has_begun()
        await case.run(b, a, begins=False).refused()

    await asyncio.gather(
        trial.case("a server that is not there", 1, unknown),
        trial.case("more than is free", 2, taken, whole=True),
    )


async def starts_once(trial: Trial) -> None:
    """An attempt begins once, even if it is started repeatedly, concurrently or after its end."""

    async def often(case: Case) -> None:
        run = case.run(*case.servers, seconds=2 * trial.site.short)
        await asyncio.gather(*(run.start() for _ in range(3)))
        await run.has_begun()
        await run.start()
        await run.is_over()
        await run.start()
        await run.end()
        await run.start()

    await trial.case("a gang that is started again and again", 2, often)


async def cancels(trial: Trial) -> None:
    """A cancelled attempt ends everywhere as cancelled, even if twice or before it began, and never restarts."""

    async def running(case: Case) -> None:
        run = await case.run(*case.servers, seconds=LONG).start()
        await run.has_begun()
        await asyncio.gather(run.cancel(), run.cancel(with_job=False))
        await run.fails("cancelled")
        await run.is_over()
        await run.cancel()
        await run.start()

    async def at_once(case: Case) -> None:
        run = await case.run(*case.servers, seconds=LONG, begins=None).start()
        await run.cancel()
        await run.fails("cancelled")
        await run.is_over()
        await run.start()

    async def unknown(case: Case) -> None:
        for with_job in (True, False):
            run = case.run(*case.servers, begins=False)
            await run.cancel(with_job)
            await run.fails("cancelled")
            await run.start()

    await asyncio.gather(
        trial.case("a gang that runs", 2, running),
        trial.case("right after its start", 2, at_once),
        trial.case("one that never began", 1, unknown),
    )


async def tells_every_end(trial: Trial) -> None:
    """Each attempt has one reported end, the true one, after at most one start, with about the true run time."""
    loop, short = asyncio.get_running_loop(), trial.site.short
    followed: list[tuple[str, Run]] = []

    async def good(case: Case) -> None:
        asked = loop.time()
        run = await case.run(*case.servers, seconds=3 * short).start()
        followed.append((case.name, run))
        end = await run.finishes()
        passed = loop.time() - asked
        if end.seconds is not None and not 1.5 * short <= end.seconds <= passed + 1.5 * short:
            raise Broken(f"{run} took {end.seconds:g} s", f"about {3 * short:g} s, or up to {passed:g} s at most")

    async def own_fault(case: Case) -> None:
        run = await case.run(*case.servers, fails="main").start()
        followed.append((case.name, run))
        if not (await run.fails("job")).reason:
            raise Broken(f"{run} failed without a reason", "a reason")

    async def in_part(case: Case) -> None:
        a, b = case.servers
        run = await case.run((a, "main", 1), (b, "bad", 1), fails="bad").start()
        followed.append((case.name, run))
        await run.fails("job")
        await run.is_over()

    async def cancelled(case: Case) -> None:
        run = await case.run(*case.servers, seconds=LONG).start()
        followed.append((case.name, run))
        await run.has_begun()

        async def was_told() -> bool:
            return any(spell.starts(run.key) or _runs_in(spell, run) for spell in trial.driver.spells)

        try:
            await trial.until(was_told)
        except TimeoutError:
            raise Broken(f"the start of {run} was not reported", "a report") from None
        await asyncio.gather(run.cancel(), run.cancel())
        await run.fails("cancelled")
        await run.cancel()

    async def never_begun(case: Case) -> None:
        run = case.run(*case.servers, begins=False)
        followed.append((case.name, run))
        await run.cancel()
        await run.fails("cancelled")
        await run.cancel()

    await asyncio.gather(
        trial.case("a job that ends well", 1, good),
        trial.case("a gang that ends well", 2, good),
        trial.case("a gang that fails", 2, own_fault),
        trial.case("a gang of which one task fails", 2, in_part),
        trial.case("one that is cancelled", 1, cancelled),
        trial.case("one that is cancelled before it began", 1, never_begun),
    )
    trial.at_last = lambda: [(name, broken) for name, run in followed if (broken := _badly_told(trial, run))]


def _runs_in(spell: Spell, run: Run) -> bool:
    return any((a.job, a.attempt) == run.key and a.end is None for a in spell.snapshot.attempts)


def _badly_told(trial: Trial, run: Run) -> Broken | None:
    """Error in the reports about an attempt, in their order."""
    for spell in trial.driver.spells:
        starts, ends = spell.starts(run.key), spell.ends(run.key)
        if len(starts) > 1 or len(ends) > 1:
            return Broken(f"{len(starts)} starts and {len(ends)} ends of {run} were reported", "at most one of each")
        if starts and ends:
            if spell.events.index(starts[0]) > spell.events.index(ends[0]):
                return Broken(f"the end of {run} was reported before its start", "the start first")
            if starts[0].time > ends[0].time:
                return Broken(f"{run} started at {starts[0].time} and ended at {ends[0].time}", "times in their order")
    kinds = {told(end).partition(" (")[0] for spell in trial.driver.spells if (end := spell.end(run.key))}
    return Broken(f"{run} ended as {' and as '.join(sorted(kinds))}", "one end") if len(kinds) > 1 else None


async def cancelled_behind_our_back(trial: Trial) -> None:
    """An attempt ended from outside is reported as failed, once."""

    async def behind(case: Case) -> None:
        run = await case.run(*case.servers, seconds=LONG).start()
        await run.has_begun()
        await trial.site.cancel_behind(*run.key)
        await run.fails()
        await run.is_over()
        trial.at_last = lambda: [(case.name, broken)] if (broken := _badly_told(trial, run)) else []

    await trial.case("a gang", 2, behind)


async def tells_attempts_apart(trial: Trial) -> None:
    """Attempts of one job, and jobs with similar, long or unusual ids, are not confused."""

    async def again(case: Case) -> None:
        first = await case.run(*case.servers, seconds=LONG).start()
        await first.has_begun()
        await first.cancel()
        await first.fails("cancelled")
        await first.is_over()
        second = await case.run(*case.servers, of=first, attempt=2).start()
        await second.has_begun()
        await first.cancel()
        await first.start()
        if not await second.runs():
            raise Broken(f"a cancellation of attempt 1 ended {second}", "the other attempt to keep running")
        await second.cancel()
        await second.fails("cancelled")
        third = await case.run(*case.servers, of=first, attempt=11).start()
        await third.has_begun()

    def named(*names: tuple[str, int]) -> Callable[[Case], Awaitable[None]]:
        async def run(case: Case) -> None:
            a, b = case.servers
            for half in (names[:2], names[2:]):
                runs = [
                    await case.run(where, id=name, attempt=attempt).start()
                    for where, (name, attempt) in zip((a, b), half, strict=False)
                ]
                for each in runs:
                    await each.has_begun()
                    await each.finishes()

        return run

    base, long = f"{trial.tag}x", f"{trial.tag}.b_c@d-e".ljust(128, "x")
    await asyncio.gather(
        trial.case("several attempts", 1, again),
        trial.case("ids that look alike", 2, named((base, 11), (f"{base}-1", 1), (f"{base}.1", 1), (f"{base}_1", 1))),
        trial.case("odd ids", 2, named((f"{base}a.b_c@d-e", 1), (f"{base}A.b_c@d-e", 1), (f"{base}@", 1))),
        trial.case("ids of 128 letters", 2, named((long, 1), (f"{long[:-1]}y", 1))),
    )


NASTY = ("two words", 'it\'s "quoted"', "two\nlines", "$HOME `id` $(id)", "a;b|c&d>e", "", "--flag=x", "%j \\n * ~ é")


async def payload_is_data(trial: Trial) -> None:
    """Arguments and environment of a job reach its tasks unchanged, with any contents."""

    async def nasty(case: Case) -> None:
        environment = {f"CONTRACT_{i}": text for i, text in enumerate(NASTY)}
        run = await case.run(*case.servers, arguments=NASTY, environment=environment).start()
        await run.has_begun()
        for sight in await run.seen():
            if sight.arguments != NASTY:
                raise Broken(f"a task got the arguments {list(sight.arguments)}", str(list(NASTY)))
            got = {name: sight.environment.get(name) for name in environment}
            if got != environment:
                raise Broken(f"a task has the environment {got}", str(environment))
        await run.finishes()

    await trial.case("a gang", 2, nasty)


SIDE_BY_SIDE: dict[str, Check] = {
    "starts-what-was-asked": starts_what_was_asked,
    "all-or-nothing": all_or_nothing,
    "starts-once": starts_once,
    "cancels": cancels,
    "tells-every-end": tells_every_end,
    "cancelled-behind-our-back": cancelled_behind_our_back,
    "tells-attempts-apart": tells_attempts_apart,
    "payload-is-data": payload_is_data,
}
