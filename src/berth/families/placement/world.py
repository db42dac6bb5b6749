"""World of a placement run: future tasks, and servers that will fail.

A world tracks running tasks, charges launches, and asks for a decision at every moment that can change one.

Axes: N tasks, T intervals between batches, R servers, K resources.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.problem import (
    REJECT,
    WAIT,
    Berths,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
    Tasks,
)
from berth.model import Floats, Ints, frozen_array

__all__ = ["Failure", "PlacementWorld"]

# order of events at one moment
END, DOWN, UP, START, BATCH = range(5)


class Failure(NamedTuple):
    """A server is down from `time` until `until` (inf: for good); its tasks are lost and pending again."""

    time: float
    server: int
    until: float = np.inf


class _Held(NamedTuple):
    """Berth of a running or reserved task: a row for each of its servers."""

    server: Ints
    demand: Floats
    devices: Floats | None
    start: float
    end: float
    """Estimated end."""
    done: float
    """True end."""


def _moments(tasks: Tasks, horizon: int, period: float | None) -> Floats:
    """Times of batches, (T,)."""
    if period is None:
        moments = np.asarray(np.unique(tasks.arrival) if len(tasks) else [0.0], dtype=np.float64)
        if len(moments) != horizon:
            raise InvalidInput(f"{len(moments)}, a batch for each moment of arrival", value=horizon, key="horizon")
        return moments
    if not (np.isfinite(period) and period > 0):
        raise InvalidInput("a time > 0", value=period, key="period")
    every = period * np.arange(horizon, dtype=np.float64)
    for place in np.flatnonzero(~np.isin(tasks.arrival, every)).tolist():
        raise InvalidInput(
            f"one of {horizon} moments {period:g} apart", value=float(tasks.arrival[place]), key=f"arrival[{place}]"
        )
    return every


def _check_tasks(problem: PlacementProblem, tasks: Tasks) -> None:
    """Check that tasks match the problem."""
    if not problem.gangs:
        for place in np.flatnonzero(tasks.pieces != 1):
            found = int(tasks.pieces[place])
            raise InvalidInput("1, in a problem without gangs", value=found, key=f"pieces[{place}]")
    ports = len(problem.instance.ports)
    for place in np.flatnonzero(tasks.port >= ports):
        raise InvalidInput(f"a port below {ports}", value=int(tasks.port[place]), key=f"port[{place}]")
    if problem.devices is not None:
        share = tasks.demand[:, problem.devices]
        for place in np.flatnonzero((share > 1) & (share != np.floor(share))):
            raise InvalidInput(
                "a share of one device, or whole devices", value=float(share[place]), key=f"demand[{place}]"
            )


class PlacementWorld:
    """Yields slots and answers decisions.

    A batch comes every `period`; `tasks` must arrive at those moments, the first at 0. With `period` None there is a
    batch at every arrival, and `horizon` must be the number of batches. After the last batch the run goes on until
    every task has ended or is worth nothing.

    `runs` (N,) is the true work of tasks if `tasks.work` is only an estimate; it may be 0.
    """

    measures = ("gain", "cost", "started", "dropped", "execution", "launch")
    """`gain` is the value of started tasks, `dropped` the number of tasks rejected or worthless after waiting."""

    def __init__(
        self,
        problem: PlacementProblem,
        tasks: Tasks,
        horizon: int,
        period: float | None = 1.0,
        failures: Sequence[Failure] = (),
        runs: Floats | None = None,
    ) -> None:
        if tasks.demand.shape[1] != problem.instance.capacity.shape[1]:
            raise InvalidInput("a demand for each resource", value=tasks.demand.shape, key="tasks.demand")
        if horizon < 1:
            raise InvalidInput("at least 1 batch", value=horizon, key="horizon")
        self.moments = _moments(tasks, horizon, period)
        _check_tasks(problem, tasks)
        if runs is not None:
            if problem.exact:
                raise InvalidInput("a problem whose times are not exact, with runs of their own", key="runs")
            runs = frozen_array(runs, "runs", (len(tasks),))
        for place, failure in enumerate(failures):
            if not 0 <= failure.server < len(problem.speed):
                raise InvalidInput("a server of the cluster", value=failure.server, key=f"failures[{place}].server")
            if not 0 <= failure.time < failure.until:
                raise InvalidInput("0 ≤ time < until", value=failure.time, key=f"failures[{place}].time")
        self.problem, self.tasks, self.horizon, self.failures = problem, tasks, horizon, tuple(failures)
        self.regular = period is not None
        """Whether batches are equally spaced; `period` is the mean time between them."""
        between = float(np.diff(self.moments).mean()) if horizon > 1 else 1.0
        self.period = between if period is None else period
        self.runs: Floats = tasks.work if runs is None else runs
        self._first = np.searchsorted(tasks.arrival, np.append(self.moments, np.inf))  # task of each batch, (T + 1,)
        self._reset()

    def __len__(self) -> int:
        return self.horizon

    def first(self, slots: int) -> PlacementWorld:
        """The same world cut at its batch number `slots`."""
        horizon = min(slots, self.horizon)
        early = np.arange(self._first[horizon])
        period = self.period if self.regular else None
        runs = None if self.runs is self.tasks.work else self.runs[early]
        return PlacementWorld(self.problem, self.tasks.take(early), horizon, period, self.failures, runs)

    def _reset(self) -> None:
        problem, size = self.problem, len(self.tasks)
        self._free = np.array(problem.instance.capacity)
        self._on_until = np.full(len(problem.speed), -np.inf)
        self._running = np.zeros(len(problem.speed), dtype=np.int64)
        self._failed = np.zeros(len(problem.speed), dtype=np.int64)  # number of failures that hold a server down
        self._pending = np.zeros(0, dtype=np.int64)
        self._devices = np.array(problem.all_devices)
        self._berth: dict[int, _Held] = {}
        self._rows = self._table({})
        self._gone: set[int] = set()  # tasks that have left but are still among the rows
        self._new: dict[int, _Held] = {}  # tasks not among the rows yet
        self._turn = np.zeros(size, dtype=np.int64)  # number of placements of a task: events of earlier turns are void
        self._events: list[tuple[float, int, int, int]] = []
        self._index = 0  # of the latest batch
        self._slot: PlacementSlot | None = None
        self._told: tuple[float, ...] = (0.0,) * len(self.measures)
        self._open_account()

    def _open_account(self) -> None:
        self._value = self._execution = self._launch = 0.0
        self._started: list[int] = []
        self._ended: list[int] = []
        self._lost: list[int] = []
        self._dropped = 0

    def __iter__(self) -> Iterator[PlacementSlot]:
        self._reset()
        self._events = [(float(moment), BATCH, t, 0) for t, moment in enumerate(self.moments)]
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
            self._slot = self._look(now)  # nothing left to decide, but an outcome to report
            yield self._slot

    def _happen(self, now: float, what: int, which: int, turn: int) -> bool:
        """Apply one event; return whether it took effect."""
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
        """Start a task on its berth, launching servers that are off."""
        held = self._berth[task]
        for row, server in enumerate(held.server.tolist()):
            self._free[server] -= held.demand[row]
            if held.devices is not None:
                self._devices[server] -= held.devices[row]
            if self._running[server] == 0 and not held.start <= self._on_until[server]:
                self._launch += float(self.problem.launch[server])
            self._running[server] += 1
            self._on_until[server] = np.inf
            self._execution += self._cost(held.demand[row], server, held.done - held.start)
        self._value += self._worth(task, held.done)
        self._started.append(task)
        heapq.heappush(self._events, (held.done, END, task, int(self._turn[task])))

    def _worth(self, task: int, end: float) -> float:
        tasks = self.tasks
        if end > tasks.deadline[task]:
            return 0.0
        return max(float(tasks.value[task] - tasks.decay[task] * (end - tasks.arrival[task])), 0.0)

    def _cost(self, demand: Floats, server: int, time: float) -> float:
        return float(self.problem.rate[server] * (self.problem.weight @ demand) * time)

    def _finish(self, task: int, now: float) -> None:
        self._release(self._leave(task), now)
        self._ended.append(task)

    def _leave(self, task: int) -> _Held:
        """Take a task off its berth."""
        if self._new.pop(task, None) is None:
            self._gone.add(task)
        return self._berth.pop(task)

    def _release(self, held: _Held, now: float) -> None:
        for row, server in enumerate(held.server.tolist()):
            self._running[server] -= 1
            if self._running[server] == 0:  # exactly, without rounding errors
                self._free[server] = self.problem.instance.capacity[server]
                self._devices[server] = self.problem.all_devices[server]
                self._on_until[server] = now + self.problem.idle
                continue
            self._free[server] += held.demand[row]
            if held.devices is not None:
                self._devices[server] += held.devices[row]

    def _lose(self, server: int, now: float) -> None:
        """Remove a failed server's tasks: their value is lost, their costs are not refunded."""
        lost = sorted(task for task, held in self._berth.items() if server in held.server)
        for task in lost:
            held = self._leave(task)
            if held.start < now or (held.start == now and task in self._started):
                self._release(held, now)
                self._value -= self._worth(task, held.done)
                for row, there in enumerate(held.server.tolist()):
                    self._execution -= self._cost(held.demand[row], there, held.done - now)
                self._lost.append(task)
        self._on_until[server] = -np.inf
        self._pending = np.sort(np.concatenate([self._pending, np.array(lost, dtype=np.int64)]))

    def _look(self, now: float) -> PlacementSlot:
        """Slot that the policy sees now; worthless tasks are dropped first."""
        alive = self.tasks.deadline[self._pending] > now
        self._dropped += int(len(alive) - alive.sum())
        self._pending = self._pending[alive]
        up = self._failed == 0
        free = np.where(up[:, None], self._free, 0.0)
        devices = np.where(up[:, None], self._devices, 0.0) if self.problem.devices is not None else None
        ids = self._pending.copy()
        return PlacementSlot(
            self._index, now, ids, self.tasks.take(ids), free, self._on_until.copy(), up, self._berths(), devices
        )

    def _berths(self) -> Berths:
        """Running and reserved tasks as the policy sees them: a copy, which it may modify."""
        keep = ~np.isin(self._rows.task, list(self._gone)) if self._gone else slice(None)
        parts = [self._rows] if not self._new else [self._rows, self._table(self._new)]
        columns: list[Any] = []
        for name in Berths.__dataclass_fields__:
            first, *more = (getattr(part, name) for part in parts)
            columns.append(None if first is None else np.concatenate([first[keep], *more]))
        self._rows, self._gone, self._new = Berths(*columns), set(), {}
        spare: list[Any] = [None if column is None else column.copy() for column in columns]
        return Berths(*spare)

    def _table(self, berths: dict[int, _Held]) -> Berths:
        held, resources = list(berths.values()), self._free.shape[1]
        size = np.array([len(part.server) for part in held], dtype=np.int64)
        task = np.fromiter(berths, dtype=np.int64, count=len(held))
        none = np.zeros((0, self._devices.shape[1]))
        devices = [part.devices for part in held if part.devices is not None]
        return Berths(
            np.repeat(task, size),
            np.concatenate([part.server for part in held]) if held else task,
            np.repeat(np.array([part.start for part in held], dtype=np.float64), size),
            np.repeat(np.array([part.end for part in held], dtype=np.float64), size),
            np.concatenate([part.demand for part in held]) if held else np.zeros((0, resources)),
            np.concatenate([none, *devices]) if self.problem.devices is not None else None,
        )

    def _here(self) -> PlacementSlot:
        if self._slot is None:
            raise InvalidInput("a slot: iterate over the world before playing in it", key="step")
        return self._slot

    def step(self, decision: PlacementDecision) -> PlacementOutcome:
        """Play a feasible decision now."""
        slot = self._here()
        new = self.problem.placed(slot, decision)
        edge = np.flatnonzero(np.diff(new.task, prepend=-1, append=-1))  # rows of one task are contiguous
        for first, last in zip(edge[:-1].tolist(), edge[1:].tolist(), strict=True):
            task, rows = int(new.task[first]), slice(first, last)
            start, end = float(new.start[first]), float(new.end[first])
            run, said = self.runs[task], self.tasks.work[task]
            done = end if run == said else start + float(run / self.problem.speed[new.server[rows]].min())
            devices = None if new.devices is None else new.devices[rows]
            held = _Held(new.server[rows], new.demand[rows], devices, start, end, done)
            self._berth[task] = self._new[task] = held
            self._turn[task] += 1
            if start > slot.time:
                heapq.heappush(self._events, (start, START, task, int(self._turn[task])))
            else:
                self._begin(task)
        self._dropped += int((decision.server == REJECT).sum())
        self._pending = slot.ids[decision.server == WAIT]
        if not self._berth and all(what in (END, START) for _, what, _, _ in self._events):
            self._dropped += len(self._pending)  # no further event: they will not be asked about again
            self._pending = self._pending[:0]
        started, ended, lost = (np.array(part, dtype=np.int64) for part in (self._started, self._ended, self._lost))
        outcome = PlacementOutcome(
            slot.index, slot.time, started, ended, lost, self._value, self._execution, self._launch
        )
        cost, fate = self._execution + self._launch, (float(len(started)), float(self._dropped))
        self._told = (self._value, cost, *fate, self._execution, self._launch)
        self._open_account()
        return outcome

    def score(self, decision: PlacementDecision) -> float:
        """Reward of this decision, feasible or not, if every task were placed; has no side effect."""
        slot = self._here()
        servers = np.clip(np.asarray(decision.server), REJECT, len(self.problem.speed) - 1)
        whole = {
            i: np.clip(part, 0, len(self.problem.speed) - 1)
            for i, part in decision.gangs.items()
            if 0 <= i < len(servers)
        }
        new = self.problem.placed(slot, PlacementDecision(servers, decision.start, whole))
        total = self._value - self._execution - self._launch
        for row, (task, server) in enumerate(zip(new.task.tolist(), new.server.tolist(), strict=True)):
            end = float(new.end[row])
            if row == 0 or new.task[row - 1] != task:
                total += self._worth(task, end)
            total -= self._cost(new.demand[row], server, end - float(new.start[row]))
        off = np.unique(new.server[~(new.start <= slot.on_until[new.server])])
        return float(total - self.problem.launch[off].sum())

    def measured(self, outcome: PlacementOutcome) -> tuple[float, ...]:
        """The numbers named in `measures`, for the slot just played."""
        return self._told

    def feedback(self, outcome: PlacementOutcome) -> list[PlacementOutcome]:
        """Outcomes that reach the policy: this one; the fate of tasks is in those of later slots."""
        return [outcome]
