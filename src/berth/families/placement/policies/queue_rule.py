"""Rules of a queue as data: its order, which tasks may pass the first that does not fit, and which servers they get."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.kernels.gathering import ALIGNED, BEST, FIRST, WHOLE, WORST
from berth.families.placement.kernels.queueing import ANY, EASY, STRICT
from berth.model import Floats, Ints

__all__ = ["BACKFILL", "CONSERVATIVE", "FITS", "SHADOW", "TIES", "QueueRule", "score_function"]

FITS = {"first": FIRST, "best": BEST, "worst": WORST, "aligned": ALIGNED, "whole": WHOLE}
"""Rules to find servers for a task: see `berth.families.placement.kernels.gathering`."""
BACKFILL = {"none": STRICT, "easy": EASY, "any": ANY}
"""Which tasks may pass the head of the queue."""
TURNS = "queue", "fair", "packed"
SHADOW, CONSERVATIVE = "shadow", "conservative"
"""Backfilling on a pool as RLScheduler does it, and with a reservation for every task."""
NAMES = ("wait", "estimate", "size", "submit")
FUNCTIONS = {name: getattr(np, name) for name in ("log", "log2", "log10", "sqrt", "exp")} | {"abs": abs}
_ALLOWED = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.Constant,
    ast.Name,
    ast.Load,
    ast.Call,
    ast.operator,
    ast.unaryop,
)
TIES: dict[str, Callable[[Floats, Floats, Ints], Floats | Ints]] = {
    "arrival": lambda estimate, size, number: number,
    "latest": lambda estimate, size, number: -number,
    "shortest": lambda estimate, size, number: estimate,
    "longest": lambda estimate, size, number: -estimate,
    "smallest": lambda estimate, size, number: size,
    "largest": lambda estimate, size, number: -size,
}
"""Order of tasks with equal scores, the least first, from their estimates, sizes and numbers by arrival."""
_PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


@cache
def score_function(score: str) -> Callable[..., Any]:
    """A score as a function of wait, estimate, size and submit: an expression of these, or module.function.

    >>> float(score_function("wait / estimate + log2(size)")(10.0, 5.0, 4.0, 0.0))
    4.0
    >>> score_function("wait + length")
    Traceback (most recent call last):
    berth.errors.InvalidInput: score: got 'wait + length', expected an expression of wait, estimate, size and submit ...
    """
    if _PLACE.fullmatch(score):
        path, _, name = score.rpartition(".")
        try:
            found = getattr(importlib.import_module(path), name)
        except (ImportError, AttributeError) as error:
            raise InvalidInput("module.function", found=f"{score}: {error}", key="score") from error
        if not callable(found):
            raise InvalidInput("a function of wait, estimate, size and submit", value=score, key="score")
        return found  # type: ignore[no-any-return]
    try:
        tree = ast.parse(score, mode="eval")
    except SyntaxError as error:
        raise _not_a_score(score) from error
    for node in ast.walk(tree):
        known = not isinstance(node, ast.Name) or node.id in NAMES or node.id in FUNCTIONS
        number = not isinstance(node, ast.Constant) or isinstance(node.value, int | float)
        called = not isinstance(node, ast.Call) or (isinstance(node.func, ast.Name) and not node.keywords)
        if not (isinstance(node, _ALLOWED) and known and number and called):
            raise _not_a_score(score)
    source = f"lambda {', '.join(NAMES)}: {ast.unparse(tree)}"
    function: Callable[..., Any] = eval(source, {"__builtins__": {}, **FUNCTIONS})
    return function


def _not_a_score(score: str) -> InvalidInput:
    functions = ", ".join(sorted(FUNCTIONS))
    return InvalidInput(
        f"an expression of wait, estimate, size and submit with numbers, + - * / ** and {functions}",
        value=score,
        key="score",
    )


@dataclass(frozen=True)
class QueueRule:
    """A queue policy as data.

    The queue is in the order of `score`, an expression of a task's `wait` and `estimate` in seconds, its `size` and its
    time of submission, `submit`, or `module.function` of these four; the least is first, ties are by `ties` and then by
    arrival. If the first does not fit, `backfill` says which others may start, and it is found anew at the next moment,
    or with `committed` stays first. `fit` is the rule that finds servers.

    `turns` says which task is tried next: that of the `queue`; with `fair` the first of the owner with the smallest
    dominant share, of all whose first task fits; with `packed` the one with the largest best alignment less `hurry`
    times its estimate, each relative to its mean.

    >>> QueueRule("-wait / estimate", backfill="any").order(np.array([5.0, 4.0]), np.array([9.0, 2.0]), 1.0, 0.0)
    array([1, 0])
    """

    score: str = "submit"
    backfill: str = "none"
    fit: str = "first"
    ties: str = "arrival"
    committed: bool = False
    turns: str = "queue"
    hurry: float = 0.0

    def __post_init__(self) -> None:
        for key, value, known in (("fit", self.fit, FITS), ("ties", self.ties, TIES), ("turns", self.turns, TURNS)):
            if value not in known:
                raise InvalidInput(f"one of {', '.join(known)}", value=value, key=key)
        score_function(self.score)  # refuse what is none

    @property
    def function(self) -> Callable[..., Any]:
        """The score as a function of wait, estimate, size and submission."""
        return score_function(self.score)

    @property
    def fixed(self) -> bool:
        """Whether the order of two tasks stays the same while they wait."""
        told = "wait" in self.score or _PLACE.fullmatch(self.score)
        return not (told or self.committed or self.backfill == SHADOW)

    @property
    def by_arrival(self) -> bool:
        """Whether the order is that of arrival."""
        return self.score == "submit" and self.ties == "arrival"

    def scores(self, wait: Any, estimate: Any, size: Any, submit: Any) -> Floats:
        """The score of each task (n,); one that is no number counts as 0."""
        # expressions take arrays; a function may decide by comparing numbers
        score = np.vectorize(self.function, otypes=[np.float64]) if _PLACE.fullmatch(self.score) else self.function
        with np.errstate(all="ignore"):
            found = np.broadcast_to(score(wait, estimate, size, submit), (len(estimate),))
        return np.where(np.isnan(found), 0.0, found)

    def tied(self, estimate: Floats, size: Floats) -> Floats:
        """A number for each task (n,): of tasks with equal scores, smaller ones come first."""
        return np.asarray(TIES[self.ties](estimate, size, np.arange(len(estimate))), dtype=np.float64)

    def order(self, wait: Any, estimate: Floats, size: Any, submit: Any, level: Any = 0) -> Ints:
        """Tasks (n,), the first in the queue first; those of smaller `level` come before all others."""
        if not len(estimate):
            return np.zeros(0, dtype=np.int64)
        scores = self.scores(wait, estimate, size, submit)
        level, size = np.broadcast_to(level, scores.shape), np.broadcast_to(size, scores.shape)
        return np.lexsort((self.tied(estimate, size), scores, level))
