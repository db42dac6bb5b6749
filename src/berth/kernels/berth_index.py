"""Servers by kind and free units: the first server that fits, without looking at all of them.

Servers of one kind differ only in what they have left. Those with the same number of whole free units of the first
resource make a **shelf**; the last shelf of a kind has the servers that are off. A shelf is a set of bits, one a
server, with a second layer of bits that says which words are not empty.

Axes: R servers, Q kinds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from berth.kernels.compiled import inlined, lean

ONE = np.uint64(1)
NONE = np.uint64(0)
SIX = np.uint64(6)
LOW = np.uint64(63)

# position of the lowest bit: a de Bruijn sequence gives every single bit another top six bits
SEQUENCE = np.uint64(0x03F79D71B4CB0A89)
PLACE = np.zeros(64, dtype=np.int64)
for _bit in range(64):
    PLACE[((int(SEQUENCE) << _bit) % 2**64) >> 58] = _bit
PLACE.setflags(write=False)


class Shelves(NamedTuple):
    """Where servers stand. A kind q has `depth[q]` whole units and `depth[q] + 2` shelves, from `first_shelf[q]`."""

    kind: Any  # (R,)
    rank: Any  # (R,) place of a server among those of its kind, in the order of their numbers
    member: Any  # (R,) servers by kind and rank
    first_member: Any  # (Q + 1,)
    depth: Any  # (Q,)
    first_shelf: Any  # (Q + 1,)
    word: Any  # where the words of a shelf begin, (shelves + 1,)
    words: Any  # bits of servers
    summary: Any  # where the summary of a shelf begins, (shelves + 1,)
    summaries: Any  # bits of words that are not empty
    size: Any  # (shelves,) servers on a shelf
    shelf: Any  # (R,) where each server stands


@inlined
def lowest(bits: Any) -> Any:
    """The place of the lowest bit that is set."""
    return PLACE[((bits & (~bits + ONE)) * SEQUENCE) >> np.uint64(58)]


@inlined
def _put(shelves: Shelves, shelf: int, rank: int) -> None:
    at = rank >> 6
    word = shelves.word[shelf] + at
    shelves.words[word] |= ONE << (np.uint64(rank) & LOW)
    shelves.summaries[shelves.summary[shelf] + (at >> 6)] |= ONE << (np.uint64(at) & LOW)
    shelves.size[shelf] += 1


@inlined
def _take(shelves: Shelves, shelf: int, rank: int) -> None:
    at = rank >> 6
    word = shelves.word[shelf] + at
    left = shelves.words[word] & ~(ONE << (np.uint64(rank) & LOW))
    shelves.words[word] = left
    if left == NONE:
        shelves.summaries[shelves.summary[shelf] + (at >> 6)] &= ~(ONE << (np.uint64(at) & LOW))
    shelves.size[shelf] -= 1


@inlined
def move(shelves: Shelves, server: int, shelf: int) -> None:
    """Put a server on another shelf of its kind."""
    old = shelves.shelf[server]
    if old != shelf:
        rank = shelves.rank[server]
        _take(shelves, old, rank)
        _put(shelves, shelf, rank)
        shelves.shelf[server] = shelf


@inlined
def next_rank(shelves: Shelves, shelf: int, rank: int) -> Any:
    """The first rank ≥ `rank` on a shelf, -1 when there is none."""
    begin, end = shelves.word[shelf], shelves.word[shelf + 1]
    at = rank >> 6
    if begin + at >= end:
        return -1
    bits = shelves.words[begin + at] >> (np.uint64(rank) & LOW)
    if bits != NONE:
        return rank + lowest(bits)
    at += 1
    top, top_end = shelves.summary[shelf], shelves.summary[shelf + 1]
    up = at >> 6
    if top + up >= top_end:
        return -1
    bits = shelves.summaries[top + up] >> (np.uint64(at) & LOW)
    if bits != NONE:
        found = at + lowest(bits)
    else:
        found = -1
        up += 1
        while top + up < top_end:
            if shelves.summaries[top + up] != NONE:
                found = (up << 6) + lowest(shelves.summaries[top + up])
                break
            up += 1
        if found < 0:
            return -1
    return (found << 6) + lowest(shelves.words[begin + found])


@lean
def fill_shelves(shelves: Shelves) -> None:
    """Put every server on the shelf of those that are off."""
    for r in range(shelves.kind.shape[0]):
        shelf = shelves.first_shelf[shelves.kind[r] + 1] - 1
        shelves.shelf[r] = shelf
        _put(shelves, shelf, shelves.rank[r])
