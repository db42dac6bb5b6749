"""Additive random effects: the mean of a cell is the sum of the effects of its groups.

Axes: n cells, L factors, G groups of all factors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import compiled

__all__ = ["NONE", "add_runs", "fit_effects"]

NONE = -1
"""No group: the factor does not apply to the cell."""


@compiled
def fit_effects(
    group: Any, first: Any, weight: Any, mean: Any, noise: float, variance: Any, doubt: float, rounds: int
) -> Any:
    """Estimate effects (G,) and the number of runs behind each (G,); updates `variance` (L,) in place.

    `group` (n, L) is a cell's group of each factor, counted from 0 in each factor, or `NONE`; the effects of factor l
    are those from `first[l]` to `first[l + 1]`. A cell has the `mean` of `weight` runs, each with variance `noise`.
    Effects of a factor are normal around 0 with its variance, so each is shrunk towards 0 (best linear unbiased
    prediction, by Gauss-Seidel). Variances come from the effects (expectation maximisation, groups taken one by one);
    the given variance weighs as much as `doubt` groups, and infinite `doubt` keeps it.
    """
    factors = group.shape[1]
    begin, members = _members(group, first)
    effect = np.zeros(first[factors])
    seen = np.zeros(first[factors])
    left = mean.copy()
    given = variance.copy()
    for g in range(len(seen)):
        for place in range(begin[g], begin[g + 1]):
            seen[g] += weight[members[place]]
    for _ in range(rounds):
        for factor in range(factors):
            total = 0.0
            for g in range(first[factor], first[factor + 1]):
                before, pull = effect[g], 0.0
                for place in range(begin[g], begin[g + 1]):
                    cell = members[place]
                    left[cell] += before
                    pull += weight[cell] * left[cell]
                known = seen[g] + noise / variance[factor]
                effect[g] = pull / known
                total += effect[g] * effect[g] + noise / known
                for place in range(begin[g], begin[g + 1]):
                    left[members[place]] -= effect[g]
            if doubt < np.inf:
                variance[factor] = (doubt * given[factor] + total) / (doubt + first[factor + 1] - first[factor])
    return effect, seen


@compiled
def _members(group: Any, first: Any) -> Any:
    """The cells of each group, in order, one group after another, and where those of each group begin (G + 1,)."""
    cells, factors = group.shape
    begin = np.zeros(first[factors] + 1, dtype=np.int64)
    for cell in range(cells):
        for factor in range(factors):
            if group[cell, factor] != NONE:
                begin[first[factor] + group[cell, factor] + 1] += 1
    for g in range(first[factors]):
        begin[g + 1] += begin[g]
    size, members = begin[:-1].copy(), np.zeros(begin[-1], dtype=np.int64)
    for cell in range(cells):
        for factor in range(factors):
            if group[cell, factor] != NONE:
                g = first[factor] + group[cell, factor]
                members[size[g]] = cell
                size[g] += 1
    return begin, members


@compiled
def add_runs(seen: Any, cell: Any, value: Any, weight: Any, kept: float) -> None:
    """Add runs, one after another, to the weight, mean and sum of squares (n, 3) of their cells, in place.

    Before a run is added, a cell counts at most `kept` runs.
    """
    for run in range(len(cell)):
        before, mean, squares = seen[cell[run]]
        if before > kept:
            before, squares = kept, squares * kept / before
        change = value[run] - mean
        mean += change * weight[run] / (before + weight[run])
        seen[cell[run], 0] = before + weight[run]
        seen[cell[run], 1] = mean
        seen[cell[run], 2] = squares + weight[run] * change * (value[run] - mean)
