"""Random numbers inside kernels: one small array holds the whole state."""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import inlined

__all__ = ["below", "draw"]


@inlined
def draw(state: Any) -> Any:
    """A number in [0, 1), by xorshift64*, from a state (1,)."""
    z = state[0]
    z ^= z >> np.uint64(12)
    z ^= z << np.uint64(25)
    z ^= z >> np.uint64(27)
    state[0] = z
    return float((z * np.uint64(2685821657736338717)) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@inlined
def below(state: Any, size: int) -> int:
    """A whole number from 0 to size − 1."""
    return min(int(draw(state) * size), size - 1)
