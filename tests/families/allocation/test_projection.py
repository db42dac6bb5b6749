"""The exact projection against an independent breakpoint solver."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from berth.families.allocation.kernels.lanes import Lanes, build_lanes, limits, pack, unpack
from berth.families.allocation.kernels.slot import project
from tests.reference.allocation import NumpySlot, project_decision, project_exact, random_graph

Floats = NDArray[Any]
NO_TABLES = (np.zeros((1, 2)), np.zeros((1, 2)), np.ones(1))

# z; a; c; exact. Each breaks the algorithm of the paper in another way.
COUNTEREXAMPLES = [
    ([10.0, 9.0], [20.0, 1.0], 5.0, [4.0, 1.0]),
    ([10.0, 9.0, 1.0], [2.0, 2.0, 8.0], 7.0, [2.0, 2.0, 1.0]),
    ([1.0, 1.0, 1.0], [4.0, 4.0, 4.0], 9.0, [1.0, 1.0, 1.0]),
    ([0.5, -3.0], [4.0, 4.0], 6.0, [0.5, 0.0]),
    ([3.0], [2.0], 5.0, [2.0]),
    ([4.0, 3.0, -2.0], [10.0, 10.0, 10.0], 5.0, [3.0, 2.0, 0.0]),
]


def lay_out(sizes: NDArray[np.int64], cap: Floats, capacity: Floats, dtype: Any) -> tuple[Lanes, Floats]:
    """One segment per server, with caps and capacities of 0 laid out too (build_lanes would leave them out)."""
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    ones = np.ones((len(sizes), 1))
    lanes = build_lanes(
        start,
        np.arange(start[-1]),
        np.ones((int(start[-1]), 1)),
        ones,
        np.zeros((len(sizes), 1), np.int64),
        ones,
        int(start[-1]),
        NO_TABLES,
        dtype,
    )
    caps = np.zeros(lanes.cap.shape, dtype)
    pack(lanes.element, cap[:, None].astype(dtype), caps)
    return lanes._replace(cap=caps), limits(lanes, capacity[:, None])


def project_segments(
    sizes: NDArray[np.int64],
    z: Floats,
    cap: Floats,
    capacity: Floats,
    tau: Floats | float = 0.0,
    dtype: Any = np.float64,
) -> Floats:
    lanes, limit = lay_out(sizes, cap, capacity, dtype)
    packed, y = np.zeros(lanes.cap.shape, dtype), np.full(lanes.cap.shape, np.nan, dtype)
    pack(lanes.element, z[:, None].astype(dtype), packed)
    taus = np.empty(limit.shape, dtype)
    taus[:] = tau
    project(lanes, limit, packed, taus, y)
    out = np.full((len(z), 1), np.nan, dtype)
    unpack(lanes.element, y, out)
    return out[:, 0]


def random_segments(rng: np.random.Generator, count: int) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """Sizes 1 to 12; half of the segments on a coarse grid (ties), some caps and capacities 0, some z huge or < 0."""
    sizes = rng.integers(1, 13, count)
    of = np.repeat(np.arange(count), sizes)
    n = len(of)
    style = rng.integers(0, 8, count)
    z = rng.normal(2.0, 3.0, n)
    cap = rng.uniform(0.0, 4.0, n)
    capacity = rng.uniform(0.0, 8.0, count)
    grid = style[of] < 4
    z = np.where(grid, np.round(2.0 * z) / 2.0, z)
    cap = np.where(grid, np.round(2.0 * cap) / 2.0, cap)
    capacity = np.where(style < 4, np.round(2.0 * capacity) / 2.0, capacity)
    z = np.where((style[of] == 4) & (rng.random(n) < 0.3), z * 10.0 ** rng.integers(3, 15, n), z)
    z = np.where(style[of] == 5, z - 6.0, z)
    z = np.where(style[of] == 6, np.repeat(rng.normal(2.0, 3.0, count), sizes), z)
    cap = np.where((style[of] == 7) & (rng.random(n) < 0.5), 10.0 ** rng.integers(3, 12, n), cap)
    cap = np.where(rng.random(n) < 0.1, 0.0, cap)
    capacity = np.where(rng.random(count) < 0.05, 0.0, capacity)
    return sizes, z, cap, capacity


def check_many(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    sizes, z, cap, capacity = random_segments(rng, count)
    tau = rng.choice([0.0, 1e-300, 0.5, 3.0, 1e6, np.inf, -2.0])
    y = project_segments(sizes, z, cap, capacity, tau)
    assert np.isfinite(y).all()
    assert (y >= 0.0).all()
    assert (y <= cap).all()
    starts = np.concatenate([[0], np.cumsum(sizes)])
    scale = capacity + np.maximum(np.maximum.reduceat(z, starts[:-1]), 0.0)
    over = np.add.reduceat(y, starts[:-1]) - capacity
    assert (over <= 1e-14 * scale).all()
    zs, caps = z.tolist(), cap.tolist()
    for i, c in enumerate(capacity.tolist()):
        first, last = starts[i], starts[i + 1]
        exact = project_exact(zs[first:last], caps[first:last], c)
        worst = max(abs(a - b) for a, b in zip(exact, y[first:last].tolist(), strict=True))
        assert worst <= 1e-12 * scale[i], (zs[first:last], caps[first:last], c, exact, y[first:last], tau)


@pytest.mark.parametrize(("z", "cap", "capacity", "exact"), COUNTEREXAMPLES)
def test_counterexamples_to_the_printed_algorithm(
    z: list[float], cap: list[float], capacity: float, exact: list[float]
) -> None:
    y = project_segments(np.array([len(z)]), np.array(z), np.array(cap), np.array([capacity]))
    assert y == pytest.approx(exact, abs=1e-14)
    assert project_exact(z, cap, capacity) == pytest.approx(exact, abs=1e-14)


@pytest.mark.parametrize("seed", range(10))
def test_random_segments_match_the_breakpoint_solver(seed: int) -> None:
    check_many(seed, 6_000)


@pytest.mark.slow
def test_a_million_random_segments_match_the_breakpoint_solver() -> None:
    for seed in range(100, 150):
        check_many(seed, 20_000)


numbers = st.one_of(st.integers(-8, 12).map(float), st.floats(-1e3, 1e3), st.floats(-1e15, 1e15))
caps = st.one_of(st.integers(0, 6).map(float), st.floats(0.0, 1e3), st.floats(0.0, 1e15))


@given(
    st.lists(st.tuples(numbers, caps), min_size=1, max_size=9),
    st.one_of(st.integers(0, 9).map(float), st.floats(0.0, 1e3)),
    st.floats(0.0, 1e16),
)
def test_projection_is_exact_in_rational_arithmetic(
    entries: list[tuple[float, float]], capacity: float, tau: float
) -> None:
    z, cap = [entry[0] for entry in entries], [entry[1] for entry in entries]
    y = project_segments(np.array([len(z)]), np.array(z), np.array(cap), np.array([capacity]), tau)
    exact = project_exact([Fraction(v) for v in z], [Fraction(v) for v in cap], Fraction(capacity))
    scale = capacity + max(*z, 0.0)
    assert np.isfinite(y).all()
    assert max(abs(float(a) - b) for a, b in zip(exact, y.tolist(), strict=True)) <= 1e-12 * scale
    assert sum(y.tolist()) <= capacity + 1e-14 * scale


@given(st.lists(st.tuples(numbers, caps), min_size=1, max_size=9), st.integers(0, 9).map(float))
def test_the_breakpoint_solver_satisfies_the_optimality_conditions(
    entries: list[tuple[float, float]], capacity: float
) -> None:
    """Checks the twin itself: feasible, and some τ ≥ 0, 0 unless full, explains every entry."""
    z, cap = [Fraction(entry[0]) for entry in entries], [Fraction(entry[1]) for entry in entries]
    y = project_exact(z, cap, Fraction(capacity))
    assert all(0 <= v <= a for v, a in zip(y, cap, strict=True))
    assert sum(y) <= capacity
    at_least = [zi - v for zi, v, a in zip(z, y, cap, strict=True) if v < a]  # z − y ≤ τ unless at the cap
    at_most = [zi - v for zi, v, a in zip(z, y, cap, strict=True) if v > 0]  # z − y ≥ τ unless at 0
    low, high = max([Fraction(0), *at_least]), min([max([Fraction(0), *z]), *at_most])
    assert low <= high
    assert sum(y) == capacity or low == 0


@pytest.mark.parametrize("tau", [0.0, 1e-9, 1.0, 7.0, 1e9, np.inf, -1.0])
def test_any_start_gives_the_same_answer(tau: float) -> None:
    sizes, z, cap, capacity = random_segments(np.random.default_rng(3), 2_000)
    cold = project_segments(sizes, z, cap, capacity)
    warm = project_segments(sizes, z, cap, capacity, tau)
    scale = np.repeat(capacity, sizes) + np.repeat(
        np.maximum(np.maximum.reduceat(z, np.cumsum(sizes) - sizes), 0.0), sizes
    )
    assert (np.abs(cold - warm) <= 1e-13 * scale).all()


def test_tau_is_left_at_the_multipliers() -> None:
    lanes, limit = lay_out(np.array([2, 3, 1]), np.full(6, 9.0), np.array([2.0, 100.0, 0.0]), np.float64)
    z, y, tau = np.zeros(lanes.cap.shape), np.zeros(lanes.cap.shape), np.full(limit.shape, 0.3)
    pack(lanes.element, np.array([[3.0], [5.0], [1.0], [2.0], [3.0], [4.0]]), z)
    assert project(lanes, limit, z, tau, y) == 1
    of_server = dict(zip(lanes.server[0].tolist(), tau[0].tolist(), strict=True))
    assert of_server[0] == pytest.approx(3.0)
    assert of_server[1] == 0.0
    assert of_server[2] == 4.0


def test_long_segments() -> None:
    rng = np.random.default_rng(5)
    sizes = np.array([1500, 3, 700, 1, 1500])
    z, cap = rng.normal(1.0, 2.0, sizes.sum()), rng.uniform(0.0, 2.0, sizes.sum())
    capacity = np.array([40.0, 1.0, 2000.0, 0.1, 3.0])
    y = project_segments(sizes, z, cap, capacity)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    for i, c in enumerate(capacity):
        part = slice(starts[i], starts[i + 1])
        exact = project_exact(z[part].tolist(), cap[part].tolist(), float(c))
        assert np.abs(y[part] - exact).max() <= 1e-12 * (c + z[part].max())


@pytest.mark.parametrize("seed", range(3))
def test_float32_is_right_to_its_own_rounding(seed: int) -> None:
    sizes, z, cap, capacity = random_segments(np.random.default_rng(seed), 4_000)
    z, cap, capacity = (v.astype(np.float32) for v in (z, cap, capacity))
    y = project_segments(sizes, z, cap, capacity, 0.5, np.float32)
    assert y.dtype == np.float32
    assert (y >= 0.0).all()
    assert (y <= cap).all()
    wide = project_segments(sizes, *(v.astype(np.float64) for v in (z, cap, capacity)))
    scale = np.repeat(capacity, sizes) + np.repeat(np.maximum.reduceat(np.abs(z), np.cumsum(sizes) - sizes), sizes)
    assert (np.abs(y - wide) <= 5e-6 * scale).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_twins_agree_with_each_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, jobs=7, servers=40, resources=3, most=6)
    peer = NumpySlot(graph)
    z = rng.normal(1.0, 3.0, graph.cap.shape)
    row, rank, e, k = peer.element
    laid = np.zeros(peer.cap.shape)
    laid[row, rank] = z[e, k]
    peer.y = peer.project(laid)
    assert peer.decision(graph.cap.shape) == pytest.approx(project_decision(graph, z), abs=1e-12)
