"""Index of servers by kind and free units: finds the first server that fits without visiting all.

Servers of one kind differ only in their free capacity. Those with the same number of whole free units of the first
resource form a **shelf**; the last shelf of a kind has the servers that are off. A shelf is a bit set of servers, with
a second layer of bits that marks the nonempty words; a kind has a bit set of its nonempty shelves.

Axes: R servers, Q kinds, K resources.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from berth.kernels.compiled import inlined, inner

ONE = np.uint64(1)
NONE = np.uint64(0)
LOW = np.uint64(63)

# columns of `kinds`
DEPTH, FIRST_MEMBER, FIRST_SHELF, FIRST_WORD, WORDS, SUMMARIES, MASKS = range(7)
# columns of `place`
KIND, RANK, SHELF, RUNNING = range(4)


class Shelves(NamedTuple):
    """Positions of servers. Tables keep data together that is read together.

    A kind has whole units from 0 to `DEPTH`, a shelf for each, and one more. Its bits begin at `FIRST_WORD`: `MASKS`
    words about its shelves; then for each shelf `SUMMARIES` words about the `WORDS` words after them.
    """

    kinds: Any  # (Q, 7) of integers
    place: Any  # (R, 4) kind, rank within the kind, shelf, tasks that run
    member: Any  # (R,) servers by kind and rank
    bits: Any
    size: Any  # (shelves,) servers on a shelf


def _lowest(typing: Any, bits: Any) -> Any:
    """Index of the lowest set bit of a nonzero word."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


lowest = intrinsic(_lowest)


@inlined
def _bit(at: int) -> Any:
    return ONE << (np.uint64(at) & LOW)


@inlined
def _put(shelves: Shelves, kind: int, shelf: int, rank: int) -> None:
    kinds, bits = shelves.kinds, shelves.bits
    first, summaries, words = kinds[kind, FIRST_WORD], kinds[kind, SUMMARIES], kinds[kind, WORDS]
    here = first + kinds[kind, MASKS] + shelf * (summaries + words)
    at = rank >> 6
    bits[here + summaries + at] |= _bit(rank)
    if words > 1:
        bits[here + (at >> 6)] |= _bit(at)
    number = kinds[kind, FIRST_SHELF] + shelf
    if shelves.size[number] == 0:
        bits[first + (shelf >> 6)] |= _bit(shelf)
    shelves.size[number] += 1


@inlined
def _take(shelves: Shelves, kind: int, shelf: int, rank: int) -> None:
    kinds, bits = shelves.kinds, shelves.bits
    first, summaries, words = kinds[kind, FIRST_WORD], kinds[kind, SUMMARIES], kinds[kind, WORDS]
    here = first + kinds[kind, MASKS] + shelf * (summaries + words)
    at = rank >> 6
    left = bits[here + summaries + at] & ~_bit(rank)
    bits[here + summaries + at] = left
    if words > 1 and left == NONE:
        bits[here + (at >> 6)] &= ~_bit(at)
    number = kinds[kind, FIRST_SHELF] + shelf
    shelves.size[number] -= 1
    if shelves.size[number] == 0:
        bits[first + (shelf >> 6)] &= ~_bit(shelf)


@inlined
def move(shelves: Shelves, server: int, shelf: int) -> None:
    """Move a server to another shelf of its kind."""
    place = shelves.place
    kind, rank, old = place[server, KIND], place[server, RANK], place[server, SHELF]
    if old != shelf:
        _take(shelves, kind, old, rank)
        _put(shelves, kind, shelf, rank)
        place[server, SHELF] = shelf


@inlined
def _next_bit(bits: Any, first: int, count: int, at: int) -> Any:
    """First set bit ≥ `at` among `count` words from `first`; -1 if there is none."""
    word = at >> 6
    if word >= count:
        return -1
    rest = bits[first + word] >> (np.uint64(at) & LOW)
    if rest != NONE:
        return at + lowest(rest)
    word += 1
    while word < count:
        if bits[first + word] != NONE:
            return (word << 6) + lowest(bits[first + word])
        word += 1
    return -1


@inlined
def next_shelf(shelves: Shelves, kind: int, shelf: int) -> Any:
    """First nonempty shelf ≥ `shelf` of a kind, including that of servers that are off; -1 if none."""
    return _next_bit(shelves.bits, shelves.kinds[kind, FIRST_WORD], shelves.kinds[kind, MASKS], shelf)


@inlined
def next_rank(shelves: Shelves, kind: int, shelf: int, rank: int) -> Any:
    """First rank ≥ `rank` on a shelf, -1 if there is none."""
    kinds, bits = shelves.kinds, shelves.bits
    summaries, words = kinds[kind, SUMMARIES], kinds[kind, WORDS]
    top = kinds[kind, FIRST_WORD] + kinds[kind, MASKS] + shelf * (summaries + words)
    begin, at = top + summaries, rank >> 6
    if at >= words:
        return -1
    rest = bits[begin + at] >> (np.uint64(rank) & LOW)
    if rest != NONE:
        return rank + lowest(rest)
    if words == 1:
        return -1
    found = _next_bit(bits, top, summaries, at + 1)
    if found < 0:
        return -1
    return (found << 6) + lowest(bits[begin + found])


@inner
def fill_shelves(shelves: Shelves) -> None:
    """Put every server on the shelf of servers that are off."""
    for r in range(shelves.place.shape[0]):
        kind = shelves.place[r, KIND]
        shelf = shelves.kinds[kind, DEPTH] + 1
        shelves.place[r, SHELF] = shelf
        shelves.place[r, RUNNING] = 0
        _put(shelves, kind, shelf, shelves.place[r, RANK])
