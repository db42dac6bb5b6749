"""Random streams by seed and name; adding a stream shifts no other.

Each stream is named after what it decides. Two policies compared under one seed therefore meet the same instance and
the same arrivals (common random numbers), no matter what the policies themselves draw.
"""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["stream"]


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The random stream of this seed and name.

    >>> a, b = stream(7, "arrivals"), stream(7, "arrivals")
    >>> bool(a.random() == b.random())
    True
    >>> bool(stream(7, "arrivals").random() == stream(7, "instance").random())
    False
    """
    digest = hashlib.sha256("\x1f".join(str(name) for name in names).encode()).digest()
    words = np.frombuffer(digest, dtype="<u4")  # little-endian everywhere: the same streams on every machine
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words.tolist()])))
