"""Compile kernels on first use for the argument types, and cache the result on disk.

The cache is in the user's cache folder, by a hash of each kernel's file and the kernels that it imports: it survives
reinstalling berth, and all installations share it. `NUMBA_CACHE_DIR` overrides the place.
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import config, njit
from numba.core import event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.types.containers import BaseTuple
from numba.core.types.misc import unliteral
from numba.core.types.npytypes import Array

try:
    import fcntl
except ImportError:  # Windows has none: processes that start together compile the same kernels
    fcntl = None  # type: ignore[assignment]

__all__ = ["compiled", "inlined", "inner", "lean"]

Function = TypeVar("Function", bound=Callable[..., Any])

# division by zero gives inf, as in NumPy, instead of a check at each division
ERRORS = "numpy"


_ROOT = Path(__file__).parent.parent
_FILES = {
    ".".join((_ROOT.name, *path.relative_to(_ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
    for name in ("kernels/*.py", "kernels.py")
    for path in sorted(_ROOT.rglob(name))
}
"""The files of kernels, by the names of their modules."""
_IMPORT = re.compile(r"^\s*from\s+([\w.]+)\s+import\s+(\([^)]*\)|.*)", re.MULTILINE)


@cache
def _imports(module: str) -> frozenset[str]:
    """The modules of kernels that one of them imports."""
    found = {
        name
        for base, names in _IMPORT.findall(_FILES[module].read_text("utf-8"))
        for name in (base, *(f"{base}.{one}" for one in re.findall(r"\w+", names)))
    }
    return frozenset(found & _FILES.keys())


@cache
def _stamp(module: str) -> str:
    """A hash of all that a kernel of a module is compiled from: its file, and the kernels that it imports."""
    needed: set[str] = set()
    new = {module} if module in _FILES else set(_FILES)
    while new:
        needed |= new
        new = {name for one in new for name in _imports(one)} - needed
    return hashlib.sha256(b"".join(_FILES[name].read_bytes() for name in sorted(needed))).hexdigest()


def _folder(stamp: str) -> Path | None:
    """Cache folder in the user's for kernels of this stamp; None if it cannot be used."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = home / "berth" / "kernels" / stamp[:16]
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home, or none to write to
        return None
    return folder if os.access(folder, os.W_OK) else None


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


def _plain(kind: Any) -> Any:
    """The type that a kernel is compiled for: no single number, and arrays that may be written.

    Else numba would compile a kernel again for each number that a caller writes out, and for each mixture of arrays
    that are read-only and arrays that are not.
    """
    kind = unliteral(kind)
    if isinstance(kind, Array) and not kind.mutable:
        return kind.copy(readonly=False)
    if isinstance(kind, BaseTuple):
        parts = tuple(map(_plain, kind))
        if parts != tuple(kind):
            return BaseTuple.from_types(parts, getattr(kind, "instance_class", None))
    return kind


def _compile(function: Any, **options: Any) -> Any:
    """Compile a function, and invalidate numba's cache if the source of a kernel that it may call has changed.

    On its own numba checks only the file of the function, not the modules it calls: after an edit of one kernel, its
    callers would keep the old code. The stamp is part of the version, which numba compares before it unpickles an
    index: an old index may name classes that no longer exist.
    """
    options.setdefault("no_cfunc_wrapper", True)  # nothing calls a kernel from C
    try:
        dispatcher = njit(cache=True, error_model=ERRORS, **options)(function)
    except RuntimeError:  # no cache directory: compile each time
        return njit(error_model=ERRORS, **options)(function)
    template = dispatcher.get_call_template
    dispatcher.get_call_template = lambda args, kws: template(
        tuple(map(_plain, args)), {name: _plain(kind) for name, kind in kws.items()}
    )
    saved = getattr(dispatcher, "_cache", None)
    file = getattr(saved, "_cache_file", None)
    if saved is not None and file is not None:
        stamp = _stamp(function.__module__)
        file._version = f"{file._version} {stamp}"
        file._source_stamp = None
        if not config.CACHE_DIR and (folder := _folder(stamp)) is not None:
            saved._cache_path = file._cache_path = str(folder)
            base = f"{function.__module__}.{file._index_name}"
            file._index_name, file._index_path = base, str(folder / base)
            file._data_name_pattern = f"{function.__module__}.{file._data_name_pattern}"
        compile_ = dispatcher.compile

        def compile_alone(signature: Any) -> Any:
            plain = tuple(map(_plain, signature))
            with _alone(f"{file._index_path}.lock"):
                code = compile_(plain)
            if plain != signature:  # the next call finds it at once
                dispatcher._insert([kind._code for kind in signature], code, False)
            return code

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
    return cast(Function, _compile(function, no_cpython_wrapper=True, _nrt=False))
