"""The truth of an allocation run: slots, outcomes, arrivals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.families.allocation.checks import ShrinkingWorld
from berth.families.allocation.world import AllocationWorld
from berth.families.arrivals import bernoulli_arrivals, counted_arrivals
from berth.random import stream
from berth.testing import example_problem
from berth.testing.strategies import allocation_worlds

ARRIVALS = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])


@pytest.mark.parametrize("known", [False, True])
def test_slots_reveal_arrivals_only_where_the_problem_says_so(known: bool) -> None:
    world = AllocationWorld(example_problem(arrivals_known=known), ARRIVALS)
    seen = [slot.arrivals for slot in world]
    assert len(seen) == len(world) == 3
    if known:
        assert np.array_equal(np.array(seen), ARRIVALS)
    else:
        assert seen == [None, None, None]


def test_outcomes_tell_arrivals_and_reward_is_gain_minus_overhead() -> None:
    problem = example_problem()
    world = AllocationWorld(problem, ARRIVALS)
    decision = 0.5 * problem.cap
    for slot in world:
        outcome = world.step(decision)
        assert outcome.slot == slot.index
        assert np.array_equal(outcome.arrivals, ARRIVALS[slot.index])
        assert (outcome.gain, outcome.overhead) == problem.reward(ARRIVALS[slot.index], decision)
        assert outcome.reward == outcome.gain - outcome.overhead == world.score(decision)


def test_a_world_can_be_run_again() -> None:
    problem = example_problem()
    world = AllocationWorld(problem, ARRIVALS)
    runs = [[world.step(0.5 * problem.cap).reward for _ in world] for _ in range(2)]
    assert runs[0] == runs[1]


def test_what_a_world_lends_is_read_only() -> None:
    up = np.array([[True, True], [False, True], [True, True]])
    world = AllocationWorld(example_problem(arrivals_known=True), ARRIVALS, up)
    assert world.up is not None
    assert not world.up.flags.writeable
    for slot in world:
        assert not slot.free.flags.writeable
        assert slot.arrivals is not None
        assert not slot.arrivals.flags.writeable
        assert not world.step(np.zeros((5, 2))).arrivals.flags.writeable


def test_servers_that_are_down_have_nothing_free() -> None:
    problem = example_problem()
    up = np.array([[True, True], [False, True], [True, False]])
    frees = [slot.free for slot in AllocationWorld(problem, ARRIVALS, up)]
    assert frees[0] is problem.instance.capacity
    for free, flags in zip(frees, up, strict=True):
        assert np.array_equal(free, problem.instance.capacity * flags[:, None])


@pytest.mark.parametrize(
    ("arrivals", "up", "text"),
    [
        (np.zeros((3, 2)), None, "arrivals: got (3, 2), expected arrivals (T, 3)"),
        (np.zeros(3), None, "arrivals: got (3,), expected arrivals (T, 3)"),
        (np.full((1, 3), 2.0), None, "arrivals: expected 0 or 1 for each slot and job"),
        (np.full((1, 3), np.nan), None, "arrivals: expected 0 or 1 for each slot and job"),
        (ARRIVALS, np.ones((3, 3)), "up: got (3, 3), expected up (3, 2), a flag for each slot and server"),
        (ARRIVALS, np.ones((2, 2)), "up: got (2, 2), expected up (3, 2), a flag for each slot and server"),
    ],
)
def test_wrong_worlds(arrivals: Any, up: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        AllocationWorld(example_problem(), arrivals, up)
    assert str(error.value) == text


def test_arrivals_of_gangs_are_those_of_jobs() -> None:
    problem = example_problem(arrivals_known=True, gang=True)
    (slot,) = AllocationWorld(problem, [[1, 0]])
    assert slot.arrivals is not None
    assert slot.arrivals.tolist() == [1.0, 0.0]
    with pytest.raises(InvalidInput, match=r"expected arrivals \(T, 2\)"):
        AllocationWorld(problem, [[1, 0, 1]])


def test_bernoulli_arrivals_have_their_rates() -> None:
    rates = np.array([0.0, 0.2, 0.7, 1.0])
    drawn = bernoulli_arrivals(stream(0, "t"), 20_000, rates)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert drawn[:, 0].sum() == 0
    assert drawn[:, 3].all()
    # four standard deviations
    assert np.abs(drawn.mean(axis=0) - rates).max() < 4 * 0.5 / np.sqrt(20_000)


@given(st.data())
def test_counted_arrivals_have_one_column_for_each_possible_job(data: st.DataObject) -> None:
    most = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    counts = np.array([[data.draw(st.integers(0, n)) for n in most] for _ in range(3)])
    arrivals = counted_arrivals(counts, most)
    assert arrivals.shape == (3, sum(most))
    port = np.repeat(np.arange(len(most)), most)
    for index in range(len(most)):
        mine = arrivals[:, port == index]
        assert np.array_equal(mine.sum(axis=1), counts[:, index])
        assert (np.diff(mine, axis=1) <= 0).all()  # the j-th copy only when there are j jobs


@given(allocation_worlds(gangs=None))
def test_free_capacity_that_shrinks_never_exceeds_what_servers_have(world: ShrinkingWorld) -> None:
    for slot in world:
        assert slot.free.shape == world.problem.instance.capacity.shape
        assert (slot.free <= world.problem.instance.capacity).all()
