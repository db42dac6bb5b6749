"""How kernels are compiled: on first use, for the types that come, kept on disk for the next process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["compiled", "inlined"]

Function = TypeVar("Function", bound=Callable[..., Any])

# dividing by zero gives inf, as in NumPy, instead of a check each time
OPTIONS = {"cache": True, "error_model": "numpy"}


def compiled(function: Function) -> Function:
    """Compile a function of numbers, arrays and tuples of arrays."""
    return cast(Function, njit(**OPTIONS)(function))


def inlined(function: Function) -> Function:
    """The same, for a small function that must disappear into its callers."""
    return cast(Function, njit(forceinline=True, **OPTIONS)(function))


def _forget_outdated() -> None:
    """Remove kernels compiled from other sources.

    Numba looks only at the file of a function itself, not at the modules it calls, so an edit of one kernel would
    leave its callers with old code inside.
    """
    here = Path(__file__).parent
    cache = here / "__pycache__"
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(here.glob("*.py")))).hexdigest()
    stamp = cache / "kernels.sha256"
    with suppress(OSError):  # a directory that cannot be written holds no cache of ours either
        if stamp.exists() and stamp.read_text() == digest:
            return
        cache.mkdir(exist_ok=True)
        for old in cache.glob("*.nb?"):
            old.unlink(missing_ok=True)
        stamp.write_text(digest)


_forget_outdated()
