"""How kernels are compiled: on first use, for the types that come, kept on disk for the next process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["compiled", "inlined", "inner", "lean"]

Function = TypeVar("Function", bound=Callable[..., Any])

# dividing by zero gives inf, as in NumPy, instead of a check each time
ERRORS = "numpy"


# kernels of all families call each other, so all of them count
_FILES = [path for name in ("kernels/*.py", "kernels.py") for path in sorted(Path(__file__).parent.parent.rglob(name))]
_SOURCES = hashlib.sha256(b"".join(path.read_bytes() for path in _FILES)).hexdigest()


def _compile(function: Any, **options: Any) -> Any:
    """Compile, and have numba take kernels compiled from other sources for outdated.

    On its own it looks only at the file of the function itself, not at the modules it calls, so that an edit of one
    kernel would leave its callers with old code inside. The stamp is part of the version, which numba compares
    before it unpickles an index: an old index may name classes that are gone.
    """
    try:
        dispatcher = njit(cache=True, error_model=ERRORS, **options)(function)
    except RuntimeError:  # nowhere to keep anything: compile each time
        return njit(error_model=ERRORS, **options)(function)
    file = getattr(dispatcher._cache, "_cache_file", None)
    if file is not None:
        file._version = f"{file._version} {_SOURCES}"
        file._source_stamp = None
    return dispatcher


def compiled(function: Function) -> Function:
    """Compile a function of numbers, arrays and tuples of arrays."""
    return cast(Function, _compile(function))


def inlined(function: Function) -> Function:
    """The same, for a small function that must disappear into its callers."""
    return cast(Function, _compile(function, forceinline=True))


def lean(function: Function) -> Function:
    """The same, for a function that makes no arrays, nor does any that it calls.

    It does not count references to arrays, which for small functions of many arrays takes ten times as long as the
    work itself.
    """
    return cast(Function, _compile(function, _nrt=False))


def inner(function: Function) -> Function:
    """The same, for one that only kernels call: it cannot be called from Python, which would take long to compile."""
    return cast(Function, _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False))
