"""The dispatcher: events in, commands out. It does no IO and looks at no clock.

`handle` takes note of an event; `decide` asks the policy what to start now and gives a `Decided` event, which takes
effect when it is handled in turn. The caller writes events to the journal in between, so that nothing is done that is
not in the journal. A decision that is infeasible, raises, or takes too long is refused, counted, and made by the
fallback.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from pydantic import TypeAdapter, ValidationError

from berth.errors import BerthError, InvalidInput, UnsupportedProblem
from berth.live.core import FALLBACK
from berth.live.core.drivers import Driver, make_driver
from berth.live.core.drivers.proposing import proposed
from berth.live.core.events import (
    Decided,
    Event,
    Finished,
    PolicyChanged,
    ServerJoined,
    ShadowChanged,
    Start,
    Started,
    Submitted,
)
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.order import Headroom, ordered, view_within_limits
from berth.live.core.queues import Queues
from berth.live.core.records import DumpedState, Handled, JobRecord, Outcome
from berth.live.core.state import State
from berth.live.core.view import Placing, View, placed_in_order, violations
from berth.live.core.windows import Windows
from berth.model import Ints

__all__ = ["FALLBACK", "Dispatcher", "Dumped", "Watcher", "read_dump", "write_dump"]

THINKING = 0.3
"""For this part of its budget a policy is asked again and again; the last question takes some time too."""
MEMORY = 10_000
"""Runs that are shown to a policy that is made anew."""
MADE_UP, ROUNDS = 8, 4
"""Jobs of each kind that a policy is warmed with, more than fit, so that some must wait; and decisions about them."""


class Watcher(Protocol):
    """An observer of decisions."""

    def see(self, view: View, placing: Placing, by: str, /) -> None:
        """This was decided, and by whom."""
        ...

    def learn(self, outcome: Outcome, /) -> None:
        """A job came to its end."""
        ...

    def dump(self) -> dict[str, Any]:
        """What it has seen, for JSON, by its name."""
        ...


@dataclass(frozen=True)
class Dumped:
    """All that a dispatcher needs to go on; nothing changes it any more."""

    state: DumpedState
    memory: tuple[Outcome, ...] = ()
    refusals: Mapping[str, int] | None = None
    watched: Mapping[str, Any] | None = None


_DUMPED = TypeAdapter(Dumped)


def write_dump(dumped: Dumped) -> bytes:
    """A dump as JSON."""
    return _DUMPED.dump_json(dumped)


def read_dump(text: bytes) -> Dumped:
    """The dump again."""
    try:
        return _DUMPED.validate_json(text)
    except (ValidationError, BerthError) as error:
        raise InvalidInput("a dump of a dispatcher", found=f"something else ({str(error)[:200]})") from None


class Dispatcher:
    """A scheduler without a world around it.

    `budget` is how many seconds a policy may take to decide; `stopwatch` tells seconds, and without one no time passes.
    Servers with the same value of the label `learn_by` are a class in what is learned. A `bare` policy decides as in
    the lab: gangs are not gathered on few servers, and no job that it starts waits for faster ones.
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
    ) -> None:
        self.bare = bare
        self.state = State(queues, policy, learn_by)
        self.seed, self.budget = seed, budget
        self.refusals: Counter[str] = Counter()
        """How often decisions were refused, by the kind of reason."""
        self.memory: deque[Outcome] = deque(maxlen=MEMORY)
        self.watchers: tuple[Watcher, ...] = ()
        self.watched: dict[str, Any] = {}
        """What watchers had seen when this was loaded, for those who come to go on with."""
        self._stopwatch = stopwatch or (lambda: 0.0)
        self._driver: Driver | None = self._make_driver(policy)

    @property
    def driver(self) -> Driver | None:
        """What translates between the state and the policy; None where the fallback decides by itself."""
        return self._driver

    def _make_driver(self, policy: str) -> Driver | None:
        if policy == FALLBACK:
            return None
        driver = make_driver(policy, self.seed, self.memory)
        driver.decides |= self.bare
        return driver

    def handle(self, event: Event) -> Handled:
        """Take note of an event; what is to be done about it, and whose records changed."""
        if isinstance(event, PolicyChanged):
            driver = self._make_driver(event.policy)  # refuses what it cannot use before anything changes
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
        """Come to the state that these events lead to; whatever is to be done about them was told before."""
        for event in events:
            self.note(event)
        self._driver = self._make_driver(self.state.policy)

    def note(self, event: Event) -> Handled:
        """Take note of an event and leave the policy out of it: the first half of a replay."""
        handled = self.state.handle(event)
        if isinstance(event, ShadowChanged):
            self.watched.pop("shadow", None)
        if isinstance(event, Decided) and event.refused is not None:
            self.refusals[event.refused.split(maxsplit=1)[0].rstrip(":")] += 1
        if handled.outcome is not None:
            self.memory.append(handled.outcome)
        return handled

    def dump(self) -> Dumped:
        """A copy that stays as it is."""
        watched = dict(self.watched)
        for watcher in self.watchers:
            watched.update(watcher.dump())
        return Dumped(self.state.dump(), tuple(self.memory), dict(self.refusals), watched)

    def load(self, dumped: Dumped) -> Self:
        """Go on where `dump` was made. The policy is made by `replay`, perhaps of nothing."""
        self.state = State.load(dumped.state, self.state.learn_by)
        self.memory.clear()
        self.memory.extend(dumped.memory)
        self.refusals = Counter(dumped.refusals or {})
        self.watched = dict(dumped.watched or {})
        self._driver = None
        return self

    def warm(self, policy: str | None = None) -> None:
        """Decide about made-up jobs with a policy of this name, so that nothing is compiled when real ones come.

        A policy whose every decision is refused cannot decide on a live cluster: `UnsupportedProblem` says why.
        """
        name = policy or self.state.policy
        servers = [record.server for record in self.state.servers.values()]
        refused = _play(Dispatcher(name, seed=self.seed), servers)
        if refused is not None:
            raise UnsupportedProblem(
                f"the policy {name} cannot decide on a live cluster: {refused.removeprefix('refused: ')}"
            )

    # ------------------------------------------------------------------ deciding

    def decide(self, time: float) -> Decided | None:
        """What to start now; None where there is nothing to say. It takes effect when it is handled."""
        before = dict(self.state.reserved)
        view = view_within_limits(self.state, time)
        waiting, room = len(view.records), Headroom(self.state)
        first, taken, reserved = self._patience(view)
        if first:
            room.take(self.state.jobs[first[0].job].job)
            view = replace(view, free=np.maximum(view.free - taken, 0))
        windows = Windows(self.state, time, reserved)
        decided = Decided(time, "", first, waiting, reserved=reserved)
        for part in windows.views(view):
            decided = self._add(decided, part, room)
        return None if not decided.starts and decided.refused is None and reserved == before else decided

    def _add(self, decided: Decided, view: View, room: Headroom) -> Decided:
        """The decision with what is decided about a view in addition."""
        begun = {start.job for start in decided.starts}
        if begun:
            view = view.only([i for i, record in enumerate(view.records) if record.job.id not in begun])
        began = self._stopwatch()
        by, placing, refused = self._chosen(self._timed(view, began), began)
        spent = self._stopwatch() - began
        for watcher in self.watchers if view.records else ():
            watcher.see(self._timed(view, self._stopwatch()), placing, by)
        return replace(
            decided,
            by=by if refused or not decided.by else decided.by,
            starts=(*decided.starts, *view.starts(room.keep_within(view, placing))),
            seconds=decided.seconds + spent,
            refused=decided.refused or refused,
        )

    def _timed(self, view: View, began: float) -> View:
        """The view for a policy that may think until a part of the budget is spent, so that it is not late."""
        return replace(view, enough=lambda: self._stopwatch() - began > THINKING * self.budget)

    def _chosen(self, view: View, began: float) -> tuple[str, Placing, str | None]:
        """Who decided, what, and why it was not the policy."""
        if self._driver is None or not view.records or not view.usable.any():
            return FALLBACK if self._driver is None else self.state.policy, placed_in_order(view), None
        try:
            placing = proposed(self._driver, view)
            spent = self._stopwatch() - began
            if spent > self.budget:
                refused = f"late: took {spent:.3f} s, may take {self.budget:g} s"
            elif broken := violations(view, placing):
                refused = f"infeasible: {broken[0]}"
            else:
                return self.state.policy, placing, None
        except BerthError as error:
            refused = f"refused: {error}"
        except Exception as error:  # a policy may be anybody's code, and the cluster must go on
            refused = f"raised {type(error).__name__}: {error}"
        return FALLBACK, placed_in_order(view), refused[:500]

    # ------------------------------------------------------------------ patience

    def _patience(self, everything: View) -> tuple[tuple[Start, ...], Ints, dict[str, str]]:
        """Serve who has waited too long: start it if it fits, else keep servers for it until it does.

        Gives its start, what that takes of each server (R, K), and the servers that are kept.
        """
        state, time = self.state, everything.time
        nothing = np.zeros_like(state.capacity)
        late = [
            r
            for _, r in (ordered(state, time) if state.waiting.late(time, state.queues.patience) else ())
            if time - r.submitted > state.queues.patience
        ]
        if not late:
            return (), nothing, {}
        kept_for = set(state.reserved.values())
        chosen = next((r for r in late if r.job.id in kept_for), None)
        candidates = [chosen] if chosen else sorted(late, key=lambda r: r.number)
        closing = Windows(state, time, {})
        place = {record.job.id: i for i, record in enumerate(everything.records)}
        for record in candidates:
            if record.job.id not in place:  # a quota holds it back, or it would not fit even if nothing ran
                continue
            view = everything.within(closing.allows(record)).only([place[record.job.id]])
            left = view.free.copy()
            if len((placing := placed_in_order(view, left)).job):
                return view.starts(placing), view.free - left, {}
            servers = _servers_for(view, record, state)
            if servers:
                return (), nothing, dict.fromkeys(servers, record.job.id)
        return (), nothing, {}


def _servers_for(view: View, record: JobRecord, state: State) -> list[str]:
    """Servers on which a job fits once our jobs there have ended, or if need be those of others too."""
    ours = np.maximum(view.capacity - state.taken, 0)
    servers = _empty_servers(view, record, state, ours)
    return servers or (_empty_servers(view, record, state, view.capacity) if state.taken.any() else [])


def _empty_servers(view: View, record: JobRecord, state: State, whole: Ints) -> list[str]:
    """Servers on which a job fits once this is free of each: those already kept for it, or else the least busy."""
    kept = [server for server, job in state.reserved.items() if job == record.job.id]
    index = {name: i for i, name in enumerate(view.servers)}
    if kept:
        mine = np.zeros(len(view.servers), dtype=bool)
        mine[[index[server] for server in kept]] = True
        if len(placed_in_order(view, np.where((mine & view.usable)[:, None], whole, 0)).job):
            return kept
    # the more is free of a server, the less is left of it for others: prefer what is nearly free already
    capacity = np.where(view.usable[:, None], whole, 0)
    order = np.argsort((state.used * view.weight).sum(axis=1), kind="stable")
    empty = np.zeros_like(capacity)
    some = np.zeros(0, dtype=np.int64)
    size = 1
    while len(some) < len(order):
        some = order[: min(size, len(order))]
        empty[some] = capacity[some]
        placing = placed_in_order(view, empty.copy())
        if len(placing.job):
            return [view.servers[r] for r in np.unique(placing.server).tolist()]
        size *= 2
    return []


def _play(dispatcher: Dispatcher, servers: Sequence[Server]) -> str | None:
    """Let a dispatcher that serves for nothing else decide a few times, with servers like these.

    Gives the reason why the first decision was refused, where all of them were.
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
        for i, start in enumerate(decided.starts):
            dispatcher.handle(Started(now, start.job, start.attempt))
            if i:  # the first of them still runs when the next decision is made
                dispatcher.handle(Finished(now + 10.0 + turn, start.job, start.attempt, 10.0 + turn))
    return made[0] if made and None not in made else None
