from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from berth.statistics import estimate, paired


def test_paired_ratio_by_hand() -> None:
    # ratios 1.10, 1.20, 1.30: mean 1.2, standard error .1 / √3, t(.975, 2) = 4.302653
    ours, theirs = {0: 11.0, 1: 24.0, 5: 39.0}, {0: 10.0, 1: 20.0, 5: 30.0, 9: 1.0}
    found = paired(ours, theirs)
    assert found is not None
    assert found.seeds == 3
    assert found.mean == pytest.approx(1.2)
    assert found.half == pytest.approx(4.302652729911275 * 0.1 / math.sqrt(3))


def test_paired_difference_agrees_with_scipy() -> None:
    ours, theirs = {s: 3.0 * s + s**2 for s in range(7)}, {s: 2.5 * s + 1 for s in range(7)}
    found = paired(ours, theirs, difference=True)
    truth = stats.ttest_rel(list(ours.values()), list(theirs.values())).confidence_interval()
    assert found is not None
    assert (found.low, found.high) == pytest.approx((truth.low, truth.high))


def test_where_there_is_nothing_to_say() -> None:
    assert estimate([]) is None
    assert estimate([1.0, math.nan]) is None
    assert paired({0: 1.0}, {1: 1.0}) is None
    assert paired({0: 1.0, 1: 1.0}, {0: 1.0, 1: 0.0}) is None
    single = paired({0: 3.0}, {0: 2.0})
    assert single is not None
    assert (single.mean, single.low, single.high) == (1.5, None, None)


values = st.floats(-1e3, 1e3)


@given(st.lists(st.tuples(values, values, values), min_size=2, max_size=12))
def test_luck_that_both_share_does_not_change_their_difference(seeds: list[tuple[float, float, float]]) -> None:
    ours, theirs, luck = ({s: row[i] for s, row in enumerate(seeds)} for i in range(3))
    plain = paired(ours, theirs, difference=True)
    shared = paired(
        {s: v + luck[s] for s, v in ours.items()}, {s: v + luck[s] for s, v in theirs.items()}, difference=True
    )
    turned = paired(theirs, ours, difference=True)
    assert plain is not None
    assert shared is not None
    assert turned is not None
    assert plain.half is not None
    assert shared.mean == pytest.approx(plain.mean, abs=1e-9)
    assert shared.half == pytest.approx(plain.half, abs=1e-8)
    assert (turned.mean, turned.half) == pytest.approx((-plain.mean, plain.half), abs=1e-9)
