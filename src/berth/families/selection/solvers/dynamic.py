"""Dynamic programming for tiny whole capacities in one pool: exact, or with rounded gains as in the papers.

The papers round gains to multiples of 1/ξ and tabulate the largest spread for every sum of gains. That works
(`rounded`), but rounding is unnecessary: for each capacity it is enough to keep the few Pareto-optimal
(Σ gain, Σ spread) pairs (`dynamic`).
"""

from __future__ import annotations

import math

import numpy as np

from berth.errors import InvalidInput
from berth.families.selection.kernels.knapsack_tables import rounded_table, sized, tiny_choice
from berth.families.selection.solvers.question import Choice, Question
from berth.model import Floats, Ints

__all__ = ["dynamic", "rounded"]

STATES = 4096  # capacities in one table
NUMBERS = "finite gains and spreads, spreads ≥ 0"
ENTRIES = 1 << 26  # of a rounded table: 64 MB of decision bits
ROOMS = (
    (16, 4096),
    (128, 65_536),
    (1024, 1 << 20),
)  # (pairs per capacity, pairs in all): tried in turn if one is too small


def writable(array: Floats) -> Floats:
    """The array as kernels expect it: float64, contiguous, writable (any other kind would be compiled separately)."""
    array = np.ascontiguousarray(array, dtype=np.float64)
    return array if array.flags.writeable else array.copy()


def worth(question: Question, tasks: Ints) -> float:
    """`question.value` without a conversion in each product, which takes half the time of a small question."""
    opened = tasks.astype(np.float64)
    return float(question.gain @ opened) + math.sqrt(float(question.spread @ opened))


class Tiny:
    """A question in whole numbers; `states` is −1 if a table of `most` states cannot hold it."""

    def __init__(self, question: Question, most: int) -> None:
        self.gain, self.spread = writable(question.gain), writable(question.spread)
        n, resources = question.takes.shape
        self.active: Ints = np.empty(n, dtype=np.int64)
        self.whole: Ints = np.zeros((n + 1, max(resources, 1)), dtype=np.int64)
        self.limit: Ints = np.zeros(resources, dtype=np.int64)
        if resources == 0:
            self.states = -1
            return
        self.states = sized(
            self.gain,
            self.spread,
            writable(question.takes),
            np.array(question.pool, dtype=np.int64),
            writable(question.free),
            most,
            self.active,
            self.whole,
            self.limit,
        )
        if self.states == -2:
            raise InvalidInput(NUMBERS)


def dynamic(question: Question, states: int = STATES, rooms: tuple[tuple[int, int], ...] = ROOMS) -> Choice | None:
    """Exact optimum, or None if the question does not qualify.

    It qualifies with one pool, whole demands, Π (capacity + 1) ≤ `states`, and lists of pairs that fit in `rooms`.

    >>> question = Question(
    ...     np.array([0.3, 0.5, 0.4]), np.zeros(3), np.array([[2.0], [1.0], [1.0]]), np.zeros(3, dtype=np.int64),
    ...     np.array([[2.0]]),
    ... )
    >>> choice = dynamic(question)
    >>> choice.tasks.tolist(), choice.value == choice.bound
    ([0, 1, 1], True)
    """
    arrays = writable(question.gain), writable(question.spread), writable(question.takes)
    pool, free = np.array(question.pool, dtype=np.int64), writable(question.free)
    tasks = np.zeros(len(question.gain), dtype=np.int64)
    if question.free.shape[1] == 0:
        return None
    for width, labels in rooms:
        found, value = tiny_choice(*arrays, pool, free, states, width, labels, tasks)
        if found == -2:
            raise InvalidInput(NUMBERS)
        if found > 0:
            return Choice(tasks, value, value)
        if found == -1:
            return None
    return None


def rounded(question: Question, delta: float, most: int) -> Choice:
    """The papers' table, repaired: gains rounded up to multiples of 1/ξ, ξ = ⌈most/δ⌉; spreads unrounded.

    If `most` is at least the largest number of channels that fit together, the value is within δ of the best; the bound
    is the optimum of the rounded question, which is never below the true one.
    """
    if not (delta > 0.0 and most >= 1):
        raise InvalidInput("δ > 0 and room for at least one channel", value=(delta, most))
    tiny = Tiny(question, STATES)
    if tiny.states < 0:
        raise InvalidInput(f"one pool and whole demands, with at most {STATES} capacities in its table")
    scale = math.ceil(most / delta)
    size = int(tiny.whole[-1, 0])
    active, whole = tiny.active[:size], tiny.whole[:size]
    steps = np.ceil(tiny.gain * scale - 1e-9)
    if np.abs(steps).max(initial=0.0) * max(size, 1) > 2**40:
        raise InvalidInput("smaller gains, or a larger δ, for a table of their sums")
    jumps = steps.astype(np.int64)
    least = whole.min(axis=0, initial=np.iinfo(np.int64).max)
    fitting = min([size, *(int(c // a) for c, a in zip(tiny.limit, least, strict=True) if a > 0)])
    ordered = np.sort(jumps[active])
    low = int(np.minimum(ordered[:fitting], 0).sum())
    high = int(np.maximum(ordered[size - fitting :], 0).sum())
    if (high - low + 1) * tiny.states * max(size, 1) > ENTRIES:
        raise InvalidInput(
            "a smaller table", value=f"{high - low + 1} sums × {tiny.states} capacities × {size} channels"
        )
    tasks = np.zeros(len(tiny.gain), dtype=np.int64)
    bound = rounded_table(
        jumps, tiny.spread, tiny.active, tiny.whole, tiny.limit, tiny.states, low, high, float(scale), tasks
    )
    value = worth(question, tasks)
    # ⌈·⌉ tolerates 1e-9 of a step, so that 0.1·10 is one step and not two
    return Choice(tasks, value, max(bound + 1e-9 * fitting / scale, value))
