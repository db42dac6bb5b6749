"""Random channels: the floor that every learner must beat."""

from __future__ import annotations

import numpy as np

from berth.families.selection.kernels.channels import fill, fill_gangs
from berth.families.selection.problem import SelectionOutcome, SelectionProblem, SelectionSlot
from berth.model import Ints

__all__ = ["RandomSelection"]


class RandomSelection:
    """Channels in random order, each opened if it still fits; with gangs, jobs in random order, whole or not at all.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> RandomSelection(problem, np.random.default_rng(0)).decide(slot)
    array([1, 0, 0])
    """

    family = "selection"
    reference = "none: a floor for comparisons"
    scatters = True

    def __init__(self, problem: SelectionProblem, rng: np.random.Generator) -> None:
        self.problem, self.rng = problem, rng
        if problem.roles is not None:
            jobs = problem.roles.job_of_port
            self._job_port = np.argsort(jobs, kind="stable")
            self._job_start = np.searchsorted(jobs[self._job_port], np.arange(problem.jobs + 1))

    def decide(self, slot: SelectionSlot, /) -> Ints:
        problem, roles = self.problem, self.problem.roles
        decision = np.zeros(len(problem.cost), dtype=np.int64)
        left = slot.free.copy()
        if roles is None:
            order = self.rng.permutation(np.flatnonzero(problem.available(slot)))
            fill(order, problem.channel_pool, problem.takes, True, left, decision)
            return decision
        ports = problem.instance.channel_port
        fill_gangs(
            self.rng.permutation(np.flatnonzero(slot.arrivals > 0)),
            self._job_start,
            self._job_port,
            problem.instance.port_channels[0],
            np.lexsort((self.rng.random(len(ports)), ports)),
            roles.minimum,
            roles.most,
            problem.channel_pool,
            problem.takes,
            left,
            decision,
        )
        return decision

    def observe(self, outcome: SelectionOutcome, /) -> None:
        """Learns nothing."""
