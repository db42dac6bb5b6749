"""What channels tell of each other: a prior for each from its port, its server and the class of its server.

Axes: E channels, L ports, V levels, S groups of all levels.
"""

from __future__ import annotations

import numpy as np

from berth.families.selection.kernels.reservation import fit_levels, shrunk_noise
from berth.families.selection.policies.statistics import Statistics
from berth.families.selection.problem import SelectionProblem
from berth.model import Floats, Ints

__all__ = ["PooledPrior", "server_classes"]

CHANNELS = 4.0  # of effect zero, with which each effect of a port, a class or a server is averaged
TASKS = 5.0  # of the median variance, with which the variance of each channel is averaged
SWEEPS = 2  # of least squares in a slot
SPAN = np.linspace(-0.5, 0.5, 5)  # deviations in place of data, as parts of the range; together worth one channel


def server_classes(problem: SelectionProblem) -> Ints:
    """Which servers are of a kind, (R,): those of equal capacity. All are of one where that tells nothing.

    >>> from berth.testing import example_selection
    >>> server_classes(example_selection()[0])
    array([0, 0])
    """
    capacity = problem.instance.capacity
    kinds, kind = np.unique(capacity, axis=0, return_inverse=True)
    return kind.reshape(-1) if 1 < len(kinds) < len(capacity) else np.zeros(len(capacity), dtype=np.int64)


class PooledPrior:
    """A gain of channel e is μ + port + class of the server + server + what is e's own, and noise.

    Everything is estimated from what was seen, again after each `update`: the effects, the variance `spread` of what is
    a channel's own, and the `noise` (E,) of each. `prior` (E,) is what the effects say of a channel, `mean` (E,) and
    `variance` (E,) what is believed of its mean gain after all, with a standard error added to `spread`: where channels
    were opened once each, little is known of how much they differ, and too small a variance is never found out.

    >>> from berth.families.selection.problem import SelectionOutcome
    >>> from berth.testing import example_selection
    >>> problem, _ = example_selection()
    >>> pooled, seen = PooledPrior(problem), Statistics(3)
    >>> seen.learn(SelectionOutcome(0, np.array([0]), np.array([4]), np.array([3.2]), 3.2))
    >>> pooled.update(seen)
    >>> pooled.mean.round(2)
    array([0.8, 0.8, 0.8])
    """

    def __init__(self, problem: SelectionProblem, scale: float = 1.0) -> None:
        graph = problem.instance
        kind = server_classes(problem)
        levels = [np.zeros(len(problem.cost), dtype=np.int64), graph.channel_port]
        sizes = [1, len(graph.ports)]
        if kind.any():
            levels.append(kind[graph.channel_server])
            sizes.append(int(kind.max()) + 1)
        levels.append(graph.channel_server)
        sizes.append(len(graph.cluster.servers))
        self._first = np.concatenate([[0], np.cumsum(sizes)])
        self._group = np.array(levels, dtype=np.int64) + self._first[:-1, None]
        self._effect = np.zeros(int(self._first[-1]))
        self._effect[0] = 0.5 * scale
        self.scale = scale
        self.span = SPAN * scale
        self.spread = float(np.mean(self.span**2))
        self.prior = np.full(len(problem.cost), 0.5 * scale)
        self.noise = np.full(len(problem.cost), (0.25 * scale) ** 2)
        self.trust = np.zeros(len(problem.cost))
        self.mean, self.variance = self.prior.copy(), np.full(len(problem.cost), self.spread)

    def update(self, seen: Statistics) -> None:
        """Estimate everything again from these statistics."""
        shrunk_noise(seen.squares, seen.pulls, (0.25 * self.scale) ** 2, TASKS, self.noise)
        self.spread = fit_levels(
            self._group,
            self._first,
            seen.count,
            seen.mean,
            self.noise,
            CHANNELS,
            float(np.mean(self.span**2)),
            SWEEPS,
            self._effect,
            self.spread,
            self.prior,
            self.trust,
        )
        wide = self.spread * (1.0 + np.sqrt(2.0 / (1.0 + float(self.trust @ self.trust))))
        opened = self.trust > 0.0
        trust = np.where(opened, wide / (wide + self.noise / np.where(opened, seen.count, 1.0)), 0.0)
        self.mean = self.prior + trust * (seen.mean - self.prior)
        self.variance = wide * (1.0 - trust)

    def residuals(self, seen: Statistics) -> tuple[Floats, Floats]:
        """What channels had of their own so far (n,), with weights (n,): shrunk until luck does not widen it."""
        opened = self.trust > 0.0
        own = (np.sqrt(self.trust) * (seen.mean - self.prior))[opened]
        return np.concatenate([own, self.span]), np.concatenate([np.ones(len(own)), np.full(5, 0.2)])

    @property
    def tasks(self) -> Floats:
        """As how many tasks what is believed of each channel counts (E,), those seen among them."""
        counted: Floats = self.noise / np.maximum(self.variance, 1e-300)
        return np.maximum(counted, 0.01)  # without any noise a prior would count as nothing
