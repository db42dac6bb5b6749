"""A simulated cluster: jobs start at once, or after a latency, and run as long as their work takes on their servers.

The scheduler does not know how fast a job type runs on a server: there is a factor for each pair, and luck for each
attempt. Both come from named random streams, so that the same jobs meet the same luck whatever is decided. There is no
clock here: the caller gives the time.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from berth.errors import InvalidInput
from berth.live.core.events import Cancel, Event, Failed, Finished, Interrupt, ServerJoined, ServerLost, Start, Started
from berth.live.core.jobs import Job, Server
from berth.live.engines import Attempt, Snapshot
from berth.random import stream

__all__ = ["Latency", "SimulatedCluster", "Truth"]

REMEMBERED = 10_000
"""The number of ended attempts that are remembered."""


@dataclass(frozen=True)
class Truth:
    """How servers differ: by `spread` between types and servers and `noise` between runs, deviations of logarithms.

    `faults` is the share of attempts that fail halfway; jobs whose command is `false` always fail. An attempt that
    continues an interrupted one first takes `restart` seconds.
    """

    seed: int = 0
    spread: float = 0.0
    noise: float = 0.0
    faults: float = 0.0
    restart: float = 0.0

    def speed(self, type_: str, server: Server) -> float:
        """The true speed of jobs of a type on a server."""
        if not self.spread:
            return server.speed
        luck = stream(self.seed, "speed", type_, server.name).standard_normal()
        return float(server.speed * math.exp(self.spread * luck))

    def seconds(self, job: Job, start: Start, servers: Sequence[Server]) -> float:
        """How long an attempt runs on these servers: as long as on the slowest."""
        slowest = min(self.speed(job.type, server) for server in servers)
        luck = stream(self.seed, "run", start.job, str(start.attempt)).standard_normal() if self.noise else 0.0
        return job.expected_seconds / slowest * math.exp(self.noise * luck)

    def fails(self, job: Job, attempt: int) -> bool:
        """Whether an attempt fails halfway; jobs whose command is `false` always do."""
        if job.payload.get("command") == ["false"]:
            return True
        return bool(self.faults) and stream(self.seed, "fault", job.id, str(attempt)).random() < self.faults


@dataclass(frozen=True)
class Latency:
    """Seconds from a decision to the start of a job (`start`), and from its end to the report of it (`report`)."""

    start: float = 0.0
    report: float = 0.0


@dataclass
class _Attempt:
    start: Start
    began: float
    ends: float
    fails: bool = False
    restart: float = 0.0
    """Seconds before it works."""
    whole: float = math.inf
    """How long all of the job's work takes there."""
    takes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    end: Finished | Failed | None = None


def _taken(job: Job, start: Start) -> dict[tuple[str, str], int]:
    """What an attempt takes of each resource of each server."""
    demands = {role.name: role.demand for role in job.roles}
    takes: dict[tuple[str, str], int] = {}
    for place in start.places:
        for resource, milli in demands.get(place.role, {}).items():
            what = place.server, resource
            takes[what] = takes.get(what, 0) + milli * place.count
    return takes


class SimulatedCluster:
    """Servers, and the attempts that run on them."""

    def __init__(self, servers: Iterable[Server], truth: Truth | None = None, latency: Latency | None = None) -> None:
        self.servers = {server.name: server for server in servers}
        self.truth, self.latency = truth or Truth(), latency or Latency()
        self.lost: set[str] = set()
        self.started: dict[tuple[str, int], int] = {}
        """How often each attempt really began: never more than once."""
        self._attempts: dict[tuple[str, int], _Attempt] = {}
        self._used: dict[tuple[str, str], int] = {}
        """What is taken of each resource of each server."""
        self._done: dict[str, float] = {}
        """The share of its work that each interrupted job has done."""
        self._ended: deque[tuple[str, int]] = deque()
        self._ends: list[tuple[float, int, tuple[str, int]]] = []
        self._order = itertools.count()
        self._told: list[Event] = []

    def joined(self, time: float) -> list[Event]:
        """All servers, as events."""
        return [ServerJoined(time, server) for name, server in self.servers.items() if name not in self.lost]

    def execute(self, command: Start | Cancel, job: Job | None, time: float) -> bool:
        """Execute a command, idempotently; whether there was something to do."""
        self._advance(time)
        key = command.job, command.attempt
        attempt = self._attempts.get(key)
        if isinstance(command, Interrupt) and attempt is not None and attempt.began <= time:
            return self._interrupt(attempt, time)
        if isinstance(command, Cancel):
            if attempt is None:
                self._attempts[key] = attempt = _Attempt(Start(*key, ()), time, time)
                self._end(attempt, Failed(time, *key, "cancelled before it began", "cancelled"))
                return True
            if attempt.end is None:
                self._end(attempt, Failed(time, *key, "cancelled", "cancelled"))
                return True
            return False
        if attempt is not None:
            return False
        if job is None:
            raise InvalidInput("the job that is to start", value=None, key="job")
        takes = _taken(job, command)
        refusal = self._refusal(command, takes, time)
        if refusal is not None:
            self._attempts[key] = attempt = _Attempt(command, time, time)
            self._end(attempt, refusal)
            return True
        self._attempts[key] = attempt = self._begun(command, job, takes, time + self.latency.start)
        for what, milli in takes.items():
            self._used[what] = self._used.get(what, 0) + milli
        self.started[key] = self.started.get(key, 0) + 1
        heapq.heappush(self._ends, (attempt.ends, next(self._order), key))
        self._told.append(Started(attempt.began, *key))
        return True

    def _begun(self, start: Start, job: Job, takes: Mapping[tuple[str, str], int], began: float) -> _Attempt:
        """An attempt that begins, or continues an interrupted one."""
        if start.attempt == 1:
            self._done.pop(start.job, None)
        seconds = self.truth.seconds(job, start, [self._server(place.server) for place in start.places])
        fails, left = self.truth.fails(job, start.attempt), seconds * (1.0 - self._done.get(start.job, 0.0))
        restart = self.truth.restart if start.job in self._done else 0.0
        ends = began + restart + (0.5 * left if fails else left)
        return _Attempt(start, began, ends, fails, restart, seconds, takes)

    def _interrupt(self, attempt: _Attempt, time: float) -> bool:
        """End an attempt and keep what it did; whether it ran."""
        if attempt.end is not None:
            return False
        key, worked = (attempt.start.job, attempt.start.attempt), max(time - attempt.began - attempt.restart, 0.0)
        done = self._done[key[0]] = min(self._done.get(key[0], 0.0) + worked / attempt.whole, 1.0)
        self._end(attempt, Failed(time, *key, "interrupted", "interrupted", worked, done=done))
        return True

    def keep(self, job: str, done: float) -> None:
        """Note the share of its work that an interrupted job has done elsewhere."""
        self._done[job] = done

    def go_on(self, start: Start, job: Job, began: float, time: float) -> None:
        """Take over an attempt that runs since `began` on these servers; it ends at `time` at the earliest."""
        key, takes = (start.job, start.attempt), _taken(job, start)
        seconds = self.truth.seconds(job, start, [self._server(place.server) for place in start.places])
        ends = began + seconds * (1.0 - self._done.get(start.job, 0.0))
        attempt = _Attempt(start, began, max(ends, time), whole=seconds, takes=takes)
        self._attempts[key], self.started[key] = attempt, 1
        for what, milli in takes.items():
            self._used[what] = self._used.get(what, 0) + milli
        heapq.heappush(self._ends, (attempt.ends, next(self._order), key))

    def _refusal(self, start: Start, takes: Mapping[tuple[str, str], int], time: float) -> Failed | None:
        """Why an attempt cannot start as a whole, if it cannot."""
        for place in start.places:
            if place.server in self.lost or place.server not in self.servers:
                return Failed(time, start.job, start.attempt, f"server {place.server} is away", "server")
        for (server, resource), milli in takes.items():
            there = self.servers[server]
            left = there.capacity.get(resource, 0) - there.taken.get(resource, 0)
            if milli > max(left - self._used.get((server, resource), 0), 0):
                return Failed(time, start.job, start.attempt, f"too little {resource} is free on {server}", "engine")
        return None

    def _server(self, name: str) -> Server:
        if name not in self.servers:
            raise InvalidInput("a server of this cluster", value=name, key="server")
        return self.servers[name]

    def lose(self, name: str, time: float) -> None:
        """Lose a server with everything on it; gangs lose all of their parts."""
        self._server(name)
        self._advance(time)
        if name in self.lost:
            return
        self.lost.add(name)
        self._told.append(ServerLost(time, name))
        for key, attempt in list(self._attempts.items()):
            if attempt.end is None and any(place.server == name for place in attempt.start.places):
                self._end(attempt, Failed(time, *key, f"server {name} was lost", "server"))

    def restore(self, name: str, time: float) -> None:
        """Bring a server back, empty."""
        if name in self.lost:
            self.join(self._server(name), time)

    def join(self, server: Server, time: float) -> None:
        """Add or change a server."""
        self.lost.discard(server.name)
        self.servers[server.name] = server
        self._told.append(ServerJoined(time, server))

    def _end(self, attempt: _Attempt, event: Finished | Failed) -> None:
        attempt.end = event
        if isinstance(event, Finished) or event.fault in ("job", "cancelled"):
            self._done.pop(event.job, None)
        if event.time < attempt.began:  # it ended before it began to run
            self._told = [told for told in self._told if not (isinstance(told, Started) and told.job == event.job)]
        for what, milli in attempt.takes.items():
            self._used[what] -= milli
        self._told.append(event)
        self._ended.append((event.job, event.attempt))
        if len(self._ended) > REMEMBERED:
            oldest = self._ended.popleft()
            del self._attempts[oldest]
            self.started.pop(oldest, None)

    def _over(self, key: tuple[str, int]) -> bool:
        return key not in self._attempts or self._attempts[key].end is not None

    def _advance(self, time: float) -> None:
        """End all attempts that end up to this time."""
        while self._ends and self._ends[0][0] <= time:
            ends, _, key = heapq.heappop(self._ends)
            if self._over(key):
                continue
            attempt = self._attempts[key]
            if attempt.fails:
                self._end(attempt, Failed(ends + self.latency.report, *key, "a simulated fault", "job"))
            else:
                self._end(attempt, Finished(ends + self.latency.report, *key, ends - attempt.began))

    def due(self, time: float) -> list[Event]:
        """All events up to this time that were not reported yet, in order."""
        self._advance(time)
        told = [event for event in self._told if event.time <= time]
        if told:
            self._told = [event for event in self._told if event.time > time]
        return sorted(told, key=lambda event: event.time)

    @property
    def next_end(self) -> float:
        """When the next job ends or the next report is due; infinity if nothing runs."""
        while self._ends and self._over(self._ends[0][2]):
            heapq.heappop(self._ends)
        report = min((event.time for event in self._told), default=math.inf)
        return min(self._ends[0][0], report) if self._ends else report

    @property
    def running(self) -> dict[tuple[str, int], Start]:
        """Running attempts."""
        return {key: attempt.start for key, attempt in self._attempts.items() if attempt.end is None}

    @property
    def jobs(self) -> set[str]:
        """All jobs with an attempt that is remembered."""
        return {job for job, _ in self._attempts} | self._done.keys()

    def remembers(self, job: str, attempt: int) -> bool:
        """Whether a command for an attempt still matters: it is remembered, or its job has work that is kept."""
        return (job, attempt) in self._attempts or job in self._done

    def attempt(self, job: str, attempt: int) -> Attempt | None:
        """What is known of an attempt."""
        found = self._attempts.get((job, attempt))
        return None if found is None else Attempt(job, attempt, found.start.places, found.end)

    def snapshot(self) -> Snapshot:
        """All that is known of servers and attempts."""
        return Snapshot(
            tuple(server for name, server in self.servers.items() if name not in self.lost),
            tuple(Attempt(*key, attempt.start.places, attempt.end) for key, attempt in self._attempts.items()),
        )
