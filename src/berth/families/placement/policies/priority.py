"""Priority rules: the queue is in the order of a score that may change while jobs wait."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.kernels.gathering import Free, Pieces, Rows
from berth.families.placement.policies.queued import InOrder, PoolForm
from berth.families.placement.problem import PlacementProblem, PlacementSlot, Tasks
from berth.model import Floats, Ints

__all__ = ["F1", "F2", "F3", "F4", "LJF", "SAF", "UNICEP", "WFP3", "Priority", "score_function"]

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
PICKS = ("again", "committed")
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


class Priority(InOrder):
    """Tasks start in the order of a score of your own, the least first; none passes the first in the queue.

    The score is computed from a task's `wait` and `estimate` in seconds, its `size` in processors (GPUs where the
    cluster has them), and its time of submission, `submit`.

    Settings: `score`, an expression such as `-wait/estimate`, or `module.function` with these four arguments; `fit` as
    in fcfs, and `backfill`, where `shadow` also is RLScheduler's backfilling; `pick` (`again`: the first is found anew
    at every moment; `committed`: it stays first until it starts); `ties`, the order of tasks with equal scores
    (`arrival`, `latest`, `shortest`, `longest`, `smallest` or `largest` first, and then by arrival).

    >>> from berth.testing import example_placement
    >>> Priority(example_placement(), score="estimate * size").pick
    'again'
    """

    reference = "the rule is yours"
    rule = "submit"

    def __init__(
        self,
        problem: PlacementProblem,
        rng: Any = None,
        *,
        score: str = "",
        backfill: str = "none",
        pick: str = "again",
        ties: str = "arrival",
        fit: str = "first",
    ) -> None:
        super().__init__(problem, rng, backfill="easy" if backfill == "shadow" else backfill, fit=fit)
        self.backfill = backfill
        if pick not in PICKS:
            raise InvalidInput(f"one of {', '.join(PICKS)}", value=pick, key="pick")
        if ties not in TIES:
            raise InvalidInput(f"one of {', '.join(TIES)}", value=ties, key="ties")
        self.pick, self.ties = pick, ties
        self._score = str(score) or self.rule
        self._fixed = "wait" not in self._score and not _PLACE.fullmatch(self._score)
        score_function(self._score)  # refuse what is none
        self._head = -1  # id of the task that was picked and does not fit

    @property
    def score(self) -> Callable[..., Any]:
        """The score as a function of wait, estimate, size and submission."""
        return score_function(self._score)

    def pool(self, tasks: Tasks) -> PoolForm | None:
        if self._fixed and self.pick == "again" and self.backfill != "shadow":
            order = np.lexsort((self._ties(tasks), self._scores(tasks, 0.0)))
            place = np.empty(len(order))
            place[order] = np.arange(len(order))
            return PoolForm(self.backfill, place)
        return PoolForm(self.backfill, self._ties(tasks), self.score, self.pick == "committed")

    def sizes(self, tasks: Tasks) -> Floats:
        """The processors that each task takes, (n,), or GPUs where the cluster has them."""
        main = self.problem.devices if self.problem.devices is not None else 0
        return np.asarray(tasks.demand[:, main] * tasks.pieces)

    def _scores(self, tasks: Tasks, time: float) -> Floats:
        arguments = time - tasks.arrival, tasks.work, self.sizes(tasks), tasks.arrival
        # expressions take arrays; a function may decide by comparing numbers
        score = np.vectorize(self.score, otypes=[np.float64]) if _PLACE.fullmatch(self._score) else self.score
        with np.errstate(all="ignore"):
            found = np.broadcast_to(score(*arguments), (len(tasks),)) if len(tasks) else np.zeros(0)
        return np.where(np.isnan(found), 0.0, found)

    def _ties(self, tasks: Tasks) -> Floats:
        """A number for each task, (n,): of tasks with equal scores, smaller ones come first."""
        found = TIES[self.ties](tasks.work, self.sizes(tasks), np.arange(len(tasks)))
        return np.asarray(found, dtype=np.float64)

    def queue(self, slot: PlacementSlot) -> Ints:
        order = np.lexsort((self._ties(slot.tasks), self._scores(slot.tasks, slot.time)))
        picked = slot.ids[order] == self._head
        return np.concatenate([order[picked], order[~picked]])

    def start(self, slot: PlacementSlot, pieces: Pieces, free: Free, rows: Rows) -> None:
        if self.backfill == "shadow":
            raise UnsupportedProblem("backfill=shadow is a rule for one pool of processors (--processors)")
        super().start(slot, pieces, free, rows)
        if self.pick == "committed":
            left = [i for i in self.queue(slot) if i not in set(rows.task[: rows.size[0]].tolist())]
            self._head = int(slot.ids[left[0]]) if left else -1


class LJF(Priority):
    """The longest estimate first."""

    reference, rule = "the opposite of sjf", "-estimate"


class SAF(Priority):
    """The smallest area, estimate times size, first."""

    reference, rule = "Carastan-Santos et al., CCGRID 2019", "estimate * size"


class WFP3(Priority):
    """Long waits relative to the estimate first, large jobs before small ones."""

    reference, rule = "Tang et al., CLUSTER 2009", "-((wait / estimate) ** 3) * size"


class UNICEP(Priority):
    """Long waits first, short and small jobs before others."""

    reference, rule = "Tang et al., CLUSTER 2009", "-wait / (log2(size) * estimate)"


class F1(Priority):
    """Small and short jobs first, and the earlier ones: the first of four learned rules."""

    reference = "Carastan-Santos and de Camargo, SC 2017"
    rule = "log10(estimate) * size + 870 * log10(submit)"


class F2(F1):
    """Small and short jobs first, and the earlier ones: the second of four learned rules."""

    rule = "sqrt(estimate) * size + 25600 * log10(submit)"


class F3(F1):
    """Small and short jobs first, and the earlier ones: the third of four learned rules."""

    rule = "estimate * size + 6860000 * log10(submit)"


class F4(F1):
    """Small and short jobs first, and the earlier ones: the fourth of four learned rules."""

    rule = "estimate * sqrt(size) + 530000 * log10(submit)"
