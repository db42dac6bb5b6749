"""The allocation problem: constraints, repair, reward, gradient, gangs, several jobs a port, berths."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.families.allocation.checks import AMDAHL
from berth.families.allocation.problem import AllocationProblem, AllocationSlot, Gang
from berth.families.allocation.utility import Utilities
from berth.families.allocation.world import AllocationWorld
from berth.families.arrivals import counted_arrivals
from berth.model import Berth, Floats, Instance, replicate_ports
from berth.testing import example_problem, example_slot
from berth.testing.strategies import allocation_problems, allocation_worlds, decisions


def free_slot(problem: AllocationProblem) -> AllocationSlot:
    return AllocationSlot(0, problem.instance.capacity, None)


def plain_utility(problem: AllocationProblem, r: int, k: int, y: float) -> float:
    """Eq. (51), and for the table the trapezoidal integral of its slope, knot by knot."""
    alpha = float(problem.utilities.alpha[r, k])
    kind = problem.utilities.kinds[problem.utilities.choice[r, k]]
    if kind == "linear":
        return alpha * y
    if kind == "log":
        return alpha * math.log(y + 1)
    if kind == "reciprocal":
        return 1 / alpha - 1 / (y + alpha)
    if kind == "poly":
        return alpha * math.sqrt(y + 1) - alpha
    assert kind is AMDAHL
    assert AMDAHL.slopes is not None
    total, place = 0.0, 0
    knots, step = AMDAHL.slopes, AMDAHL.step
    while y > 0:
        here = min(y, step)
        first = knots[min(place, len(knots) - 1)]
        next_knot = knots[min(place + 1, len(knots) - 1)]
        last = first + (next_knot - first) * here / step
        total += 0.5 * (first + last) * here
        y -= here
        place += 1
    return alpha * total


def plain_reward(problem: AllocationProblem, arrivals: Any, decision: Floats) -> tuple[float, float]:
    """Gain and overhead, a loop over everything."""
    graph = problem.instance
    gain = overhead = 0.0
    for job in range(problem.jobs):
        if not arrivals[job]:
            continue
        sums = [0.0] * len(graph.cluster.resources)
        for e, server in enumerate(graph.channel_server):
            if problem.channel_job[e] != job:
                continue
            for k in range(len(sums)):
                gain += plain_utility(problem, int(server), k, float(decision[e, k]))
                sums[k] += float(decision[e, k])
        overhead += max(float(beta) * total for beta, total in zip(problem.overhead[job], sums, strict=True))
    return gain, overhead


@given(st.data())
def test_reward_is_that_of_the_plain_loop(data: st.DataObject) -> None:
    problem = data.draw(allocation_problems(gangs=None))
    decision = data.draw(decisions(problem))
    arrivals = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=problem.jobs, max_size=problem.jobs))
    assert problem.reward(arrivals, decision) == pytest.approx(plain_reward(problem, arrivals, decision), abs=1e-9)


def test_reward_of_nobody_is_nothing() -> None:
    problem = example_problem()
    assert problem.reward([0, 0, 0], np.array(problem.cap)) == (0.0, 0.0)


def test_reward_of_many_large_logarithms_does_not_overflow() -> None:
    ports = 60
    graph = Instance.from_arrays([[1e9]], [[1e9]] * ports, [(port, 0) for port in range(ports)])
    problem = AllocationProblem(graph, Utilities(("log",), np.array([[0]]), np.array([[2.0]])), np.zeros(1))
    gain, _ = problem.reward(np.ones(ports), np.full((ports, 1), 1e9))
    assert gain == pytest.approx(ports * 2 * math.log(1e9 + 1), rel=1e-12)


@given(st.data())
def test_gradient_is_a_supergradient_of_a_concave_reward(data: st.DataObject) -> None:
    problem = data.draw(allocation_problems(gangs=None))
    here, there = data.draw(decisions(problem)), data.draw(decisions(problem))
    arrivals = data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=problem.jobs, max_size=problem.jobs))
    rewards = [gain - overhead for gain, overhead in (problem.reward(arrivals, y) for y in (here, there))]
    bound = rewards[0] + float((problem.gradient(arrivals, here) * (there - here)).sum())
    assert rewards[1] <= bound + 1e-9 * (1 + abs(bound))


@pytest.mark.parametrize("seed", range(8))
def test_gradient_is_the_finite_difference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = Instance.from_arrays(
        np.full((3, 2), 20.0), np.full((4, 2), 5.0), [(p, r) for p in range(4) for r in range(3)]
    )
    utilities = Utilities(
        ("linear", "log", "reciprocal", "poly", AMDAHL), rng.integers(0, 5, (3, 2)), rng.uniform(0.5, 1.5, (3, 2))
    )
    problem = AllocationProblem(graph, utilities, rng.uniform(0.1, 0.9, (4, 2)))
    y = rng.uniform(0.5, 4.5, problem.cap.shape)
    arrivals = np.array([1.0, 0.0, 1.0, 1.0])
    gradient = problem.gradient(arrivals, y)
    assert (gradient[problem.channel_job == 1] == 0).all()
    step = 1e-5
    for e, k in np.ndindex(*y.shape):
        up, down = y.copy(), y.copy()
        up[e, k] += step
        down[e, k] -= step
        values = [gain - overhead for gain, overhead in (problem.reward(arrivals, z) for z in (up, down))]
        assert gradient[e, k] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-6)


def test_ties_in_the_overhead_go_to_the_first_resource() -> None:
    graph = Instance.from_arrays([[4.0, 4.0]], [[2.0, 2.0]], [(0, 0)])
    utilities = Utilities(("linear",), np.zeros((1, 2), dtype=np.int64), np.ones((1, 2)))
    problem = AllocationProblem(graph, utilities, np.array([0.5, 0.5]))
    assert problem.gradient([1], np.array([[1.0, 1.0]])).tolist() == [[0.5, 1.0]]


def test_each_kind_of_violation() -> None:
    problem = example_problem()
    decision = np.zeros(problem.cap.shape)
    assert problem.violations(free_slot(problem), decision) == []
    decision[0, 0] = 4.5
    decision[1, 1] = -0.5
    decision[2, 1] = 0.25
    decision[3, 1] = 1.0
    assert [str(v) for v in problem.violations(free_slot(problem), decision)] == [
        "request of train on big/cpu: 4.5 used, 4 allowed",
        "sign of infer on big/gpu: -0.5 used, 0 allowed",
        "request of query on big/gpu: 0.25 used, 0 allowed",
        "capacity of small/gpu: 1 used, 0 allowed",
    ]
    decision[:] = np.nan
    assert {v.kind for v in problem.violations(free_slot(problem), decision)} == {"not a number", "capacity"}
    with pytest.raises(InvalidInput, match=r"got \(2, 5\), expected a decision of shape \(5, 2\)"):
        problem.violations(free_slot(problem), decision.T)


def test_what_is_free_counts_and_not_what_the_server_once_had() -> None:
    problem = example_problem()
    decision = np.array(problem.cap)
    decision[2:] = 0.0
    assert not problem.violations(free_slot(problem), decision)
    lost = AllocationSlot(0, problem.instance.capacity * [[0.0], [1.0]], None)
    assert [v.where for v in problem.violations(lost, decision)] == ["big/cpu", "big/gpu"]
    assert not problem.repaired(lost, decision).any()


@given(st.data())
def test_repaired_decisions_are_feasible(data: st.DataObject) -> None:
    world = data.draw(allocation_worlds(gangs=None))
    problem = world.problem
    for slot in world:
        wild = data.draw(decisions(problem, feasible=False))
        before = wild.copy()
        fixed = problem.repaired(slot, wild)
        assert np.array_equal(wild, before, equal_nan=True)
        assert problem.violations(slot, fixed) == []
        assert (fixed >= 0).all()
        assert np.allclose(problem.repaired(slot, fixed), fixed, rtol=1e-12, atol=0)


@given(st.data())
def test_feasible_decisions_are_not_repaired(data: st.DataObject) -> None:
    problem = data.draw(allocation_problems(gangs=None))
    decision = data.draw(decisions(problem))
    assert problem.violations(free_slot(problem), decision) == []
    assert np.allclose(problem.repaired(free_slot(problem), decision), decision, rtol=1e-12, atol=0)


def gang_problem(share: float = 0.5, minimum: tuple[int, int] = (2, 1)) -> AllocationProblem:
    """Job 0 has the components train and infer, job 1 is query; see `example_problem`."""
    return example_problem(gang=True).replace(gang=Gang(np.array([0, 0, 1]), np.array(minimum), share))


def decided(problem: AllocationProblem, **amounts: tuple[float, float]) -> Floats:
    """A decision from `port_server=(cpu, gpu)`."""
    graph = problem.instance
    decision = np.zeros(problem.cap.shape)
    for e in range(len(decision)):
        name = f"{graph.ports[graph.channel_port[e]].name}_{graph.cluster.servers[graph.channel_server[e]]}"
        decision[e] = amounts.pop(name, (0.0, 0.0))
    assert not amounts
    return decision


@pytest.mark.parametrize(
    ("amounts", "seated", "broken"),
    [
        ({}, [0, 0], []),
        ({"train_big": (2.0, 1.0), "infer_big": (1.0, 0.5)}, [2, 0], []),
        ({"train_big": (2.0, 1.0)}, [1, 0], [0]),  # one of two components
        ({"train_big": (2.0, 0.9), "infer_big": (1.0, 0.5)}, [1, 0], [0]),  # half of every resource is needed
        ({"train_big": (4.0, 2.0), "infer_big": (0.5, 0.25), "infer_small": (0.5, 0.25)}, [1, 0], [0]),
        ({"query_big": (1.5, 0.0)}, [0, 1], []),  # it asks no gpu
        ({"query_big": (1.0, 0.0), "query_small": (1.0, 0.0)}, [0, 0], [1]),  # on one server, not in sum
        ({"query_big": (1e-12, 0.0)}, [0, 0], []),  # rounding dust holds nothing
    ],
)
def test_gangs_are_seated_or_hold_nothing(
    amounts: dict[str, tuple[float, float]], seated: list[int], broken: list[int]
) -> None:
    problem = gang_problem()
    decision = decided(problem, **amounts)
    assert problem.seated(decision).tolist() == seated
    found = [v for v in problem.violations(free_slot(problem), decision) if v.kind == "gang"]
    assert [v.where for v in found] == [f"job-{job} (components seated)" for job in broken]
    fixed = problem.repaired(free_slot(problem), decision)
    for job in range(2):
        mine = problem.channel_job == job
        assert not fixed[mine].any() if job in broken else np.isfinite(fixed[mine]).all()


def test_gangs_with_share_zero_are_seated_by_anything_and_those_without_minimum_always_run() -> None:
    problem = gang_problem(share=0.0)
    assert problem.seated(decided(problem, train_big=(1e-3, 0.0), infer_small=(1e-3, 0.0))).tolist() == [2, 0]
    problem = gang_problem(minimum=(0, 0))
    assert not problem.violations(free_slot(problem), decided(problem, train_big=(0.1, 0.0), query_big=(0.1, 0.0)))


def test_a_component_that_requests_nothing_is_never_seated() -> None:
    graph = Instance.from_arrays([[4.0]], [[2.0], [0.0]], [(0, 0), (1, 0)])
    utilities = Utilities(("linear",), np.array([[0]]), np.array([[1.0]]))
    problem = AllocationProblem(graph, utilities, np.array([0.1]), gang=Gang(np.array([0, 0]), np.array([1])))
    assert problem.seated(np.array([[2.0], [0.0]])).tolist() == [1]


def test_the_overhead_of_a_gang_is_over_all_its_components() -> None:
    problem = gang_problem()
    decision = decided(problem, train_big=(2.0, 1.0), infer_big=(1.0, 0.5))
    _, overhead = problem.reward([1, 0], decision)
    assert overhead == pytest.approx(max(0.3 * 3.0, 0.5 * 1.5))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: Gang(np.array([0, 2]), np.array([1, 1])),
            "gang.job_of_port: got [0, 2], expected every job from 0 to 1 at some port",
        ),
        (
            lambda: Gang(np.array([0, 0, 1]), np.array([2, 2])),
            "gang.minimum[1]: got 2, expected between 0 and the job's 1 components",
        ),
        (
            lambda: Gang(np.array([0]), np.array([-1])),
            "gang.minimum[0]: got -1, expected between 0 and the job's 1 components",
        ),
        (lambda: Gang(np.array([0]), np.array([1]), 1.5), "gang.share: got 1.5, expected a share between 0 and 1"),
        (
            lambda: example_problem().replace(gang=Gang(np.array([0, 0]), np.array([1]))),
            "gang.job_of_port: got 2, expected one job index per port, 3",
        ),
        (
            lambda: example_problem().replace(utilities=Utilities(("log",), np.array([[0]]), np.array([[1.0]]))),
            "utilities: got (1, 1), expected one utility per server and resource, (2, 2)",
        ),
        (
            lambda: example_problem().replace(overhead=np.ones((2, 2))),
            "overhead: got (2, 2), expected an array of shape (3, 2)",
        ),
        (
            lambda: example_problem().replace(overhead=np.array([0.1, -0.1])),
            "overhead[0][1]: got -0.1, expected a finite number ≥ 0",
        ),
        (lambda: example_problem().replace(horizon=0), "horizon: got 0, expected at least 1 slot"),
        (lambda: example_problem().seated(np.zeros((5, 2))), "gang: expected a problem with gangs"),
        (
            lambda: replicate_ports(example_problem().instance, [1, 0, 1]),
            "most: got [1, 0, 1], expected one number ≥ 1 for each port",
        ),
        (
            lambda: replicate_ports(example_problem().instance, [1, 1]),
            "most: got [1, 1], expected one number ≥ 1 for each port",
        ),
    ],
)
def test_wrong_problems(make: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        make()
    assert str(error.value) == text


@pytest.mark.parametrize(
    "again", [lambda p: p, lambda p: pickle.loads(pickle.dumps(p)), copy.deepcopy], ids=["made", "pickled", "copied"]
)
@pytest.mark.parametrize("gang", [False, True])
def test_arrays_are_read_only_also_after_pickling_and_copying(again: Any, gang: bool) -> None:
    problem = example_problem(gang=gang)
    _ = problem.cap, problem.channel_job, problem.lanes()
    twin = again(problem)
    arrays = [twin.cap, twin.channel_job, twin.overhead, twin.utilities.kind, twin.utilities.alpha]
    arrays += list(twin.utilities.tables) + ([twin.gang.job_of_port, twin.gang.minimum] if gang else [])
    assert not any(array.flags.writeable for array in arrays)
    decision = 0.25 * np.array(problem.cap)
    assert twin.reward(np.ones(problem.jobs), decision) == problem.reward(np.ones(problem.jobs), decision)


def test_overhead_of_all_jobs_or_one_row_each() -> None:
    assert example_problem().overhead.tolist() == [[0.3, 0.5]] * 3
    rows = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
    assert example_problem().replace(overhead=np.array(rows)).overhead.tolist() == rows


@given(st.data())
def test_several_jobs_a_port_are_several_ports(data: st.DataObject) -> None:
    """Section 3.4: with the same share for each copy, n jobs at a port earn n times what one earns."""
    problem = data.draw(allocation_problems())
    ports = len(problem.instance.ports)
    most = data.draw(st.lists(st.integers(1, 3), min_size=ports, max_size=ports))
    count = np.array([[data.draw(st.integers(0, n)) for n in most]])
    graph = replicate_ports(problem.instance, most)
    origin = np.repeat(np.arange(ports), most)
    assert np.array_equal(graph.demand, problem.instance.demand[origin])
    assert graph.cluster is problem.instance.cluster
    for copy_index, port in enumerate(graph.ports):
        assert graph.reach(port.name) == problem.instance.reach(problem.instance.ports[origin[copy_index]].name)
    many = AllocationProblem(graph, problem.utilities, problem.overhead[origin])
    arrivals = counted_arrivals(count, most)
    assert arrivals.shape == (1, many.jobs)
    single = 0.5 * problem.cap
    where = {
        pair: e
        for e, pair in enumerate(
            zip(problem.instance.channel_port.tolist(), problem.instance.channel_server.tolist(), strict=True)
        )
    }
    chosen = [
        where[(int(origin[port]), int(server))]
        for port, server in zip(graph.channel_port, graph.channel_server, strict=True)
    ]
    gain, overhead = many.reward(arrivals[0], single[chosen].reshape(many.cap.shape))
    expected = np.zeros(2)
    for index in range(ports):
        alone = np.zeros(ports)
        alone[index] = 1.0
        expected += count[0, index] * np.array(problem.reward(alone, single))
    assert (gain, overhead) == pytest.approx(tuple(expected), abs=1e-9)


def test_berths_are_for_the_jobs_of_the_slot() -> None:
    problem = example_problem(arrivals_known=True)
    decision = decided(problem, train_big=(2.0, 1.0), query_big=(1.0, 0.0), infer_small=(0.5, 0.0))
    slot = AllocationSlot(7, problem.instance.capacity, np.array([1.0, 0.0, 1.0]))
    assert problem.berths(slot, decision) == [
        Berth("train", "big", (2.0, 1.0), 7),
        Berth("query", "big", (1.0, 0.0), 7),
    ]
    hidden = example_problem()
    assert [b.port for b in hidden.berths(example_slot(hidden), decision)] == ["train", "query", "infer"]
    assert hidden.berths(example_slot(hidden), 0 * decision) == []


def test_berths_of_a_gang_are_those_of_its_components() -> None:
    problem = gang_problem().replace(arrivals_known=True)
    decision = decided(problem, train_big=(2.0, 1.0), infer_big=(1.0, 0.5), query_small=(2.0, 0.0))
    slot = AllocationSlot(0, problem.instance.capacity, np.array([1.0, 0.0]))
    assert [b.port for b in problem.berths(slot, decision)] == ["train", "infer"]


def test_problems_without_any_channel_work() -> None:
    problem = example_problem()
    empty = problem.replace(instance=problem.instance.replace(channels=[]))
    decision = np.zeros((0, 2))
    assert empty.violations(free_slot(empty), decision) == []
    assert empty.reward([1, 1, 1], decision) == (0.0, 0.0)
    assert empty.gradient([1, 1, 1], decision).shape == (0, 2)
    assert len(AllocationWorld(empty, np.ones((2, 3)))) == 2
