"""The world of selection: the same luck for all, rewards, lost servers, late and lost feedback, who pays whom."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.families.selection.gains import DrawnGains, Normal, Redraw
from berth.families.selection.oracle import selection_optima
from berth.families.selection.problem import SelectionOutcome
from berth.families.selection.world import SelectionWorld, welfare
from tests.families.selection.instances import gangs, one_resource, papers


def test_slots_are_the_same_at_every_iteration() -> None:
    world = papers(0, 30)
    runs = []
    for _ in range(2):
        seen = []
        for slot in world:
            everything = np.ones(len(world.problem.cost), dtype=np.int64)
            seen.append((slot.arrivals.tolist(), world.score(everything)))
        runs.append(seen)
    assert runs[0] == runs[1]
    assert len(runs[0]) == len(world) == 30


def test_the_luck_of_a_channel_does_not_depend_on_what_is_opened() -> None:
    world = one_resource([0.5, 0.6], 2.0, [1.0, 1.0], 20)
    alone = [world.step(np.array([1, 0])).gains[0] for _ in world]
    both = [world.step(np.array([1, 1])).gains[0] for _ in world]
    assert alone == both


def test_reward_is_gains_less_costs_and_score_changes_nothing() -> None:
    world = papers(3, 5)
    for _ in world:
        decision = np.zeros(len(world.problem.cost), dtype=np.int64)
        decision[:2] = 1
        score = world.score(decision)
        outcome = world.step(decision)
        assert score == outcome.reward
        assert outcome.reward == pytest.approx(outcome.gains.sum() - world.problem.cost[:2].sum())
        expected, gain, cost = world.measured(outcome)
        assert outcome.reward == pytest.approx(gain - cost)
        assert expected == pytest.approx(world.expected(decision))


def test_several_tasks_on_a_channel_have_the_law_of_independent_ones() -> None:
    world = one_resource([0.5], 1.0, [1.0], 20_000, sd=0.3)
    four = np.array([world.step(np.array([4])).gains[0] for _ in world])
    assert four.mean() == pytest.approx(2.0, abs=0.02)
    assert four.std() == pytest.approx(0.6, abs=0.02)


def test_lost_pools_hold_nothing() -> None:
    world = gangs(0, 4)
    up = np.ones((4, 3), dtype=bool)
    up[2, 1] = False
    lossy = SelectionWorld(world.problem, world.arrivals, world.gains, up)
    free = [slot.free for slot in lossy]
    assert np.array_equal(free[0], world.problem.limits)
    assert (free[2][1] == 0).all()
    assert np.array_equal(free[2][[0, 2]], world.problem.limits[[0, 2]])


def test_feedback_comes_late_or_never() -> None:
    delay = np.array([0, 2, -1, 0, 3, 0])
    world = one_resource([0.5], 1.0, [1.0], 6, delay=delay)
    heard = []
    for _ in world:
        outcome = world.step(np.array([1]))
        heard.append([known.slot for known in world.feedback(outcome)])
    assert heard == [[0], [], [], [1, 3], [], [5]]


@pytest.mark.parametrize(
    "changes",
    [
        {"arrivals": np.ones((3, 2))},
        {"arrivals": np.full((3, 1), 0.5)},
        {"arrivals": np.ones(3)},
        {"up": np.ones((2, 1), dtype=bool)},
        {"delay": np.zeros(2)},
    ],
)
def test_nonsense_is_refused(changes: dict[str, np.ndarray]) -> None:
    good = one_resource([0.5], 1.0, [1.0], 3)
    with pytest.raises(InvalidInput):
        SelectionWorld(good.problem, changes.pop("arrivals", good.arrivals), good.gains, **changes)


def test_gains_that_end_too_soon_are_told() -> None:
    good = one_resource([0.5], 1.0, [1.0], 3)
    short = [(np.array([0.5]), np.array([0.4]))] * 2
    with pytest.raises(InvalidInput, match="gains: got 2, expected gains for 3 slots"):
        list(SelectionWorld(good.problem, good.arrivals, short))


@given(st.integers(0, 30), st.lists(st.floats(-5, 5), min_size=3, max_size=3))
def test_payments_cancel(seed: int, payments: list[float]) -> None:
    """Utilities of jobs and cluster add up to the reward, whatever is paid: one paper's welfare, the other's AOU."""
    world = gangs(seed, 1)
    rng = np.random.default_rng(seed)
    for _ in world:
        outcome = world.step(rng.integers(0, 3, len(world.problem.cost)))
        shared = welfare(world.problem, outcome, payments)
        assert shared.total == pytest.approx(outcome.reward)
        served = np.unique(world.problem.channel_job[outcome.channels])
        assert (shared.jobs[np.setdiff1d(np.arange(3), served)] == 0).all()


def test_a_job_pays_once_for_all_its_channels() -> None:
    world = gangs(0, 1)
    for _ in world:
        first = np.flatnonzero(world.problem.channel_job == 0)[:2]
        outcome = SelectionOutcome(0, first, np.array([1, 1]), np.array([2.0, 3.0]), 0.0)
        shared = welfare(world.problem, outcome, np.array([1.5, 9.0, 9.0]))
        assert shared.jobs.tolist() == [3.5, 0.0, 0.0]
        assert shared.cluster == pytest.approx(1.5 - world.problem.cost[first].sum())


def test_the_oracle_is_the_best_choice_of_each_slot() -> None:
    world = one_resource([0.9, 0.8, -0.1], 1.0, [0.5, 0.5, 1.0], 50)
    best = selection_optima(world)
    exact = np.where(world.arrivals[:, 0] > 0, 0.9, np.where(world.arrivals[:, 1] > 0, 0.8, 0.0))
    assert best.reward == pytest.approx(exact)
    assert (best.bound >= best.reward - 1e-9).all()


def test_the_oracle_follows_drift_and_lost_servers() -> None:
    world = one_resource([0.9, 0.8], 1.0, [1.0, 1.0], 30)
    up = np.ones((30, 1), dtype=bool)
    up[20:] = False
    gains = DrawnGains(Normal(0.1), [0.9, 0.8], 1, Redraw(every=10, share=1.0))
    moving = SelectionWorld(world.problem, world.arrivals, gains, up)
    means = [row for (row, _), _ in zip(gains, range(30), strict=False)]
    best = selection_optima(moving).reward
    assert best[:20] == pytest.approx([row.max() for row in means[:20]])
    assert (best[20:] == 0).all()
    assert best[5] != best[15]


def test_the_oracle_of_gangs_bounds_every_policy() -> None:
    world = gangs(1, 6)
    best = selection_optima(world)
    assert (best.bound >= best.reward - 1e-9).all()
    assert best.reward.sum() > 0
