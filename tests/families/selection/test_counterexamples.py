"""Small cases in which ESDP as printed fails, beside the policy that does not.

Each test names what the papers say. The cases that concern only the dynamic programme are tested with the solvers.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from berth.families.selection.gains import DrawnGains, Normal, normal_costs
from berth.families.selection.kernels.printed import printed_choice
from berth.families.selection.policies.bounds import ESCB
from berth.families.selection.policies.index import most_open
from berth.families.selection.policies.printed import DELTAS, GS, ESDPPrinted
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.families.selection.world import SelectionWorld
from berth.model import Instance, Ints
from berth.random import stream
from berth.simulation import simulate
from tests.families.selection.instances import one_resource, papers, play, share


def decisions(world: SelectionWorld) -> list[list[int]]:
    """What the corrected policy plays, slot by slot."""
    played: list[list[int]] = []

    def note(slot: object, decision: Ints, outcome: object) -> None:
        played.append(decision.tolist())

    simulate(world, ESCB(world.problem), observers=[note])
    return played


@pytest.mark.parametrize("seed", range(30))
def test_the_printed_programme_maximises_rounded_gains_and_spreads(seed: int) -> None:
    """With its two repairs it is exact for its own rounded objective, max over s ≤ Υᵀx of s + √(Σ²ᵀx)."""
    rng = np.random.default_rng(seed)
    size, resources = int(rng.integers(1, 8)), int(rng.integers(1, 3))
    gain, spread = rng.integers(0, 9, size), rng.integers(0, 30, size).astype(np.float64)
    takes, limit = rng.integers(0, 3, (size, resources)), rng.integers(0, 5, resources)
    largest = int(rng.integers(5, 60))
    x = np.zeros(size, dtype=np.int64)
    value = printed_choice(gain, spread, takes, limit, largest, x)
    best, most = 0.0, 0
    for bits in itertools.product((0, 1), repeat=size):
        y = np.array(bits)
        if (y @ takes <= limit).all():
            best = max(best, min(int(gain @ y), largest) + math.sqrt(spread @ y))
            most = max(most, int(y.sum()))
    assert value == pytest.approx(best)
    assert (x @ takes <= limit).all()
    assert min(int(gain @ x), largest) + math.sqrt(spread @ x) == pytest.approx(best)
    assert most_open(takes.astype(np.float64), np.zeros(size, dtype=np.int64), limit[None].astype(np.float64)) >= most


def test_unexplored_channels_are_explored_side_by_side() -> None:
    """B3. As printed σ² = +∞: inf ≠ inf is false, so one new channel opens a slot and the rest lies idle."""
    infinite = np.array([np.inf, np.inf, np.inf])
    x = np.zeros(3, dtype=np.int64)
    printed_choice(np.zeros(3, dtype=np.int64), infinite, np.ones((3, 1), dtype=np.int64), np.array([3]), 10, x)
    assert x.sum() == 1
    world = one_resource([0.5, 0.5, 0.5], 3.0, [1.0] * 3, 1)
    for policy in (ESCB(world.problem), ESDPPrinted(world.problem)):
        assert policy.decide(next(iter(world))).tolist() == [1, 1, 1]


def test_what_is_not_unexplored_is_still_used_well() -> None:
    """B3. A finite large number on what is new leaves the choice among what is known to its index."""
    world = one_resource([0.9, 0.2, 0.5], 2.0, [1.0] * 3, 1)
    policy = ESCB(world.problem)
    policy.observe(SelectionOutcome(0, np.array([0, 1]), np.array([1, 1]), np.array([0.9, 0.2]), 1.1))
    assert policy.decide(SelectionSlot(1, world.problem.limits, np.ones(3))).tolist() == [1, 0, 1]


def test_choosing_before_looking_at_arrivals_has_linear_regret() -> None:
    """B4. Two ports, ρ = .9, means .9 and .8, room for one: .81 a slot, when .882 were to be had."""
    world = one_resource([0.9, 0.8], 1.0, [0.9, 0.9], 2500, sd=0.01)
    best = 0.9 * 0.9 + 0.1 * 0.9 * 0.8
    late = slice(1000, None)
    printed = play(world, "esdp-printed:g=log,delta=log").measures["expected"][late].mean()
    correct = play(world, "escb").measures["expected"][late].mean()
    assert best == pytest.approx(0.882)
    assert printed <= 0.83
    assert correct == pytest.approx(best, abs=0.02)


def test_a_port_without_jobs_is_not_explored_for_ever() -> None:
    """B5. A port with ρ = 0 stays unexplored; chosen before arrivals are seen, it takes all capacity each slot."""
    world = one_resource([0.9, 0.8], 1.0, [0.0, 0.9], 300)
    assert share(world, "esdp-printed") < 0.01  # at most the very first slot
    assert share(world, "escb") > 0.95


def test_m_is_what_can_be_open_not_a_share_of_all_channels() -> None:
    """B6. At the papers' defaults at most 2 channels are open, and the printed m is half of about 32."""
    problem = papers(0, 10).problem
    policy, printed = ESCB(problem, radius="theory"), ESDPPrinted(problem)
    assert policy.most in (1, 2)
    assert printed.most >= 5 * policy.most
    assert GS["full"](2000, printed.most) > 4 * policy.g(2000)
    assert GS["full"](2000, printed.most) > 50 * ESCB(problem).g(2000)


def test_a_radius_for_16_channels_explores_every_arm_past_the_horizon() -> None:
    """B6, B9. The printed policy is still exploring at T; the corrected one has long settled."""
    world = papers(1, 400, ports=4, servers=10)
    assert share(world, "esdp-printed") < share(world, "escb") - 0.05


def test_the_printed_rounding_is_coarser_than_any_gain() -> None:
    """B9. δ(t) = 1/(ln(ln t + 1) + 1) falls so slowly that 4δ is 1.27 at t = 2000: more than the best net gain of 1."""
    assert 4 * DELTAS["loglog"](2000) == pytest.approx(1.27, abs=0.01)
    assert 4 * DELTAS["logloglog"](2000) > 1.27
    # a step that falls as a log-regret proof needs it, E·max(1, ln m)²/t, is far below at the same t
    assert 32 * max(1.0, math.log(2)) ** 2 / 2000 < 0.02


def test_the_printed_probabilities_say_nothing() -> None:
    """B10. Bounds that hold "with probability at most p" hold for every algorithm with p = 1, and here p is near 1.

    What is claimed of the corrected policy is its regret on the ports that have a job, and it is measured: below.
    """
    probability = math.exp(-((8 - 8 * 0.9) ** 2) / 3)
    assert probability == pytest.approx(0.81, abs=0.01)
    assert pytest.approx(0.43, abs=0.01) == 0.9**8  # how often really every port has a job


def test_regret_grows_slower_than_the_slots() -> None:
    """B10. Regret of the second half is well below that of the first; as printed it is not."""

    def halves(spec: str) -> tuple[float, float]:
        first = second = 0.0
        for seed in range(3):
            world = one_resource([0.9, 0.7, 0.5, 0.3], 2.0, [0.8] * 4, 1000, seed, sd=0.2)
            best = np.sort(world.arrivals * np.array([0.9, 0.7, 0.5, 0.3]), axis=1)[:, -2:].sum(axis=1)
            lost = best - play(world, spec, seed).measures["expected"]
            first, second = first + lost[:500].sum(), second + lost[500:].sum()
        return first, second

    first, second = halves("escb")
    assert second < 0.6 * first
    first, second = halves("esdp-printed")
    assert second > 0.75 * first


def test_at_the_printed_parameters_serving_rarely_pays() -> None:
    """B11. Gains of mean ≤ 1 less three costs of N(.5, .1): nearly every net gain is below 0, nothing is best."""
    rng = stream(0, "printed parameters")
    net = rng.uniform(0.1, 1.0, 2000) - normal_costs(rng, 2000, 3)
    assert (net < 0).mean() > 0.99


def test_shifting_gains_into_0_1_changes_what_is_best() -> None:
    """B11. One channel of .9 against two of .4: adding .5 to each, "without loss of generality", prefers the two."""
    graph = Instance.from_arrays(np.ones((1, 1)), [[2.0], [1.0], [1.0]], [(0, 0), (1, 0), (2, 0)])
    slots = 300
    problem = SelectionProblem(graph, np.zeros(3), pool=np.array([2.0]), horizon=slots)
    for shift, best in ((0.0, [1, 0, 0]), (0.5, [0, 1, 1])):
        gains = DrawnGains(Normal(0.02), [0.9 + shift, 0.4 + shift, 0.4 + shift], 0)
        world = SelectionWorld(problem, np.ones((slots, 3)), gains)
        assert decisions(world)[-1] == best


def test_channels_that_do_not_pay_are_left_closed() -> None:
    """B11. Learn the gain, subtract the known cost, allow the empty choice: what does not pay stays shut."""
    graph = Instance.from_arrays([[2.0]], [[1.0], [1.0]], [(0, 0), (1, 0)])
    problem = SelectionProblem(graph, cost=np.array([0.6, 0.1]), horizon=300)
    world = SelectionWorld(problem, np.ones((300, 2)), DrawnGains(Normal(0.05), [0.3, 0.3], 0))
    played = decisions(world)
    assert played[-1] == [0, 1]
    assert sum(x[0] for x in played) < 30


@pytest.mark.parametrize("policy", [ESCB, ESDPPrinted])
def test_statistics_are_of_slots_before_and_of_what_was_opened(policy: type[ESCB] | type[ESDPPrinted]) -> None:
    """B12. As printed n(t) and v̂(t) contain x(t), which is chosen by them; and channels zeroed later are counted."""
    world = one_resource([0.5, 0.5], 2.0, [1.0, 0.0], 3)
    agent = policy(world.problem)
    for slot in world:
        before = agent.statistics.count.copy()
        decision = agent.decide(slot)
        assert np.array_equal(agent.statistics.count, before)
        agent.observe(world.step(decision))
    assert agent.statistics.count.tolist() == [3.0, 0.0]


def test_cluster_wide_capacity_overcommits_single_servers() -> None:
    """Two channels on a server with room for one, beside an empty server: as printed both open."""
    graph = Instance.from_arrays([[1.0], [1.0]], [[1.0], [1.0]], [(0, 0), (1, 0)])
    problem = SelectionProblem(graph, np.zeros(2), horizon=50)
    world = SelectionWorld(problem, np.ones((50, 2)), DrawnGains(Normal(0.1), [0.6, 0.9], 0))
    printed = play(world, "esdp-printed", infeasible="repair")
    assert (printed.violations > 0).all()
    assert play(world, "escb").violations.sum() == 0
    assert printed.claimed.sum() > printed.reward.sum()
