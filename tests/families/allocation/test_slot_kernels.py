"""Layout, sums, prices, gain, gradient and the whole slot against their plain twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from berth.families.allocation.kernels import slot as kernel
from berth.families.allocation.kernels.lanes import WIDTH, Lanes, build_lanes, limits, pack, unpack
from berth.families.allocation.kernels.utilities import TABLE, tabulate
from tests.reference import allocation as twin
from tests.reference.allocation import Graph, NumpySlot, random_graph

Floats = NDArray[Any]
SLOPES = np.array([[2.0, 1.5, 1.0, 0.25, 0.25], [1.0, 0.9, 0.5, 0.5, 0.0]])
STEPS = np.array([0.5, 1.25])
TABLES = (SLOPES, np.stack([tabulate(s, d) for s, d in zip(SLOPES, STEPS, strict=True)]), STEPS)
seeds = st.integers(0, 10**6)


def lay_out(graph: Graph, dtype: Any = np.float64) -> Lanes:
    start, job, cap, capacity, kind, alpha, beta = graph
    return build_lanes(start, job, cap, capacity, kind, alpha, len(beta), TABLES, dtype)


def feasible(graph: Graph, rng: np.random.Generator) -> NDArray[np.float64]:
    return twin.project_decision(graph, rng.normal(1.0, 2.0, graph.cap.shape))


def packed(lanes: Lanes, decision: Floats) -> Floats:
    out = np.empty(lanes.cap.shape, lanes.cap.dtype)
    pack(lanes.element, decision.astype(lanes.cap.dtype), out)
    return out


def unpacked(lanes: Lanes, graph: Graph, values: Floats) -> Floats:
    out = np.zeros(graph.cap.shape, lanes.cap.dtype)
    unpack(lanes.element, values, out)
    return out


def prices(graph: Graph, lanes: Lanes, weight: Floats, y: Floats) -> tuple[Floats, float]:
    dtype = lanes.cap.dtype
    sums = np.empty(graph.beta.size + 1, dtype)
    price = np.empty((graph.beta.size + 1, 2), dtype)
    kernel.cell_sums(lanes.cell, y, sums)
    overhead = kernel.dominant_prices(weight.astype(dtype), graph.beta.astype(dtype), sums, price)
    return price, float(overhead)


def per_cell(graph: Graph, weight: Floats) -> Floats:
    return np.append(np.repeat(weight, graph.beta.shape[1]), 0.0)


def room(graph: Graph) -> NDArray[np.bool_]:
    """Elements that can be positive."""
    return (graph.cap > 0) & (graph.capacity[graph.channel_server] > 0)


@given(seeds)
def test_pack_and_unpack_are_inverse_and_padding_is_inert(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, jobs=6, servers=int(rng.integers(1, 30)), resources=3, most=5)
    lanes = lay_out(graph)
    decision = np.where(room(graph), rng.uniform(0.5, 1.0, graph.cap.shape), 0.0)
    values = packed(lanes, decision)
    assert (unpacked(lanes, graph, values) == decision).all()
    padding = lanes.element == graph.cap.size
    assert (padding == (lanes.cap == 0.0)).all()
    assert (lanes.cell[padding] == graph.beta.size).all()
    assert (values[padding] == 0.0).all()
    kept = np.full(graph.cap.shape, 7.0)
    unpack(lanes.element, values, kept)
    assert (kept[~room(graph)] == 7.0).all()


@given(seeds)
def test_the_layout_keeps_every_element_in_its_segment(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, jobs=6, servers=20, resources=4, most=5)
    lanes = lay_out(graph)
    assert lanes.cap.shape[1] == WIDTH
    assert sorted(lanes.element[lanes.cap > 0].tolist()) == np.flatnonzero(room(graph)).tolist()
    limit = limits(lanes, graph.capacity)
    for b in range(len(lanes.kind)):
        for i in range(lanes.start[b], lanes.start[b + 1]):
            for j in range(WIDTH):
                if lanes.cap[i, j] > 0:
                    e, k = divmod(int(lanes.element[i, j]), graph.cap.shape[1])
                    r = graph.channel_server[e]
                    assert (r, k) == (lanes.server[b, j], lanes.resource[b, j])
                    assert lanes.kind[b] == graph.kind[r, k]
                    assert lanes.alpha[b, j] == graph.alpha[r, k]
                    assert lanes.cap[i, j] == graph.cap[e, k]
                    assert lanes.cell[i, j] == graph.channel_job[e] * graph.cap.shape[1] + k
                    assert limit[b, j] == graph.capacity[r, k]
    same = (lanes.cell == lanes.cell[:, :1]).all(axis=1)
    assert (lanes.shared == np.where(same, lanes.cell[:, 0], -1)).all()


def test_nothing_to_lay_out() -> None:
    graph = random_graph(np.random.default_rng(0), jobs=3, servers=4, resources=2, most=3, zeros=1.0)
    lanes = lay_out(graph)
    y, sums, price = np.zeros(lanes.cap.shape), np.zeros(7), np.zeros((7, 2))
    limit = limits(lanes, graph.capacity)
    assert lanes.cap.shape == (0, WIDTH)
    assert kernel.project(lanes, limit, y, np.zeros(limit.shape), y.copy()) == 0
    assert kernel.gain(lanes, np.ones(7), y) == 0.0
    step = kernel.slot_step(
        lanes, limit, np.ones(3), graph.beta, 0.1, np.zeros((0, WIDTH)), price, sums, np.zeros(limit.shape), y
    )
    assert step == (0.0, 0.0, 0.0)


@given(seeds, st.booleans())
def test_sums_prices_gain_and_gradient(seed: int, unit: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, jobs=6, servers=25, resources=3, most=6)
    lanes = lay_out(graph)
    weight = rng.integers(0, 2, 6).astype(float) if unit else rng.integers(0, 3, 6) * rng.uniform(0.5, 2.0, 6)
    decision = feasible(graph, rng)
    y = packed(lanes, decision)
    sums = np.empty(graph.beta.size + 1)
    kernel.cell_sums(lanes.cell, y, sums)
    assert sums[:-1].reshape(graph.beta.shape) == pytest.approx(np.array(twin.totals(graph, decision)), abs=1e-12)
    price, overhead = prices(graph, lanes, weight, y)
    gained = kernel.gain(lanes, per_cell(graph, weight), y)
    assert gained - overhead == pytest.approx(twin.reward(graph, weight.tolist(), decision), rel=1e-12, abs=1e-12)
    g = np.full(lanes.cap.shape, np.nan)
    square = kernel.gradient(lanes, y, price, g)
    expected = np.where(room(graph), twin.gradient(graph, weight.tolist(), decision), 0.0)
    assert unpacked(lanes, graph, g) == pytest.approx(expected, rel=1e-13, abs=1e-13)
    assert square == pytest.approx(float((expected**2).sum()), rel=1e-12)


def test_ties_of_the_dominant_resource_go_to_the_lowest() -> None:
    price = np.empty((5, 2))
    overhead = kernel.dominant_prices(
        np.array([1.0, 3.0]), np.full((2, 2), 0.5), np.array([2.0, 2.0, 1.0, 4.0, 0.0]), price
    )
    assert overhead == 1.0 + 3.0 * 2.0
    assert price.tolist() == [[1.0, 0.5], [1.0, 0.0], [3.0, 0.0], [3.0, 1.5], [0.0, 0.0]]


@given(seeds)
def test_the_gradient_is_the_slope_of_the_reward(seed: int) -> None:
    """Central differences along random directions, at points away from the kinks of the maximum."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, jobs=5, servers=12, resources=3, most=5, zeros=0.0)
    graph = graph._replace(kind=rng.integers(0, 6, graph.kind.shape))  # also two tables
    lanes = lay_out(graph)
    weight = rng.uniform(0.0, 2.0, 5)
    y = packed(lanes, rng.uniform(0.2, 3.0, graph.cap.shape))
    price, _ = prices(graph, lanes, weight, y)

    def reward(at: Floats) -> float:
        return float(kernel.gain(lanes, per_cell(graph, weight), at)) - prices(graph, lanes, weight, at)[1]

    g = np.empty_like(y)
    kernel.gradient(lanes, y, price, g)
    direction = packed(lanes, rng.normal(0.0, 1.0, graph.cap.shape))
    h = 1e-6
    up, down = y + h * direction, y - h * direction
    if (prices(graph, lanes, weight, up)[0] == price).all() and (prices(graph, lanes, weight, down)[0] == price).all():
        estimate = (reward(up) - reward(down)) / (2.0 * h)
        assert estimate == pytest.approx(float((g * direction).sum()), rel=1e-6, abs=1e-6)


def test_gain_of_a_product_too_large_for_one_logarithm() -> None:
    """(1 + y) multiplied over many rows overflows; the sum of logarithms does not."""
    ports = 40
    graph = Graph(
        np.array([0, ports]),
        np.arange(ports),
        np.full((ports, 1), 1e30),
        np.array([[1e40]]),
        np.ones((1, 1), np.int64),
        np.array([[1.25]]),
        np.zeros((ports, 1)),
    )
    for dtype, amount in ((np.float64, 1e25), (np.float32, 1e9)):
        lanes = lay_out(graph, dtype)
        y = packed(lanes, np.full((ports, 1), amount))
        gained = kernel.gain(lanes, np.append(np.ones(ports), 0.0).astype(dtype), y)
        assert gained == pytest.approx(1.25 * ports * np.log1p(amount), rel=1e-6)


@pytest.mark.parametrize("dense", [False, True])
def test_slots_follow_the_twins(dense: bool) -> None:
    """Forty slots: fused step, its parts, plain Python and NumPy all play the same."""
    rng = np.random.default_rng(11)
    graph = random_graph(rng, jobs=8, servers=30, resources=3, most=5)
    if dense:
        start = np.arange(0, 8 * 30 + 1, 8)
        request = rng.uniform(0.1, 3.0, (8, 3))
        graph = graph._replace(server_start=start, channel_job=np.tile(np.arange(8), 30), cap=np.tile(request, (30, 1)))
    lanes = lay_out(graph)
    assert (lanes.shared >= 0).any() == dense
    limit = limits(lanes, graph.capacity)
    cells = graph.beta.size + 1
    y, y2, g = (np.zeros(lanes.cap.shape) for _ in range(3))
    tau, tau2 = np.zeros(limit.shape), np.zeros(limit.shape)
    scratch = np.empty((kernel.scratch_rows(lanes), WIDTH))
    price, sums = np.zeros((cells, 2)), np.zeros(cells)
    plain = np.zeros(graph.cap.shape)
    peer = NumpySlot(graph)
    for _ in range(40):
        x = rng.integers(0, 2, 8).astype(float)
        before = y.copy()
        gained, overhead, square = kernel.slot_step(lanes, limit, x, graph.beta, 0.3, scratch, price, sums, tau, y)
        assert gained - overhead == pytest.approx(twin.reward(graph, x.tolist(), plain), rel=1e-10, abs=1e-10)
        assert gained - overhead == pytest.approx(peer.step(x, 0.3), rel=1e-10, abs=1e-10)
        plain = twin.project_decision(graph, plain + 0.3 * twin.gradient(graph, x.tolist(), plain))
        assert unpacked(lanes, graph, y) == pytest.approx(plain, abs=1e-11)
        assert peer.decision(graph.cap.shape) == pytest.approx(plain, abs=1e-11)
        # the parts
        assert kernel.gradient(lanes, before, price, g) == pytest.approx(square)
        kernel.project(lanes, limit, before + 0.3 * g, tau2, y2)
        assert y2 == pytest.approx(y, abs=1e-12)
        kernel.ascent_step(lanes, limit, g, 0.3, scratch, tau2, before)
        assert before == pytest.approx(y, abs=1e-12)
        fresh = np.empty(cells)
        kernel.cell_sums(lanes.cell, y, fresh)
        assert sums == pytest.approx(fresh, abs=1e-12)
    assert (tau > 0.0).any()


def test_float32_slots_stay_float32_and_near() -> None:
    rng = np.random.default_rng(4)
    graph = random_graph(rng, jobs=8, servers=30, resources=3, most=5)
    graph = graph._replace(kind=rng.integers(0, TABLE + 2, graph.kind.shape))
    rewards = []
    arrivals = rng.integers(0, 2, (30, 8))
    for dtype in (np.float64, np.float32):
        lanes = lay_out(graph, dtype)
        limit = limits(lanes, graph.capacity)
        y, tau = np.zeros(lanes.cap.shape, dtype), np.zeros(limit.shape, dtype)
        scratch = np.empty((kernel.scratch_rows(lanes), WIDTH), dtype)
        price, sums = np.zeros((graph.beta.size + 1, 2), dtype), np.zeros(graph.beta.size + 1, dtype)
        total = 0.0
        for x in arrivals.astype(dtype):
            gained, overhead, _ = kernel.slot_step(
                lanes, limit, x, graph.beta.astype(dtype), dtype(0.3), scratch, price, sums, tau, y
            )
            total += gained - overhead
        rewards.append(total)
        used = np.zeros(graph.capacity.shape)
        np.add.at(used, graph.channel_server, unpacked(lanes, graph, y))
        assert (used <= graph.capacity * (1.0 + 8.0 * np.finfo(dtype).eps)).all()
        assert limit.dtype == lanes.cap.dtype == lanes.alpha.dtype == dtype
    assert rewards[1] == pytest.approx(rewards[0], rel=1e-4)
