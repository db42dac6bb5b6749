"""Whatever happens in whatever order: a dispatcher and a simulated cluster, driven by hypothesis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import (
    Cancelled,
    Event,
    Failed,
    Finished,
    Foretold,
    PolicyChanged,
    QueuesChanged,
    ServerChanged,
    ServerDrained,
    ServerResumed,
    Started,
    Submitted,
    read_event,
    write_event,
)
from berth.live.core.holdings import taken
from berth.live.core.jobs import Job, Role
from berth.live.core.queues import Queue, Queues
from berth.live.core.records import ENDED, HOLDING
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from tests.live.core.builders import server, snapshot
from tests.live.core.test_dispatcher import POLICIES

SERVERS = [server(f"n{i}", cpu=4, gpu=i % 2, zone="xy"[i % 2]) for i in range(4)]
ROLE = st.builds(
    lambda cpu, gpu, count, fewer: (cpu, gpu, count, max(count - fewer, 0)),
    st.sampled_from([0, 500, 1000, 3000]),
    st.sampled_from([0, 0, 500, 1000]),
    st.integers(1, 4),
    st.integers(0, 2),
)
ROLES = st.lists(ROLE, min_size=1, max_size=2).filter(lambda roles: any(role[3] for role in roles))
QUEUES = (
    Queues(patience=200.0),
    Queues({"default": Queue(limit={"cpu": 6000}), "other": Queue(priority=2)}, patience=50.0),
    Queues(
        {"default": Queue(starts=False), "other": Queue()},
        {"a": 2.0},
        {"team:a": {"cpu": 4000}, "user:u": {"gpu": 1000}},
        aging=100.0,
    ),
)


class Machine(RuleBasedStateMachine):
    """Everything that may happen to a scheduler."""

    policy = "best-fit"

    def __init__(self) -> None:
        super().__init__()
        self.dispatcher = Dispatcher(self.policy)
        self.cluster = SimulatedCluster(SERVERS, Truth(1, spread=0.3, noise=0.3, faults=0.2))
        self.log: list[Event] = []
        self.submitted: list[str] = []
        self.ended: dict[str, str] = {}
        self.now = 0.0

    @initialize()
    def join(self) -> None:
        for event in self.cluster.joined(0.0):
            self.handle(event)

    def handle(self, event: Event) -> None:
        handled = self.dispatcher.handle(event)
        self.log.append(event)
        for command in handled.commands:
            self.cluster.execute(command, self.dispatcher.state.jobs[command.job].job, self.now)
        for record in handled.changed:
            if record.phase in ENDED:
                assert record.job.id not in self.ended
                self.ended[record.job.id] = record.phase

    @rule(
        roles=ROLES,
        team=st.sampled_from("ab"),
        other=st.booleans(),
        zone=st.sampled_from(["", "x", "x|y"]),
        work=st.sampled_from([None, 5.0, 50.0]),
        priority=st.integers(-1, 1),
        retries=st.integers(0, 2),
        apart=st.sampled_from([None, None, 1, 2]),
    )
    def submit(
        self,
        roles: Any,
        team: str,
        other: bool,
        zone: str,
        work: float | None,
        priority: int,
        retries: int,
        apart: int | None,
    ) -> None:
        name = f"j{len(self.submitted)}"
        made = tuple(Role(f"r{i}", r[2], {"cpu": r[0], "gpu": r[1]}, r[3], apart) for i, r in enumerate(roles))
        queue = "other" if other and "other" in self.dispatcher.state.queues.queues else "default"
        needs = {"zone": zone} if zone else {}
        job = Job(name, f"t{len(roles)}", made, "u", team, queue, priority, needs, work, retries=retries)
        self.handle(Submitted(self.now, job))
        self.submitted.append(name)

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.handle(Cancelled(self.now, data.draw(st.sampled_from(self.submitted))))

    @precondition(lambda self: bool(self.submitted))
    @rule(data=st.data(), seconds=st.sampled_from([0.0, 1.0, 30.0]))
    def foretell(self, data: st.DataObject, seconds: float) -> None:
        job = data.draw(st.sampled_from(self.submitted))
        self.handle(Foretold(self.now, job, 0.5 * seconds, seconds, 2.0 * seconds))

    @rule()
    def decide(self) -> None:
        decided = self.dispatcher.decide(self.now)
        if decided is not None:
            assert decided.refused is None
            state = self.dispatcher.state
            before = state.used.copy()
            self.handle(decided)
            assert (state.used <= state.capacity)[state.used > before].all()  # nothing goes where others are

    @rule(seconds=st.sampled_from([0.0, 1.0, 20.0, 300.0]), mixed=st.booleans(), seed=st.integers(0, 3))
    def time_passes(self, seconds: float, mixed: bool, seed: int) -> None:
        self.now += seconds
        told = self.cluster.due(self.now)
        if mixed:  # engines may tell in any order
            order = np.random.default_rng(seed).permutation(len(told))
            told = [told[i] for i in order.tolist()]
        for event in told:
            self.handle(event)

    @rule(which=st.integers(0, 3), back=st.booleans())
    def server_goes_or_comes(self, which: int, back: bool) -> None:
        name = SERVERS[which].name
        (self.cluster.restore if back else self.cluster.lose)(name, self.now)

    @rule(which=st.integers(0, 3), why=st.sampled_from(["", "maintenance"]))
    def close(self, which: int, why: str) -> None:
        name = SERVERS[which].name
        if name not in self.cluster.lost:
            self.handle(ServerChanged(self.now, replace(self.cluster.servers[name], closed=why)))

    @rule(which=st.integers(0, 3), cpu=st.sampled_from([0, 500, 3000, 9000]), gpu=st.sampled_from([0, 1000]))
    def others_take(self, which: int, cpu: int, gpu: int) -> None:
        there = self.cluster.servers[SERVERS[which].name]
        if there.name not in self.cluster.lost:
            held = {"cpu": cpu, "gpu": gpu}
            changed = replace(there, taken={name: held[name] for name in there.capacity})
            self.cluster.servers[there.name] = changed
            closed = self.dispatcher.state.servers[there.name].server.closed
            self.handle(ServerChanged(self.now, replace(changed, closed=closed)))

    @rule(which=st.integers(0, 3), drain=st.booleans())
    def drain(self, which: int, drain: bool) -> None:
        self.handle((ServerDrained if drain else ServerResumed)(self.now, SERVERS[which].name))

    @rule(policy=st.sampled_from([*POLICIES, "in-order-best-fit"]))
    def change_policy(self, policy: str) -> None:
        self.handle(PolicyChanged(self.now, policy))

    @rule(queues=st.sampled_from(QUEUES))
    def change_queues(self, queues: Queues) -> None:
        self.handle(QueuesChanged(self.now, queues))

    @precondition(lambda self: any(isinstance(event, Started | Finished | Failed) for event in self.log))
    @rule(data=st.data())
    def told_twice(self, data: st.DataObject) -> None:
        told = [event for event in self.log if isinstance(event, Started | Finished | Failed)]
        event = data.draw(st.sampled_from(told))
        before = snapshot(self.dispatcher.state)
        handled = self.dispatcher.handle(event)
        self.log.append(event)
        assert not handled.commands
        if isinstance(event, Finished | Failed):
            assert not handled.changed
            assert snapshot(self.dispatcher.state) == before

    @invariant()
    def nobody_holds_more_than_there_is(self) -> None:
        state = self.dispatcher.state
        own = state.used - state.taken
        assert (own >= 0).all()
        assert (own <= state.capacity).all()

    @invariant()
    def what_is_used_is_what_jobs_hold(self) -> None:
        state = self.dispatcher.state
        used = np.zeros_like(state.used)
        for there in state.servers.values():
            for name, milli in there.server.taken.items():
                used[there.index, state.resources[name]] += milli
        held: dict[str, dict[str, int]] = {}
        for record in state.jobs.values():
            state.add(used, record.job, record.places, 1)
            for owner in state.owners(record.job):
                for name, milli in taken(record.job, record.places).items():
                    held.setdefault(owner, {})
                    held[owner][name] = held[owner].get(name, 0) + milli
        assert (used == state.used).all()
        assert held == state.held

    @invariant()
    def gangs_are_whole_and_where_they_may_be(self) -> None:
        state = self.dispatcher.state
        for record in state.jobs.values():
            assert bool(record.places) == (record.phase in HOLDING)
            for role in record.job.roles if record.places else ():
                mine = [p for p in record.places if p.role == role.name]
                assert role.minimum <= sum(p.count for p in mine) <= role.count
                assert all(sum(p.count for p in mine if p.server == q.server) <= role.each for q in mine)
            assert all(state.servers[place.server].server.has(record.job.needs) for place in record.places)

    @invariant()
    def nothing_is_started_twice(self) -> None:
        assert all(times == 1 for times in self.cluster.started.values())
        for (name, attempt), start in self.cluster.running.items():
            record = self.dispatcher.state.jobs[name]
            assert (record.attempt, record.places) == (attempt, start.places)

    @invariant()
    def every_job_is_in_one_place(self) -> None:
        alive = self.dispatcher.state.jobs.keys()
        assert not alive & self.ended.keys()
        assert alive | self.ended.keys() == set(self.submitted)

    def teardown(self) -> None:
        again = Dispatcher(self.policy)
        again.replay(read_event(write_event(event)) for event in self.log)
        assert snapshot(again.state) == snapshot(self.dispatcher.state)
        assert again.state.time == self.dispatcher.state.time
        assert again.refusals == self.dispatcher.refusals
        assert again.memory == self.dispatcher.memory


@pytest.mark.parametrize("policy", ["in-order-best-fit", *POLICIES])
def test_whatever_happens(policy: str) -> None:
    machine = type("Machine", (Machine,), {"policy": policy})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
