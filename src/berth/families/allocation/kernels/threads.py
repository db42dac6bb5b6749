"""A slot in several threads, for large problems.

The blocks are divided into parts by the size of the problem alone, and the parts are added up in their order: the
result does not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from berth.families.allocation.kernels.lanes import Lanes
from berth.families.allocation.kernels.slot import dominant_prices, scratch_rows, slot_part, slot_step
from berth.kernels.threads import each_part

__all__ = ["SlotThreads"]

PART = 32_768  # fewest elements of a part: below some four of them, threads cost more than they save
MOST = 16  # parts


class SlotThreads:
    """`slot_step` with its scratch space; numba's number of threads is the number used.

    `price` (cells + 1, 2) holds the prices of the last gradient.
    """

    def __init__(self, lanes: Lanes, cells: int) -> None:
        dtype = lanes.cap.dtype
        parts = min(lanes.cap.size // PART, MOST) if lanes.cap.size >= 4 * PART else 1
        edges = np.searchsorted(lanes.start, np.linspace(0, lanes.start[-1], parts + 1)[1:-1])
        self._edges = [0, *edges.tolist(), len(lanes.kind)]
        self._scratch = [np.empty((scratch_rows(lanes), lanes.cap.shape[1]), dtype) for _ in range(parts)]
        self._sums = [np.zeros(cells + 1, dtype) for _ in range(parts)] if parts > 1 else []
        self.price = np.zeros((cells + 1, 2), dtype)

    def step(
        self,
        lanes: Lanes,
        limit: NDArray[Any],
        weight: NDArray[Any],
        beta: NDArray[Any],
        eta: Any,
        sums: NDArray[Any],
        tau: NDArray[Any],
        y: NDArray[Any],
    ) -> tuple[float, float, float]:
        """See `slot_step`."""
        if not self._sums:
            return slot_step(lanes, limit, weight, beta, eta, self._scratch[0], self.price, sums, tau, y)  # type: ignore[no-any-return]
        overhead = dominant_prices(weight, beta, sums, self.price)

        def part(place: int) -> tuple[float, float]:
            first, last = self._edges[place], self._edges[place + 1]
            scratch, own = self._scratch[place], self._sums[place]
            return slot_part(lanes, limit, weight, eta, scratch, self.price, own, tau, y, first, last)  # type: ignore[no-any-return]

        found = list(each_part(part, len(self._sums)))
        np.add.reduce(self._sums, axis=0, out=sums)
        return sum(gain for gain, _ in found), overhead, sum(norm for _, norm in found)
