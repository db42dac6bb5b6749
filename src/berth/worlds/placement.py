"""The truth of a placement run: the tasks to come, and the servers that will fail.

A world keeps what runs where, charges launches, and calls for a decision at every moment that can change one.

Axes: N tasks, T intervals between batches, R servers, K resources.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from berth.errors import InvalidInput
from berth.problems.placement import (
    REJECT,
    WAIT,
    Berths,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
    Tasks,
)

__all__ = ["Failure", "PlacementWorld"]

# what happens at one moment, in this order
END, DOWN, UP, START, BATCH = range(5)


class Failure(NamedTuple):
    """A server is down from `time` until `until` (inf: for good); its tasks are lost and pending again."""

    time: float
    server: int
    until: float = np.inf


class PlacementWorld:
    """Yields slots and answers decisions.

    A batch comes every `period`; `tasks` must arrive at those moments, the first at 0. After the last of `horizon`
    batches the run goes on until every task has ended or can no longer be worth anything.
    """

    measures = ("gain", "cost", "started", "dropped")
    """`gain` is the value of what was started, `dropped` how many tasks were rejected or became worthless waiting."""

    def __init__(
        self,
        problem: PlacementProblem,
        tasks: Tasks,
        horizon: int,
        period: float = 1.0,
        failures: Sequence[Failure] = (),
    ) -> None:
        if tasks.demand.shape[1] != problem.instance.capacity.shape[1]:
            raise InvalidInput("a demand for each resource", value=tasks.demand.shape, key="tasks.demand")
        if horizon < 1:
            raise InvalidInput("at least 1 batch", value=horizon, key="horizon")
        if not (np.isfinite(period) and period > 0):
            raise InvalidInput("a time > 0", value=period, key="period")
        moments = period * np.arange(horizon)
        for place in np.flatnonzero(~np.isin(tasks.arrival, moments)).tolist():
            raise InvalidInput(
                f"one of {horizon} moments {period:g} apart", value=float(tasks.arrival[place]), key=f"arrival[{place}]"
            )
        for place, failure in enumerate(failures):
            if not 0 <= failure.server < len(problem.speed):
                raise InvalidInput("a server of the cluster", value=failure.server, key=f"failures[{place}].server")
            if not 0 <= failure.time < failure.until:
                raise InvalidInput("0 ≤ time < until", value=failure.time, key=f"failures[{place}].time")
        self.problem, self.tasks, self.horizon, self.period = problem, tasks, horizon, period
        self.failures = tuple(failures)
        self._first = np.searchsorted(tasks.arrival, np.append(moments, np.inf))  # task of each batch, (T + 1,)
        self._reset()

    def __len__(self) -> int:
        return self.horizon

    def _reset(self) -> None:
        problem, size = self.problem, len(self.tasks)
        self._free = np.array(problem.instance.capacity)
        self._on_until = np.full(len(problem.speed), -np.inf)
        self._running = np.zeros(len(problem.speed), dtype=np.int64)
        self._failed = np.zeros(len(problem.speed), dtype=np.int64)  # how many failures hold a server down
        self._pending = np.zeros(0, dtype=np.int64)
        self._berth: dict[int, tuple[int, float, float]] = {}  # server, start, end of tasks that run or are reserved
        self._turn = np.zeros(size, dtype=np.int64)  # how often a task was placed: events of earlier turns are void
        self._events: list[tuple[float, int, int, int]] = []
        self._index = 0  # of the latest batch
        self._slot: PlacementSlot | None = None
        self._told = (0.0, 0.0, 0.0, 0.0)
        self._open_account()

    def _open_account(self) -> None:
        self._value = self._execution = self._launch = 0.0
        self._started: list[int] = []
        self._ended: list[int] = []
        self._lost: list[int] = []
        self._dropped = 0

    def __iter__(self) -> Iterator[PlacementSlot]:
        self._reset()
        self._events = [(t * self.period, BATCH, t, 0) for t in range(self.horizon)]
        for place, failure in enumerate(self.failures):
            self._events.append((failure.time, DOWN, place, 0))
            if np.isfinite(failure.until):
                self._events.append((failure.until, UP, place, 0))
        heapq.heapify(self._events)
        now = 0.0
        while self._events:
            now = self._events[0][0]
            happened = set()
            while self._events and self._events[0][0] == now:
                _, what, which, turn = heapq.heappop(self._events)
                if self._happen(now, what, which, turn):
                    happened.add(what)
            if BATCH in happened or (len(self._pending) and happened - {START}):
                self._slot = self._look(now)
                yield self._slot
        if self._started or self._ended or self._lost:
            self._slot = self._look(now)  # nothing is left to decide, but something to tell
            yield self._slot

    def _happen(self, now: float, what: int, which: int, turn: int) -> bool:
        """Let one event happen; says whether it did."""
        if what == BATCH:
            new = np.arange(self._first[which], self._first[which + 1])
            self._pending = np.concatenate([self._pending, new])
            self._index = which
        elif what == DOWN:
            self._failed[self.failures[which].server] += 1
            self._lose(self.failures[which].server, now)
        elif what == UP:
            self._failed[self.failures[which].server] -= 1
        elif self._turn[which] != turn or which not in self._berth:
            return False
        elif what == START:
            self._begin(which)
        else:
            self._finish(which, now)
        return True

    def _begin(self, task: int) -> None:
        """Start a task on its berth: its server is launched where it is off."""
        server, start, end = self._berth[task]
        self._free[server] -= self.tasks.demand[task]
        if self._running[server] == 0 and not start <= self._on_until[server]:
            self._launch += float(self.problem.launch[server])
        self._running[server] += 1
        self._on_until[server] = np.inf
        self._value += self._worth(task, end)
        self._execution += self._cost(task, server, end - start)
        self._started.append(task)

    def _worth(self, task: int, end: float) -> float:
        tasks = self.tasks
        if end > tasks.deadline[task]:
            return 0.0
        return max(float(tasks.value[task] - tasks.decay[task] * (end - tasks.arrival[task])), 0.0)

    def _cost(self, task: int, server: int, time: float) -> float:
        problem = self.problem
        return float(problem.rate[server] * (problem.weight @ self.tasks.demand[task]) * time)

    def _finish(self, task: int, now: float) -> None:
        server, _, _ = self._berth.pop(task)
        self._release(task, server, now)
        self._ended.append(task)

    def _release(self, task: int, server: int, now: float) -> None:
        self._running[server] -= 1
        if self._running[server] == 0:
            self._free[server] = self.problem.instance.capacity[server]  # exactly, whatever sums of floats say
            self._on_until[server] = now + self.problem.idle
        else:
            self._free[server] += self.tasks.demand[task]

    def _lose(self, server: int, now: float) -> None:
        """Take a failed server's tasks away: what they would have brought is lost, what they have cost is not."""
        lost = sorted(task for task, (there, _, _) in self._berth.items() if there == server)
        for task in lost:
            _, start, end = self._berth.pop(task)
            if start < now or (start == now and task in self._started):
                self._release(task, server, now)
                self._value -= self._worth(task, end)
                self._execution -= self._cost(task, server, end - now)
                self._lost.append(task)
        self._on_until[server] = -np.inf
        self._pending = np.sort(np.concatenate([self._pending, np.array(lost, dtype=np.int64)]))

    def _look(self, now: float) -> PlacementSlot:
        """What the policy sees now; tasks that can no longer be worth anything are dropped first."""
        alive = self.tasks.deadline[self._pending] > now
        self._dropped += int(len(alive) - alive.sum())
        self._pending = self._pending[alive]
        up = self._failed == 0
        free = np.where(up[:, None], self._free, 0.0)
        held = np.fromiter(self._berth, dtype=np.int64, count=len(self._berth))
        places = np.array(list(self._berth.values()), dtype=np.float64).reshape(-1, 3)
        berths = Berths(held, places[:, 0].astype(np.int64), places[:, 1], places[:, 2], self.tasks.demand[held])
        ids = self._pending.copy()
        return PlacementSlot(self._index, now, ids, self.tasks.take(ids), free, self._on_until.copy(), up, berths)

    def _here(self) -> PlacementSlot:
        if self._slot is None:
            raise InvalidInput("a slot: iterate over the world before playing in it", key="step")
        return self._slot

    def step(self, decision: PlacementDecision) -> PlacementOutcome:
        """Play a feasible decision now."""
        slot = self._here()
        new = self.problem.placed(slot, decision)
        for task, server, start, end in zip(new.task.tolist(), new.server.tolist(), new.start, new.end, strict=True):
            self._berth[task] = (server, float(start), float(end))
            self._turn[task] += 1
            heapq.heappush(self._events, (float(end), END, task, int(self._turn[task])))
            if start > slot.time:
                heapq.heappush(self._events, (float(start), START, task, int(self._turn[task])))
            else:
                self._begin(task)
        self._dropped += int((decision.server == REJECT).sum())
        self._pending = slot.ids[decision.server == WAIT]
        if not self._berth and all(what in (END, START) for _, what, _, _ in self._events):
            self._dropped += len(self._pending)  # nothing will happen any more: nobody will ask about them again
            self._pending = self._pending[:0]
        started, ended, lost = (np.array(part, dtype=np.int64) for part in (self._started, self._ended, self._lost))
        outcome = PlacementOutcome(
            slot.index, slot.time, started, ended, lost, self._value, self._execution, self._launch
        )
        self._told = (self._value, self._execution + self._launch, float(len(started)), float(self._dropped))
        self._open_account()
        return outcome

    def score(self, decision: PlacementDecision) -> float:
        """The reward that this decision would have, feasible or not, if every task found its place; changes nothing."""
        slot = self._here()
        servers = np.clip(np.asarray(decision.server), REJECT, len(self.problem.speed) - 1)
        new = self.problem.placed(slot, PlacementDecision(servers, decision.start))
        total = self._value - self._execution - self._launch
        for task, server, start, end in zip(new.task.tolist(), new.server.tolist(), new.start, new.end, strict=True):
            total += self._worth(task, float(end)) - self._cost(task, server, float(end - start))
        off = np.unique(new.server[~(new.start <= slot.on_until[new.server])])
        return float(total - self.problem.launch[off].sum())

    def measured(self, outcome: PlacementOutcome) -> tuple[float, ...]:
        """The numbers named in `measures`, for the slot just played."""
        return self._told

    def feedback(self, outcome: PlacementOutcome) -> list[PlacementOutcome]:
        """The outcomes that reach the policy: this one; how tasks fare is in those of later slots."""
        return [outcome]
