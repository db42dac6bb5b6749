"""Devices of servers, such as GPUs: a piece takes a share of one, or several whole ones.

A share goes to the fullest device that still has it, the first of equal ones; whole devices are the first free ones.

Axes: R servers, G devices of a server, m rows of pieces.
"""

from __future__ import annotations

from typing import Any

from berth.kernels.compiled import inner, lean

ROOM = 1e-9  # how far a sum of shares may exceed a device


@inner
def room(free: Any, r: int, share: float) -> Any:
    """How many pieces of this share the devices of server r have room for; without a share, any number."""
    if share <= ROOM:
        return 1 << 40
    count = 0
    if share < 1.0 - ROOM:
        for g in range(free.shape[1]):
            count += int((free[r, g] + ROOM) / share)
        return count
    for g in range(free.shape[1]):
        if free[r, g] >= 1.0 - ROOM:
            count += 1
    return count // int(share + 0.5)


@inner
def hold(free: Any, r: int, share: float, held: Any, row: int) -> Any:
    """Take one piece's share from the devices of server r, noted in `held` (m, G); says whether there was room."""
    if share <= ROOM:
        return True
    if share < 1.0 - ROOM:
        best = -1
        for g in range(free.shape[1]):
            if free[r, g] + ROOM >= share and (best < 0 or free[r, g] < free[r, best]):
                best = g
        if best < 0:
            return False
        free[r, best] -= share
        held[row, best] += share
        return True
    left = int(share + 0.5)
    if room(free, r, share) < 1:
        return False
    for g in range(free.shape[1]):
        if left > 0 and free[r, g] >= 1.0 - ROOM:
            free[r, g] = 0.0
            held[row, g] += 1.0
            left -= 1
    return True


@lean
def hold_all(server: Any, share: Any, count: Any, free: Any, held: Any) -> None:
    """Take the shares of each row's pieces in turn; `held` (m, G) gets them, less where there is no room."""
    for row in range(server.shape[0]):
        for _ in range(count[row]):
            hold(free, server[row], share[row], held, row)
