"""Utilities, their slopes, and tables of anyone's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.families.allocation.kernels.utilities import (
    LINEAR,
    LOG,
    POLY,
    RECIPROCAL,
    TABLE,
    slope,
    table_slope,
    table_value,
    tabulate,
    utility,
)
from tests.reference import allocation as twin

STEP = 0.5
SLOPES = np.array([3.0, 2.5, 2.5, 1.0, 0.75, 0.5])
TABLES = (SLOPES[None], tabulate(SLOPES, STEP)[None], np.array([STEP]))
CODES = [LINEAR, LOG, RECIPROCAL, POLY]

alphas = st.floats(0.5, 3.0)
amounts = st.floats(0.0, 50.0)


def value(kind: int, alpha: float, y: float) -> float:
    return float(utility(kind, alpha, y, *TABLES))


def marginal(kind: int, alpha: float, y: float) -> float:
    return float(slope(kind, alpha, y, TABLES[0], TABLES[2]))


@given(st.sampled_from(CODES), alphas, amounts)
def test_built_in_utilities_match_the_papers(kind: int, alpha: float, y: float) -> None:
    assert value(kind, alpha, y) == pytest.approx(twin.utility(kind, alpha, y), rel=1e-12, abs=1e-13)
    assert marginal(kind, alpha, y) == pytest.approx(twin.slope(kind, alpha, y), rel=1e-13)


@given(st.sampled_from([*CODES, TABLE]), alphas)
def test_nothing_gains_nothing(kind: int, alpha: float) -> None:
    assert value(kind, alpha, 0.0) == 0.0


@given(st.sampled_from([*CODES, TABLE]), alphas, amounts, amounts)
def test_utilities_rise_and_are_concave(kind: int, alpha: float, a: float, b: float) -> None:
    a, b = sorted((a, b))
    middle = 0.5 * (a + b)
    assert value(kind, alpha, a) <= value(kind, alpha, b) + 1e-12
    assert marginal(kind, alpha, a) >= marginal(kind, alpha, b) - 1e-12
    chord = 0.5 * (value(kind, alpha, a) + value(kind, alpha, b))
    assert value(kind, alpha, middle) >= chord - 1e-10


@given(st.floats(0.0, 6.0), st.floats(0.0, 6.0))
def test_a_table_is_the_integral_of_its_slope(a: float, b: float) -> None:
    """Trapezoids between all knots in [a, b] are exact for a slope that is linear between knots."""
    a, b = sorted((a, b))
    places = [a, *(p for p in np.arange(len(SLOPES)) * STEP if a < p < b), b]
    heights = [float(table_slope(SLOPES, STEP, p)) for p in places]
    area = math.fsum(0.5 * (heights[i] + heights[i + 1]) * (places[i + 1] - places[i]) for i in range(len(places) - 1))
    values = TABLES[1][0]
    difference = table_value(SLOPES, values, STEP, b) - table_value(SLOPES, values, STEP, a)
    assert difference == pytest.approx(area, abs=1e-12)


def test_a_table_goes_on_with_its_last_slope() -> None:
    values = TABLES[1][0]
    end = STEP * (len(SLOPES) - 1)
    assert table_slope(SLOPES, STEP, 1e30) == SLOPES[-1]
    assert table_value(SLOPES, values, STEP, end) == pytest.approx(values[-1])
    assert table_value(SLOPES, values, STEP, end + 10.0) == pytest.approx(values[-1] + 10.0 * SLOPES[-1])
    assert table_value(SLOPES, values, STEP, 1e30) == pytest.approx(1e30 * SLOPES[-1])


def test_a_table_of_float32_stays_float32() -> None:
    slopes, values = SLOPES.astype(np.float32), TABLES[1][0].astype(np.float32)
    y, step = np.float32(1.3), np.float32(STEP)
    assert table_slope(slopes, step, y) == pytest.approx(table_slope(SLOPES, STEP, 1.3), rel=1e-6)
    assert table_value(slopes, values, step, y) == pytest.approx(table_value(SLOPES, TABLES[1][0], STEP, 1.3), rel=1e-6)
    kernel: Any = table_value
    narrow = {str(signature.return_type) for signature in kernel.nopython_signatures}
    assert narrow >= {"float32"}
