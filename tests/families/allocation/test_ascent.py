"""The ascent against linear programmes with tangents: values, bounds, feasibility, edge cases."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from berth.families.allocation.kernels import ascent
from berth.families.allocation.kernels.lanes import Lanes, build_lanes, limits, pack, unpack
from berth.families.allocation.kernels.utilities import tabulate
from tests.harness.examples import examples
from tests.reference.allocation import Graph, random_graph
from tests.reference.ascent import Tables, best_allocation, objective

Floats = NDArray[Any]

KNOTS = np.arange(9) * 0.5
SLOPES = np.array([1.3 * np.exp(-0.7 * KNOTS), np.where(KNOTS < 1.2, 1.2, 0.1)])
TABLES: Tables = (SLOPES, np.array([tabulate(row, 0.5) for row in SLOPES]), np.array([0.5, 0.5]))


class Case(NamedTuple):
    """An instance in both forms: plain arrays, and laid out."""

    graph: Graph
    lanes: Lanes
    limit: Floats
    beta: Floats
    work: ascent.Workspace

    def packed(self, decision: Floats) -> Floats:
        out = np.zeros(self.lanes.cap.shape, self.lanes.cap.dtype)
        pack(self.lanes.element, decision.astype(out.dtype), out)
        return out

    def unpacked(self, y: Floats) -> Floats:
        decision = np.zeros(self.graph.cap.shape, y.dtype)
        unpack(self.lanes.element, y, decision)
        return decision

    def solve(
        self, weight: Floats, floor: Floats | None = None, gap: float = 1e-6, most: int = 20_000
    ) -> tuple[Floats, float, float, int, Floats]:
        """(decision, value, bound, iterations, dual) from a cold start."""
        dtype = self.lanes.cap.dtype
        y, dual = np.zeros(self.lanes.cap.shape, dtype), ascent.even_dual(len(self.beta), self.beta.shape[1], dtype)
        low = self.packed(np.zeros(self.graph.cap.shape) if floor is None else floor)
        given = self.lanes, self.limit, weight.astype(dtype), self.beta, low
        value, bound, iterations = ascent.solve(*given, gap, most, y, dual, self.work)
        return self.unpacked(y), value, bound, iterations, dual


def lay_out(graph: Graph, dtype: Any = np.float64) -> Case:
    jobs, resources = graph.beta.shape
    channels = graph.server_start, graph.channel_job, graph.cap, graph.capacity
    lanes = build_lanes(*channels, graph.kind, graph.alpha, jobs, TABLES, dtype)
    work = ascent.workspace(lanes, jobs, resources)
    return Case(graph, lanes, limits(lanes, graph.capacity), graph.beta.astype(dtype), work)


def make(seed: int, jobs: int = 3, servers: int = 5, resources: int = 3, most: int = 3, kinds: int = 6) -> Case:
    """A small random instance with all utilities, tables among them."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, jobs, servers, resources, most)
    return lay_out(graph._replace(kind=rng.integers(0, kinds, (servers, resources))))


def some_floor(graph: Graph, rng: np.random.Generator, share: float = 0.6) -> Floats:
    """A feasible floor: random, with at most a share of each capacity."""
    floor = graph.cap * rng.random(graph.cap.shape) * (rng.random(graph.cap.shape) < 0.5)
    used = np.zeros(graph.capacity.shape)
    np.add.at(used, graph.channel_server, floor)
    fits = np.minimum(1.0, share * graph.capacity / np.maximum(used, 1e-12))
    scaled: Floats = floor * fits[graph.channel_server]
    return scaled


def assert_feasible(graph: Graph, y: Floats, weight: Floats, floor: Floats | None = None) -> None:
    """Exactly: not one rounding error beyond a bound."""
    y = y.astype(np.float64)
    present = weight[graph.channel_job] > 0
    low = np.zeros(graph.cap.shape) if floor is None else floor
    assert np.all(y[~present] == 0.0)
    assert np.all(y <= graph.cap)
    assert np.all(y[present] >= np.where(graph.capacity[graph.channel_server] > 0, low, 0.0)[present])
    used = np.zeros(graph.capacity.shape)
    np.add.at(used, graph.channel_server, y)
    assert np.all(used <= graph.capacity)


def random_weight(rng: np.random.Generator, jobs: int, fractional: bool) -> Floats:
    weight: Floats = rng.uniform(0.1, 1.0, jobs) if fractional else (rng.random(jobs) < 0.7).astype(np.float64)
    return weight


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("floors", [False, True])
def test_reaches_the_referee(seed: int, floors: bool) -> None:
    case = make(seed)
    rng = np.random.default_rng(100 + seed)
    weight = random_weight(rng, 3, fractional=seed % 2 == 1)
    floor = some_floor(case.graph, rng) if floors else np.zeros(case.graph.cap.shape)
    y, value, bound, _, _ = case.solve(weight, floor)
    _, best, above = best_allocation(case.graph, weight, floor, TABLES)
    scale = max(abs(above), 1.0)
    assert above - best <= 2e-6 * scale
    assert best - 2e-6 * scale <= value <= above + 1e-8 * scale
    assert best - 1e-8 * scale <= bound <= above + 2e-6 * scale
    assert value == pytest.approx(objective(case.graph, weight, y, TABLES), rel=1e-10, abs=1e-10)
    assert_feasible(case.graph, y, weight, floor)


@examples(60)
@given(seed=st.integers(0, 2**32 - 1), fractional=st.booleans(), floors=st.booleans())
def test_any_dual_bounds_any_decision(seed: int, fractional: bool, floors: bool) -> None:
    case = make(seed)
    graph, rng = case.graph, np.random.default_rng(seed)
    weight = random_weight(rng, 3, fractional)
    floor = some_floor(graph, rng) if floors else np.zeros(graph.cap.shape)
    dual = rng.dirichlet(np.full(3, 0.3), 3)
    given = case.lanes, case.limit, weight, case.beta, case.packed(floor)
    bound = ascent.upper_bound(*given, dual)
    # a little above the floor, then a good decision
    y = np.clip(some_floor(graph, rng, 0.4) + floor, 0.0, graph.cap) * (weight[graph.channel_job] > 0)[:, None]
    laid_out = case.unpacked(case.packed(y))
    tolerance = 1e-9 * max(abs(bound), 1.0)
    assert ascent.value(case.lanes, weight, case.beta, case.packed(laid_out)) <= bound + tolerance
    _, value, closed, _, last = case.solve(weight, floor, gap=1e-3, most=200)
    assert value <= bound + tolerance
    assert value <= closed + tolerance
    assert np.all(last >= 0)
    assert last.sum(axis=1) == pytest.approx(1.0)


@examples(60)
@given(
    seed=st.integers(0, 2**32 - 1),
    iterations=st.integers(1, 12),
    dtype=st.sampled_from([np.float64, np.float32]),
    floors=st.booleans(),
)
def test_every_decision_is_feasible(seed: int, iterations: int, dtype: Any, floors: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, 5, 6, 2, 5)
    graph = graph._replace(
        cap=graph.cap.astype(dtype).astype(np.float64), capacity=graph.capacity.astype(dtype).astype(np.float64)
    )
    case = lay_out(graph, dtype)
    floor = some_floor(graph, rng, 0.9).astype(dtype)
    y, dual = np.zeros(case.lanes.cap.shape, dtype), ascent.even_dual(5, 2, dtype)
    for _ in range(3):
        weight = random_weight(rng, 5, fractional=bool(rng.random() < 0.5)).astype(dtype)
        low = floor if floors else np.zeros_like(floor)
        ascent.recall(case.lanes, weight, 2, case.work, y)
        given = case.lanes, case.limit, weight, case.beta, case.packed(low)
        ascent.maximise(*given, iterations, y, dual, case.work)
        assert_feasible(graph, case.unpacked(y), weight, low)
        assert np.all(y[case.lanes.cap == 0] == 0)


@pytest.mark.parametrize("fractional", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_gap_closes(seed: int, fractional: bool) -> None:
    case = make(seed, jobs=8, servers=40, resources=4, most=6, kinds=4)
    weight = random_weight(np.random.default_rng(seed), 8, fractional)
    previous = np.inf
    for gap in (1e-2, 2e-4, 1e-6):
        _, value, bound, iterations, _ = case.solve(weight, gap=gap)
        assert 0.0 <= (bound - value) / bound <= gap
        assert bound <= previous + 1e-9 * abs(previous)
        assert iterations < 20_000
        previous = bound


def test_a_warm_start_needs_few_iterations() -> None:
    case = make(7, jobs=8, servers=40, resources=4, most=6, kinds=4)
    rng = np.random.default_rng(7)
    y, dual = np.zeros(case.lanes.cap.shape), ascent.even_dual(8, 4)
    floor = np.zeros_like(y)
    shares = []
    for _ in range(40):
        weight = random_weight(rng, 8, fractional=False)
        ascent.recall(case.lanes, weight, 4, case.work, y)
        given = case.lanes, case.limit, weight, case.beta, floor
        ascent.maximise(*given, 10, y, dual, case.work)
        reached = ascent.value(case.lanes, weight, case.beta, y)
        shares.append(reached / lay_out(case.graph).solve(weight, gap=1e-5)[2] if weight.any() else 1.0)
    assert np.mean(shares[5:]) > 0.99
    assert min(shares[5:]) > 0.97


def test_memory_is_kept_by_job() -> None:
    case = make(3, kinds=4)
    y, dual = np.zeros(case.lanes.cap.shape), ascent.even_dual(3, 3)
    floor = np.zeros_like(y)
    everyone, alone = np.ones(3), np.array([1.0, 0.0, 0.0])
    ascent.maximise(case.lanes, case.limit, everyone, case.beta, floor, 50, y, dual, case.work)
    before, weights = y.copy(), dual.copy()
    ascent.maximise(case.lanes, case.limit, alone, case.beta, floor, 50, y, dual, case.work)
    assert np.array_equal(dual[1:], weights[1:])
    ascent.recall(case.lanes, everyone, 3, case.work, y)
    others = case.lanes.cell >= 3
    assert np.array_equal(y[others], before[others])


def test_no_arrivals() -> None:
    case = make(1)
    y, value, bound, _, _ = case.solve(np.zeros(3))
    assert np.all(y == 0)
    assert value == bound == 0.0


def test_one_server_one_job_by_hand() -> None:
    # 1.2 ln(y + 1) − 0.4 y over 0 ≤ y ≤ 5 and y ≤ 4: the peak is at y = 2
    one = np.ones((1, 1))
    graph = Graph(np.array([0, 1]), np.array([0]), 5 * one, 4 * one, np.array([[1]]), 1.2 * one, 0.4 * one)
    y, value, bound, _, _ = lay_out(graph).solve(np.ones(1), gap=1e-9)
    assert y[0, 0] == pytest.approx(2.0, abs=1e-3)
    assert value == pytest.approx(1.2 * np.log(3.0) - 0.8, abs=1e-8)
    assert bound == pytest.approx(value, abs=1e-8)


def test_a_tie_between_resources_by_hand() -> None:
    # .8 y₁ + .3 y₂ less the larger of the two: alone neither pays, together they do, so both go to 3
    graph = Graph(
        np.array([0, 1]),
        np.array([0]),
        np.array([[3.0, 9.0]]),
        np.array([[9.0, 9.0]]),
        np.zeros((1, 2), np.int64),
        np.array([[0.8, 0.3]]),
        np.ones((1, 2)),
    )
    y, value, bound, _, _ = lay_out(graph).solve(np.ones(1), gap=1e-9)
    assert y[0] == pytest.approx([3.0, 3.0], abs=1e-6)
    assert value == pytest.approx(0.3, abs=1e-7)
    assert bound == pytest.approx(0.3, abs=1e-7)


def test_zero_capacity_and_full_floor() -> None:
    case = make(2, kinds=4)
    nothing = np.zeros_like(case.limit)
    y, dual = np.zeros(case.lanes.cap.shape), ascent.even_dual(3, 3)
    given = case.lanes, nothing, np.ones(3), case.beta, np.zeros_like(y)
    value, bound, _ = ascent.solve(*given, 1e-6, 100, y, dual, case.work)
    assert np.all(y == 0)
    assert value == 0.0
    assert bound == pytest.approx(0.0, abs=1e-9)
    floor = np.full_like(y, 0.1) * (case.lanes.cap > 0.1)
    tight = np.zeros_like(case.limit)
    for b in range(len(case.lanes.kind)):
        tight[b] = floor[case.lanes.start[b] : case.lanes.start[b + 1]].sum(axis=0)
    ascent.maximise(case.lanes, tight, np.ones(3), case.beta, floor, 5, y, dual, case.work)
    assert np.array_equal(y, floor)


@pytest.mark.parametrize("seed", range(4))
def test_float32_agrees(seed: int) -> None:
    case = make(seed)
    weight = random_weight(np.random.default_rng(seed), 3, fractional=True)
    small = lay_out(case.graph, np.float32)
    y, value, bound, _, dual = small.solve(weight, gap=1e-5, most=5000)
    _, _, above, _, _ = case.solve(weight)
    assert y.dtype == dual.dtype == np.float32
    assert value == pytest.approx(above, rel=1e-4)
    assert bound == pytest.approx(above, rel=1e-4)


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6))
def test_simplex_projection(values: list[float]) -> None:
    p = np.array([values])
    ascent._to_simplex(p, 0)
    assert np.all(p >= 0)
    assert p.sum() == pytest.approx(1.0, abs=1e-9)
    # optimality: what is positive shares one level, and nothing else reaches it
    level = (np.array(values) - p[0])[p[0] > 0]
    assert np.ptp(level) <= 1e-9
    assert np.all(np.array(values)[p[0] == 0] <= level.max() + 1e-9)
