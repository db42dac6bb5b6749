"""Selection policies: feasible, learning, robust to late and lost feedback; baselines and their two readings."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families import BUILTIN
from berth.families.selection.gains import DrawnGains, Normal, Redraw
from berth.families.selection.kernels.channels import kl_upper
from berth.families.selection.oracle import selection_optima
from berth.families.selection.policies.baselines import HAUF, LCF, LWTF
from berth.families.selection.policies.bounds import ESCB
from berth.families.selection.policies.cts import CTS
from berth.families.selection.policies.statistics import Statistics
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.families.selection.world import SelectionWorld
from berth.model import Instance
from berth.random import stream
from berth.registry import PolicySpec, resolve
from berth.simulation import simulate
from tests.families.selection.instances import gangs, one_resource, papers, play, share

POOLED = ("reservation", "escb:pooled=true", "cts:pooled=true", "kl-ucb:pooled=true")
LEARNERS = ("escb", "escb-v", "cts", "cts:prior=beta", "kl-ucb", "cucb", "epsilon-greedy", *POOLED)
BASELINES = ("hauf", "hauf:misfit=skip", "lcf", "lcf:misfit=skip", "lwtf", "lwtf:misfit=skip")
OTHERS = ("esdp-printed", "random-selection", *BASELINES)


def per_server(seed: int, slots: int = 40) -> SelectionWorld:
    """Every server its own pool, real demands, a server lost on the way, costs that do not always pay."""
    rng = stream(seed, "per server")
    channels = np.argwhere(rng.random((5, 4)) < 0.7)
    graph = Instance.from_arrays(rng.uniform(1, 4, (4, 2)), rng.uniform(0.2, 2, (5, 2)), channels)
    problem = SelectionProblem(graph, rng.uniform(0.0, 0.6, len(channels)))
    up = np.ones((slots, 4), dtype=bool)
    up[10:20, 1] = False
    arrivals = (rng.random((slots, 5)) < 0.6).astype(np.float64)
    return SelectionWorld(problem, arrivals, DrawnGains(Normal(0.2), rng.uniform(0, 1, len(channels)), seed), up)


def test_every_selection_policy_is_registered() -> None:
    names = {name for name, target in BUILTIN.items() if ".selection." in target}
    assert names >= {spec.split(":")[0] for spec in (*LEARNERS, *OTHERS)} | {"hswf"}
    for name in names:
        cls = resolve(name)
        assert cls.family == "selection"
        assert cls.reference
        assert cls.__doc__
        assert ">>>" in cls.__doc__


@pytest.mark.parametrize("spec", [*LEARNERS, *(s for s in OTHERS if s != "esdp-printed")])
def test_decisions_are_feasible_fresh_whole_numbers(spec: str) -> None:
    for world in (per_server(1), papers(2, 30)):
        policy = PolicySpec.parse(spec).build(world.problem, stream(0, "p"))
        last = None
        for slot in world:
            decision = policy.decide(slot)
            assert decision.dtype == np.int64
            assert world.problem.violations(slot, decision) == []
            assert last is None or not np.shares_memory(last, decision)
            outcome = world.step(decision)
            policy.observe(outcome)
            last = decision.copy()
            decision[...] = -9
            last = decision


def test_as_printed_it_is_feasible_where_capacity_is_the_clusters() -> None:
    assert play(papers(2, 60, ports=4, servers=10), "esdp-printed").violations.sum() == 0


@pytest.mark.parametrize("spec", LEARNERS)
def test_pickled_policies_resume(spec: str) -> None:
    world = one_resource([0.9, 0.5, 0.3], 1.0, [0.8] * 3, 30)
    policy = PolicySpec.parse(spec).build(world.problem, stream(0, "p"))
    for slot in world:
        twin = pickle.loads(pickle.dumps(policy))
        decision = policy.decide(slot)
        assert np.array_equal(twin.decide(slot), decision)
        policy.observe(world.step(decision))


@pytest.mark.parametrize("spec", LEARNERS)
def test_learners_beat_random_and_come_near_the_oracle(spec: str) -> None:
    world = one_resource([0.9, 0.8, 0.4, 0.3, 0.2, 0.1], 2.0, [0.7] * 6, 600, sd=0.2)
    assert share(world, spec) > 0.9
    assert share(world, "random-selection") < 0.8


@pytest.mark.parametrize("seed", [0, 1])
def test_escb_comes_near_the_oracle_at_the_papers_defaults(seed: int) -> None:
    assert share(papers(seed, 1200), "escb", seed) > 0.92


@pytest.mark.parametrize("spec", ["escb", "cts"])
def test_gangs_start_whole_and_are_learned(spec: str) -> None:
    world = gangs(0, 12)
    learned = play(world, spec).measures["expected"]
    assert learned[6:].sum() > play(world, "random-selection").measures["expected"][6:].sum()
    assert learned.sum() <= selection_optima(world).bound.sum()


def test_random_gangs_are_feasible() -> None:
    for seed in range(5):
        world = gangs(seed, 40)
        run = play(world, "random-selection")
        assert run.violations.sum() == 0
        assert run.measures["gain"].sum() > 0


@pytest.mark.parametrize("spec", ["hauf", "lcf", "lwtf", "esdp-printed"])
def test_gangs_are_refused_by_those_that_would_break_them(spec: str) -> None:
    with pytest.raises(UnsupportedProblem, match="cannot keep gangs whole; use escb"):
        PolicySpec.parse(spec).build(gangs(0).problem, stream(0, "p"))


@pytest.mark.parametrize("spec", LEARNERS)
def test_late_lost_and_doubled_feedback_does_no_harm(spec: str) -> None:
    """Delays of up to 5 slots and a fifth of all outcomes lost: it still learns, and sums are the same in any order."""
    rng = np.random.default_rng(0)
    delay = np.where(rng.random(600) < 0.2, -1, rng.integers(0, 6, 600))
    world = one_resource([0.9, 0.6, 0.3, 0.1], 1.0, [0.9] * 4, 600, sd=0.2, delay=delay)
    assert share(world, spec) > 0.88


def test_without_any_feedback_decisions_stay_feasible() -> None:
    world = one_resource([0.9, 0.5], 1.0, [0.9] * 2, 50, delay=np.full(50, -1))
    for spec in LEARNERS:
        assert play(world, spec).violations.sum() == 0


outcomes = st.lists(
    st.tuples(st.integers(0, 40), st.sets(st.integers(0, 2), min_size=1), st.integers(1, 4), st.integers(0, 2**31)),
    max_size=12,
)


def made(slot: int, channels: set[int], tasks: int, seed: int) -> SelectionOutcome:
    rng = np.random.default_rng(seed)
    opened = np.array(sorted(channels))
    count = np.full(len(opened), tasks)
    return SelectionOutcome(slot, opened, count, rng.normal(size=len(opened)) * tasks, 0.0)


@pytest.mark.parametrize(("discount", "window"), [(1.0, None), (0.9, None), (1.0, 10)])
@given(listed=outcomes, order=st.randoms(use_true_random=False))
def test_statistics_are_weighted_averages_in_any_order(
    discount: float, window: int | None, listed: list[Any], order: Any
) -> None:
    all_of_them = [made(*entry) for entry in listed]
    shuffled = list(all_of_them)
    order.shuffle(shuffled)
    seen = Statistics(3, discount, window)
    now = 0
    for outcome in shuffled:  # time passes meanwhile
        seen.advance(now := max(now + 1, outcome.slot))
        seen.learn(outcome)
    now = max(now, 41)
    seen.advance(now)
    for e in range(3):
        entries = [(o.slot, o.tasks[i], o.gains[i]) for o in all_of_them for i in np.flatnonzero(o.channels == e)]
        if window is not None:
            entries = [entry for entry in entries if now - entry[0] < window]
        weights = [n * discount ** (now - slot) for slot, n, _ in entries]
        assert seen.count[e] == pytest.approx(sum(weights), abs=1e-9)
        if sum(weights) > 0:
            each = np.array([gain / n for _, n, gain in entries])
            mean = np.average(each, weights=weights)
            assert seen.mean[e] == pytest.approx(mean, abs=1e-6)
            squares = float(np.sum(weights * (each - mean) ** 2))
            degrees = max(sum(discount ** (now - slot) for slot, _, _ in entries) - 1.0, 0.0)
            assert seen.variance(0.25)[e] == pytest.approx((squares + 0.25) / (degrees + 1.0), rel=1e-6, abs=1e-6)


def test_the_variance_is_that_of_one_task() -> None:
    rng = np.random.default_rng(0)
    seen = Statistics(1)
    for slot in range(4000):
        n = int(rng.integers(1, 5))
        gain = rng.normal(0.5, 0.3, n).sum()
        seen.learn(SelectionOutcome(slot, np.array([0]), np.array([n]), np.array([gain]), gain))
    assert np.sqrt(seen.variance(0.25)[0]) == pytest.approx(0.3, abs=0.02)


def test_a_window_forgets_and_holds_no_more_than_its_slots() -> None:
    world = one_resource([0.9, 0.5], 2.0, [1.0, 1.0], 200)
    policy = ESCB(world.problem, window=20)
    simulate(world, policy)
    assert policy.statistics.count.tolist() == [20.0, 20.0]
    assert len(pickle.dumps(policy)) < 30_000


@pytest.mark.parametrize("settings", ["discount=0.99", "window=200"])
def test_forgetting_helps_after_an_abrupt_change(settings: str) -> None:
    """The best channel becomes the worst after 800 slots: who counts everything alike takes long to believe it."""
    slots, total = 1100, {settings: 0.0, "p=0.2": 0.0}
    for seed in range(2):
        still = one_resource([0.9, 0.6], 1.0, [1.0, 1.0], slots, seed, sd=0.2)
        first = DrawnGains(Normal(0.2), [0.9, 0.6], seed)
        second = DrawnGains(Normal(0.2), [0.1, 0.6], seed + 100)

        class Changing:
            def __iter__(self, a: Any = first, b: Any = second) -> Any:
                for t, (before, after) in enumerate(zip(a, b, strict=True)):
                    yield before if t < 800 else after

        world = SelectionWorld(still.problem, still.arrivals, Changing())
        for spec in total:
            total[spec] += play(world, f"escb:{spec}", seed).measures["expected"][800:].sum()
    assert total[settings] > 1.1 * total["p=0.2"]


def test_redrawn_channels_are_found_again() -> None:
    drift = Redraw(every=400, share=0.5)
    world = one_resource([0.9, 0.6, 0.5, 0.3], 1.0, [1.0] * 4, 1200, sd=0.1)
    moving = SelectionWorld(world.problem, world.arrivals, DrawnGains(Normal(0.1), [0.9, 0.6, 0.5, 0.3], 3, drift))
    assert share(moving, "escb:discount=0.99,p=0.1") > 0.85


def test_certificates_are_kept() -> None:
    world = one_resource([0.9, 0.5, 0.2], 2.0, [1.0] * 3, 20)
    policy = ESCB(world.problem)
    assert policy.choice is None
    for slot in world:
        decision = policy.decide(slot)
        choice = policy.choice
        assert choice is not None
        assert np.array_equal(choice.tasks, decision)
        assert choice.bound >= choice.value - 1e-9
        assert choice.gap <= 1e-4
        policy.observe(world.step(decision))


def test_scale_makes_policies_indifferent_to_units() -> None:
    for spec in ("escb", "escb-v", "kl-ucb", "cucb"):
        played = []
        for unit in (1.0, 1024.0):
            world = one_resource([0.9 * unit, 0.5 * unit, 0.2 * unit], 1.0, [1.0] * 3, 80, sd=0.1 * unit)
            decisions: list[list[int]] = []
            policy = PolicySpec.parse(f"{spec}:scale={unit}").build(world.problem, stream(0, "p"))
            simulate(world, policy, observers=[lambda slot, x, outcome, to=decisions: to.append(x.tolist())])
            played.append(decisions)
        assert played[0] == played[1], spec


def test_thompson_samples_come_from_its_own_stream() -> None:
    world = one_resource([0.5, 0.5, 0.5], 1.0, [1.0] * 3, 60)
    a, b, c = (play(world, "cts", seed).reward for seed in (0, 0, 1))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


@given(st.floats(0, 1), st.floats(0, 5))
def test_the_kl_index_is_where_the_divergence_meets_its_budget(mean: float, budget: float) -> None:
    upper = np.empty(1)
    kl_upper(np.array([mean]), np.array([budget]), upper)
    q = float(upper[0])
    assert mean <= q + 1e-12
    assert q <= 1.0

    def kl(q: float) -> float:
        return float(mean * np.log(mean / q) + (1 - mean) * np.log((1 - mean) / (1 - q)))

    if mean > 1e-6 and q < 1 - 1e-6:
        assert kl(q) <= budget + 1e-6
        assert kl(q + 1e-7) >= budget - 1e-4


def ranked_world() -> SelectionProblem:
    """Ports 0, 1, 2 with demands 2, 3, 1 of a pool of 4 and costs .3, .1, .2."""
    graph = Instance.from_arrays([[9.0]], [[2.0], [3.0], [1.0]], [(0, 0), (1, 0), (2, 0)])
    return SelectionProblem(graph, cost=np.array([0.3, 0.1, 0.2]), pool=np.array([4.0]))


def test_the_two_readings_of_a_baseline_differ() -> None:
    """By cost: port 1 takes 3 of 4; port 2 fits beside it; port 0 does not. By gain: port 0, then 1 does not fit."""
    problem = ranked_world()
    slot = SelectionSlot(0, problem.limits, np.ones(3))
    assert LCF(problem).decide(slot).tolist() == [0, 1, 1]
    seen = SelectionOutcome(0, np.arange(3), np.ones(3, dtype=np.int64), np.array([1.3, 0.6, 0.5]), 0.0)
    readings = {}
    for misfit in ("stop", "skip"):
        policy = HAUF(problem, misfit=misfit)
        policy.observe(seen)
        readings[misfit] = policy.decide(SelectionSlot(1, problem.limits, np.ones(3))).tolist()
    assert readings == {"stop": [1, 0, 0], "skip": [1, 0, 1]}


def test_hauf_adds_up_a_ports_channels_and_opens_the_best_first() -> None:
    graph = Instance.from_arrays([[9.0], [9.0]], [[1.0], [1.0]], [(0, 0), (0, 1), (1, 0)])
    problem = SelectionProblem(graph, np.zeros(3), pool=np.array([1.0]))
    policy = HAUF(problem)  # channels by server: port 0 on 0, port 1 on 0, port 0 on 1
    policy.observe(SelectionOutcome(0, np.arange(3), np.ones(3, dtype=np.int64), np.array([0.5, 0.9, 0.6]), 0.0))
    assert policy.decide(SelectionSlot(1, problem.limits, np.ones(2))).tolist() == [0, 0, 1]
    assert policy.decide(SelectionSlot(2, problem.limits, np.array([0.0, 1.0]))).tolist() == [0, 1, 0]


def test_lwtf_serves_ports_in_turn() -> None:
    world = one_resource([0.9, 0.5, 0.1], 1.0, [1.0] * 3, 9)
    policy = LWTF(world.problem)
    served = [int(policy.decide(slot).argmax()) for slot in world]
    assert served == [0, 1, 2] * 3


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("escb:p=-1", "p: got -1"),
        ("escb:p=x", "p: got 'x'"),
        ("escb:radius=wide", "radius: got 'wide'"),
        ("escb:scale=0", "scale: got 0"),
        ("escb:discount=1.5", "discount: got 1.5"),
        ("escb:discount=0", "discount: got 0"),
        ("escb:window=0", "window: got 0"),
        ("escb:window=2.5", "window: got 2.5"),
        ("escb:window=9,discount=0.9", "either a discount or a window"),
        ("escb:gap=-1", "gap: got -1"),
        ("escb-v:p=-1", "p: got -1"),
        ("cts:prior=flat", "prior: got 'flat'"),
        ("cts:width=-1", "width: got -1"),
        ("kl-ucb:scale=-1", "scale: got -1"),
        ("cucb:p=true", "p: got True"),
        ("epsilon-greedy:epsilon=-0.1", "epsilon: got -0.1"),
        ("epsilon-greedy:decay=-1", "decay: got -1"),
        ("esdp-printed:alpha=0", "alpha: got 0"),
        ("esdp-printed:delta=fast", "delta: got 'fast'"),
        ("esdp-printed:g=big", "g: got 'big'"),
        ("hauf:misfit=go", "misfit: got 'go'"),
    ],
)
def test_nonsense_settings_are_refused(spec: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        PolicySpec.parse(spec).build(ranked_world(), stream(0, "p"))


def test_as_printed_it_refuses_what_its_table_cannot_hold() -> None:
    problem = papers(0, 10).problem
    with pytest.raises(UnsupportedProblem, match="whole numbers"):
        PolicySpec.parse("esdp-printed").build(problem.replace(pool=np.full(3, 2.5)), None)
    with pytest.raises(UnsupportedProblem, match="too many to hold"):
        PolicySpec.parse("esdp-printed").build(problem.replace(pool=np.full(3, 128.0)), None)


@pytest.mark.parametrize("delta", ["log", "loglog", "logloglog"])
@pytest.mark.parametrize("g", ["full", "loglog", "log"])
def test_the_papers_variants_run(delta: str, g: str) -> None:
    world = one_resource([0.9, 0.5, 0.4], 1.0, [1.0] * 3, 60)
    assert play(world, f"esdp-printed:delta={delta},g={g}").measures["expected"].sum() > 0


def test_no_channels_no_jobs_no_capacity() -> None:
    graph = Instance.from_arrays([[1.0]], [[1.0]], np.zeros((0, 2), dtype=np.int64))
    problem = SelectionProblem(graph, np.zeros(0), pool=np.array([1.0]))
    slot = SelectionSlot(0, problem.limits, np.ones(1))
    quiet = one_resource([0.5], 1.0, [0.0], 5)
    full = one_resource([0.5], 0.0, [1.0], 5)
    for spec in (*LEARNERS, *OTHERS):
        assert PolicySpec.parse(spec).build(problem, stream(0, "p")).decide(slot).shape == (0,)
        assert play(quiet, spec).reward.sum() == 0.0
        assert play(full, spec).reward.sum() == 0.0


def test_beta_thompson_explores_nothing_first() -> None:
    world = one_resource([0.9] * 40, 1.0, [1.0] * 40, 40)
    assert CTS(world.problem, stream(0, "p"), prior="beta").explores_first is False
    assert CTS(world.problem, stream(0, "p")).explores_first is True
