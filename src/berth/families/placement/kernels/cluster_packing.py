"""Tetris on any cluster: plays whole batch logs, event by event.

Equals `berth.families.placement.kernels.queueing.start_packed` on all waiting tasks at every moment, but alignments are
kept by class of tasks (`berth.families.placement.kernels.fitting`).

Axes: N tasks, R servers, S classes that are kept at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.families.placement.kernels.cluster import Play, advance, begin, settle
from berth.families.placement.kernels.fitting import find, refresh
from berth.families.placement.kernels.gathering import ALIGNED
from berth.families.placement.kernels.pool import RUNNING, WAITING
from berth.families.placement.kernels.queueing import ANY
from berth.kernels.compiled import inner, lean

__all__ = ["play_packed"]


@inner
def _alignment(play: Play, i: int, top: Any, known: Any) -> Any:
    """Largest alignment of a piece of task i with a server where it fits; -inf for none.

    `top` (S,) is that of each class, `known` (S, 2) the class and the number of changes that it includes.
    """
    fitting = play.fitting
    at = refresh(play.fleet, play.free, play.classes, play.pieces, i, ALIGNED, fitting, play.rows)
    if known[at, 0] != fitting.kind[i] or known[at, 1] != fitting.changes[0]:
        known[at, 0] = fitting.kind[i]
        known[at, 1] = fitting.changes[0]
        top[at] = -np.inf
        for r in range(fitting.room.shape[1]):
            if fitting.room[at, r] > 0:
                top[at] = max(top[at], -fitting.cost[at, r])
    return top[at]


@inner
def _start_packed(play: Play, hurry: float, top: Any, known: Any, now: float) -> None:
    """Start the task with the largest alignment less `hurry` times its work, until none fits."""
    waiting, queue, scores, begun = play.pool.count[WAITING], play.queue, play.scores, 0
    mean, length, count = 0.0, 0.0, 0
    for place in range(waiting):
        i = queue[place]
        scores[i] = _alignment(play, i, top, known)
        if scores[i] > -np.inf:
            mean += scores[i]
            length += play.pieces.work[i]
            count += 1
    if count == 0:
        return
    mean, length = mean / count, length / count
    while True:
        chosen, most = -1, -np.inf
        for place in range(waiting):
            i = queue[place]
            if scores[i] == -np.inf:
                continue
            gain = (scores[i] / mean if mean > 0.0 else 0.0) - hurry * play.pieces.work[i] / length
            if gain > most:
                chosen, most = i, gain
        if chosen < 0:
            break
        scores[chosen] = -np.inf
        at = refresh(play.fleet, play.free, play.classes, play.pieces, chosen, ALIGNED, play.fitting, play.rows)
        size = find(
            play.pieces, chosen, at, play.fitting.cost[at], ALIGNED, play.place[chosen], play.fitting, play.rows
        )
        if size == 0:
            continue
        begin(play, chosen, size, now)
        play.spare[begun] = chosen
        begun += 1
        for place in range(waiting):
            i = queue[place]
            if scores[i] > -np.inf:
                scores[i] = _alignment(play, i, top, known)
    if play.fleet.device[0] >= 0:
        for place in range(begun):
            settle(play, play.spare[place])
    kept = 0
    for place in range(waiting):
        if np.isnan(play.pool.start[queue[place]]):
            queue[kept] = queue[place]
            kept += 1
    play.pool.count[WAITING] = kept


@lean
def play_packed(play: Play, hurry: float, top: Any, known: Any) -> None:
    """Play all tasks by alignment; `pool.start` (N,) gets the start of each. `top` and `known` are scratch."""
    arrived = 0
    while arrived < play.arrival.shape[0] or play.pool.count[RUNNING] > 0:
        now, arrived, decide = advance(play, arrived, ANY)
        if decide:
            _start_packed(play, hurry, top, known, now)
