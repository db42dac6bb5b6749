"""Oracles: one that knows the mean gains, and one that knows only their distribution."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from berth.errors import UnsupportedProblem
from berth.families.selection.gains import DrawnGains
from berth.families.selection.policies.index import solved
from berth.families.selection.policies.reservation import Reservation
from berth.families.selection.problem import SelectionOutcome, SelectionSlot
from berth.families.selection.world import SelectionWorld
from berth.model import Floats
from berth.random import stream
from berth.regret import SlotOptima
from berth.simulation import simulate

__all__ = ["Informed", "informed_rewards", "selection_optima"]

DRAWS = 256  # of each channel and quantile, to estimate its noise


def selection_optima(
    world: SelectionWorld, gap: float = 1e-6, progress: Callable[[int], None] | None = None
) -> SlotOptima:
    """Best expected reward of every slot with known means: the reference of regret.

    Slots with the same arrivals, free capacity and means are solved once. With gangs, `bound` is an upper bound on any
    policy, and `reward` what the gang solver reached.
    """
    problem = world.problem
    none = np.zeros(len(problem.cost))
    known: dict[bytes, tuple[float, float]] = {}
    reward, bound = np.zeros(len(world)), np.zeros(len(world))
    for t, (means, _) in zip(range(len(world)), world.gains, strict=False):
        free, arrivals = world.free(t), world.arrivals[t]
        key = hashlib.blake2b(arrivals.tobytes() + free.tobytes() + means.tobytes()).digest()
        if key not in known:
            choice = solved(problem, SelectionSlot(t, free, arrivals), means - problem.cost, none, gap)
            known[key] = choice.value, choice.bound
        reward[t], bound[t] = known[key]
        if progress is not None:
            progress(t + 1)
    return SlotOptima(reward, bound)


class Informed(Reservation):
    """Reservation index of a learner that knows the distribution of the gains, but not the gains.

    It knows evenly spaced quantiles of each channel's mean gain, and the variance of a gain at each. Both come from the
    world, so this is not a policy. A policy near it can earn more only with more information.
    """

    reference = "none: it sees what policies do not"

    def __init__(self, world: SelectionWorld) -> None:
        super().__init__(world.problem)
        gains = world.gains
        if not isinstance(gains, DrawnGains) or gains.centres is None:
            raise UnsupportedProblem("the limit of information needs gains whose distribution is known")
        if gains.drift is not None:
            raise UnsupportedProblem("the limit of information needs mean gains that stay as they are")
        rng = stream(0, "limit of information")
        law, each = gains.law, (DRAWS, len(gains.centre))
        means = np.array([law.mean(centre) for centre in gains.centres])
        noise = np.array([law.draw(rng, np.broadcast_to(centre, each)).var(axis=0) for centre in gains.centres])
        order = np.argsort(-means, axis=0, kind="stable")  # descending
        self._means, self._noise = (np.take_along_axis(table, order, axis=0) for table in (means, noise))
        self._noise = np.maximum(self._noise, 1e-12)
        self._weight = np.zeros(means.shape)  # log-likelihood of each quantile

    def observe(self, outcome: SelectionOutcome, /) -> None:
        super().observe(outcome)
        channels, tasks = outcome.channels, outcome.tasks
        noise = self._noise[:, channels]
        away = outcome.gains / tasks - self._means[:, channels]
        self._weight[:, channels] -= 0.5 * (tasks * away**2 / noise + np.log(noise))

    def index(self) -> tuple[Floats, Floats]:
        likely = np.exp(self._weight - self._weight.max(axis=0, initial=-np.inf))
        likely /= likely.sum(axis=0)
        mean = (likely * self._means).sum(axis=0)
        variance = (likely * (self._means - mean) ** 2).sum(axis=0)
        index = self.values(mean, variance, (likely * self._noise).sum(axis=0))
        # channels never opened: max over sets A of the largest means of (H·E[X; A] + E[X]) / (1 + H·P[A])
        uses = self.uses[self.problem.instance.channel_port]
        above, worth = np.cumsum(likely, axis=0), np.cumsum(likely * self._means, axis=0)
        fresh = ((uses * worth + mean) / (1.0 + uses * above)).max(axis=0, initial=-np.inf)
        return np.where(self.statistics.unseen, fresh, index), np.zeros(index.shape)


def informed_rewards(world: SelectionWorld) -> Floats:
    """Expected reward of each slot, (T,), for a learner that knows the distribution of the gains."""
    return simulate(world, Informed(world)).measures["expected"]
