"""Queue policies: on one pool they are the kernel of whole logs; on clusters they keep what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.policies.conservative import Conservative
from berth.families.placement.policies.fair import FairQueue
from berth.families.placement.policies.first_fit import FirstFit
from berth.families.placement.policies.packing import BestFit, FragmentationAware, Tetris
from berth.families.placement.policies.rules import EASY, FCFS, SJF
from berth.families.placement.pool_runs import run_pool
from berth.families.placement.problem import PlacementProblem, PlacementSlot, Tasks
from berth.families.placement.world import PlacementWorld
from berth.model import Cluster, Floats, Instance, JobType, Resource
from berth.simulation import simulate
from tests.families.placement.test_pool import logs
from tests.harness.examples import examples
from tests.reference import batch

RNG = np.random.default_rng(0)
FAR = 1e6


def of_log(jobs: list[batch.Job], processors: float) -> tuple[PlacementProblem, Tasks, Floats]:
    """One pool, and the jobs of a log as single tasks."""
    problem = PlacementProblem.of_servers([[processors]], [1.0], [0.0], [0.0], idle=np.inf).replace(exact=False)
    submit, size, run, estimate = np.array(jobs, dtype=np.float64).reshape(-1, 4).T
    count = len(submit)
    tasks = Tasks(submit, size[:, None], estimate, np.ones(count), np.zeros(count), np.full(count, FAR))
    return problem, tasks, run


def starts(world: PlacementWorld, policy: Any) -> Floats:
    """When each task of a world starts under a policy that breaks no constraint."""
    found = np.full(len(world.tasks), np.nan)

    def note(slot: PlacementSlot, decision: Any, outcome: Any) -> None:
        found[outcome.started] = outcome.time

    simulate(world, policy, observers=[note], infeasible="raise")
    return found


@pytest.mark.parametrize(
    ("policy", "options", "backfill", "shortest"),
    [
        (FCFS, {}, "none", False),
        (SJF, {}, "none", True),
        (EASY, {}, "easy", False),
        (EASY, {"order": "shortest"}, "easy", True),
        (FCFS, {"backfill": "any"}, "any", False),
        (Conservative, {}, "conservative", False),
    ],
)
@examples(20)
@given(log=logs())
def test_on_one_pool_they_are_the_kernel(
    policy: Any, options: dict[str, Any], backfill: str, shortest: bool, log: tuple[list[batch.Job], float]
) -> None:
    jobs, processors = log
    problem, tasks, run = of_log(jobs, processors)
    moments = max(len(np.unique(tasks.arrival)), 1)
    world = PlacementWorld(problem, tasks, moments, None, runs=run)
    found = starts(world, policy(problem, RNG, **options))
    key = tasks.work if shortest else None
    whole = run_pool(tasks.arrival, tasks.demand[:, 0], run, tasks.work, processors, backfill=backfill, key=key)
    assert found.tolist() == whole.tolist()


@st.composite
def gang_worlds(draw: st.DrawFn, *, exact: bool = False, devices: bool = False) -> PlacementWorld:
    """Small clusters of unequal servers, gangs that may use some of them, run times other than said."""
    servers, ports = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    column = st.lists(st.integers(1, 4).map(float), min_size=servers, max_size=servers)
    capacity = np.stack([draw(column), draw(column)], axis=1)
    pairs = [(p, r) for p in range(ports) for r in range(servers) if p == 0 or draw(st.booleans())]
    cluster = Cluster((Resource("cpu"), Resource("gpu")), tuple(f"s{r}" for r in range(servers)), capacity)
    graph = Instance(cluster, tuple(JobType(f"p{p}", np.ones(2)) for p in range(ports)), pairs)
    speed = (
        np.ones(servers)
        if exact
        else np.array(draw(st.lists(st.sampled_from([1.0, 2.0]), min_size=servers, max_size=servers)))
    )
    zero = np.zeros(servers)
    problem = PlacementProblem(graph, speed, zero, zero, np.ones(2), np.inf, None, True, exact, 1 if devices else None)
    shares = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 2.0]) if devices else st.sampled_from([0.0, 1.0, 2.0])
    rows = []
    for _ in range(draw(st.integers(1, 10))):
        work = draw(st.integers(1, 6)) / 1
        rows.append(
            (
                draw(st.integers(0, 6)) / 1,
                draw(st.sampled_from([0.0, 1.0, 2.0])),
                draw(shares),
                work,
                work if exact else draw(st.integers(1, 8)) / 1,
                draw(st.integers(1, 4)),
                draw(st.integers(0, ports - 1)),
                draw(st.integers(0, 2)),
            )
        )
    rows.sort(key=lambda row: row[0])
    table = np.array(rows)
    count = len(rows)
    tasks = Tasks(
        table[:, 0],
        table[:, 1:3],
        table[:, 3],
        np.ones(count),
        np.zeros(count),
        np.full(count, FAR),
        table[:, 5].astype(np.int64),
        table[:, 6].astype(np.int64),
        table[:, 7].astype(np.int64),
    )
    runs = None if exact else table[:, 4]
    return PlacementWorld(problem, tasks, len(np.unique(tasks.arrival)), None, runs=runs)


def fits_alone(world: Any) -> Any:
    """Which tasks fit on the empty cluster, with whole pieces on servers that they may use."""
    problem, tasks = world.problem, world.tasks
    capacity = problem.instance.capacity
    able = []
    for i in range(len(tasks)):
        pieces = 0.0
        for r in np.flatnonzero(problem.reach[tasks.port[i]]):
            room = [np.inf]
            for k in range(capacity.shape[1]):
                need = tasks.demand[i, k]
                if need == 0:
                    continue
                if k == problem.devices and need < 1:
                    room.append(capacity[r, k] * np.floor(1 / need))
                else:
                    room.append(np.floor(capacity[r, k] / need))
            pieces += min(room)
        able.append(pieces >= tasks.pieces[i])
    return np.array(able)


POLICIES: list[tuple[Any, dict[str, Any]]] = [
    (FCFS, {}),
    (FCFS, {"fit": "best"}),
    (SJF, {"fit": "worst"}),
    (EASY, {}),
    (EASY, {"fit": "best"}),
    (Conservative, {}),
    (BestFit, {}),
    (Tetris, {}),
    (FairQueue, {}),
    (FragmentationAware, {}),
    (FirstFit, {}),
]
EVERYBODY = (BestFit, Tetris, FragmentationAware, FirstFit)


@pytest.mark.parametrize(("policy", "options"), POLICIES)
@examples(40)
@given(data=st.data())
def test_gangs_are_whole_and_whoever_can_run_does(policy: Any, options: dict[str, Any], data: st.DataObject) -> None:
    world = data.draw(gang_worlds(devices=policy not in (EASY, Conservative) and data.draw(st.booleans())))
    found = starts(world, policy(world.problem, RNG, **options))  # any broken constraint raises
    able = fits_alone(world)
    assert np.isnan(found[~able]).all()
    if policy in EVERYBODY or able.all():
        assert not np.isnan(found[able]).any()


def first_fit_moment(problem: PlacementProblem, slot: PlacementSlot, decision: Any, head: int) -> float:
    """When the pending task `head` fits if nobody behind it starts: by trying every end of what runs."""
    before = np.where(np.arange(len(slot.ids)) < head, decision.server, -1)
    new = problem.placed(slot, type(decision)(before, None, {i: g for i, g in decision.gangs.items() if i < head}))
    server = np.concatenate([slot.berths.server, new.server])
    end = np.concatenate([slot.berths.end, new.end])
    demand = np.concatenate([slot.berths.demand, new.demand])
    need = slot.tasks.demand[head]
    for moment in sorted({slot.time, *end.tolist()}):
        free = problem.instance.capacity.copy()
        np.add.at(free, server[end > moment], -demand[end > moment])
        room = [min([99.0, *np.floor(free[r] / np.where(need > 0, need, np.nan))[need > 0]]) for r in range(len(free))]
        if sum(np.array(room)[problem.reach[slot.tasks.port[head]]]) >= slot.tasks.pieces[head]:
            return float(moment)
    return np.inf


@pytest.mark.parametrize("fit", ["first", "best", "worst"])
@examples(100)
@given(world=gang_worlds(exact=True))
def test_easy_never_delays_the_first_that_waits(fit: str, world: PlacementWorld) -> None:
    """With times that hold it starts no later than when it would fit if nobody behind it had ever started."""
    scheduler = EASY(world.problem, RNG, fit=fit)
    promised: dict[int, float] = {}

    class Watched:
        def decide(self, slot: PlacementSlot, /) -> Any:
            decision = scheduler.decide(slot)
            waiting = np.flatnonzero(decision.server < 0)
            if len(waiting):
                head = int(waiting[0])
                promised.setdefault(int(slot.ids[head]), first_fit_moment(world.problem, slot, decision, head))
            return decision

        def observe(self, outcome: Any, /) -> None:
            scheduler.observe(outcome)

    found = starts(world, Watched())
    for task, moment in promised.items():
        assert found[task] <= moment or (np.isnan(found[task]) and np.isinf(moment))


@pytest.mark.parametrize("fit", ["first", "best"])
@examples(20)
@given(world=gang_worlds(exact=True))
def test_conservative_keeps_every_promise(fit: str, world: PlacementWorld) -> None:
    """With times that hold, nobody starts later than was planned when it came."""
    scheduler = Conservative(world.problem, RNG, fit=fit)
    promised: dict[int, float] = {}

    class Watched:
        def decide(self, slot: PlacementSlot, /) -> Any:
            decision = scheduler.decide(slot)
            for task, (at, _, _) in scheduler._plan.items():
                promised.setdefault(task, at)
            return decision

        def observe(self, outcome: Any, /) -> None:
            scheduler.observe(outcome)

    found = starts(world, Watched())
    for task, moment in promised.items():
        assert found[task] <= moment or (np.isnan(found[task]) and np.isinf(moment))


def test_conservative_plans_again_when_a_planned_task_is_dropped() -> None:
    """The third was to start when the second, which is dropped, would have ended; nothing would happen then."""
    problem = PlacementProblem.of_servers([[2.0]], [1.0], [0.0], [0.0], idle=np.inf)
    zero = np.zeros(4)
    tasks = Tasks(
        np.array([0.0, 0, 0, 3]),
        np.array([[2.0], [2], [1], [1]]),
        np.array([4.0, 3, 2, 9]),
        np.ones(4),
        zero,
        np.array([FAR, 2, FAR, FAR]),
    )
    found = starts(PlacementWorld(problem, tasks, 4, 1.0), Conservative(problem, RNG))
    assert found[2] == 4.0
    assert np.isnan(found[1])
    assert found[3] == 4.0


@pytest.mark.parametrize("seed", range(8))
def test_conservative_moves_gangs_forward_on_a_server_with_fewer_rows_than_pieces(seed: int) -> None:
    """Gangs that wait have a row for each server, not for each piece: moving one must leave those of others alone."""
    rng = np.random.default_rng(seed)
    count = 14
    arrival = np.sort(rng.integers(0, 8, count)).astype(np.float64)
    pieces, run = rng.integers(1, 6, count), rng.integers(1, 9, count).astype(np.float64)
    said = run + rng.integers(0, 6, count)
    problem = PlacementProblem.of_servers([[6.0]], [1.0], [0.0], [0.0], idle=np.inf).replace(exact=False, gangs=True)
    one = np.ones(count)
    tasks = Tasks(arrival, one[:, None], said, one, np.zeros(count), np.full(count, FAR), pieces)
    world = PlacementWorld(problem, tasks, len(np.unique(arrival)), None, runs=run)
    found = starts(world, Conservative(problem, RNG))
    assert found.tolist() == run_pool(arrival, pieces, run, said, 6.0, backfill="conservative").tolist()


def one_server(devices: int, demands: list[float], cpu: float = 64.0) -> PlacementWorld:
    cluster = Cluster((Resource("cpu"), Resource("gpu")), ("a", "b"), np.array([[cpu, devices]] * 2))
    graph = Instance(cluster, (JobType("p", np.ones(2)),), [(0, 0), (0, 1)])
    zero = np.zeros(2)
    problem = PlacementProblem(graph, np.ones(2), zero, zero, np.ones(2), np.inf, devices=1)
    count = len(demands)
    demand = np.stack([np.ones(count), demands], axis=1)
    arrival = np.arange(count).astype(np.float64)
    tasks = Tasks(arrival, demand, np.full(count, 50.0), np.ones(count), np.zeros(count), np.full(count, FAR))
    return PlacementWorld(problem, tasks, count)


def test_fragmentation_aware_keeps_a_device_whole() -> None:
    """After halves and wholes were seen, a half joins the half that is there; worst fit opens another device."""
    world = one_server(2, [1.0, 0.5, 0.5, 1.0, 1.0])
    where: dict[int, int] = {}

    def note(slot: PlacementSlot, decision: Any, outcome: Any) -> None:
        where.update(zip(slot.ids.tolist(), decision.server.tolist(), strict=True))

    simulate(world, FragmentationAware(world.problem, RNG), observers=[note], infeasible="raise")
    assert where[1] == where[2] == where[0]
    assert where[3] == where[4] == 1 - where[0]


def test_fair_queue_gives_the_poorest_its_turn() -> None:
    """One owner holds three of four processors; when one is left, the other owner gets it, though it came last."""
    problem = PlacementProblem.of_servers([[4.0]], [1.0], [0.0], [0.0], idle=np.inf)
    tasks = Tasks(
        np.array([0.0, 0, 0, 1, 1, 1]),
        np.ones((6, 1)),
        np.array([9.0, 9, 9, 9, 9, 9]),
        np.ones(6),
        np.zeros(6),
        np.full(6, FAR),
        owner=np.array([0, 0, 0, 0, 0, 1]),
    )
    found = starts(PlacementWorld(problem, tasks, 2), FairQueue(problem, RNG))
    assert found[5] == 1.0
    assert (found[3:5] == 9.0).all()


def test_easy_and_conservative_refuse_shared_devices() -> None:
    problem = one_server(2, [1.0]).problem
    for policy in (EASY, Conservative):
        with pytest.raises(UnsupportedProblem, match="devices"):
            policy(problem, RNG)


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        (FCFS, {"fit": "tight"}),
        (FCFS, {"backfill": "some"}),
        (EASY, {"order": "random"}),
        (Tetris, {"hurry": -1.0}),
        (FairQueue, {"fit": "whole"}),
    ],
)
def test_unknown_settings_are_refused(policy: Any, options: dict[str, Any]) -> None:
    problem = PlacementProblem.of_servers([[4.0]], [1.0], [0.0], [0.0])
    with pytest.raises(InvalidInput):
        policy(problem, RNG, **options)
