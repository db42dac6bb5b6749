"""The papers' baselines against slow twins, and the traps in how they are described."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.allocation.checks import ShrinkingWorld, random_cases
from berth.families.allocation.policies.baselines import DRF, BinPacking, Fairness, RandomAllocation, Spreading
from berth.families.allocation.problem import AllocationProblem, AllocationSlot
from berth.families.allocation.utility import Utilities
from berth.model import Floats, Instance
from berth.random import stream
from berth.testing import example_problem
from berth.testing.strategies import allocation_worlds
from tests.reference import baselines as reference

QUOTA = 0.6


def expected(name: str, problem: AllocationProblem, slot: AllocationSlot) -> Floats:
    graph = problem.instance
    present = [True] * len(graph.ports) if slot.arrivals is None else [bool(x) for x in slot.arrivals]
    if name == "fairness":
        amounts = reference.fairness(graph, slot.free, present)
    elif name == "drf":
        amounts = reference.drf(graph, slot.free, present)
    else:
        amounts = reference.by_utilisation(graph, slot.free, present, QUOTA, name == "binpacking")
    return reference.decision_array(graph, amounts)


MAKERS: dict[str, Any] = {
    "fairness": Fairness,
    "drf": DRF,
    "binpacking": lambda problem: BinPacking(problem, quota=QUOTA),
    "spreading": lambda problem: Spreading(problem, quota=QUOTA),
}


@pytest.mark.parametrize("name", list(MAKERS))
@pytest.mark.parametrize("seed", [0, 1])
def test_decisions_are_those_of_the_slow_twin(name: str, seed: int) -> None:
    """On continuous numbers, where no two servers are equally full by accident of rounding."""
    for case in random_cases(seed):
        world = case.make()
        problem = world.problem
        assert isinstance(problem, AllocationProblem)
        if problem.gang is not None:
            continue
        policy = MAKERS[name](problem)
        for slot in list(world)[:4]:
            assert np.allclose(policy.decide(slot), expected(name, problem, slot), rtol=1e-9, atol=1e-12), case.name


@given(allocation_worlds())
def test_fairness_and_drf_are_their_twins_with_ties_and_zeros(world: ShrinkingWorld) -> None:
    for name in ("fairness", "drf"):
        policy = MAKERS[name](world.problem)
        for slot in world:
            assert np.allclose(policy.decide(slot), expected(name, world.problem, slot), rtol=1e-9, atol=1e-12)


@given(allocation_worlds(), st.sampled_from([0.25, 0.6, 1.0]))
def test_baselines_are_feasible_and_keep_their_quota(world: ShrinkingWorld, quota: float) -> None:
    problem = world.problem
    for policy in (BinPacking(problem, quota=quota), Spreading(problem, quota=quota)):
        for slot in world:
            decision = policy.decide(slot)
            assert problem.violations(slot, decision) == []
            for port in range(len(problem.instance.ports)):
                mine = problem.instance.channel_port == port
                limit = quota * problem.cap[mine].sum(axis=0)
                assert (decision[mine].sum(axis=0) <= limit * (1 + 1e-12)).all()


@given(allocation_worlds())
def test_without_a_quota_binpacking_and_spreading_are_the_same(world: ShrinkingWorld) -> None:
    """The papers' requests are per channel: whatever the order of servers, a job takes min(request, rest) on each."""
    packing, spreading = BinPacking(world.problem, quota=1.0), Spreading(world.problem, quota=1.0)
    for slot in world:
        assert np.allclose(packing.decide(slot), spreading.decide(slot), rtol=1e-12, atol=1e-12)


def test_with_a_quota_binpacking_and_spreading_differ() -> None:
    """The first job makes server 0 half full; the second packs onto it, or spreads onto server 1."""
    graph = Instance.from_arrays([[4.0], [4.0]], [[2.0], [2.0]], [(0, 0), (1, 0), (1, 1)])
    utilities = Utilities(("linear",), np.zeros((2, 1), dtype=np.int64), np.ones((2, 1)))
    problem = AllocationProblem(graph, utilities, np.array([0.1]))
    slot = AllocationSlot(0, graph.capacity, None)
    # channels: (port 0, server 0), (port 1, server 0), (port 1, server 1); port 0 may use 1, port 1 may use 2
    assert BinPacking(problem, quota=0.5).decide(slot).ravel().tolist() == [1.0, 2.0, 0.0]
    assert Spreading(problem, quota=0.5).decide(slot).ravel().tolist() == [1.0, 0.0, 2.0]


@pytest.mark.parametrize("name", [*MAKERS, "random-allocation"])
def test_blind_means_that_every_port_counts_as_present(name: str) -> None:
    def decide(known: bool, arrivals: Floats | None) -> Floats:
        problem = example_problem(arrivals_known=known)
        policy = MAKERS[name](problem) if name in MAKERS else RandomAllocation(problem, stream(0, "x"))
        decision: Floats = policy.decide(AllocationSlot(0, problem.instance.capacity, arrivals))
        return decision

    assert np.array_equal(decide(False, None), decide(True, np.ones(3)))
    absent = decide(True, np.array([0.0, 1.0, 1.0]))
    assert not absent[example_problem().instance.channel_port == 0].any()
    assert absent.any()


def test_fairness_shares_in_proportion_and_never_above_the_request() -> None:
    graph = Instance.from_arrays([[6.0], [100.0]], [[4.0], [8.0]], [(0, 0), (1, 0), (0, 1), (1, 1)])
    utilities = Utilities(("linear",), np.zeros((2, 1), dtype=np.int64), np.ones((2, 1)))
    problem = AllocationProblem(graph, utilities, np.array([0.1]))
    decision = Fairness(problem).decide(AllocationSlot(0, graph.capacity, None))
    assert decision.ravel().tolist() == [2.0, 4.0, 4.0, 8.0]


def test_drf_serves_the_smallest_dominant_share_first() -> None:
    """Port 0 asks 3 of 10 cpu (30 %), port 1 asks 1 of 2 gpu (50 %), port 2 asks 1 of 10 cpu (10 %)."""
    graph = Instance.from_arrays([[10.0, 2.0]], [[3.0, 0.0], [8.0, 1.0], [1.0, 0.0]], [(0, 0), (1, 0), (2, 0)])
    utilities = Utilities(("linear",), np.zeros((1, 2), dtype=np.int64), np.ones((1, 2)))
    problem = AllocationProblem(graph, utilities, np.array([0.1, 0.1]))
    decision = DRF(problem).decide(AllocationSlot(0, graph.capacity, None))
    assert decision.tolist() == [[3.0, 0.0], [6.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize("quota", [0.0, -1.0, 1.5, float("nan")])
def test_a_quota_is_a_share(quota: float) -> None:
    with pytest.raises(InvalidInput, match=r"quota: got .*, expected a share in \(0, 1\]"):
        BinPacking(example_problem(), quota=quota)


@pytest.mark.parametrize("policy", [Fairness, DRF, BinPacking, Spreading, RandomAllocation])
def test_gangs_are_refused(policy: Any) -> None:
    with pytest.raises(UnsupportedProblem, match=f"{policy.__name__} cannot keep gangs whole; use ogasched-gang"):
        policy(example_problem(gang=True), np.random.default_rng(0))


def test_drf_orders_ports_whatever_the_capacity() -> None:
    """A share of a capacity near zero overflows: it is infinite, as a share of none at all is."""
    graph = Instance.from_arrays([[1e-310], [4.0]], [[1.0], [2.0]], [(0, 0), (1, 1)])
    utilities = Utilities(("linear",), np.zeros((2, 1), dtype=np.int64), np.ones((2, 1)))
    problem = AllocationProblem(graph, utilities, np.ones(1))
    assert DRF(problem).decide(AllocationSlot(0, graph.capacity, None)).tolist() == [[1e-310], [2.0]]
