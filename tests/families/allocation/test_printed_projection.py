"""The projection as printed: what it gives, and where it is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from berth.families.allocation.kernels.printed import project_printed
from tests.families.allocation.test_projection import COUNTEREXAMPLES
from tests.reference import allocation as twin
from tests.reference.allocation import Graph, project_exact, random_graph

LITERAL = [
    [3.0, 2.0],  # only the first port's cap is checked
    [2.0, 5.0, -1.5],  # the second capped port, and a negative left from a dropped one
    [3.0, 3.0, 3.0],  # capacity filled though less is wanted
    [4.0, 2.0],  # the same, against a negative gradient
    [2.0],  # an empty B3: 0/0 unless repaired
    [3.0, 2.0, -2.0],  # B2 is never set to 0
]


def project(graph: Graph, z: NDArray[np.float64], zero_dropped: bool) -> NDArray[np.float64]:
    y = np.full(z.shape, np.nan)
    project_printed(graph.server_start, z, graph.cap, graph.capacity, zero_dropped, y)
    return y


def one_segment(z: list[float], cap: list[float], capacity: float, zero_dropped: bool) -> list[float]:
    y = np.full((len(z), 1), np.nan)
    start = np.array([0, len(z)])
    project_printed(start, np.array(z)[:, None], np.array(cap)[:, None], np.array([[capacity]]), zero_dropped, y)
    return [float(v) for v in y[:, 0]]


@pytest.mark.parametrize(("case", "literal"), list(zip(COUNTEREXAMPLES, LITERAL, strict=True)))
def test_counterexamples(case: tuple[list[float], list[float], float, list[float]], literal: list[float]) -> None:
    z, cap, capacity, _ = case
    assert one_segment(z, cap, capacity, False) == pytest.approx(literal)
    assert one_segment(z, cap, capacity, True) == pytest.approx([max(v, 0.0) for v in literal])
    assert twin.project_printed(z, cap, capacity, False) == pytest.approx(literal)


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_kernel_matches_the_plain_version(seed: int, ties: bool, zero_dropped: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, jobs=7, servers=12, resources=3, most=6)
    z = rng.normal(1.0, 3.0, graph.cap.shape)
    if ties:
        # eighths: all sums are exact, so that no order of addition matters
        z = np.round(z)
        graph = graph._replace(cap=np.round(8.0 * graph.cap) / 8.0, capacity=np.round(graph.capacity))
    expected = twin.project_decision(graph, z, printed=True, zero_dropped=zero_dropped)
    assert project(graph, z, zero_dropped) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_equal_entries_sort_by_port() -> None:
    """Only the port that sorts first is checked against its cap: with ties, the lowest."""
    assert one_segment([6.0, 6.0], [1.0, 9.0], 6.0, True) == pytest.approx([1.0, 5.0])
    assert one_segment([6.0, 6.0], [9.0, 1.0], 6.0, True) == pytest.approx([3.0, 3.0])


def test_most_random_inputs_come_out_wrong() -> None:
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(400):
        z, cap = rng.normal(1.0, 2.0, 4).tolist(), rng.uniform(0.5, 3.0, 4).tolist()
        exact = project_exact(z, cap, 4.0)
        wrong += not np.allclose(one_segment(z, cap, 4.0, True), exact, atol=1e-9)
    assert wrong > 200
