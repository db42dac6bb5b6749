"""The event engine of placement against the slow way, the audit against planted errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.families.placement.kernels.greedy import place_ever, place_now
from berth.families.placement.policies.greedy import Greedy
from berth.families.placement.problem import PlacementDecision, PlacementOutcome, PlacementProblem, PlacementSlot, Tasks
from berth.families.placement.rule_runs import Schedule, audit, run_rule
from berth.families.placement.world import PlacementWorld
from berth.simulation import simulate
from tests.reference import placement as twin

IDLE = st.sampled_from([0.0, 0.3, 2.0, np.inf])
BETA = st.sampled_from([0.0, 0.3, 1.0])
PRICE = st.sampled_from([0.0, 0.05, 1.0])
SEED = st.integers(0, 2**32 - 1)


def servers(rng: np.random.Generator, kinds: int, each: int, resources: int, whole: bool) -> PlacementProblem:
    """Servers of some kinds, mixed; whole capacities and speeds where ends are to fall together."""
    size = int(rng.integers(1, each + 1)) * kinds
    kind = rng.integers(kinds, size=size)
    capacity = rng.integers(1, 9, (kinds, resources)).astype(float)
    if not whole:
        capacity += rng.random((kinds, resources)).round(2)
    speed = rng.choice([1.0, 2.0, 4.0] if whole else [1.0, 2.2, 3.2, 4.0], kinds)
    launch = rng.choice([0.0, 0.5, 2.0], kinds)
    rate = rng.choice([0.0, 0.02, 0.3], kinds)
    weight = rng.choice([0.0, 0.25, 1.0], resources)
    return PlacementProblem.of_servers(capacity[kind], speed[kind], launch[kind], rate[kind], weight)


def tasks_for(rng: np.random.Generator, size: int, resources: int, whole: bool, crowd: float) -> Tasks:
    """Tasks, some of which fit nowhere, some of which need nothing; `crowd` arrive each time."""
    arrival = np.sort(rng.integers(0, max(int(size / crowd), 1), size)).astype(float)
    work = rng.integers(1, 9, size).astype(float) if whole else rng.gamma(2.0, 2.0, size) + 0.01
    demand = rng.choice([0.0, 1.0, 2.0, 3.0, 12.0], (size, resources), p=[0.1, 0.4, 0.3, 0.15, 0.05])
    if not whole:
        demand *= rng.choice([0.1, 0.75, 1.0, 1.3], (size, resources))
    value = rng.choice([1.0, 4.0, 9.0], size)
    return Tasks(arrival, demand, work, value, rng.choice([0.0, 0.5, 2.0], size), arrival + rng.integers(1, 12, size))


def ranks(rng: np.random.Generator, tasks: Tasks) -> np.ndarray:
    """All equal, some equal, or all different."""
    return [np.zeros(len(tasks)), rng.integers(0, 3, len(tasks)).astype(float), rng.random(len(tasks))][rng.integers(3)]


def assert_same(problem: PlacementProblem, tasks: Tasks, rank: np.ndarray, beta: float, price: float) -> Schedule:
    """The engine's run, equal to the slow one bit for bit, and what it says it gains is true."""
    fast = run_rule(problem, tasks, rank, beta, price)
    server, start = twin.play(problem, tasks, rank, beta, price)
    placed = server >= 0
    assert fast.server.tolist() == server.tolist()
    assert fast.start[placed].tolist() == start[placed].tolist()
    found = audit(problem, tasks, server, start)
    assert found.broken == ()
    told = (fast.value, fast.execution, fast.launch, fast.gain)
    assert told == pytest.approx((found.value, found.execution, found.launch, found.gain), rel=1e-9, abs=1e-9)
    assert fast.events == len(tasks) + placed.sum()
    return fast


@given(
    seed=SEED,
    kinds=st.integers(1, 6),
    each=st.integers(1, 8),
    resources=st.integers(1, 4),
    size=st.integers(0, 80),
    whole=st.booleans(),
    crowd=st.sampled_from([1.0, 5.0, 30.0]),
    idle=IDLE,
    beta=BETA,
    price=PRICE,
)
def test_the_indexed_run_is_the_slow_run(
    seed: int,
    kinds: int,
    each: int,
    resources: int,
    size: int,
    whole: bool,
    crowd: float,
    idle: float,
    beta: float,
    price: float,
) -> None:
    rng = np.random.default_rng(seed)
    problem = servers(rng, kinds, each, resources, whole).replace(idle=idle)
    tasks = tasks_for(rng, size, resources, whole, crowd)
    assert_same(problem, tasks, ranks(rng, tasks), beta, price)


@pytest.mark.parametrize("idle", [0.0, 1.0, np.inf])
@pytest.mark.parametrize("size", [63, 64, 65, 130, 4095, 4097, 9000])
def test_many_servers_of_a_kind(size: int, idle: float) -> None:
    """The layers of the index: 64 servers a word, 64 words a summary."""
    rng = np.random.default_rng(size)
    ones = np.ones(size)
    problem = PlacementProblem.of_servers(np.full((size, 2), 2.0), ones, 0.1 * ones, 0.01 * ones, idle=idle)
    count = min(3 * size, 7000)
    arrival = np.sort(rng.integers(0, 3, count)).astype(float)
    demand = rng.choice([1.0, 1.5, 2.0], (count, 2))
    tasks = Tasks(arrival, demand, rng.choice([1.0, 2.0, 2.5], count), np.full(count, 9.0), ones[0] * rng.random(count),
                  arrival + 8.0)  # fmt: skip
    found = assert_same(problem, tasks, rng.integers(0, 2, count).astype(float), 1.0, 0.0)
    assert (found.server >= 0).sum() > count / 3


def test_one_server_and_a_crowd_that_waits() -> None:
    rng = np.random.default_rng(3)
    problem = PlacementProblem.of_servers([[4.0, 8.0]], [2.0], [0.5], [0.1])
    tasks = tasks_for(rng, 300, 2, True, 5.0)
    found = assert_same(problem, tasks, rng.random(300), 0.3, 0.0)
    assert (found.start[found.server >= 0] > tasks.arrival[found.server >= 0]).sum() > 20


def test_nothing_to_do() -> None:
    problem = PlacementProblem.of_servers([[1.0]], [1.0], [0.5], [0.1])
    none = twin.tasks_of([], np.zeros((0, 1)), [], [], [], [])
    assert assert_same(problem, none, np.zeros(0), 1.0, 0.0).gain == 0.0
    large = twin.tasks_of([0.0], [[2.0]], [1.0], [9.0], [0.0], [9.0])
    assert assert_same(problem, large, np.zeros(1), 1.0, 0.0).server.tolist() == [-1]


# ---------------------------------------------------------------------------- the event world plays the same run


class Noted:
    """Where and when each task was put."""

    def __init__(self, size: int) -> None:
        self.server, self.start = np.full(size, -1), np.zeros(size)

    def __call__(self, slot: PlacementSlot, decision: PlacementDecision, outcome: PlacementOutcome) -> None:
        there = decision.server >= 0
        self.server[slot.ids[there]] = decision.server[there]
        self.start[slot.ids[there]] = slot.time if decision.start is None else decision.start[there]


@given(seed=SEED, whole=st.booleans(), idle=IDLE, beta=BETA, price=PRICE, order=st.sampled_from(["arrival", "densest"]))
def test_asking_the_policy_gives_the_same_run(
    seed: int, whole: bool, idle: float, beta: float, price: float, order: str
) -> None:
    rng = np.random.default_rng(seed)
    problem = servers(rng, 3, 4, 2, whole).replace(idle=idle)
    tasks = tasks_for(rng, 40, 2, whole, 5.0)
    policy = Greedy(problem, rng, order=order, waiting="queue", beta=beta, price=price)
    rank = np.zeros(len(tasks))
    if order == "densest":
        rank = tasks.value / np.maximum((tasks.demand @ problem.weight) * tasks.work, 1e-300)
    noted = Noted(len(tasks))
    world = PlacementWorld(problem, tasks, int(tasks.arrival.max()) + 1)
    result = simulate(world, policy, observers=[noted], infeasible="raise")
    fast = run_rule(problem, tasks, rank, beta, price)
    placed = fast.server >= 0
    assert noted.server.tolist() == fast.server.tolist()
    assert noted.start[placed].tolist() == fast.start[placed].tolist()
    assert result.total == pytest.approx(fast.gain, rel=1e-9, abs=1e-9)


@given(seed=SEED, whole=st.booleans(), idle=IDLE, waiting=st.sampled_from(["commit-immediate", "commit-any"]))
def test_the_audit_agrees_with_runs_that_reserve(seed: int, whole: bool, idle: float, waiting: str) -> None:
    rng = np.random.default_rng(seed)
    problem = servers(rng, 3, 3, 2, whole).replace(idle=idle)
    tasks = tasks_for(rng, 30, 2, whole, 8.0)
    noted = Noted(len(tasks))
    world = PlacementWorld(problem, tasks, int(tasks.arrival.max()) + 1)
    result = simulate(world, Greedy(problem, rng, waiting=waiting), observers=[noted], infeasible="raise")
    found = audit(problem, tasks, noted.server, noted.start)
    assert found.broken == ()
    assert result.total == pytest.approx(found.gain, rel=1e-9, abs=1e-9)


# ---------------------------------------------------------------------------- the audit finds what is wrong


def honest() -> tuple[PlacementProblem, Tasks, Schedule]:
    problem = PlacementProblem.of_servers([[4.0], [2.0]], [2.0, 1.0], [1.0, 0.5], [0.1, 0.1])
    tasks = twin.tasks_of([0, 0, 3], [[3], [2], [4]], [4, 2, 2], [9, 5, 8], [1, 0.5, 1], [6, 3, 9])
    return problem, tasks, run_rule(problem, tasks, np.zeros(3))


def test_the_audit_finds_a_full_server() -> None:
    problem, tasks, run = honest()
    server = run.server.copy()
    server[1] = server[0]
    start = np.where(np.arange(3) == 1, run.start[0], run.start)
    assert "server-0/resource-0 at 0: 5 used, 4 allowed" in audit(problem, tasks, server, start).broken


def test_the_audit_finds_a_start_before_the_arrival() -> None:
    problem, tasks, run = honest()
    start = run.start.copy()
    start[2] = 2.5
    assert audit(problem, tasks, run.server, start).broken == ("task 2 starts at 2.5, before it arrives at 3",)


@pytest.mark.parametrize("what", ["value", "execution", "launch"])
def test_the_audit_finds_a_false_account(what: str) -> None:
    problem, tasks, run = honest()
    false = replace(run, **{what: getattr(run, what) + 1e-6})
    found = audit(problem, tasks, run.server, run.start)
    assert getattr(run, what) == pytest.approx(getattr(found, what), abs=1e-12)
    assert getattr(false, what) != pytest.approx(getattr(found, what), rel=1e-9, abs=1e-9)


def test_the_audit_counts_launches_by_the_time_between_tasks() -> None:
    tasks = twin.tasks_of([0, 2, 5], [[1], [1], [1]], [1, 1, 1], [9, 9, 9], [0, 0, 0], [99, 99, 99])
    for idle, launches in ((0.0, 3), (1.0, 2), (2.0, 1), (np.inf, 1)):
        problem = PlacementProblem.of_servers([[1.0]], [1.0], [0.5], [0.0], idle=idle)
        assert audit(problem, tasks, [0, 0, 0], [0.0, 2.0, 5.0]).launches == launches


# ---------------------------------------------------------------------------- one slot


@given(seed=SEED, whole=st.booleans(), beta=BETA, price=PRICE, forced=st.booleans())
def test_placing_now_is_its_plain_twin(seed: int, whole: bool, beta: float, price: float, forced: bool) -> None:
    rng = np.random.default_rng(seed)
    problem, tasks = servers(rng, 3, 4, 2, whole), tasks_for(rng, 15, 2, whole, 15.0)
    batch, all_servers = twin.batch_of(tasks), twin.servers_of(problem)
    free = problem.instance.capacity * rng.choice([0.0, 0.5, 1.0], (len(problem.speed), 1))
    on_until = rng.choice([-np.inf, 1.0, np.inf], len(free))
    order, chosen = rng.permutation(len(tasks)), np.full(len(tasks), -1)
    expected = twin.place_now_twin(batch, order, all_servers, 1.0, beta, price, forced, free, on_until)
    place_now(batch, order, all_servers, 1.0, beta, price, forced, free, on_until, chosen)
    assert chosen.tolist() == expected


@given(seed=SEED, whole=st.booleans(), beta=BETA, price=PRICE, forced=st.booleans(), any_time=st.booleans(), idle=IDLE)
def test_placing_for_good_is_its_plain_twin(
    seed: int, whole: bool, beta: float, price: float, forced: bool, any_time: bool, idle: float
) -> None:
    rng = np.random.default_rng(seed)
    problem, tasks = servers(rng, 3, 2, 2, whole), tasks_for(rng, 12, 2, whole, 12.0)
    batch, all_servers = twin.batch_of(tasks), twin.servers_of(problem)
    size, most = len(problem.speed), len(tasks) + 3
    up, on_until = rng.random(size) < 0.8, rng.choice([-np.inf, 1.0, np.inf], size)
    start, end, demand = np.zeros((size, most)), np.zeros((size, most)), np.zeros((size, most, 2))
    count = rng.integers(0, 3, size)
    held: list[list[tuple[float, float, np.ndarray]]] = [[] for _ in range(size)]
    for r in range(size):
        for b in range(count[r]):  # one after the other, so that they fit
            start[r, b] = b * 2.0 + rng.integers(0, 2)
            end[r, b] = (b + 1) * 2.0 + rng.random() * (0.0 if whole else 1e-3) + 0.0
            demand[r, b] = problem.instance.capacity[r] * rng.choice([0.5, 1.0])
            held[r].append((start[r, b], end[r, b], demand[r, b].copy()))
    order = rng.permutation(len(tasks))
    chosen, starts = np.full(len(tasks), -1), np.zeros(len(tasks))
    expected = twin.place_ever_twin(
        batch, order, all_servers, up, 1.0, idle, beta, price, forced, any_time, on_until, held
    )
    place_ever(
        batch,
        order,
        all_servers,
        up,
        1.0,
        idle,
        beta,
        price,
        forced,
        any_time,
        on_until,
        start,
        end,
        demand,
        count,
        chosen,
        starts,
    )
    assert chosen.tolist() == [r for r, _ in expected]
    placed = chosen >= 0
    assert starts[placed].tolist() == [s for r, s in expected if r >= 0]
