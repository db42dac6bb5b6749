"""Compile kernels on first use for the argument types, and cache the result on disk.

The cache is in the user's cache folder, by a hash of all kernels: it survives reinstalling berth, and several
installations of one version share it. `NUMBA_CACHE_DIR` overrides the place.
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit
from numba.core import event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.types.misc import unliteral

try:
    import fcntl
except ImportError:  # Windows has none: processes that start together compile the same kernels
    fcntl = None  # type: ignore[assignment]

__all__ = ["compiled", "inlined", "inner", "lean"]

Function = TypeVar("Function", bound=Callable[..., Any])

# division by zero gives inf, as in NumPy, instead of a check at each division
ERRORS = "numpy"


# kernels of all families call each other, so the stamp covers all of them
_FILES = [path for name in ("kernels/*.py", "kernels.py") for path in sorted(Path(__file__).parent.parent.rglob(name))]
_SOURCES = hashlib.sha256(b"".join(path.read_bytes() for path in _FILES)).hexdigest()


def _folder() -> Path | None:
    """Cache folder of these kernels in the user's; None if it cannot be used."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = home / "berth" / "kernels" / _SOURCES[:16]
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home, or none to write to
        return None
    return folder if os.access(folder, os.W_OK) else None


_FOLDER = _folder()


class _Compiling(event.Listener):  # type: ignore[misc]
    """Log, once, that kernels are compiled: it takes a while, and happens only on first use."""

    told = False

    def on_start(self, event: Any) -> None:
        if not _Compiling.told and multiprocessing.parent_process() is None:
            _Compiling.told = True
            logging.getLogger("berth.kernels").info("compiling kernels, on first use only: this may take a minute")

    def on_end(self, event: Any) -> None:
        return None


event.register("numba:compile", _Compiling())


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Let one process at a time compile a kernel: the others wait, and read what it has saved."""
    with ExitStack() as scope:
        scope.enter_context(global_compiler_lock)  # first, as numba does: else two threads could wait for each other
        with suppress(OSError):  # no such folder, or a file system without locks
            if fcntl is not None:
                fcntl.flock(scope.enter_context(open(path, "ab")), fcntl.LOCK_EX)
        yield


def _compile(function: Any, **options: Any) -> Any:
    """Compile a function, and invalidate numba's cache if any kernel's source has changed.

    On its own numba checks only the file of the function, not the modules it calls: after an edit of one kernel, its
    callers would keep the old code. The stamp is part of the version, which numba compares before it unpickles an
    index: an old index may name classes that no longer exist.
    """
    try:
        dispatcher = njit(cache=True, error_model=ERRORS, **options)(function)
    except RuntimeError:  # no cache directory: compile each time
        return njit(error_model=ERRORS, **options)(function)
    template = dispatcher.get_call_template
    # numba would compile a kernel anew for each number that a caller writes out
    dispatcher.get_call_template = lambda args, kws: template(
        tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in kws.items()}
    )
    cache = getattr(dispatcher, "_cache", None)
    file = getattr(cache, "_cache_file", None)
    if cache is not None and file is not None:
        file._version = f"{file._version} {_SOURCES}"
        file._source_stamp = None
        if _FOLDER is not None and not config.CACHE_DIR:
            cache._cache_path = file._cache_path = str(_FOLDER)
            base = f"{function.__module__}.{file._index_name}"
            file._index_name, file._index_path = base, str(_FOLDER / base)
            file._data_name_pattern = f"{function.__module__}.{file._data_name_pattern}"
        compile_ = dispatcher.compile

        def compile_alone(signature: Any) -> Any:
            with _alone(f"{file._index_path}.lock"):
                return compile_(signature)

        dispatcher.compile = compile_alone
    return dispatcher


def compiled(function: Function) -> Function:
    """Compile a function of numbers, arrays and tuples of arrays; other threads run meanwhile."""
    return cast(Function, _compile(function, nogil=True))


def inlined(function: Function) -> Function:
    """Like `compiled`, for a small function that must be inlined into its callers."""
    return cast(Function, _compile(function, forceinline=True))


def lean(function: Function) -> Function:
    """Like `compiled`, for a function that allocates no arrays, and calls none that does.

    It skips reference counting of arrays, which costs small functions of many arrays ten times their work.
    """
    return cast(Function, _compile(function, _nrt=False))


def inner(function: Function) -> Function:
    """Like `compiled`, for a function called only by kernels: it has no Python wrapper, which is slow to compile."""
    return cast(Function, _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False))
