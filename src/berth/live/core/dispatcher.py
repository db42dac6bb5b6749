"""The dispatcher: events in, commands out. It does no IO and reads no clock.

`handle` applies an event. `decide` asks the policy what to start now and returns a `Decided` event, which takes effect
when it is handled in turn. The caller writes each event to the journal in between, so every action is in the journal.
If the policy's decision is infeasible, raises or takes too long, the dispatcher refuses it, counts the refusal, and
lets the fallback decide.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np

from berth.errors import BerthError, UnsupportedProblem
from berth.files.quantities import Amounts
from berth.live.core import FALLBACK
from berth.live.core.drivers import Driver, in_order, make_driver, proposed
from berth.live.core.dumped import Dumped, read_dump, write_dump
from berth.live.core.events import (
    Decided,
    Event,
    Failed,
    Finished,
    PolicyChanged,
    ServerJoined,
    ShadowChanged,
    Start,
    Started,
    Submitted,
)
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.limits import Headroom
from berth.live.core.order import starting, view_within_limits
from berth.live.core.queues import Queues
from berth.live.core.records import Handled, JobRecord, Outcome
from berth.live.core.runtimes import seconds_left
from berth.live.core.state import State
from berth.live.core.view import Placing, View, placed_in_order, violations
from berth.live.core.windows import Windows
from berth.model import Floats, Ints

__all__ = ["FALLBACK", "Dispatcher", "Dumped", "Watcher", "read_dump", "write_dump"]

THINKING = 0.3
"""The share of its budget within which a policy is asked repeatedly; the rest is for the last question."""
MEMORY = 10_000
"""The number of recent runs that a new policy learns from."""
MADE_UP, ROUNDS = 8, 4
"""Made-up jobs of each kind that warm a policy (more than fit, so that some wait), and decisions about them."""


class Watcher(Protocol):
    """An observer of decisions."""

    def see(self, view: View, placing: Placing, by: str, /) -> None:
        """Note a decision; `by` is the policy that made it."""
        ...

    def learn(self, outcome: Outcome, /) -> None:
        """Learn from the end of a job."""
        ...

    def dump(self) -> dict[str, Any]:
        """Give what it has seen, for JSON, under its name."""
        ...


class Dispatcher:
    """A scheduler without IO.

    `budget` is how many seconds a policy may take to decide. `stopwatch` gives seconds; without it no time passes.
    Servers with the same value of the label `learn_by` share what is learned. A `bare` policy decides as in the lab:
    gangs are not gathered on few servers, and no job that it starts is deferred to faster ones. `units` says how many
    whole numbers are one unit of a resource, where that is not a thousand.
    """

    def __init__(
        self,
        policy: str = FALLBACK,
        *,
        seed: int = 0,
        queues: Queues | None = None,
        budget: float = 1.0,
        stopwatch: Callable[[], float] | None = None,
        learn_by: str | None = None,
        bare: bool = False,
        units: Amounts | None = None,
    ) -> None:
        self.bare = bare
        self.state = State(queues, policy, learn_by, units)
        self.seed, self.budget = seed, budget
        self.refusals: Counter[str] = Counter()
        """The number of refused decisions, by kind of reason."""
        self.memory: deque[Outcome] = deque(maxlen=MEMORY)
        self.watchers: tuple[Watcher, ...] = ()
        self.watched: dict[str, Any] = {}
        """The state of watchers in the loaded snapshot, from which new watchers continue."""
        self._stopwatch = stopwatch or (lambda: 0.0)
        self._driver: Driver | None = self._make_driver(policy)

    @property
    def driver(self) -> Driver | None:
        """The adapter between the state and the policy; None if the fallback is the policy."""
        return self._driver

    @property
    def wrapped(self) -> str:
        """The policy that decides, in its wrappers, such as `Leveled(Deferring(Gathering(best-fit)))`."""
        return f"Leveled({FALLBACK})" if self._driver is None else str(self._driver)

    def _make_driver(self, policy: str) -> Driver | None:
        return None if policy == FALLBACK else make_driver(policy, self.seed, self.memory, bare=self.bare)

    def handle(self, event: Event) -> Handled:
        """Apply an event; returns the commands that follow from it and the records that changed."""
        if isinstance(event, PolicyChanged):
            driver = self._make_driver(event.policy)  # raises before anything changes if it cannot use the policy
            handled = self.state.handle(event)
            self._driver = driver
            return handled
        handled = self.note(event)
        if handled.outcome is not None:
            if self._driver is not None:
                self._driver.learn(handled.outcome)
            for watcher in self.watchers:
                watcher.learn(handled.outcome)
        return handled

    def replay(self, events: Iterable[Event]) -> None:
        """Rebuild the state from these events; their commands were given before."""
        for event in events:
            self.note(event)
        self._driver = self._make_driver(self.state.policy)

    def note(self, event: Event) -> Handled:
        """Apply an event without telling the policy: the first half of a replay."""
        handled = self.state.handle(event)
        if isinstance(event, ShadowChanged):
            self.watched.pop("shadow", None)
        if isinstance(event, Decided) and event.refused is not None:
            self.refusals[event.refused.split(maxsplit=1)[0].rstrip(":")] += 1
        if handled.outcome is not None:
            self.memory.append(handled.outcome)
        return handled

    def dump(self) -> Dumped:
        """Take a snapshot."""
        return self.dump_later()()

    def dump_later(self) -> Callable[[], Dumped]:
        """Copy quickly what a snapshot needs; the answer, which any thread may call, takes the snapshot."""
        watched = dict(self.watched)
        for watcher in self.watchers:
            watched.update(watcher.dump())
        state, memory, refusals = self.state.copied_to_dump(), tuple(self.memory), dict(self.refusals)
        return lambda: Dumped(state.dump(), memory, refusals, watched)

    def load(self, dumped: Dumped) -> Self:
        """Continue from a snapshot. `replay` then makes the policy, even if there are no events to replay."""
        self.state = State.load(dumped.state, self.state.learn_by, self.state.units)
        self.memory.clear()
        self.memory.extend(dumped.memory)
        self.refusals = Counter(dumped.refusals or {})
        self.watched = dict(dumped.watched or {})
        self._driver = None
        return self

    def warm(self, policy: str | None = None) -> None:
        """Let a policy of this name decide about made-up jobs, so that its kernels are compiled before real jobs come.

        If all of its decisions are refused, it cannot decide on a live cluster: `UnsupportedProblem` says why.
        """
        name = policy or self.state.policy
        servers = [record.server for record in self.state.servers.values()]
        refused = _play(Dispatcher(name, seed=self.seed), servers)
        if refused is not None:
            raise UnsupportedProblem(
                f"the policy {name} cannot decide on a live cluster: {refused.removeprefix('refused: ')}"
            )

    # ------------------------------------------------------------------ deciding

    @property
    def next_look(self) -> float:
        """When to decide again if nothing happens until then: the end of a policy's time slice."""
        return math.inf if self._driver is None else self._driver.next_look

    @property
    def _interrupting(self) -> bool:
        """Whether the policy may interrupt jobs: it is asked when none waits too, and no patience decides beside it."""
        return self._driver is not None and self._driver.interrupts

    def decide(self, time: float) -> Decided | None:
        """Decide what to start now; None if nothing changes. The decision takes effect when it is handled."""
        self.state.learned.settle()
        if not (self.state.table.waiting or self.state.reserved or self._interrupting):
            return None
        before = dict(self.state.reserved)
        view = view_within_limits(self.state, time)
        waiting, room = len(view.records), Headroom(self.state)
        first, taken, reserved = ((), view.free[:0], {}) if self._interrupting else self._patience(view)
        if first:
            room.take(self.state.table.rows([self.state.jobs[first[0].job]]))
            view = replace(view, free=np.maximum(view.free - taken, 0))
        if served := {start.job for start in first} | set(reserved.values()):
            rows = self.state.table.rows([self.state.jobs[job] for job in served])
            view = view.only(np.flatnonzero(~np.isin(view.rows, rows)))
        view = Windows(self.state, time, reserved).allowed(view)
        began = self._stopwatch()
        by, placing, refused = self._chosen(self._timed(view, began), began)
        spent = self._stopwatch() - began
        for watcher in self.watchers if view.records else ():
            watcher.see(self._timed(view, self._stopwatch()), placing, by)
        starts, interrupts = (*first, *view.starts(room.keep_within(view, placing))), view.interrupts(placing)
        decided = Decided(time, by, starts, waiting, spent, refused, reserved, interrupts)
        quiet = not starts and not interrupts and refused is None and reserved == before
        return None if quiet else decided

    def _timed(self, view: View, began: float) -> View:
        """Give the view a deadline: a policy stops thinking after a share of its budget, so that it is not late."""
        return replace(view, enough=lambda: self._stopwatch() - began > THINKING * self.budget)

    def _chosen(self, view: View, began: float) -> tuple[str, Placing, str | None]:
        """Ask the policy; returns who decided, the placing, and why the policy's own decision was refused."""
        asked = view.records or (self._interrupting and len(view.running.rows))
        if self._driver is None or not asked or not view.usable.any():
            return FALLBACK if self._driver is None else self.state.policy, in_order(view), None
        try:
            placing = proposed(self._driver, view)
            spent = self._stopwatch() - began
            if spent > self.budget:
                refused = f"late: took {spent:.3f} s, may take {self.budget:g} s"
            elif len(placing.interrupt) and not self._driver.interrupts:
                refused = "infeasible: the policy interrupts jobs and does not say so (interrupts = True)"
            elif broken := violations(view, placing):
                refused = f"infeasible: {broken[0]}"
            else:
                return self.state.policy, placing, None
        except BerthError as error:
            refused = f"refused: {error}"
        except Exception as error:  # a policy may be third-party code, and must not stop the cluster
            refused = f"raised {type(error).__name__}: {error}"
        return FALLBACK, in_order(view), refused[:500]

    # ------------------------------------------------------------------ patience

    def _patience(self, everything: View) -> tuple[tuple[Start, ...], Ints, dict[str, str]]:
        """Serve a job that has waited longer than `patience`: start it if it fits, else reserve servers for it.

        Returns its start, what that takes of each server (R, K), and the reserved servers.
        """
        state, time = self.state, everything.time
        table, patience = state.table, state.queues.patience
        nothing = np.zeros_like(state.capacity)
        if not table.late(time, patience):
            return (), nothing, {}
        late = table.earliest_first(table.late_of(everything.rows, time, patience))
        kept_for = [state.jobs[job] for job in set(state.reserved.values())]
        if kept_for and starting(state, kept_for[0]) and time - kept_for[0].submitted > patience:
            late = late[np.isin(late, table.rows(kept_for))]  # none if a limit holds the job back now
        closing = Windows(state, time, {})
        for row in late.tolist():
            (place,) = np.flatnonzero(everything.rows == row).tolist()
            record = everything.records[place]
            view = everything.within(closing.allows(record)).only([place])
            left = view.free.copy()
            if len((placing := placed_in_order(view, left)).job):
                return view.starts(placing), view.free - left, {}
            servers = _servers_for(view, record, state)
            if servers:
                return (), nothing, dict.fromkeys(servers, record.job.id)
        return (), nothing, {}


def _servers_for(view: View, record: JobRecord, state: State) -> list[str]:
    """Servers on which a job fits once berth's jobs there have ended, or else once foreign jobs have ended too."""
    ours = np.maximum(view.capacity - state.taken, 0)
    servers = _empty_servers(view, record, state, ours)
    return servers or (_empty_servers(view, record, state, view.capacity) if state.taken.any() else [])


def _empty_servers(view: View, record: JobRecord, state: State, whole: Ints) -> list[str]:
    """Servers on which a job fits once `whole` of each is free: those reserved for it, or else the first to be free."""
    kept = [server for server, job in state.reserved.items() if job == record.job.id]
    index = {name: i for i, name in enumerate(view.servers)}
    if kept:
        mine = np.zeros(len(view.servers), dtype=bool)
        mine[[index[server] for server in kept]] = True
        if len(placed_in_order(view, np.where((mine & view.usable)[:, None], whole, 0)).job):
            return kept
    capacity = np.where(view.usable[:, None], whole, 0)
    order = np.lexsort(((state.used * view.weight).sum(axis=1), _free_in(state, view.time)))

    def servers(count: int) -> list[str]:
        """Those of the first `count` servers that the job takes; none if it does not fit there."""
        empty = np.zeros_like(capacity)
        empty[order[:count]] = capacity[order[:count]]
        return [view.servers[r] for r in np.unique(placed_in_order(view, empty).server).tolist()]

    few, many = 0, len(order)
    while many - few > 1:  # the fewest: no server is taken while one that is free sooner is left
        middle = (few + many) // 2
        few, many = (few, middle) if servers(middle) else (middle, many)
    return servers(many)


def _free_in(state: State, time: float) -> Floats:
    """In how many seconds berth's jobs on each server have ended (R,); 0 where there is none."""
    running = state.table.running
    free = np.zeros(len(state.servers))
    np.maximum.at(free, running.server, seconds_left(state, running, time)[running.job])
    return free


def _play(dispatcher: Dispatcher, servers: Sequence[Server]) -> str | None:
    """Let a throwaway dispatcher decide a few times, with servers like these.

    If all decisions were refused, gives the reason of the first refusal.
    """
    if dispatcher.driver is not None:
        dispatcher.driver.warm()
    some = servers[:2] or (Server("a", {"cpu": 4000}), Server("b", {"cpu": 4000}))
    for server in some:
        dispatcher.handle(ServerJoined(0.0, server))
    half = {name: milli // 2 for name, milli in some[0].capacity.items()}
    label = dict(list(some[0].labels.items())[:1])
    gang, pair = (Role("one", 2, half),), (Role("lead", 1, half), Role("rest", 2, half, minimum=1))
    for number in range(MADE_UP):
        for kind, roles in enumerate(((Role("one", 1, half),), gang, pair)):
            job = Job(f"{kind}-{number}", f"type-{kind}", roles, priority=number % 2, work=10.0)
            job = job.replace(needs=label if number % 4 == 3 else {}, estimate=20.0 if number % 2 else None)
            dispatcher.handle(Submitted(float(number), job))
    made: list[str | None] = []
    for turn in range(ROUNDS):
        now = 100.0 * (turn + 1)
        decided = dispatcher.decide(now)
        if decided is None:
            continue
        made.append(decided.refused)
        dispatcher.handle(decided)
        for one in decided.interrupts:
            dispatcher.handle(Failed(now, one.job, one.attempt, fault="interrupted"))
        for i, start in enumerate(decided.starts):
            dispatcher.handle(Started(now, start.job, start.attempt))
            if i:  # the first job still runs at the next decision
                dispatcher.handle(Finished(now + 10.0 + turn, start.job, start.attempt, 10.0 + turn))
    return made[0] if made and None not in made else None
