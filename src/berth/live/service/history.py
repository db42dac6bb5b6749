"""Statistics of each minute since the service began, for the dashboard's charts.

Times are those of events, so a simulated cluster on a fast clock has its own minutes.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from berth.live.core.events import ClockStepped, Decided, Event, Failed, Finished, Started, Submitted
from berth.live.core.state import State

__all__ = ["History", "Minute"]

KEPT = 1440
"""The number of steps kept."""
LOOK = 1 / 60
"""The share of a step after which the state is sampled, if nothing was decided."""


@dataclass
class Minute:
    """Statistics of one step from `time` on; `used` is the mean share of each resource over the step."""

    time: float
    submitted: int = 0
    started: int = 0
    finished: int = 0
    failed: int = 0
    waits: float = 0.0
    """Total seconds that the started jobs had waited."""
    decisions: int = 0
    refused: int = 0
    slowest: float = 0.0
    """Seconds of the slowest decision."""
    waiting: int = 0
    """Waiting jobs at the last sample."""
    used: dict[str, float] = field(default_factory=dict)
    seen: float = 0.0
    """Seconds of the step that `used` covers."""


class History:
    """Steps of `step` seconds, the latest last."""

    def __init__(self, state: State, step: float = 60.0) -> None:
        self._state, self.step = state, step
        self._minutes: deque[Minute] = deque(maxlen=KEPT)
        self._now: float | None = None
        self._share: dict[str, float] = {}
        self._waiting = 0
        self._looked = -math.inf

    def note(self, event: Event) -> None:
        """Count an event that was handled."""
        minute = self._to(event.time)
        if isinstance(event, ClockStepped):
            self._move(event.time + event.seconds)
            return
        match event:
            case Submitted():
                minute.submitted += 1
            case Started():
                minute.started += 1
                record = self._state.jobs.get(event.job)
                if record is not None:
                    minute.waits += max(event.time - record.submitted, 0.0)
            case Finished():
                minute.finished += 1
            case Failed():
                minute.failed += 1
            case Decided():
                minute.decisions += 1
                minute.refused += event.refused is not None
                minute.slowest = max(minute.slowest, event.seconds)
            case _:
                pass
        if event.time - self._looked >= LOOK * self.step or isinstance(event, Decided):
            self._looked = event.time
            self._look(minute)

    def _move(self, now: float) -> None:
        """Go on at another time, because the system clock was set; steps after it are dropped."""
        self._now, self._looked = now, -math.inf
        while self._minutes and self._minutes[-1].time > now:
            self._minutes.pop()

    def _to(self, time: float) -> Minute:
        """The step of a time; usage until then is added to the steps in between."""
        now = time if self._now is None else max(self._now, time - KEPT * self.step)
        while True:
            begin = self.step * (now // self.step)
            if not self._minutes or self._minutes[-1].time < begin:
                self._minutes.append(Minute(begin, waiting=self._waiting))
            minute = self._minutes[-1]
            until = min(time, begin + self.step)
            if until <= now:
                break
            total = minute.seen + until - now
            for name, share in self._share.items():
                minute.used[name] = (minute.used.get(name, 0.0) * minute.seen + share * (until - now)) / total
            minute.seen, now = total, until
        self._now = now
        return minute

    def _look(self, minute: Minute) -> None:
        """Sample what is held and how many jobs wait, until the next sample."""
        state = self._state
        there = [record.index for record in state.servers.values() if not record.lost]
        whole = state.capacity[there].sum(axis=0)
        held = np.minimum(state.used, state.capacity)[there].sum(axis=0)
        self._share = {name: float(held[k] / whole[k]) for name, k in state.resources.items() if whole[k] > 0}
        self._waiting = minute.waiting = state.table.waiting

    def as_list(self, steps: int = KEPT) -> list[dict[str, Any]]:
        """The latest steps, for JSON."""
        return [asdict(minute) for minute in list(self._minutes)[-steps:]]
