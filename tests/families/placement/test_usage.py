"""Use of a server over time, against a plain count and against the compiled search of the greedy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.families.placement.kernels.greedy import earliest
from berth.families.placement.usage import earliest_start, usage

QUARTERS = st.integers(0, 24).map(lambda n: n / 4)
AMOUNT = st.integers(0, 3)
BERTHS = st.lists(st.tuples(QUARTERS, QUARTERS.map(lambda n: n + 0.25), AMOUNT, AMOUNT), max_size=12)
NOW = 2.0


def arrays(berths: list[tuple[float, float, int, int]]) -> tuple[np.ndarray, ...]:
    start = np.array([one[0] for one in berths])
    end = start + np.array([one[1] for one in berths])
    return start, end, np.array([one[2:] for one in berths], dtype=float).reshape(len(berths), 2)


@given(BERTHS)
def test_use_is_what_a_plain_count_gives(berths: list[tuple[float, float, int, int]]) -> None:
    start, end, demand = arrays(berths)
    moments, used = usage(NOW, start, end, demand)
    assert moments[0] == NOW
    assert (np.diff(moments) > 0).all()
    for moment, found in zip(moments, used, strict=True):
        running = [held for at, until, held in zip(start, end, demand, strict=True) if max(at, NOW) <= moment < until]
        assert found.tolist() == np.sum(running, axis=0, initial=0.0).tolist() if running else not found.any()


@given(BERTHS, st.integers(1, 12).map(lambda n: n / 4), st.tuples(st.integers(0, 5), st.integers(0, 5)))
def test_the_earliest_start_is_that_of_the_greedy(
    berths: list[tuple[float, float, int, int]], length: float, asked: tuple[int, int]
) -> None:
    start, end, demand = arrays(berths)
    capacity, wanted = np.array([[4.0, 4.0]]), np.array([asked], dtype=float)
    expected = earliest(wanted, 0, length, capacity, 0, NOW, start, end, demand, len(start))
    assert earliest_start(NOW, length, wanted[0], capacity[0], (start, end, demand)) == expected
