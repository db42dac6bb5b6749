"""Conservative backfilling: a reservation for every task."""

from __future__ import annotations

import numpy as np

from berth.errors import UnsupportedProblem
from berth.families.placement.kernels.gathering import Free, Pieces, Rows
from berth.families.placement.kernels.queueing import Ends
from berth.families.placement.kernels.reservations import Staircase, plan_all
from berth.families.placement.policies.queue_rule import CONSERVATIVE, QueueRule
from berth.families.placement.policies.queued import FITS, QueuedPolicy
from berth.families.placement.problem import PlacementProblem, PlacementSlot
from berth.model import Floats, Ints

__all__ = ["Conservative"]


class Conservative(QueuedPolicy):
    """Every task gets a reservation when it arrives, the earliest that delays no other, and starts when that is due.

    When a task ends before its estimate, waiting tasks move forward, in order of arrival, to their earliest possible
    place, repeatedly until none moves; so none starts later than promised. If a task runs longer than its estimate,
    promises cannot be kept: its resources count as held for ever, and all reservations are made anew in order of
    arrival, at every moment until it has ended. On servers of unequal speed a reservation lasts as long as on the
    slowest that the task may use.

    Setting: `fit`, as in fcfs. It plans the whole queue on the whole cluster, which is slow for thousands of waiting
    tasks on hundreds of servers.

    >>> from berth.testing import example_placement
    >>> Conservative(example_placement(), np.random.default_rng(0)).fit
    'first'
    """

    reference = "Mu'alem & Feitelson, Utilization, Predictability, Workloads, and User Runtime Estimates, TPDS 2001"

    def __init__(self, problem: PlacementProblem, rng: np.random.Generator, *, fit: str = "first") -> None:
        super().__init__(problem, fit=fit)
        if problem.devices is not None:
            raise UnsupportedProblem("conservative backfilling cannot keep reservations on devices that tasks share")
        slowest = np.where(problem.reach, problem.speed, np.inf).min(axis=1)
        self._slowest = np.where(np.isfinite(slowest), slowest, 1.0)
        # a reservation may then be longer than the task's run time on its servers
        self._unequal = bool((problem.reach & (problem.speed != self._slowest[:, None])).any())
        self._plan: dict[int, tuple[float, Ints, Ints]] = {}  # start, servers and pieces on each, of waiting tasks
        self._ends: dict[int, float] = {}  # known ends of the tasks that ran
        self._up: Ints | None = None

    @property
    def queue_rule(self) -> QueueRule | None:
        return QueueRule(backfill=CONSERVATIVE, fit=self.fit)

    def start(self, slot: PlacementSlot, pieces: Pieces, free: Free, rows: Rows) -> None:
        late, early = self._surprises(slot)
        at, place = self._recalled(slot, rows)
        held = slot.berths
        by_end = np.argsort(held.end, kind="stable")
        servers, resources = free.amount.shape
        steps = 1 + len(by_end) + 4 * len(slot.ids)
        stairs = Staircase(
            np.empty(steps),
            np.empty((steps, servers, resources)),
            np.zeros(1, dtype=np.int64),
            Free(np.empty((servers, resources)), free.devices, free.off),
        )
        ends = Ends(held.end[by_end], held.server[by_end], held.demand[by_end], np.array([len(by_end)]))
        length = slot.tasks.work / self._slowest[slot.tasks.port]
        plan_all(
            np.arange(len(slot.ids)),
            self._fleet,
            free,
            self._classes,
            pieces,
            length,
            FITS[self.fit],
            ends,
            slot.time,
            late,
            early,
            at,
            place,
            stairs,
            rows,
        )
        self._keep(slot, at, place, rows)

    def _surprises(self, slot: PlacementSlot) -> tuple[bool, bool]:
        """Whether plans must be made anew, and whether they may move forward."""
        ends = dict(zip(slot.berths.task.tolist(), slot.berths.end.tolist(), strict=True))
        gone = [end for task, end in self._ends.items() if task not in ends]
        up = np.flatnonzero(slot.up)
        late = any(end <= slot.time for end in ends.values()) or any(end < slot.time for end in gone)
        late = late or self._up is None or not np.array_equal(up, self._up)
        late = late or any(start < slot.time for start, _, _ in self._plan.values())
        dropped = not self._plan.keys() <= set(slot.ids.tolist())  # a deadline has passed, which frees its place
        self._ends, self._up = ends, up
        return late, self._unequal or dropped or any(end > slot.time for end in gone)

    def _recalled(self, slot: PlacementSlot, rows: Rows) -> tuple[Floats, Ints]:
        """Planned start of each pending task, and the start of its rows: one for each of its pieces or all servers."""
        size = np.minimum(slot.tasks.pieces, len(self.problem.speed))
        place = np.cumsum(size) - size
        at = np.full(len(slot.ids), np.nan)
        rows.task[:] = -1
        for i, task in enumerate(slot.ids.tolist()):
            if task in self._plan:
                at[i], server, count = self._plan[task]
                there = slice(place[i], place[i] + len(server))
                rows.task[there], rows.server[there], rows.count[there] = i, server, count
        return at, place

    def _keep(self, slot: PlacementSlot, at: Floats, place: Ints, rows: Rows) -> None:
        """Keep only the rows of tasks that start now, and remember those of the others."""
        self._plan, first = {}, 0
        task, server, count = rows.task.copy(), rows.server.copy(), rows.count.copy()
        last = np.append(place[1:], len(task))
        for i, name in enumerate(slot.ids.tolist()):
            mine = np.arange(place[i], last[i])
            mine = mine[task[mine] == i] if at[i] < np.inf else mine[:0]
            if at[i] <= slot.time:
                for row in mine:
                    rows.task[first], rows.server[first], rows.count[first] = i, server[row], count[row]
                    first += 1
                self._ends[name] = slot.time + float(slot.tasks.work[i] / self.problem.speed[server[mine]].min())
            else:
                self._plan[name] = (float(at[i]), server[mine], count[mine])
        rows.size[0] = first
