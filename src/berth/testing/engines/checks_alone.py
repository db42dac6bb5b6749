"""Engine checks that disturb others and so run one by one: drivers, servers, controllers go away."""

from __future__ import annotations

import asyncio
from collections import Counter

from berth.live.core.events import Failed, Finished
from berth.live.engines import Snapshot
from berth.testing.engines.checks import Check
from berth.testing.engines.trial import LONG, Case, Run, Trial, told
from berth.testing.subject import Broken

__all__ = ["ALONE", "FIRST"]


async def lists_its_servers(trial: Trial) -> None:
    """A snapshot lists each server once, with its capacities, and the next one is equal if nothing happens."""
    first = await trial.driver.look()
    names = [server.name for server in first.servers]
    if len(set(names)) < len(names):
        raise Broken(f"servers {', '.join(names)}", "each server once")
    for server in first.servers:
        if not server.capacity.get("cpu"):
            raise Broken(f"server {server.name} has {dict(server.capacity)}", "an amount of cpu")
    await asyncio.sleep(trial.site.short)
    second = await trial.driver.look()
    before, after = ({server.name: server for server in each.servers} for each in (first, second))
    if before != after:
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        raise Broken(f"{', '.join(changed)} changed between two snapshots", "the same servers")
    if {(a.job, a.attempt) for a in first.attempts} != {(a.job, a.attempt) for a in second.attempts}:
        raise Broken("other attempts in the second of two snapshots", "the same attempts")


def _known(snapshot: Snapshot, run: Run, end: Finished | Failed | type[Finished] | None) -> None:
    """Check that a snapshot has an attempt once, with this end, with a good one, or with none yet and its servers."""
    found = [each for each in snapshot.attempts if (each.job, each.attempt) == run.key]
    if len(found) != 1:
        raise Broken(f"a snapshot has {run} {len(found)} times", "once")
    there = Counter({(place.role, place.server): place.count for place in found[0].places})
    if run.begins and found[0].end is None and there != run.tasks:
        raise Broken(f"a snapshot has {run} on {found[0].places}", str(run.places))
    said = told(found[0].end).partition(" (")[0]
    wanted = "Finished" if end is Finished else told(end).partition(" (")[0]  # type: ignore[arg-type]
    if said != wanted:
        raise Broken(f"a snapshot has {said} as the end of {run}", wanted)


async def goes_on_with_a_new_driver(trial: Trial) -> None:
    """A driver closes when asked; the next knows all attempts; nothing begins twice, all ends are reported."""
    short = trial.site.short

    async def restart(case: Case) -> None:
        a, b, c = case.servers
        long = await case.run((a, "head", 1), (a, "main", 1), (b, "main", 1), seconds=LONG).start()
        before = await case.run(c).start()
        ended = await before.finishes()
        unwanted = await case.run(c, seconds=LONG).start()
        await unwanted.has_begun()
        await unwanted.cancel()
        cancelled = await unwanted.fails("cancelled")
        meanwhile = await case.run(c, seconds=2 * short).start()
        await meanwhile.has_begun()
        await long.has_begun()
        await trial.driver.close()
        await meanwhile.is_over()
        found = await trial.driver.open()
        # reported at once, or as soon as the cluster itself notices
        await meanwhile.finishes()
        for run, end in ((long, None), (before, ended), (unwanted, cancelled)):
            _known(found, run, end)
        for run in (long, before, unwanted, meanwhile):
            await run.start()
        _known(await trial.driver.look(), meanwhile, Finished)
        later = await case.run(c).start()
        await later.finishes()
        await long.cancel()
        await long.fails("cancelled")
        await long.is_over()

    await trial.case("a restart of the scheduler's side", 3, restart)
    if trial.driver.stubborn:
        raise Broken(f"{trial.driver.stubborn} when they were cancelled", "an end of them")


async def leaves_jobs_running(trial: Trial) -> None:
    """Closing an engine ends nothing."""

    async def closed(case: Case) -> None:
        run = await case.run(*case.servers, seconds=LONG).start()
        await run.has_begun()
        await trial.driver.close()
        await asyncio.sleep(2 * trial.site.short)
        still = await run.runs()
        await trial.driver.open()
        if not still:
            raise Broken(f"{run} ended when the driver was closed", "it to keep running")

    await trial.case("a gang", 2, closed)


async def survives_the_other_side(trial: Trial) -> None:
    """After a restart of the cluster's side, tasks go on, nothing begins twice, and every end is reported."""
    short = trial.site.short

    async def restart(case: Case) -> None:
        a, b, c = case.servers
        before = await case.run(c).start()
        ended = await before.finishes()
        long = await case.run((a, "main", 2), (b, "main", 1), seconds=LONG).start()
        brief = await case.run(c, seconds=3 * short).start()
        await long.has_begun()
        await brief.has_begun()
        await trial.site.restart()
        await brief.finishes()
        found = await trial.driver.look()
        _known(found, long, None)
        _known(found, before, ended)
        for run in (long, before, brief):
            await run.start()
        if not await long.runs():
            raise Broken(f"{long} no longer runs", "it to keep running")
        later = await case.run(c).start()
        await later.finishes()
        await long.cancel()
        await long.fails("cancelled")
        await long.is_over()

    await trial.case("a restart of the other side", 3, restart)


async def survives_lost_servers(trial: Trial) -> None:
    """When a server is lost, all gangs on it fail by its fault, and no others; when it is back it is used."""

    async def is_there(server: str, there: bool) -> None:
        async def noticed() -> bool:
            return trial.driver.there(server) is there

        try:
            await trial.until(noticed)
        except TimeoutError:
            raise Broken(f"no report that {server} {'is back' if there else 'is lost'}", "a report") from None

    async def parts_elsewhere(run: Run, server: str) -> bool:
        return any(sight.state == "runs" and sight.server != server for sight in await run.seen())

    async def lost(case: Case) -> None:
        a, b, c = case.servers
        gang = await case.run(a, b, seconds=LONG).start()
        beside = await case.run(b, seconds=LONG).start()
        other = await case.run(c, seconds=LONG).start()
        for run in (gang, beside, other):
            await run.has_begun()
        await trial.site.lose(a)
        try:
            await is_there(a, False)
            await gang.fails("server")

            async def ended() -> bool:
                return not await parts_elsewhere(gang, a)

            try:
                await trial.until(ended)
            except TimeoutError:
                raise Broken(f"tasks of {gang} on {b} keep running without {a}", "all of them to end") from None
            await case.run(c, a, begins=False).refused()
            for run in (beside, other):
                if not await run.runs() or trial.driver.end(run.key) is not None:
                    raise Broken(f"{run} ended with a server that it was not on", "it to keep running")
        finally:
            await trial.site.restore(a)
        await is_there(a, True)
        new = await case.run(a).start()
        await new.has_begun()
        await new.finishes()

    await trial.case("a server that goes and comes back", 3, lost)


FIRST: dict[str, Check] = {"lists-its-servers": lists_its_servers}
ALONE: dict[str, Check] = {
    "goes-on-with-a-new-driver": goes_on_with_a_new_driver,
    "leaves-jobs-running": leaves_jobs_running,
    "survives-the-other-side": survives_the_other_side,
    "survives-lost-servers": survives_lost_servers,
}
