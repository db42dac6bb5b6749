"""Choose a solver for a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from berth.errors import InvalidInput
from berth.families.selection.solvers.brute import brute
from berth.families.selection.solvers.dual_core import dual_core
from berth.families.selection.solvers.dynamic import dynamic
from berth.families.selection.solvers.question import Choice, Question

__all__ = ["METHODS", "Method", "choose"]

Method = Literal["auto", "dynamic", "dual-core", "brute"]
METHODS: Sequence[str] = ("auto", "dynamic", "dual-core", "brute")
FEW = 128  # capacities up to which the table is faster than prices
ROOMS = ((16, 4096),)


def choose(question: Question, method: Method = "auto", gap: float = 1e-4, effort: int | None = None) -> Choice:
    """Choose the channels to open: a feasible choice, its value, and an upper bound.

    `auto` uses the table (`dynamic`) for tiny whole capacities in one pool, else prices and search (`dual-core`);
    memory stays small for any capacities. `gap` is the allowed distance of the value below the bound, relative to the
    bound; 0 asks for the optimum. `effort` limits the search of `dual-core`.

    >>> import numpy as np
    >>> question = Question(
    ...     gain=np.array([0.9, 0.5, -0.1]), spread=np.array([0.0, 0.0, 0.04]), takes=np.ones((3, 1)),
    ...     pool=np.array([0, 0, 1]), free=np.ones((2, 1)),
    ... )
    >>> choice = choose(question, gap=0.0)
    >>> choice.tasks.tolist(), choice.value
    ([1, 0, 1], 1.0)
    """
    if method not in METHODS:
        raise InvalidInput(f"one of {', '.join(METHODS)}", value=method, key="method")
    if not gap >= 0.0:
        raise InvalidInput("a gap ≥ 0", value=gap, key="gap")
    if method == "brute":
        return brute(question)
    if method == "dual-core":
        return dual_core(question, gap, effort)
    choice = dynamic(question) if method == "dynamic" else dynamic(question, FEW, ROOMS)
    if choice is not None:
        return choice
    if method == "dynamic":
        raise InvalidInput("one pool, whole demands and tiny capacities for this method", key="method")
    return dual_core(question, gap, effort)
