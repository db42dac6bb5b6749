from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from berth.errors import InvalidInput
from berth.regret import band, cumulative_regret, growth_exponent, half_width


def test_cumulative_regret_over_seeds() -> None:
    reward = np.array([[1.0, 2.0], [0.0, 5.0]])
    assert cumulative_regret(reward, np.full((2, 2), 3.0)).tolist() == [[2.0, 3.0], [3.0, 1.0]]
    with pytest.raises(InvalidInput):
        cumulative_regret([1.0, 2.0], [1.0])


def test_band_is_the_student_interval_of_each_slot() -> None:
    curves = np.random.default_rng(1).normal(size=(6, 40)).cumsum(axis=1)
    found = band(curves)
    low, high = stats.t.interval(0.95, 5, loc=curves.mean(axis=0), scale=stats.sem(curves, axis=0))
    assert found.low is not None
    assert found.high is not None
    np.testing.assert_allclose(found.low, low)
    np.testing.assert_allclose(found.high, high)


def test_one_seed_has_no_interval() -> None:
    only = band([[1.0, 2.0]])
    assert only.mean.tolist() == [1.0, 2.0]
    assert only.low is None
    assert half_width([3.0]) is None
    with pytest.raises(InvalidInput):
        band(np.zeros((0, 3)))


@pytest.mark.parametrize("power", [0.5, 1.0, 0.0])
def test_growth_exponent_finds_the_power(power: float) -> None:
    assert growth_exponent(7.0 * np.arange(1, 400) ** power) == pytest.approx(power, abs=1e-9)


def test_growth_exponent_of_nothing() -> None:
    assert np.isnan(growth_exponent([]))
    assert np.isnan(growth_exponent([1.0]))
    assert np.isnan(growth_exponent(np.zeros(10)))
