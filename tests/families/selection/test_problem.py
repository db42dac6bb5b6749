"""The selection problem: what is refused, every kind of violation, repairs that always fit, gangs, berths."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.families.selection.problem import Roles, SelectionProblem, SelectionSlot
from berth.model import Cluster, Instance, JobType, Resource

GRAPH = Instance.from_arrays([[2.0], [1.0]], [[1.0], [1.0]], [(0, 0), (1, 0), (1, 1)])


def everyone(problem: SelectionProblem) -> SelectionSlot:
    return SelectionSlot(0, problem.limits, np.ones(problem.jobs))


def said(problem: SelectionProblem, decision: Any, slot: SelectionSlot | None = None) -> list[str]:
    return [str(v) for v in problem.violations(slot or everyone(problem), np.array(decision))]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cost": [0.1, 0.2]}, "cost: got"),
        ({"cost": [0.1, 0.2, np.inf]}, r"cost\[2\]"),
        ({"demand": [[1.0], [1.0], [-1.0]]}, r"demand\[2\]\[0\]"),
        ({"demand": [[1.0]]}, "demand: got"),
        ({"pool": [1.0, 2.0]}, "pool: got"),
        ({"pool": [-1.0]}, r"pool\[0\]"),
        ({"horizon": 0}, "horizon: got 0"),
        ({"roles": Roles(np.array([0]), np.array([1]), np.array([1]))}, "roles.job_of_port: got 1"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        SelectionProblem(**{"instance": GRAPH, "cost": [0.1, 0.2, 0.0], **changes})


@pytest.mark.parametrize(
    ("job", "minimum", "most", "message"),
    [
        ([0, 0], [1], [1, 1], "one entry per port"),
        ([0, 2], [1, 1], [1, 1], "every job from 0 to 2"),
        ([0, 1], [2, 1], [1, 1], r"roles\[0\]: got \(2, 1\)"),
        ([0, 1], [0, -1], [1, 1], r"roles\[1\]"),
        ([0, 1], [0, 0], [1, 0], r"roles\[1\]"),
    ],
)
def test_nonsense_roles_are_refused(job: list[int], minimum: list[int], most: list[int], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Roles(np.array(job), np.array(minimum), np.array(most))


def test_costs_may_be_negative_and_demands_come_from_the_ports() -> None:
    problem = SelectionProblem(GRAPH, np.array([-0.5, 0.2, 0.0]))
    assert problem.takes.tolist() == [[1.0], [1.0], [1.0]]
    assert problem.cost[0] == -0.5
    assert problem.replace(horizon=7).horizon == 7


def test_arrays_stay_read_only_through_copies() -> None:
    problem = SelectionProblem(
        GRAPH, np.array([0.1, 0.2, 0.0]), roles=Roles(np.array([0, 0]), np.array([1, 1]), np.array([1, 2]))
    )
    for other in (problem, pickle.loads(pickle.dumps(problem)), copy.deepcopy(problem)):
        for array in (other.cost, other.takes, other.limits, other.channel_job, other.channel_pool):
            assert not array.flags.writeable
        assert other.roles is not None
        assert not other.roles.minimum.flags.writeable


def test_every_kind_of_violation() -> None:
    problem = SelectionProblem(GRAPH, np.array([0.1, 0.2, 0.0]))
    assert said(problem, [1, 1, 1]) == []
    assert said(problem, [2, 0, 0]) == ["count of port-0 on server-0: 2 used, 1 allowed"]
    assert said(problem, [0.5, 0, 0]) == ["count of port-0 on server-0: 0.5 used, 1 allowed"]
    assert said(problem, [-1, 0, 0]) == ["count of port-0 on server-0: -1 used, 1 allowed"]
    absent = SelectionSlot(0, problem.limits, np.array([0.0, 1.0]))
    assert said(problem, [1, 0, 1], absent) == ["arrival of port-0 on server-0: 1 used, 0 allowed"]
    less = SelectionSlot(0, np.array([[1.0], [0.0]]), np.ones(2))
    assert said(problem, [1, 1, 1], less) == [
        "capacity of server-0/resource-0: 2 used, 1 allowed",
        "capacity of server-1/resource-0: 1 used, 0 allowed",
    ]
    with pytest.raises(InvalidInput, match="a decision of shape"):
        said(problem, [1, 0])
    assert said(problem, [np.nan, 0, 0])[0].startswith("count of port-0 on server-0: nan")


def test_a_cluster_wide_pool_lets_a_server_overflow() -> None:
    """Two channels that take 1 each, on a server that has 1: within the cluster's 2, not within the server's 1."""
    graph = Instance.from_arrays([[1.0], [1.0]], [[1.0], [1.0]], [(0, 0), (1, 0), (1, 1)])
    apart = SelectionProblem(graph, np.zeros(3))
    together = apart.replace(pool=np.array([2.0]))
    assert said(together, [1, 1, 0]) == []
    assert said(apart, [1, 1, 0]) == ["capacity of server-0/resource-0: 2 used, 1 allowed"]
    assert said(together, [1, 1, 1]) == ["capacity of the cluster/resource-0: 3 used, 2 allowed"]


def gang_problem() -> SelectionProblem:
    """One job of one parameter server and 2 to 3 workers; one job of a single role."""
    channels = [(port, server) for port in range(3) for server in range(2)]
    graph = Instance.from_arrays([[4.0], [4.0]], [[1.0], [1.0], [2.0]], channels)
    roles = Roles(np.array([0, 0, 1]), np.array([1, 2, 1]), np.array([1, 3, 2]))
    return SelectionProblem(graph, np.zeros(6), roles=roles)


def test_gangs_start_whole_or_not_at_all() -> None:
    problem = gang_problem()  # channels by server: ports 0, 1, 2 on server 0, then on server 1
    assert problem.jobs == 2
    assert problem.channel_job.tolist() == [0, 0, 1, 0, 0, 1]
    assert said(problem, [1, 2, 0, 0, 0, 0]) == []
    assert said(problem, [0, 2, 0, 1, 0, 0]) == []
    assert said(problem, [1, 1, 0, 0, 0, 0]) == ["gang of port-1 (tasks, at least): 1 used, 2 allowed"]
    assert said(problem, [0, 2, 0, 0, 0, 0]) == ["gang of port-0 (tasks, at least): 0 used, 1 allowed"]
    assert said(problem, [1, 2, 0, 0, 2, 0]) == ["gang of port-1 (tasks, at most): 4 used, 3 allowed"]
    absent = SelectionSlot(0, problem.limits, np.array([0.0, 1.0]))
    assert len(said(problem, [1, 2, 0, 0, 0, 0], absent)) == 2  # one for each channel of the absent job
    assert problem.repaired(everyone(problem), np.array([1, 1, 1, 0, 0, 0])).tolist() == [0, 0, 1, 0, 0, 0]


def test_repairs_close_only_what_overfills() -> None:
    graph = Instance.from_arrays([[1.0], [9.0]], [[1.0]] * 3, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)])
    problem = SelectionProblem(graph, np.zeros(5))
    assert problem.repaired(everyone(problem), np.ones(5, dtype=np.int64)).tolist() == [1, 0, 0, 1, 1]


def test_gangs_whose_name_looks_like_a_message_are_repaired() -> None:
    port = JobType("gpu (a100)", np.array([1.0]))
    graph = Instance(Cluster((Resource("gpu"),), ("one",), np.array([[1.0]])), (port,), np.array([[0, 0]]))
    problem = SelectionProblem(graph, np.zeros(1), roles=Roles(np.array([0]), np.array([2]), np.array([2])))
    assert problem.repaired(everyone(problem), np.array([2])).tolist() == [0]
    assert problem.repaired(everyone(problem.replace(pool=np.array([5.0]))), np.array([1])).tolist() == [0]


def test_who_is_not_served_is_told_why() -> None:
    graph = Instance.from_arrays(
        [[2.0, 1.0], [1.0, 0.0]], [[1.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]], [(0, 0), (0, 1), (1, 1), (3, 0)]
    )
    problem = SelectionProblem(graph, np.zeros(4))
    lost = SelectionSlot(5, problem.limits * np.array([[1.0], [0.0]]), np.ones(4))
    nothing = np.zeros(4, dtype=np.int64)
    assert problem.unserved(lost, nothing) == [
        "port-0: others were chosen, or it would not pay",
        "port-1: no room: server-1 has 0 resource-0 free, and a task takes 1",
        "port-2: no channel to any server",
        "port-3: others were chosen, or it would not pay",
    ]
    assert problem.unserved(lost, np.array([1, 1, 0, 0]))[0].startswith("port-1")
    assert problem.unserved(SelectionSlot(5, problem.limits, np.zeros(4)), nothing) == []
    pooled = problem.replace(pool=np.array([0.5, 1.0]))
    assert "the cluster has 0.5 resource-0 free" in pooled.unserved(everyone(pooled), nothing)[3]


def test_gangs_that_do_not_start_are_told_why() -> None:
    problem = gang_problem()
    nothing = np.zeros(6, dtype=np.int64)
    small = SelectionSlot(0, np.array([[1.0], [0.0]]), np.ones(2))
    assert problem.unserved(small, nothing) == [
        "port-1: room for 1 tasks at most, and a job needs 2",
        "port-2: no room: server-0 has 1 resource-0 free, and a task takes 2",
    ]
    assert problem.unserved(everyone(problem), nothing)[0].endswith("or its roles do not fit together")


@st.composite
def cases(draw: st.DrawFn) -> tuple[SelectionProblem, SelectionSlot, np.ndarray]:
    """A problem of any kind, a slot with some of its capacity gone, and a decision, sensible or not."""
    ports, servers, resources = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    pairs = [(port, server) for port in range(ports) for server in range(servers)]
    channels = sorted(draw(st.sets(st.sampled_from(pairs), min_size=1)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    graph = Instance.from_arrays(
        rng.integers(0, 5, (servers, resources)), rng.integers(0, 3, (ports, resources)), channels
    )
    roles = None
    if draw(st.booleans()):
        jobs = int(rng.integers(1, ports + 1))
        job = np.concatenate([np.arange(jobs), rng.integers(0, jobs, ports - jobs)])
        minimum = rng.integers(0, 3, ports)
        roles = Roles(job, minimum, minimum + rng.integers(1, 3, ports))
    pool = rng.integers(0, 6, resources).astype(np.float64) if draw(st.booleans()) else None
    problem = SelectionProblem(graph, rng.normal(size=len(channels)), pool=pool, roles=roles)
    free = problem.limits * (rng.random(problem.limits.shape) < 0.8)
    slot = SelectionSlot(0, free, (rng.random(problem.jobs) < 0.7).astype(np.float64))
    decision = rng.choice(np.array([-1.0, 0.0, 0.5, 1.0, 1.0, 2.0, 7.0, np.nan, np.inf]), len(channels))
    return problem, slot, decision


@given(cases())
def test_repaired_is_always_feasible(case: tuple[SelectionProblem, SelectionSlot, np.ndarray]) -> None:
    problem, slot, decision = case
    before = decision.copy()
    repaired = problem.repaired(slot, decision)
    assert repaired.dtype == np.int64
    assert problem.violations(slot, repaired) == []
    assert np.array_equal(decision, before, equal_nan=True)
    assert np.array_equal(problem.repaired(slot, repaired), repaired)


@given(cases())
def test_a_feasible_decision_stays_as_it_is(case: tuple[SelectionProblem, SelectionSlot, np.ndarray]) -> None:
    problem, slot, decision = case
    if not problem.violations(slot, decision):
        assert np.array_equal(problem.repaired(slot, decision), decision)


@given(cases())
def test_whoever_is_said_to_have_no_room_has_none(case: tuple[SelectionProblem, SelectionSlot, np.ndarray]) -> None:
    problem, slot, _ = case
    nothing = np.zeros(len(problem.cost), dtype=np.int64)
    lines = problem.unserved(slot, nothing)
    assert len(lines) == int((slot.arrivals > 0).sum())
    if problem.roles is not None:
        return
    for port, line in zip(np.flatnonzero(slot.arrivals > 0), lines, strict=True):
        opened = [problem.violations(slot, row) for row in np.diag(problem.instance.channel_port == port).astype(int)]
        alone = any(not broken and e for e, broken in zip(problem.instance.channel_port == port, opened, strict=True))
        assert alone == line.endswith("or it would not pay")


def test_a_berth_for_each_opened_channel() -> None:
    problem = gang_problem()
    slot = SelectionSlot(9, problem.limits, np.ones(2))
    berths = problem.berths(slot, np.array([1, 2, 0, 0, 0, 1]))
    assert [(b.port, b.server, b.amounts, b.slot) for b in berths] == [
        ("port-0", "server-0", (1.0,), 9),
        ("port-1", "server-0", (2.0,), 9),
        ("port-2", "server-1", (2.0,), 9),
    ]
