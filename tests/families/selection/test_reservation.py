"""The reservation index against its plain twin, and what the policy promises."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import UnsupportedProblem
from berth.families.selection.gains import DrawnGains, Normal
from berth.families.selection.kernels.reservation import (
    BINS,
    LOWEST,
    OCTAVES,
    STEPS,
    fit_levels,
    pool_values,
    reservation_values,
    shrunk_noise,
    standard_values,
)
from berth.families.selection.oracle import informed_rewards, selection_optima
from berth.families.selection.policies.pooled import PooledPrior, server_classes
from berth.families.selection.policies.reservation import Reservation
from berth.families.selection.policies.statistics import Statistics
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.families.selection.world import SelectionWorld
from berth.model import Floats, Instance
from berth.scenario import load_scenario
from berth.simulation import simulate
from tests.families.selection.instances import one_resource, papers, play, share
from tests.harness.examples import examples
from tests.reference import reservation as plain

numbers = st.floats(-3, 3)


def table() -> np.ndarray:
    values = np.empty(OCTAVES * STEPS + 1)
    standard_values(values)
    return values


def test_the_table_holds_the_roots() -> None:
    values = table()
    for i in range(0, len(values), 60):
        assert values[i] == pytest.approx(plain.standard_value(2.0 ** (LOWEST + i / STEPS)), rel=1e-9, abs=1e-12)
    assert (np.diff(values) > 0).all()  # it never stops growing, and with it the bonus: no channel is given up


@given(numbers, st.floats(0, 4), st.floats(1e-6, 4), st.floats(0.01, 1e6))
@examples(40)
def test_seen_channels_get_the_best_of_all_numbers_of_tasks(
    mean: float, variance: float, noise: float, uses: float
) -> None:
    index = np.empty(1)
    one = np.array([[mean], [variance], [noise], [uses]])
    reservation_values(np.zeros(1, dtype=np.int64), one[0], one[1], one[2], one[3], table(), index)
    assert index[0] == pytest.approx(plain.seen_value(mean, variance, noise, uses), rel=1e-3, abs=1e-4)


@given(st.lists(st.tuples(numbers, st.floats(0.01, 2)), min_size=1, max_size=30), st.floats(0, 1e6))
def test_a_draw_from_the_pool_is_worth_what_the_root_finder_says(drawn: list[tuple[float, float]], uses: float) -> None:
    residuals, weights = (np.array(column) for column in zip(*drawn, strict=True))
    value = np.empty(1)
    pool_values(residuals, weights, np.array([uses]), value)
    width = float(np.ptp(residuals)) / BINS
    assert value[0] == pytest.approx(plain.pool_value(residuals, weights, uses), abs=1e-9 + 2.0 * width)


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 6)), min_size=1, max_size=12))
def test_noise_is_shrunk_to_the_median(drawn: list[tuple[float, int]]) -> None:
    squares, pulls = (np.array(column, dtype=np.float64) for column in zip(*drawn, strict=True))
    noise = np.empty(len(squares))
    shrunk_noise(squares, pulls, 0.3, 5.0, noise)
    assert noise == pytest.approx(plain.noise_of(squares, pulls, 0.3, 5.0))


@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 3))
def test_effects_are_those_of_the_twin(seed: int, ports: int, sweeps: int) -> None:
    rng = np.random.default_rng(seed)
    channels, servers = int(rng.integers(1, 12)), int(rng.integers(1, 5))
    levels = [np.zeros(channels, dtype=np.int64), 1 + rng.integers(0, ports, channels)]
    levels.append(1 + ports + rng.integers(0, servers, channels))
    first = np.array([0, 1, 1 + ports, 1 + ports + servers])
    count = rng.integers(0, 4, channels).astype(np.float64)
    mean, noise = rng.normal(size=channels), rng.uniform(0.1, 1, channels)
    effect, prior, trust = np.zeros(first[-1]), np.full(channels, 0.5), np.zeros(channels)
    effect[0] = 0.5
    spread = fit_levels(np.array(levels), first, count, mean, noise, 4.0, 0.2, sweeps, effect, 0.2, prior, trust)
    expected, rest = plain.fitted([level.tolist() for level in levels], count, mean, noise, 4.0, 0.2, sweeps, 0.5)
    assert prior == pytest.approx(expected)
    assert spread == pytest.approx(rest)


def structured(ports: int = 6, servers: int = 8) -> tuple[SelectionProblem, np.ndarray]:
    """Servers of two capacities, the large ones twice as good, every channel a little of its own."""
    capacity = np.where(np.arange(servers) % 2, 2.0, 1.0)[:, None]
    graph = Instance.from_arrays(capacity, np.ones((ports, 1)), [(p, r) for p in range(ports) for r in range(servers)])
    rng = np.random.default_rng(0)
    means = np.where(graph.channel_server % 2, 0.8, 0.4) + rng.normal(0, 0.02, len(graph.channel_port))
    return SelectionProblem(graph, np.zeros(len(means))), means


def test_a_new_server_begins_with_what_its_class_has() -> None:
    problem, means = structured()
    servers = problem.instance.channel_server
    assert server_classes(problem).tolist() == [0, 1] * 4
    pooled, seen = PooledPrior(problem), Statistics(len(means))
    opened = np.flatnonzero(servers < 6)
    for slot in range(4):
        seen.learn(SelectionOutcome(slot, opened, np.ones(len(opened), dtype=np.int64), means[opened], 0.0))
    for _ in range(20):
        pooled.update(seen)
    assert pooled.prior[servers == 7].mean() == pytest.approx(0.8, abs=0.08)
    assert pooled.prior[servers == 6].mean() == pytest.approx(0.4, abs=0.08)
    assert (pooled.variance[servers >= 6] > pooled.variance[servers < 6].max()).all()


def test_one_slow_server_of_a_good_class_shows_after_a_dozen_runs() -> None:
    problem, means = structured()
    servers = problem.instance.channel_server
    means = np.where(servers == 7, 0.3, means)
    pooled, seen = PooledPrior(problem), Statistics(len(means))
    rng = np.random.default_rng(1)
    for slot in range(48):
        one = np.array([slot % 6 * 8 + slot // 6])
        here = np.flatnonzero((problem.instance.channel_port == one[0] // 8) & (servers == one[0] % 8))
        seen.learn(SelectionOutcome(slot, here, np.array([2]), 2 * means[here] + rng.normal(0, 0.05, 1), 0.0))
        pooled.update(seen)
    assert pooled.mean[servers == 7].max() < pooled.mean[servers % 2 == 1].mean() - 0.1


def test_what_is_believed_holds_where_every_channel_was_opened_once() -> None:
    """A variance that is estimated from one noisy task of each channel is often far too small."""
    graph = Instance.from_arrays(np.ones((26, 1)), np.ones((1, 1)), [(0, r) for r in range(26)])
    problem, rng, held, narrow = SelectionProblem(graph, np.zeros(26)), np.random.default_rng(0), 0, 0
    for _ in range(200):
        means, pooled, seen = rng.uniform(0.1, 0.9, 26), PooledPrior(problem), Statistics(26)
        drawn = rng.normal(means, 0.24)
        seen.learn(SelectionOutcome(0, np.arange(26), np.ones(26, dtype=np.int64), drawn, 0.0))
        for _ in range(60):
            pooled.update(seen)
        held += int((np.abs(means - pooled.mean) < 1.96 * np.sqrt(pooled.variance)).sum())
        alone = pooled.prior + pooled.trust * (drawn - pooled.prior)
        narrow += int((np.abs(means - alone) < 1.96 * np.sqrt(pooled.spread * (1.0 - pooled.trust))).sum())
    assert held > 0.95 * 26 * 200
    assert narrow < 0.95 * 26 * 200


def test_nothing_must_be_tried_first() -> None:
    """One server is twice as good for all ports: most channels to others are never opened."""
    graph = Instance.from_arrays([[6.0]] + [[6.0]] * 9, np.ones((6, 1)), [(p, r) for p in range(6) for r in range(10)])
    means = np.where(graph.channel_server == 3, 0.9, 0.3)
    problem = SelectionProblem(graph, np.full(60, 0.05), pool=np.array([6.0]))
    world = SelectionWorld(problem, np.ones((200, 6)), DrawnGains(Normal(0.1), means, 0))
    policy = Reservation(problem)
    earned = simulate(world, policy).measures["expected"].sum()
    assert earned > 0.95 * selection_optima(world).reward.sum()


def test_it_comes_nearer_to_the_oracle_than_escb_at_the_papers_defaults() -> None:
    ours, theirs = (
        float(np.mean([share(papers(seed, 800), spec, seed) for seed in range(2)])) for spec in ("reservation", "escb")
    )
    assert ours > max(0.96, theirs)


def test_how_often_knowledge_is_used_is_counted_by_jobs_and_fades() -> None:
    problem, means = structured()
    policy = Reservation(problem, discount=0.5)
    some = np.array([1.0, 0, 0, 0, 0, 0])
    for slot in range(3):
        tasks = policy.decide(SelectionSlot(slot, problem.limits, some))
        opened = np.flatnonzero(tasks)
        policy.observe(SelectionOutcome(slot, opened, tasks[opened], means[opened] * tasks[opened], 0.0))
    assert policy.uses[0] == pytest.approx(1.0 + 1.75, abs=0.3)
    assert policy.uses[1:].tolist() == [1.0] * 5


class Turning:
    """Gains that take turns, each for as many slots."""

    def __init__(self, slots: int, *gains: DrawnGains) -> None:
        self.slots, self.gains = slots, gains

    def __iter__(self) -> Iterator[tuple[Floats, Floats]]:
        for t, now in enumerate(zip(*self.gains, strict=True)):
            yield now[t // self.slots % len(now)]


def test_a_change_is_noticed_and_what_was_left_is_tried_again() -> None:
    """The best channel becomes the worst after 400 slots, and the best again after 800."""
    still = one_resource([0.9, 0.6], 1.0, [1.0, 1.0], 1200, sd=0.2)
    turning = Turning(400, *(DrawnGains(Normal(0.2), [mean, 0.6], 3) for mean in (0.9, 0.2)))
    world = SelectionWorld(still.problem, still.arrivals, turning)
    noticed, deaf = (simulate(world, Reservation(world.problem, discount=d)).measures["expected"] for d in (None, 1.0))
    assert noticed[550:800].mean() > 0.55
    assert noticed[1000:].mean() > 0.85
    assert noticed.sum() > deaf.sum()


def test_gains_that_stay_are_not_forgotten() -> None:
    world = papers(0, 600)
    policy = Reservation(world.problem)
    simulate(world, policy)
    assert policy.statistics.discount == 1.0


def test_the_limit_of_information_is_near_what_the_index_earns_and_below_the_oracle() -> None:
    limit = oracle = ours = 0.0
    for seed in range(2):
        world = load_scenario("esdp-small").build(seed)
        limit += informed_rewards(world).sum()
        oracle += selection_optima(world).reward.sum()
        ours += play(world, "reservation", seed).measures["expected"].sum()
    assert ours * 0.97 < limit < oracle


def test_the_limit_is_not_known_where_gains_drift_or_come_from_nowhere() -> None:
    with pytest.raises(UnsupportedProblem, match="mean gains that stay"):
        informed_rewards(load_scenario("esdp-drift", {"horizon": 5}).build(0))
    with pytest.raises(UnsupportedProblem, match="whose distribution is known"):
        informed_rewards(one_resource([0.9, 0.6], 1.0, [1.0, 1.0], 5))


def test_where_gains_are_measured_the_limit_is_told_how_they_spread() -> None:
    gains = load_scenario("trace-openb-selection", {"horizon": 5}).build(0).gains
    assert isinstance(gains, DrawnGains)
    assert gains.centres is not None
    means = np.array([gains.law.mean(centre) for centre in gains.centres])
    true = gains.law.mean(gains.centre)
    place = (means < true).mean(axis=0)  # where in its distribution each channel lies: evenly, if they were told right
    assert np.histogram(place, 4, (0, 1))[0].min() > 0.15 * len(place)
