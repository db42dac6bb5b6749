"""Run cells in several processes.

Workers are spawned, never forked, so that their results depend only on the scenario and the cell. Each has one thread:
the workers together use all cores, and the rounding of a BLAS does not depend on their number. A failing cell does not
affect the others, even if it kills its process. No cell starts before its kernels are compiled and cached, so no two
workers compile the same kernel.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from berth.lab.run.cells import COMPARED
from berth.lab.run.runner import AnyKind, Done, Failure, Work

__all__ = ["DIED", "leave_if_imported_by_worker", "run_cells"]

DIED = Failure("its process died (out of memory, or a crash in compiled code)")

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that a BLAS reads when a process loads it."""

AHEAD = 2
"""Cells submitted per worker: enough to keep it busy, and few to retry when it dies."""

_sent: tuple[Sequence[Any], AnyKind] | None = None  # of a worker, sent once when it starts


def run_cells(
    contexts: Sequence[Any],
    works: Sequence[Work],
    done: Done,
    workers: int = 1,
    apart: bool = False,
    kind: AnyKind = COMPARED,
) -> None:
    """Compute every cell and pass each to `done` as it finishes, in no particular order.

    One worker means this process, unless cells must run `apart` from it. An interrupt (Ctrl-C) ends the workers at once
    and is raised again.
    """
    left, workers = list(works), min(workers, len(works))
    while left and (apart or workers > 1):
        suspects = _in_pool(contexts, left, workers, done, kind)
        if suspects is None:
            warnings.warn(
                "no worker process could start, so this one does all the work; in a script, call berth under "
                '`if __name__ == "__main__":`',
                RuntimeWarning,
                stacklevel=3,
            )
            break
        for work in suspects:
            left.remove(work)
            done(work, _in_own_process(contexts, kind, _work, work))  # if it dies, this cell killed it
    for group in kind.groups(contexts, left):
        kind.warm_up(contexts, kind.alike(group))
    for work in left:
        done(work, kind.attempt(contexts[work.place], work.cell))


def leave_if_imported_by_worker() -> None:
    """Exit if this process is a worker that is importing the script which started it.

    A worker imports the script again; if the script calls `compare` unguarded, the worker would start workers of its
    own. It exits silently instead, and its parent prints what to do.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        sys.exit(1)


def _start(contexts: Sequence[Any], kind: AnyKind) -> None:
    """Initialise a worker: ignore Ctrl-C, which the parent handles, and use one thread, which is fastest."""
    global _sent
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    _sent = contexts, kind
    import numba

    numba.set_num_threads(1)


def _leave_with_parent() -> None:
    """Exit with the parent: a killed parent cannot end its workers, which would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _submit(pool: ProcessPoolExecutor, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Submit with Ctrl-C blocked for a moment: a process started here inherits the block."""
    if not hasattr(signal, "pthread_sigmask"):
        return pool.submit(function, *arguments)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return pool.submit(function, *arguments)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _finished(futures: Sequence[Future[Any]]) -> set[Future[Any]]:
    """Futures that have finished, at least one.

    It looks up twice a second: once polars is imported, Ctrl-C does not wake a thread that waits without a timeout.
    """
    while not (finished := wait(futures, timeout=0.5, return_when=FIRST_COMPLETED).done):
        pass
    return finished


def _ready() -> int:
    return os.getpid()


def _received() -> tuple[Sequence[Any], AnyKind]:
    if _sent is None:
        raise RuntimeError("a worker was not started by _start")
    return _sent


def _warm(works: Sequence[Work]) -> None:
    contexts, kind = _received()
    kind.warm_up(contexts, kind.alike(works))


def _work(work: Work) -> Any:
    contexts, kind = _received()
    return kind.attempt(contexts[work.place], work.cell)


@contextmanager
def _pool(contexts: Sequence[Any], kind: AnyKind, workers: int) -> Iterator[ProcessPoolExecutor]:
    before = set(multiprocessing.active_children())
    unset = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, "1"))  # workers inherit it; this process has read it before
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start, initargs=(contexts, kind)
    )
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name in unset:
            os.environ.pop(name, None)


def _in_pool(contexts: Sequence[Any], left: list[Work], workers: int, done: Done, kind: AnyKind) -> list[Work] | None:
    """Compute the cells in `left`, which shrinks. If a worker dies, return the cells that may have killed it.

    None if no worker could start, as in a script that calls `compare` outside `if __name__ == "__main__":`, since a
    worker imports the script again; then this process does the work.
    """
    cold, ready = deque(kind.groups(contexts, left)), deque[Work]()
    warming: dict[Future[Any], list[Work]] = {}
    running: dict[Future[Any], Work] = {}
    started = False
    try:
        with _pool(contexts, kind, workers) as pool:
            _submit(pool, _ready).result()
            started = True
            while cold or warming or ready or running:
                while cold and len(warming) < workers:
                    group = cold.popleft()
                    warming[_submit(pool, _warm, group)] = group
                while ready and len(running) < AHEAD * workers:
                    work = ready.popleft()
                    running[_submit(pool, _work, work)] = work
                for future in _finished([*warming, *running]):
                    outcome = future.result()
                    if future in warming:
                        ready.extend(warming.pop(future))
                        continue
                    work = running.pop(future)
                    left.remove(work)
                    done(work, outcome)
    except BrokenProcessPool:
        if not started:
            return None
        # a group that was being compiled is suspect if it also kills a process of its own
        deadly = [group for group in warming.values() if _in_own_process(contexts, kind, _warm, group) is DIED]
        return [*running.values(), *(work for group in deadly for work in group)]
    return []


def _in_own_process(contexts: Sequence[Any], kind: AnyKind, function: Callable[..., Any], *arguments: Any) -> Any:
    """Result of a function in a separate process, or `DIED`."""
    try:
        with _pool(contexts, kind, 1) as pool:
            return next(iter(_finished([_submit(pool, function, *arguments)]))).result()
    except BrokenProcessPool:
        return DIED
