"""Mirror ascent with the entropy: multiplicative steps and the matching (Kullback–Leibler) projection."""

from __future__ import annotations

import math
from typing import Any

from berth.kernels.compiled import compiled
from berth.kernels.vector import WIDTH


@compiled
def mirror_step(lanes: Any, limit: Any, y: Any, g: Any, eta: Any, least: Any, out: Any) -> None:
    """out = argmin over feasible v of KL(v, y·e^{ηg}); entries are kept ≥ `least` times their cap before scaling.

    Per segment v = min(a, s·z) with z = y·e^{ηg} and the largest s ≤ 1 that fits in c. The sum is concave
    and piecewise linear in s, so Newton's method from s = c / Σz climbs to the answer without overshooting.
    """
    for b in range(lanes.kind.shape[0]):
        first, last = lanes.start[b], lanes.start[b + 1]
        for j in range(WIDTH):
            total, plain = 0.0, 0.0
            for i in range(first, last):
                cap = lanes.cap[i, j]
                grown = max(y[i, j], least * cap) * math.exp(min(max(eta * g[i, j], -30.0), 30.0))
                out[i, j] = grown
                plain += grown
                total += min(grown, cap)
            scale = 1.0
            if total > limit[b, j]:
                scale = limit[b, j] / plain if plain > 0.0 else 0.0
                for _ in range(last - first + 1):
                    free, capped = 0.0, 0.0
                    for i in range(first, last):
                        if scale * out[i, j] < lanes.cap[i, j]:
                            free += out[i, j]
                        else:
                            capped += lanes.cap[i, j]
                    if free <= 0.0:
                        break
                    better = (limit[b, j] - capped) / free
                    if not better > scale:
                        break
                    scale = better
            for i in range(first, last):
                out[i, j] = min(scale * out[i, j], lanes.cap[i, j])
