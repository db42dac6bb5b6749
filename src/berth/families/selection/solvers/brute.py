"""Enumeration of every choice: slow but exact, for at most some twenty channels."""

from __future__ import annotations

import numpy as np

from berth.errors import InvalidInput
from berth.families.selection.solvers.question import Choice, Question

__all__ = ["brute"]

MOST = 22  # channels: 4 million choices
CHUNK = 14  # channels in one table


def brute(question: Question) -> Choice:
    """Exact optimum by enumeration.

    >>> question = Question(
    ...     np.array([0.9, 0.5, 0.1]), np.zeros(3), np.ones((3, 1)), np.zeros(3, dtype=np.int64), np.array([[2.0]])
    ... )
    >>> brute(question).tasks.tolist()
    [1, 1, 0]
    """
    n = len(question.gain)
    if n > MOST:
        raise InvalidInput(f"at most {MOST} channels for an enumeration", value=n)
    pools, resources = question.free.shape
    free = np.maximum(question.free, 0.0)
    limit = free + 1e-9 * (1.0 + free)
    usage = np.zeros((n, pools, resources))
    usage[np.arange(n), question.pool] = question.takes
    head = min(n, CHUNK)
    table = (np.arange(2**head)[:, None] >> np.arange(head)) & 1
    used = np.tensordot(table, usage[:head], axes=1)
    gain, spread = table @ question.gain[:head], table @ question.spread[:head]
    best, at, tail = 0.0, 0, np.zeros(n - head, dtype=np.int64)
    for code in range(2 ** (n - head)):
        rest = (code >> np.arange(n - head)) & 1
        fits = (used + np.tensordot(rest, usage[head:], axes=1) <= limit).all(axis=(1, 2))
        value = gain + rest @ question.gain[head:] + np.sqrt(spread + rest @ question.spread[head:])
        value = np.where(fits, value, -np.inf)
        place = int(value.argmax())
        if value[place] > best:
            best, at, tail = float(value[place]), place, rest
    tasks = np.concatenate([table[at], tail]).astype(np.int64)
    value_of = question.value(tasks)
    return Choice(tasks, value_of, value_of)
