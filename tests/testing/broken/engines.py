"""Engines that each break one promise: proof that the checks catch them.

All are the simulated engine with one fault. `BROKEN_ENGINES` maps each check to the engines it must catch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from berth.live.core.events import Cancel, Command, Event, Failed, Finished, ServerLost, Start, Started
from berth.live.core.jobs import Job, Place
from berth.live.engines import Attempt, EngineError, Snapshot
from berth.live.engines.clock import Clock
from berth.live.engines.simulated.engine import SimulatedEngine
from berth.testing.engines.simulated_site import WitnessedCluster

__all__ = ["BROKEN_ENGINES"]


class _Broken(SimulatedEngine):
    cluster: WitnessedCluster

    def __init__(self, cluster: WitnessedCluster, clock: Clock) -> None:
        super().__init__(cluster, clock)
        self.mine: set[tuple[str, int]] = set()
        """Attempts that this driver itself has started or cancelled."""

    async def execute(self, command: Command, job: Job | None, /) -> None:
        self.mine.add((command.job, command.attempt))
        await super().execute(command, job)

    def known(self, command: Command) -> Attempt | None:
        """The cluster's record of the attempt."""
        return self.cluster.attempt(command.job, command.attempt)


class Flickers(_Broken):
    """Leaves a server out of every second snapshot."""

    asked = 0

    async def snapshot(self) -> Snapshot:
        self.asked += 1
        found = await super().snapshot()
        return replace(found, servers=found.servers[self.asked % 2 :])


class HidesCapacities(_Broken):
    """Does not report the capacity of one of its servers."""

    async def snapshot(self) -> Snapshot:
        found = await super().snapshot()
        return replace(found, servers=(*found.servers[:-1], replace(found.servers[-1], capacity={})))


class MixesRoles(_Broken):
    """Starts head tasks as workers."""

    async def execute(self, command: Command, job: Job | None, /) -> None:
        known = self.known(command)
        await super().execute(command, job)
        if isinstance(command, Start) and known is None and {place.role for place in command.places} > {"worker"}:
            mixed = tuple(replace(place, role="worker") for place in command.places)
            self.cluster.begun[-1] = replace(command, places=mixed)


class StartsInPart(_Broken):
    """Starts those tasks of a gang that fit, and then finds that the rest does not."""

    async def execute(self, command: Command, job: Job | None, /) -> None:
        known = self.known(command)
        await super().execute(command, job)
        now = self.known(command)
        if isinstance(command, Start) and known is None and now is not None and now.end is not None:
            self.cluster.begun.append(replace(command, places=command.places[:1]))


class StartsAgain(_Broken):
    """Starts a running attempt once more, in the same life of the driver."""

    async def execute(self, command: Command, job: Job | None, /) -> None:
        known, mine = self.known(command), (command.job, command.attempt) in self.mine
        if isinstance(command, Start) and mine and known is not None and known.end is None:
            self.cluster.begun.append(command)
        await super().execute(command, job)


class StartsWhatHasEnded(_Broken):
    """Starts an ended attempt again, in the same life of the driver."""

    async def execute(self, command: Command, job: Job | None, /) -> None:
        known, mine = self.known(command), (command.job, command.attempt) in self.mine
        if isinstance(command, Start) and mine and known is not None and isinstance(known.end, Finished):
            self.cluster.begun.append(command)
        await super().execute(command, job)


class CancelsOnPaper(_Broken):
    """Reports an attempt as cancelled while one of its tasks runs on."""

    async def execute(self, command: Command, job: Job | None, /) -> None:
        known = self.known(command)
        await super().execute(command, job)
        if isinstance(command, Cancel) and known is not None and known.end is None and len(known.places) == 2:
            self.cluster.undead.add((known.job, known.attempt, known.places[1].server))


class CancelsOnlyItsOwn(_Broken):
    """Ignores a cancellation that comes without its job."""

    async def execute(self, command: Command, job: Job | None, /) -> None:
        if isinstance(command, Start) or job is not None:
            await super().execute(command, job)


class ForgetsCancellations(_Broken):
    """Starts an attempt that was cancelled before it began."""

    async def execute(self, command: Command, job: Job | None, /) -> None:
        known = self.known(command)
        if isinstance(command, Start) and known is not None and known.end is not None and not known.places:
            self.cluster.begun.append(command)
        await super().execute(command, job)


class _Teller(_Broken):
    async def events(self) -> AsyncIterator[Event]:
        async for event in super().events():
            for told in self.tell(event):
                yield told

    def tell(self, event: Event) -> list[Event]:
        """Events reported instead of an event."""
        return [event]


class HidesFailures(_Teller):
    """Does not report that a job failed by itself."""

    def tell(self, event: Event) -> list[Event]:
        return [] if isinstance(event, Failed) and event.fault == "job" else [event]


class PraisesFailures(_Teller):
    """Reports a job that failed by itself as finished."""

    def tell(self, event: Event) -> list[Event]:
        if isinstance(event, Failed) and event.fault == "job":
            return [Finished(event.time, event.job, event.attempt)]
        return [event]


class TellsEndsTwice(_Teller):
    """Reports twice that a job has finished."""

    def tell(self, event: Event) -> list[Event]:
        return [event, event] if isinstance(event, Finished) else [event]


class TellsStartsLate(_Teller):
    """Reports the start of a gang when it has finished, and other starts just before their end."""

    def __init__(self, cluster: WitnessedCluster, clock: Clock) -> None:
        super().__init__(cluster, clock)
        self.kept: dict[tuple[str, int], Event] = {}

    def tell(self, event: Event) -> list[Event]:
        known = self.cluster.attempt(event.job, event.attempt) if isinstance(event, Started) else None
        if known is not None and len(known.places) == 2:
            self.kept[known.job, known.attempt] = event
            return []
        late = self.kept.pop((event.job, event.attempt), None) if isinstance(event, Finished | Failed) else None
        if late is None:
            return [event]
        return [event, late] if isinstance(event, Finished) else [late, event]


class HidesStarts(_Teller):
    """Reports no starts."""

    def tell(self, event: Event) -> list[Event]:
        return [] if isinstance(event, Started) else [event]


class CannotMeasure(_Teller):
    """Reports a run time of 0."""

    def tell(self, event: Event) -> list[Event]:
        return [replace(event, seconds=0.0)] if isinstance(event, Finished) else [event]


class HearsOnlyItself(_Teller):
    """Does not report cancellations by others."""

    def __init__(self, cluster: WitnessedCluster, clock: Clock) -> None:
        super().__init__(cluster, clock)
        self.cancelled: set[tuple[str, int]] = set()

    async def execute(self, command: Command, job: Job | None, /) -> None:
        if isinstance(command, Cancel):
            self.cancelled.add((command.job, command.attempt))
        await super().execute(command, job)

    def tell(self, event: Event) -> list[Event]:
        if (
            isinstance(event, Failed)
            and event.fault == "cancelled"
            and (event.job, event.attempt) not in self.cancelled
        ):
            return []
        return [event]


class ShortensIds(_Broken):
    """Identifies jobs by the first hundred letters of their ids."""

    async def execute(self, command: Command, job: Job | None, /) -> None:
        alike = {key[0] for key in self.cluster.started if key[0][:100] == command.job[:100]} - {command.job}
        if not alike:
            await super().execute(command, job)


class CancelsAllAttempts(_Broken):
    """Cancels every attempt of a job instead of one."""

    async def execute(self, command: Command, job: Job | None, /) -> None:
        if isinstance(command, Cancel):
            for other in [key for key in self.cluster.running if key[0] == command.job and key[1] != command.attempt]:
                await super().execute(Cancel(*other), job)
        await super().execute(command, job)


class MisplacesAttempts(_Broken):
    """Reports all attempts on one server."""

    async def snapshot(self) -> Snapshot:
        found = await super().snapshot()
        there = [replace(a, places=tuple(replace(p, server="n0") for p in a.places)) for a in found.attempts]
        return replace(found, attempts=tuple(there))


class ForgetsWhatEnded(_Broken):
    """Lists only running attempts in its snapshots."""

    async def snapshot(self) -> Snapshot:
        found = await super().snapshot()
        return replace(found, attempts=tuple(attempt for attempt in found.attempts if attempt.end is None))


class BeginsAnew(_Broken):
    """Starts an attempt again in a new driver, unless that driver itself had started it."""

    async def execute(self, command: Command, job: Job | None, /) -> None:
        key = command.job, command.attempt
        if isinstance(command, Start) and self.known(command) is not None and key not in self.mine:
            self.cluster.begun.append(command)
        await super().execute(command, job)


class HoldsOn(_Broken):
    """Treats the end of its listener as an engine failure."""

    async def events(self) -> AsyncIterator[Event]:
        try:
            async for event in super().events():
                yield event
        except asyncio.CancelledError:
            raise EngineError("nobody is there") from None


class EndsWithItsDriver(_Broken):
    """Ends everything when it is closed."""

    async def close(self) -> None:
        for key in self.cluster.running:
            await self.execute(Cancel(*key), None)
        await super().close()


class HidesLosses(_Teller):
    """Does not report that a server is lost."""

    def tell(self, event: Event) -> list[Event]:
        return [] if isinstance(event, ServerLost) else [event]


class LeavesHalfGangs(_Teller):
    """Keeps the parts of a gang that are not on the lost server running."""

    def tell(self, event: Event) -> list[Event]:
        if isinstance(event, Failed) and event.fault == "server":
            known = self.cluster.attempt(event.job, event.attempt)
            places: tuple[Place, ...] = () if known is None else known.places
            self.cluster.undead.update((event.job, event.attempt, place.server) for place in places)
        return [event]


class BlamesJobs(_Teller):
    """Blames a job for ending with its server."""

    def tell(self, event: Event) -> list[Event]:
        return [replace(event, fault="job")] if isinstance(event, Failed) and "was lost" in event.reason else [event]


class EndsAllWithAServer(_Teller):
    """Ends everything when a server is lost."""

    def tell(self, event: Event) -> list[Event]:
        if isinstance(event, ServerLost):
            for key in self.cluster.running:
                self.cluster.execute(Cancel(*key), None, self.clock())
        return [event]


BROKEN_ENGINES: dict[str, list[type[SimulatedEngine]]] = {
    "lists-its-servers": [Flickers, HidesCapacities],
    "starts-what-was-asked": [MixesRoles],
    "all-or-nothing": [StartsInPart],
    "starts-once": [StartsAgain, StartsWhatHasEnded],
    "cancels": [CancelsOnPaper, CancelsOnlyItsOwn, ForgetsCancellations],
    "tells-every-end": [HidesFailures, PraisesFailures, TellsEndsTwice, TellsStartsLate, HidesStarts, CannotMeasure],
    "cancelled-behind-our-back": [HearsOnlyItself],
    "tells-attempts-apart": [ShortensIds, CancelsAllAttempts],
    "goes-on-with-a-new-driver": [MisplacesAttempts, ForgetsWhatEnded, BeginsAnew, HoldsOn],
    "leaves-jobs-running": [EndsWithItsDriver],
    "survives-lost-servers": [HidesLosses, LeavesHalfGangs, BlamesJobs, EndsAllWithAServer],
}
"""Broken engines by the check that catches them; missing checks need more than a simulated cluster."""
