"""What was learned of speed: for each type of job and server, how fast jobs of the type ran there.

Speed is work done by the second; where a job does not say its work, the first that ended says it for its type. So 1 is
as fast as was said, or as the first one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from berth.dispatch.jobs import Job

__all__ = ["Learned", "Speed"]


@dataclass(frozen=True)
class Speed:
    """Runs seen, their mean speed, and the standard deviation between them."""

    runs: int
    mean: float
    deviation: float

    @property
    def uncertainty(self) -> float:
        """Half of the 95 % interval of the mean; infinite where there is nothing to tell it by."""
        return 1.96 * self.deviation / math.sqrt(self.runs) if self.runs > 1 else math.inf


class Learned:
    """Running means and variances, a line for each channel (type of job, server)."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, str], tuple[int, float, float]] = {}
        self._reference: dict[str, float] = {}

    def add(self, job: Job, servers: Iterable[str], seconds: float) -> float:
        """A job ran so long on these servers; its speed."""
        work = job.work or self._reference.setdefault(job.type, seconds)
        speed = work / seconds
        for server in servers:
            runs, mean, squares = self._channels.get((job.type, server), (0, 0.0, 0.0))
            change = speed - mean
            mean += change / (runs + 1)
            self._channels[job.type, server] = runs + 1, mean, squares + change * (speed - mean)
        return speed

    def speed(self, type_: str, server: str) -> Speed | None:
        """What is known of a channel; None where nothing ran."""
        found = self._channels.get((type_, server))
        if found is None:
            return None
        runs, mean, squares = found
        return Speed(runs, mean, math.sqrt(squares / (runs - 1)) if runs > 1 else 0.0)

    def work(self, job: Job) -> float:
        """How much there is to do, in seconds at speed 1, as far as is known."""
        return job.work or self._reference.get(job.type) or job.expected_seconds

    def __iter__(self) -> Iterator[tuple[str, str, Speed]]:
        for type_, server in sorted(self._channels):
            speed = self.speed(type_, server)
            if speed is not None:
                yield type_, server, speed

    def dump(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "channels": [[*key, *value] for key, value in self._channels.items()],
            "reference": dict(self._reference),
        }

    @classmethod
    def load(cls, dumped: Mapping[str, Any]) -> Learned:
        """What `dump` gave."""
        learned = cls()
        learned._channels = {(t, s): (int(n), float(m), float(q)) for t, s, n, m, q in dumped["channels"]}
        learned._reference = {name: float(value) for name, value in dumped["reference"].items()}
        return learned
