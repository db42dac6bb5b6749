"""The slot in threads: the same bits whatever their number, and the numbers of the plain slot."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numba
import numpy as np
import pytest

from benchmarks.slot import arrivals, instance
from berth.families.allocation.kernels import slot as kernel
from berth.families.allocation.kernels import threads
from berth.families.allocation.kernels.lanes import Lanes, build_lanes, limits
from berth.families.allocation.kernels.threads import SlotThreads
from tests.reference.allocation import Graph

TABLES = (np.zeros((1, 2)), np.zeros((1, 2)), np.ones(1))


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


def lay_out(graph: Graph) -> Lanes:
    return build_lanes(*graph[:6], len(graph.beta), TABLES)


def run(graph: Graph, slots: int = 5) -> list[list[float]]:
    lanes = lay_out(graph)
    steps = SlotThreads(lanes, graph.beta.size)
    limit, beta = limits(lanes, graph.capacity), graph.beta.copy()
    sums, tau, y = np.zeros(graph.beta.size + 1), np.zeros(limit.shape), np.zeros(lanes.cap.shape)
    numbers = [list(steps.step(lanes, limit, x, beta, 0.3, sums, tau, y)) for x in arrivals(graph, slots)]
    return [*numbers, sums.tolist(), y.ravel().tolist()]


def test_the_number_of_threads_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PART", 500)
    graph, found = instance(40, 300, 5), []
    for count in (1, 2):
        numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
        found.append(run(graph))
    assert found[0] == found[1]


def test_parts_have_the_numbers_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = instance(40, 300, 5)
    whole = run(graph)
    monkeypatch.setattr(threads, "PART", 500)
    parts = run(graph)
    for one, other in zip(whole, parts, strict=True):
        assert one == pytest.approx(other, rel=1e-12, abs=1e-12)


def test_a_small_problem_is_one_part() -> None:
    graph = instance(10, 60, 3)
    lanes = lay_out(graph)
    limit, xs = limits(lanes, graph.capacity), arrivals(graph, 5)
    sums, tau, y = np.zeros(graph.beta.size + 1), np.zeros(limit.shape), np.zeros(lanes.cap.shape)
    scratch, price = np.zeros((kernel.scratch_rows(lanes), 8)), np.zeros((graph.beta.size + 1, 2))
    expected = [
        list(kernel.slot_step(lanes, limit, x, graph.beta.copy(), 0.3, scratch, price, sums, tau, y)) for x in xs
    ]
    assert run(graph)[:5] == expected


def test_it_can_be_copied_after_it_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "PART", 500)
    lanes = lay_out(graph := instance(40, 300, 5))
    steps = SlotThreads(lanes, graph.beta.size)
    copied = pickle.loads(pickle.dumps(steps))
    assert copied.price.shape == steps.price.shape
