"""Shared kernels against plain loops: usage, scaling, sorting."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.kernels.small import scale_to_fit, server_usage, sort_places

seeds = st.integers(0, 10**6)


@given(seeds)
def test_usage_and_scaling(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = np.concatenate([[0], np.cumsum(rng.integers(0, 4, 5))])
    amounts = rng.uniform(0, 2, (int(start[-1]), 3)) * (rng.random((int(start[-1]), 3)) < 0.8)
    free = rng.choice([0.0, 1.0, 3.0], (5, 3))
    used = np.empty((5, 3))
    server_usage(start, amounts, used)
    scaled = amounts.copy()
    scale_to_fit(start, free, scaled)
    for r, k in itertools.product(range(5), range(3)):
        mine = amounts[start[r] : start[r + 1], k]
        assert used[r, k] == pytest.approx(sum(mine.tolist()))
        share = 1.0 if mine.sum() <= free[r, k] else free[r, k] / mine.sum()
        assert scaled[start[r] : start[r + 1], k] == pytest.approx(share * mine)


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(0, 3))
def test_places_are_sorted_by_key_and_equal_keys_stay_in_order(keys: list[int], more: int) -> None:
    order, scratch = (np.full(len(keys) + more, -1, dtype=np.int64) for _ in range(2))
    sort_places(np.array(keys, dtype=np.float64), len(keys), order, scratch)
    assert order.tolist() == sorted(range(len(keys)), key=keys.__getitem__) + [-1] * more
