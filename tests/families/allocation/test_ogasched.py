"""OGASched: what each version promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.allocation.oracle import best_stationary, slot_optima
from berth.families.allocation.policies.authors import OGASchedAuthors
from berth.families.allocation.policies.aware import OGASchedAware
from berth.families.allocation.policies.baselines import Fairness
from berth.families.allocation.policies.ogasched import OGASched
from berth.families.allocation.policies.printed import OGASchedPrinted
from berth.families.allocation.policies.rates import ArrivalRates, OGASchedRates
from berth.families.allocation.problem import AllocationProblem, AllocationSlot
from berth.families.allocation.utility import Utilities
from berth.families.allocation.world import AllocationWorld
from berth.families.arrivals import bernoulli_arrivals
from berth.model import Instance
from berth.random import stream
from berth.registry import PolicySpec
from berth.scenario import load_scenario
from berth.simulation import simulate
from berth.testing import example_problem
from tests.harness.examples import examples
from tests.reference import authors

SMALL = {"horizon": 400}


def small_world(known: bool, seed: int = 0) -> AllocationWorld:
    world: AllocationWorld = load_scenario("small", SMALL).build(seed, known)
    return world


@pytest.mark.parametrize(
    "spec",
    [
        "ogasched",
        "ogasched:step=horizon",
        "ogasched:step=0.3",
        "ogasched:gradient=ewma",
        "ogasched:geometry=mirror",
        "ogasched:optimistic=true",
        "ogasched-rates",
    ],
)
def test_every_blind_variant_comes_near_the_best_stationary_decision(spec: str) -> None:
    world = small_world(known=False)
    result = simulate(world, PolicySpec.parse(spec).build(world.problem, stream(0, spec)), infeasible="raise")
    late = slice(200, None)
    assert result.reward[late].sum() >= 0.95 * best_stationary(world).reward[late].sum()


def test_regret_to_the_stationary_optimum_grows_slower_than_time() -> None:
    world = load_scenario("small", {"horizon": 3000}).build(1, False)
    lost = best_stationary(world).reward - simulate(world, OGASched(world.problem)).reward
    first, last = lost[:300].mean(), lost[-1000:].mean()
    assert last < 0.5 * first


def test_aware_policy_reaches_the_slot_optimum_and_certifies_it() -> None:
    world = small_world(known=True)
    policy = OGASchedAware(world.problem, iterations=20)
    bounds: list[float] = []
    result = simulate(
        world, policy, infeasible="raise", observers=[lambda slot, decision, outcome: bounds.append(policy.certify())]
    )
    optima = slot_optima(world)
    assert result.total >= 0.997 * optima.reward.sum()
    assert (np.array(bounds) >= result.reward - 1e-9).all()
    more = simulate(world, OGASchedAware(world.problem, iterations=60)).total
    assert more >= result.total - 1e-3 * abs(result.total)


def test_aware_policy_refuses_hidden_arrivals() -> None:
    with pytest.raises(UnsupportedProblem, match="revealed"):
        OGASchedAware(example_problem(arrivals_known=False))


def test_rates_follow_a_switch_and_beat_the_best_stationary_decision() -> None:
    world = load_scenario("small", {"horizon": 1000}).build(2, False)
    problem = world.problem
    half = np.arange(problem.jobs) % 2 == 0
    rates = np.where((np.arange(1000)[:, None] // 250) % 2 == 0, half, ~half) * 0.9 + 0.05
    arrivals = (np.random.default_rng(0).random(rates.shape) < rates).astype(float)
    switching = AllocationWorld(problem, arrivals)
    result = simulate(switching, OGASchedRates(problem), infeasible="raise")
    assert result.total > best_stationary(switching).reward.sum()


def test_arrival_rates_settle_where_nothing_changes() -> None:
    rates = ArrivalRates(3)
    truth = np.array([0.1, 0.5, 0.9])
    for row in bernoulli_arrivals(np.random.default_rng(5), 2000, truth):
        rates.observe(row)
    assert np.abs(rates.mean - truth).max() < 0.08


def test_the_printed_version_breaks_constraints_and_claims_more_than_it_earns() -> None:
    world = small_world(known=False)
    printed = simulate(world, OGASchedPrinted(world.problem))
    exact = simulate(world, OGASched(world.problem))
    assert printed.violations.sum() > 0
    assert printed.claimed.sum() > printed.reward.sum()
    assert exact.violations.sum() == 0
    assert (exact.claimed == exact.reward).all()
    assert exact.total > printed.total


def test_a_printed_decision_can_claim_more_than_any_feasible_one_could_earn() -> None:
    """Where one port asks little and another much, forcing the server full hands out more than was asked."""
    graph = Instance.from_arrays([[10.0]], [[1.0], [1.0]], [(0, 0), (1, 0)])
    utilities = Utilities(("linear",), np.zeros((1, 1), dtype=np.int64), np.ones((1, 1)))
    problem = AllocationProblem(graph, utilities, overhead=np.array([0.1]))
    world = AllocationWorld(problem, np.ones((5, 2)))
    printed = simulate(world, OGASchedPrinted(problem))
    assert printed.claimed[-1] > slot_optima(world).bound[-1]


@given(seed=st.integers(0, 2**31), step=st.sampled_from([0.1, 0.999, 25.0]))
@examples(30)
def test_the_authors_code_is_played_as_it_runs(seed: int, step: float) -> None:
    rng = np.random.default_rng(seed)
    ports, servers, resources = rng.integers(1, 5), rng.integers(1, 4), rng.integers(1, 4)
    reach = [(port, server) for server in range(servers) for port in range(ports) if rng.random() < 0.7]
    graph = Instance.from_arrays(
        rng.uniform(1.0, 9.0, (servers, resources)), rng.uniform(0.5, 6.0, (ports, resources)), reach or [(0, 0)]
    )
    kinds = rng.integers(4, size=(servers, resources))
    utilities = Utilities(("linear", "log", "reciprocal", "poly"), kinds, rng.uniform(1.0, 1.5, kinds.shape))
    problem = AllocationProblem(graph, utilities, rng.uniform(0.01, 0.5, resources), arrivals_known=True)
    arrivals = (rng.random((8, ports)) < 0.7).astype(float)
    policy = OGASchedAuthors(problem, step=step)
    for number, expected in enumerate(authors.played(problem, arrivals, step, 0.99)):
        decision = policy.decide(AllocationSlot(number, graph.capacity, arrivals[number]))
        np.testing.assert_allclose(decision, expected, atol=1e-9)


def test_the_authors_code_begins_fair_and_needs_arrivals() -> None:
    world = small_world(known=True)
    first = next(iter(world))
    decision = OGASchedAuthors(world.problem).decide(first)
    np.testing.assert_allclose(decision, Fairness(world.problem).decide(first))
    with pytest.raises(UnsupportedProblem, match="revealed"):
        OGASchedAuthors(example_problem(arrivals_known=False))


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"step": "fast"}, "step"),
        ({"step": -1.0}, "step"),
        ({"gradient": "all"}, "gradient"),
        ({"geometry": "x"}, "geometry"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], key: str) -> None:
    with pytest.raises(InvalidInput, match=key):
        OGASched(example_problem(), **settings)  # type: ignore[arg-type]
