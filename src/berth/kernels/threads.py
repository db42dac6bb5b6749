"""Run the parts of a computation in threads.

The number of threads is numba's (`numba.set_num_threads`). What a part computes must not depend on it: then no result
does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import numba

__all__ = ["each_part"]

Result = TypeVar("Result")


@lru_cache(maxsize=1)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Threads of this process: those of a forked one's parent are not its own."""
    return ThreadPoolExecutor(threads)


def each_part(work: Callable[[int], Result], parts: int) -> Iterable[Result]:
    """Results of all parts, in their order; `work` must call kernels that are `compiled`.

    >>> list(each_part(lambda part: part * part, 4))
    [0, 1, 4, 9]
    """
    threads = min(numba.get_num_threads(), parts)
    if threads <= 1:
        return map(work, range(parts))
    return _pool(threads, os.getpid()).map(work, range(parts))
