"""Utilities f(y) and their slopes as integer codes plus parameters, eq. (51) of the OGASched paper.

| code | name | f(y) |
|---|---|---|
| 0 | linear | αy |
| 1 | log | α ln(y+1) |
| 2 | reciprocal | 1/α − 1/(y+α) |
| 3 | poly | α√(y+1) − α |
| 4 + u | table u | α times the integral of a slope that is linear between evenly spaced knots |

Tables bring user-defined concave utilities into compiled code: the value is the exact integral of the slope, so
gradients and rewards agree to rounding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from berth.kernels.compiled import compiled, inlined

LINEAR, LOG, RECIPROCAL, POLY, TABLE = 0, 1, 2, 3, 4


@inlined
def knot_slope(slopes: Any, first: Any, last: Any, step: Any, y: Any) -> Any:
    """`table_slope` of the knots first…last of a flat array."""
    place = y / step
    if not place < type(step)(last - first):  # before the conversion: a huge number overflows
        return slopes[last]
    i = int(place)
    low = slopes[first + i]
    return low + (slopes[first + i + 1] - low) * (place - type(step)(i))


@inlined
def knot_value(slopes: Any, values: Any, first: Any, last: Any, step: Any, y: Any) -> Any:
    """`table_value` of the knots first…last of flat arrays."""
    place = y / step
    if not place < type(step)(last - first):
        return values[last] + slopes[last] * (y - type(step)(last - first) * step)
    i = int(place)
    low = slopes[first + i]
    d = y - type(step)(i) * step
    return values[first + i] + d * (low + type(step)(0.5) * (slopes[first + i + 1] - low) * (d / step))


@compiled
def table_slope(slopes: Any, step: Any, y: Any) -> Any:
    """Slope at y ≥ 0 of one table: linear between knots, constant after the last."""
    return knot_slope(slopes, 0, slopes.shape[0] - 1, step, y)


@compiled
def table_value(slopes: Any, values: Any, step: Any, y: Any) -> Any:
    """The integral of `table_slope` from 0 to y."""
    return knot_value(slopes, values, 0, slopes.shape[0] - 1, step, y)


@compiled
def utility(kind: Any, alpha: Any, y: Any, slopes: Any, values: Any, steps: Any) -> Any:
    """f(y) for one element; `slopes`, `values` (U, M) and `steps` (U,) are the tables."""
    if kind == LINEAR:
        return alpha * y
    if kind == LOG:
        return alpha * math.log1p(y)
    if kind == RECIPROCAL:
        return 1.0 / alpha - 1.0 / (y + alpha)
    if kind == POLY:
        return alpha * math.sqrt(y + 1.0) - alpha
    u = kind - TABLE
    return alpha * table_value(slopes[u], values[u], steps[u], y)


@compiled
def slope(kind: Any, alpha: Any, y: Any, slopes: Any, steps: Any) -> Any:
    """f'(y) for one element."""
    if kind == LINEAR:
        return alpha
    if kind == LOG:
        return alpha / (y + 1.0)
    if kind == RECIPROCAL:
        return 1.0 / ((y + alpha) * (y + alpha))
    if kind == POLY:
        return 0.5 * alpha / math.sqrt(y + 1.0)
    u = kind - TABLE
    return alpha * table_slope(slopes[u], steps[u], y)


def tabulate(slopes: Any, step: float) -> Any:
    """Values at the knots: the trapezoidal integral of the slopes, exact for a piecewise linear slope."""
    slopes = np.asarray(slopes, dtype=np.float64)
    return np.concatenate([[0.0], np.cumsum(0.5 * step * (slopes[1:] + slopes[:-1]))])
