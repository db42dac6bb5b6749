"""The one capacity check."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.capacity import TOLERANCE, Found, Violation, overfull, usage
from berth.families.allocation.problem import AllocationProblem
from berth.model import Instance
from berth.testing.strategies import allocation_problems

GRAPH = Instance.from_arrays([[5.0, 2.0], [0.0, 1.0]], [[4.0, 1.0], [4.0, 1.0]], [(0, 0), (1, 0), (1, 1)])


@given(allocation_problems(), st.integers(0, 2**32 - 1))
def test_usage_is_the_sum_over_channels(problem: AllocationProblem, seed: int) -> None:
    graph = problem.instance
    amounts = np.random.default_rng(seed).random(problem.cap.shape)
    expected = np.zeros(graph.capacity.shape)
    for e, server in enumerate(graph.channel_server):
        for k, amount in enumerate(amounts[e]):
            expected[server, k] += amount
    assert np.allclose(usage(graph, amounts), expected, rtol=1e-14, atol=0)


def test_usage_takes_any_memory_layout() -> None:
    amounts = np.arange(6.0).reshape(3, 2)
    assert np.array_equal(usage(GRAPH, np.asfortranarray(amounts)), usage(GRAPH, amounts))


def test_overfull_names_every_place() -> None:
    used = np.array([[6.0, 2.0], [0.5, 1.5]])
    assert overfull(GRAPH, used, GRAPH.capacity) == [
        Violation("capacity", "server-0/resource-0", 6.0, 5.0),
        Violation("capacity", "server-1/resource-0", 0.5, 0.0),
        Violation("capacity", "server-1/resource-1", 1.5, 1.0),
    ]


@pytest.mark.parametrize("free", [0.0, 1.0, 1e9])
def test_tolerance_is_relative_to_one_plus_the_limit(free: float) -> None:
    limits = np.full((2, 2), free)
    assert not overfull(GRAPH, limits + 0.5 * TOLERANCE * (1 + free), limits)
    assert len(overfull(GRAPH, limits + 2.0 * TOLERANCE * (1 + free), limits)) == 4


def test_what_is_not_a_number_is_overfull() -> None:
    used = np.zeros((2, 2))
    used[1, 0] = np.nan
    (found,) = overfull(GRAPH, used, GRAPH.capacity)
    assert found.where == "server-1/resource-0"
    assert str(found) == "capacity of server-1/resource-0: nan used, 0 allowed"


def test_found_is_a_sequence_that_spells_out_only_what_is_looked_at() -> None:
    spelled: list[int] = []

    def one(place: int) -> Violation:
        spelled.append(place)
        return Violation("capacity", f"server-{place}", 2.0, 1.0)

    found = Found(([3, 5], one), ([], one), ([7], one))
    assert len(found) == 3
    assert spelled == []
    assert found[2].where == found[-1].where == "server-7"
    assert spelled == [7, 7]
    assert [violation.where for violation in found] == ["server-3", "server-5", "server-7"]
    assert [violation.where for violation in found[1:]] == ["server-5", "server-7"]
    assert found == list(found)
    assert found != []
    assert not Found()
    for outside in (3, -4):
        with pytest.raises(IndexError):
            found[outside]
