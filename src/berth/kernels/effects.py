"""Additive random effects: the means of many cells as sums of effects of the groups that they belong to.

Axes: n cells, L factors, G groups of all factors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import compiled

__all__ = ["NONE", "fit_effects"]

NONE = -1
"""The group of a cell that a factor says nothing about."""


@compiled
def fit_effects(
    group: Any, first: Any, weight: Any, mean: Any, noise: float, variance: Any, doubt: float, rounds: int
) -> Any:
    """Estimate effects (G,), and the number of runs behind each (G,); `variance` (L,) becomes what effects show.

    `group` (n, L) is a cell's group of each factor, or `NONE`; groups `first[l]` to `first[l + 1]` are those of factor
    l. A cell has the `mean` of `weight` runs, each with variance `noise`. Effects of a factor are normal around 0 with
    its variance, so each is shrunk towards 0 (best linear unbiased prediction, by Gauss-Seidel). Variances come from
    the effects (expectation maximisation, groups taken one by one), with the variance that is given counting as much
    as `doubt` groups; infinite `doubt` keeps it.
    """
    cells, factors = group.shape
    groups = first[factors]
    effect = np.zeros(groups)
    seen = np.zeros(groups)
    pull = np.zeros(groups)
    left = mean.copy()
    given = variance.copy()
    for i in range(cells):
        for factor in range(factors):
            if group[i, factor] != NONE:
                seen[group[i, factor]] += weight[i]
    for _ in range(rounds):
        for factor in range(factors):
            begin, end = first[factor], first[factor + 1]
            pull[begin:end] = 0.0
            for i in range(cells):
                g = group[i, factor]
                if g != NONE:
                    left[i] += effect[g]
                    pull[g] += weight[i] * left[i]
            total = 0.0
            for g in range(begin, end):
                known = seen[g] + noise / variance[factor]
                effect[g] = pull[g] / known
                total += effect[g] * effect[g] + noise / known
            for i in range(cells):
                g = group[i, factor]
                if g != NONE:
                    left[i] -= effect[g]
            if doubt < np.inf:
                variance[factor] = (doubt * given[factor] + total) / (doubt + end - begin)
    return effect, seen
