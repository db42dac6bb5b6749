"""One runner of cells for comparisons, sweeps, replays, rehearsals and reproductions.

A cell is independent of all others: cells may run in any order, in any process, or come from an earlier run. Cells that
the result directory has are read; the others are computed, and each is saved as soon as it is done.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from berth.errors import InvalidInput, UnsupportedProblem
from berth.lab.run.store import ResultDirectory

__all__ = [
    "AnyKind",
    "CellKind",
    "CellRun",
    "Done",
    "Failure",
    "Interrupted",
    "Progress",
    "Runner",
    "Work",
    "failure_of",
    "worker_count",
]

Context = TypeVar("Context")
CellType = TypeVar("CellType")
Result = TypeVar("Result")


class Work(NamedTuple):
    """A cell, and the index of its context: of its scenario, or its point of a sweep."""

    place: int
    cell: Any


@dataclass(frozen=True)
class Failure:
    """Reason why a cell has no numbers: a one-line error and its traceback.

    `unsupported` is set if a policy or oracle cannot serve the problem, which is not an error.
    """

    error: str
    traceback: str = ""
    unsupported: bool = False


Done = Callable[[Work, Any], None]
"""Takes a cell and its result or `Failure`."""


class CellKind(ABC, Generic[Context, CellType, Result]):
    """Cells of one kind: their keys, how they are computed, and how they are saved.

    Workers get the kind and the contexts once, when they start.
    """

    @abstractmethod
    def key(self, context: Context, cell: CellType) -> str:
        """Name under which a finished cell is saved: a hash of all that its numbers depend on."""

    @abstractmethod
    def compute(self, context: Context, cell: CellType) -> Result:
        """The result of a cell."""

    @abstractmethod
    def save(self, directory: ResultDirectory, key: str, cell: CellType, result: Result) -> None:
        """Save a finished cell."""

    @abstractmethod
    def load(self, directory: ResultDirectory, key: str) -> Result:
        """Load a finished cell; raises if it is absent, damaged or something else."""

    def groups(self, contexts: Sequence[Context], works: Iterable[Work]) -> list[list[Work]]:
        """Cells by the kernels that they need, the longest to compile first."""
        return [list(works)]

    def alike(self, group: Iterable[Work]) -> list[Work]:
        """Enough cells of a group to compile its kernels."""
        return []

    def warm_up(self, contexts: Sequence[Context], works: Iterable[Work]) -> None:
        """Compile the kernels of these cells: other processes read them from Numba's cache."""

    def slots(self, result: Result) -> int:
        """Number of slots simulated for a result."""
        return 0

    def attempt(self, context: Context, cell: CellType) -> Result | Failure:
        """Compute one cell; any error becomes a `Failure`."""
        try:
            with contextlib.redirect_stdout(sys.stderr):  # output of a policy must not mix with results
                return self.compute(context, cell)
        except UnsupportedProblem as error:
            return Failure(str(error), traceback.format_exc(), unsupported=True)
        except (Exception, SystemExit) as error:  # a policy may raise anything; the other cells go on
            return failure_of(error)


AnyKind = CellKind[Any, Any, Any]


def failure_of(error: BaseException) -> Failure:
    """An error of a cell, caught where it was raised."""
    text = " ".join(str(error).split()) or "no message"
    return Failure(f"{type(error).__name__}: {text}", traceback.format_exc())


class Runner(Protocol):
    """Computes cells, in any order, and passes on each as it finishes."""

    def __call__(self, contexts: Sequence[Any], works: Sequence[Work], done: Done, *, kind: Any) -> None: ...


@dataclass(frozen=True)
class Progress:
    """Progress of a run: cells done (including `reused`) of `total`, slots simulated, and the latest event."""

    done: int
    total: int
    reused: int
    slots: int
    note: str


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while cells ran: `done` of `total` cells are finished, and saved if there is an `out`."""

    def __init__(self, done: int, total: int, out: str | None) -> None:
        self.done, self.total, self.out = done, total, out
        kept = f"{done} of {total} cells are kept in {out}; the same command continues" if out else "nothing was kept"
        super().__init__(f"stopped; {kept}")


@dataclass
class CellRun(Generic[Context, CellType, Result]):
    """Cells of one kind: take what the directory has, `run` the others.

    `take` gets each cell with its result or `Failure`.
    """

    kind: CellKind[Context, CellType, Result]
    contexts: Sequence[Context]
    directory: ResultDirectory | None
    progress: Callable[[Progress], None] | None
    take: Done
    reused: int = 0
    done: int = 0
    slots: int = 0
    total: int = 0
    _wanted: dict[str, list[Work]] = field(default_factory=dict)
    _keys: dict[Work, str] = field(default_factory=dict)

    def want(self, work: Work) -> None:
        """Take the finished cell of the directory, or plan to compute it."""
        result = self.reuse(work)
        if result is None:
            self.add(work)
        else:
            self.take(work, result)

    def reuse(self, work: Work) -> Result | None:
        """The finished cell of the directory, if it has one."""
        if self.directory is None:
            return None
        try:
            result = self.kind.load(self.directory, self._key(work))
        except Exception:  # any error of a damaged file means that the cell is absent
            return None
        self.total += 1
        self.reused += 1
        self.done += 1
        return result

    def add(self, work: Work) -> None:
        """Plan to compute a cell; one that several contexts share is computed once."""
        self.total += 1
        self._wanted.setdefault(self._key(work), []).append(work)

    def run(self, runner: Runner) -> None:
        """Compute the cells that were added, and save each at once."""

        def done(work: Work, result: Result | Failure) -> None:
            key = self._key(work)
            if not isinstance(result, Failure):
                if self.directory is not None:
                    self.kind.save(self.directory, key, work.cell, result)
                self.slots += self.kind.slots(result)
            for one in self._wanted.pop(key):
                self.done += 1
                self._tell(str(one.cell))
                self.take(one, result)

        missing = [same[0] for same in self._wanted.values()]
        self._tell("compiling" if missing else "all there")
        try:
            if missing:
                runner(self.contexts, missing, done, kind=self.kind)
        except KeyboardInterrupt as stop:
            kept = None if self.directory is None else str(self.directory.path)
            raise Interrupted(self.done, self.total, kept) from stop

    def _key(self, work: Work) -> str:
        if work not in self._keys:
            self._keys[work] = self.kind.key(self.contexts[work.place], work.cell)
        return self._keys[work]

    def _tell(self, note: str) -> None:
        if self.progress is not None:
            self.progress(Progress(self.done, self.total, self.reused, self.slots, note))


def worker_count(workers: int | None) -> int:
    """Number of processes; default: one per core."""
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers < 1:
        raise InvalidInput("at least 1", value=workers, key="workers")
    return workers
