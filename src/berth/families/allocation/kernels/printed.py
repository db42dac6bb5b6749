"""Projection of OGASched's Algorithm 1 as printed. It is not the Euclidean projection.

It serves as a comparison for `berth.families.allocation.kernels.slot.project`, and shows what the algorithm plays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import compiled


@compiled
def _segment(z: Any, cap: Any, capacity: Any, zero_dropped: Any, y: Any) -> None:
    """Lines 7-31 for one (r, k). In sorted order B3 is always a range: B1 before it, B2 after it."""
    ports = z.shape[0]
    order = np.arange(ports)
    for i in range(1, ports):  # by insertion: stable, and segments are short
        place = i
        while place > 0 and z[order[place - 1]] < z[i]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = i
    y[:] = 0.0
    capped = 0  # |B1|
    while True:
        end = ports  # B3 = sorted ports capped … end − 1
        while True:
            dropped = False  # S is empty
            rho = y.dtype.type(0.0)
            if end > capped:
                for i in range(end):
                    rho += cap[order[i]] if i < capped else z[order[i]]
                rho = (rho - capacity) / y.dtype.type(end - capped)  # half of the printed ρ, eq. (13)
            for i in range(end):
                port = order[i]
                y[port] = cap[port] if i < capped else z[port] - rho
                if i >= capped and y[port] < 0.0:
                    if zero_dropped:
                        for later in range(i, end):
                            y[order[later]] = 0.0
                    end = i
                    dropped = True
                    break
            if not dropped:
                break
        if capped == 0 and y[order[0]] > cap[order[0]]:
            capped = 1
        else:
            break


@compiled
def project_printed(server_start: Any, z: Any, cap: Any, capacity: Any, zero_dropped: Any, y: Any) -> None:
    """Algorithm 1, lines 6-32, on decisions: z, cap, y are (E, K), capacity (R, K); y is written.

    As printed: only the cap of the first port in sorted order is checked, capacity is filled even if less is requested,
    and a port dropped into B2 keeps the negative number it was last given. Ties sort by port. Repaired, because it
    would not run otherwise:

    * all pairs (r, k) are visited, where line 6 zips servers with resources;
    * S is emptied on each pass of the repeat loop, or line 30 would never end it;
    * an empty B3 leaves ρ = 0, where eq. (13) divides by zero.

    `zero_dropped` is one more repair, not printed: ports in B2 get 0.
    """
    for r in range(capacity.shape[0]):
        first, last = server_start[r], server_start[r + 1]
        if first == last:
            continue
        for k in range(capacity.shape[1]):
            _segment(z[first:last, k], cap[first:last, k], capacity[r, k], zero_dropped, y[first:last, k])
