"""Shadow policy: it sees every decision, says what it would start, and decides nothing.

Both decisions are valued by learned speeds: a job that starts where its type runs faster than on average saves seconds
for each of its tasks, against the mean of its type. Values are compared moment by moment. Moments are not independent,
so confidence intervals come from means of long batches of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from berth.errors import BerthError
from berth.live.core import FALLBACK
from berth.live.core.drivers import make_driver, proposed
from berth.live.core.records import Outcome
from berth.live.core.runtimes import Means, expected, speeds
from berth.live.core.speeds import MOST_TYPES
from berth.live.core.view import Placing, View, placed_in_order, violations
from berth.statistics import Estimate, estimate

__all__ = ["Baseline", "Batches", "Shadow", "ShadowReport"]

FEWEST = 5
"""The batches that a confidence interval needs."""


class Batches:
    """A mean with a confidence interval from means of batches; batches grow, so that there are never more than `most`.

    >>> batches = Batches(size=2, most=4)
    >>> for value in range(16):
    ...     batches.add(value)
    >>> batches.size, batches.sums
    (8, [28.0, 92.0])
    """

    def __init__(self, size: int = 8, most: int = 64) -> None:
        self.size, self.most = size, most
        self.sums: list[float] = []
        self.count = 0
        self.total = 0.0
        self._open = (0, 0.0)

    def add(self, value: float) -> None:
        """Add a value."""
        self.count += 1
        self.total += value
        seen, total = self._open
        self._open = seen + 1, total + value
        if self._open[0] == self.size:
            self.sums.append(self._open[1])
            self._open = 0, 0.0
            if len(self.sums) == self.most:
                self.sums = [a + b for a, b in zip(self.sums[::2], self.sums[1::2], strict=True)]
                self.size *= 2

    def dump(self) -> dict[str, Any]:
        """The state, for JSON."""
        return {**vars(self), "_open": list(self._open)}

    @classmethod
    def load(cls, dumped: Mapping[str, Any]) -> Batches:
        """Restore what `dump` gave."""
        made = cls()
        vars(made).update(dumped, sums=list(dumped["sums"]), _open=tuple(dumped["_open"]))
        return made

    def estimate(self) -> Estimate | None:
        """The mean of all values, with an interval if there are enough batches; None before the first value."""
        if not self.count:
            return None
        mean = self.total / self.count
        found = estimate(total / self.size for total in self.sums) if len(self.sums) >= FEWEST else None
        half = None if found is None else found.half
        if half is None:
            return Estimate(mean, None, None, len(self.sums))
        return Estimate(mean, mean - half, mean + half, len(self.sums))


@dataclass(frozen=True)
class ShadowReport:
    """What the candidate would have gained per decision: seconds of work saved, and additional jobs started.

    `alike` is how many of the `decisions` were the same; `refused` counts the candidate's refused decisions.
    """

    policy: str
    decisions: int
    alike: int
    saved: Estimate | None
    started: Estimate | None
    refused: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        if self.saved is None or self.started is None:
            return f"{self.policy} has not been asked yet"
        words = []
        for what, found in (("task-seconds saved", self.saved), ("jobs started", self.started)):
            sure = "" if found.low is None else f" ({found.low:+.3g} to {found.high:+.3g})"
            words.append(f"{found.mean:+.3g} {what}{sure}")
        refused = f", {sum(self.refused.values())} refused" if self.refused else ""
        return f"{self.policy}: {', '.join(words)} a decision ({self.decisions} decisions, {self.alike} alike{refused})"


class Shadow:
    """Runs a candidate beside the policy of a dispatcher (`dispatcher.watchers = (Shadow(...),)`)."""

    def __init__(self, policy: str, *, seed: int = 0, memory: Iterable[Outcome] = ()) -> None:
        self.policy = policy
        self.refused: Counter[str] = Counter()
        self.alike = 0
        self.saved, self.started = Batches(), Batches()
        self._means: Means | None = None
        self._driver = None if policy == FALLBACK else make_driver(policy, seed, memory)

    def dump(self) -> dict[str, Any]:
        """What it has seen, for JSON."""
        seen = {"policy": self.policy, "refused": dict(self.refused), "alike": self.alike}
        return {"shadow": {**seen, "saved": self.saved.dump(), "started": self.started.dump()}}

    def go_on(self, dumped: Mapping[str, Any] | None) -> Self:
        """Continue from what `dump` gave, if it was for this candidate."""
        if dumped and dumped["policy"] == self.policy:
            self.refused, self.alike = Counter(dumped["refused"]), dumped["alike"]
            self.saved, self.started = Batches.load(dumped["saved"]), Batches.load(dumped["started"])
        return self

    def learn(self, outcome: Outcome, /) -> None:
        """Let the candidate learn from the results of the policy's decisions."""
        if self._means is not None:
            mean, runs = self._means.pop(outcome.job.type, (0.0, 0))  # the latest is last
            self._means[outcome.job.type] = mean + (outcome.speed - mean) / (runs + 1), runs + 1
            if len(self._means) > MOST_TYPES:
                del self._means[next(iter(self._means))]
        if self._driver is not None:
            self._driver.learn(outcome)

    def see(self, view: View, placing: Placing, by: str, /) -> None:
        """Compare a decision with the candidate's."""
        if self._means is None:
            self._means = speeds(view.state)
        theirs = self._proposed(view)
        if theirs is None:
            return
        ours = _rows(placing)
        self.alike += ours == _rows(theirs)
        self.saved.add(self._value(view, theirs) - self._value(view, placing))
        self.started.add(float(len({row[0] for row in _rows(theirs)}) - len({row[0] for row in ours})))

    def _proposed(self, view: View) -> Placing | None:
        if self._driver is None:
            return placed_in_order(view)
        try:
            found = proposed(self._driver, view)
            if not violations(view, found):
                return found
            self.refused["infeasible"] += 1
        except BerthError:
            self.refused["refused"] += 1
        except Exception:  # a candidate may be third-party code, and must not disturb
            self.refused["raised"] += 1
        return None

    def _value(self, view: View, placing: Placing) -> float:
        """Seconds that the tasks are expected to save against the mean of their type."""
        means = self._means or {}
        total = 0.0
        for start in view.starts(placing):
            job = view.state.jobs[start.job].job
            if job.type in means:
                there, _ = expected(view.state, job, [place.server for place in start.places])
                usual = view.state.learned.work(job) / means[job.type][0]
                total += (usual - there) * sum(place.count for place in start.places)
        return total

    def report(self) -> ShadowReport:
        """The comparison so far."""
        decisions = self.saved.count
        return ShadowReport(
            self.policy, decisions, self.alike, self.saved.estimate(), self.started.estimate(), dict(self.refused)
        )


class Baseline:
    """Compares a policy with the fallback since the policy began to decide."""

    def __init__(self) -> None:
        self._policy = FALLBACK
        self._shadow = Shadow(FALLBACK)

    def dump(self) -> dict[str, Any]:
        """What it has seen, for JSON."""
        return {"fallback": {"since": self._policy, **self._shadow.dump()["shadow"]}}

    def go_on(self, dumped: Mapping[str, Any] | None) -> Self:
        """Continue from what `dump` gave."""
        if dumped:
            self._policy = dumped["since"]
            self._shadow.go_on(dumped)
        return self

    def learn(self, outcome: Outcome, /) -> None:
        """Learn from the end of a job."""
        self._shadow.learn(outcome)

    def see(self, view: View, placing: Placing, by: str, /) -> None:
        """Compare a decision with the fallback's."""
        if view.state.policy != self._policy:
            self._policy, self._shadow = view.state.policy, Shadow(FALLBACK)
        if self._policy != FALLBACK:
            self._shadow.see(view, placing, by)

    def report(self) -> ShadowReport | None:
        """The comparison since the policy began to decide; None while the fallback is the policy."""
        return None if self._policy == FALLBACK else self._shadow.report()


def _rows(placing: Placing) -> set[tuple[int, ...]]:
    columns = (placing.job.tolist(), placing.role.tolist(), placing.server.tolist(), placing.count.tolist())
    return set(zip(*columns, strict=True))
