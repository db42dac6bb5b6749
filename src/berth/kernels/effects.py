"""Additive random effects: the mean of a cell is the sum of the effects of its groups.

Axes: n cells, L factors, G groups of all factors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import compiled

__all__ = ["NONE", "fit_effects"]

NONE = -1
"""No group: the factor does not apply to the cell."""


@compiled
def fit_effects(
    group: Any, first: Any, weight: Any, mean: Any, noise: float, variance: Any, doubt: float, rounds: int
) -> Any:
    """Estimate effects (G,) and the number of runs behind each (G,); updates `variance` (L,) in place.

    `group` (n, L) is a cell's group of each factor, or `NONE`; factor l has the groups `first[l]` to `first[l + 1]`. A
    cell has the `mean` of `weight` runs, each with variance `noise`. Effects of a factor are normal around 0 with its
    variance, so each is shrunk towards 0 (best linear unbiased prediction, by Gauss-Seidel). Variances come from the
    effects (expectation maximisation, groups taken one by one); the given variance weighs as much as `doubt` groups,
    and infinite `doubt` keeps it.
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
