"""The loop: what is played, what is recorded, and who is told what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from berth.errors import InfeasibleDecision, InvalidInput, UnsupportedProblem
from berth.families.allocation.policies.baselines import Fairness
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.families.allocation.world import AllocationWorld
from berth.model import Floats
from berth.registry import make_policy
from berth.scenario import load_scenario
from berth.simulation import simulate
from berth.testing import example_problem

ARRIVALS = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])


class Scripted:
    """Plays the same decision every slot and keeps what it is told."""

    def __init__(self, decision: Floats) -> None:
        self.decision = decision
        self.calls: list[tuple[str, int]] = []
        self.outcomes: list[AllocationOutcome] = []

    def decide(self, slot: AllocationSlot, /) -> Floats:
        self.calls.append(("decide", slot.index))
        return self.decision.copy()

    def observe(self, outcome: AllocationOutcome, /) -> None:
        self.calls.append(("observe", outcome.slot))
        self.outcomes.append(outcome)


def world(**changes: Any) -> AllocationWorld:
    return AllocationWorld(example_problem(**changes), ARRIVALS)


def feasible(problem: AllocationProblem) -> Floats:
    return Fairness(problem).decide(AllocationSlot(0, problem.instance.capacity, None))


def test_decide_and_observe_take_turns() -> None:
    environment = world()
    policy = Scripted(feasible(environment.problem))
    simulate(environment, policy)
    assert policy.calls == [(what, slot) for slot in range(4) for what in ("decide", "observe")]


def test_feasible_runs_claim_what_they_earn() -> None:
    environment = world()
    decision = feasible(environment.problem)
    result = simulate(environment, Scripted(decision))
    expected = [environment.problem.reward(row, decision) for row in ARRIVALS]
    assert result.measures["gain"].tolist() == [gain for gain, _ in expected]
    assert result.measures["overhead"].tolist() == [overhead for _, overhead in expected]
    assert result.reward.tolist() == [gain - overhead for gain, overhead in expected]
    assert result.claimed.tolist() == result.reward.tolist()
    assert result.violations.tolist() == [0, 0, 0, 0]
    assert result.violations.dtype == np.int64
    assert (result.decide_seconds >= 0).all()
    assert result.total == pytest.approx(sum(gain - overhead for gain, overhead in expected))


def test_infeasible_decisions_are_counted_repaired_and_their_claim_kept() -> None:
    environment = world()
    problem = environment.problem
    greedy = np.array(problem.cap)  # more than the servers have
    policy = Scripted(greedy)
    seen: list[tuple[int, Floats, float]] = []
    result = simulate(
        environment, policy, observers=[lambda slot, played, outcome: seen.append((slot.index, played, outcome.reward))]
    )
    slot = AllocationSlot(0, problem.instance.capacity, None)
    broken = len(problem.violations(slot, greedy))
    assert broken > 0
    assert result.violations.tolist() == [broken] * 4
    played = problem.repaired(slot, greedy)
    for index, row in enumerate(ARRIVALS):
        gain, overhead = problem.reward(row, played)
        claimed_gain, claimed_overhead = problem.reward(row, greedy)
        assert result.reward[index] == gain - overhead
        assert result.claimed[index] == claimed_gain - claimed_overhead
        # observers and the policy hear of what was played, not of what was claimed
        assert seen[index][0] == index
        assert np.array_equal(seen[index][1], played)
        assert seen[index][2] == gain - overhead == policy.outcomes[index].reward


def test_infeasible_decisions_can_end_the_run() -> None:
    environment = world()
    with pytest.raises(InfeasibleDecision) as error:
        simulate(environment, Scripted(np.array(environment.problem.cap)), infeasible="raise")
    assert str(error.value) == "slot 0: 3 constraints broken, first: capacity of big/cpu: 9 used, 8 allowed"
    result = simulate(environment, Scripted(feasible(environment.problem)), infeasible="raise")
    assert len(result.reward) == 4


def test_other_ways_to_treat_infeasible_decisions_are_refused() -> None:
    with pytest.raises(InvalidInput, match="infeasible: got 'ignore', expected 'repair' or 'raise'"):
        simulate(world(), Scripted(np.zeros((5, 2))), infeasible="ignore")


def test_observers_and_progress_are_called_once_a_slot() -> None:
    first: list[int] = []
    second: list[int] = []
    done: list[int] = []
    environment = world()
    simulate(
        environment,
        Scripted(np.zeros((5, 2))),
        observers=(lambda slot, *_: first.append(slot.index), lambda *args: second.append(args[2].slot)),
        progress=done.append,
    )
    assert first == second == [0, 1, 2, 3]
    assert done == [1, 2, 3, 4]


def test_observers_may_be_an_iterator() -> None:
    calls: list[int] = []
    simulate(world(), Scripted(np.zeros((5, 2))), observers=iter([lambda slot, *_: calls.append(slot.index)]))
    assert calls == [0, 1, 2, 3]


def test_lost_servers_are_enforced() -> None:
    problem = example_problem()
    up = np.array([[True, True], [False, True], [True, True], [True, True]])
    environment = AllocationWorld(problem, np.ones((4, 3)), up)
    result = simulate(environment, Scripted(feasible(problem)))
    assert (result.violations > 0).tolist() == [False, True, False, False]
    assert result.reward[1] < result.claimed[1]


def test_a_run_without_slots_is_empty() -> None:
    problem = example_problem()
    result = simulate(AllocationWorld(problem, np.zeros((0, 3))), Fairness(problem))
    assert result.total == 0.0
    assert result.reward.shape == result.measures["gain"].shape == (0,)


def test_a_gpu_is_for_families_that_have_kernels() -> None:
    environment = load_scenario("esdp-small", {"horizon": 5}).build(0, True)
    with pytest.raises(UnsupportedProblem, match="only the allocation family has kernels for a GPU"):
        simulate(environment, make_policy("hauf", environment.problem), device="cuda")


def test_a_cpu_computes_in_float64() -> None:
    environment = world()
    with pytest.raises(InvalidInput, match="precision: got 'float32', expected float64"):
        simulate(environment, Fairness(environment.problem), precision="float32")
