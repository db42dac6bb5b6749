"""Queue policies on a live cluster: a rule of a queue decides about a view, whatever roles the jobs have.

Axes: n jobs, p places, R servers.
"""

from __future__ import annotations

import numpy as np

from berth.errors import UnsupportedProblem
from berth.families.placement.policies.queue_rule import BACKFILL, FITS, SHADOW, QueueRule
from berth.families.placement.problem import PlacementProblem
from berth.live.core.drivers.base import Driver
from berth.live.core.drivers.deferral import Waits
from berth.live.core.kernels import Asked, Ends, Placed, berth_in_order, start_fairly, start_in_order, start_packed
from berth.live.core.records import Outcome
from berth.live.core.runtimes import works
from berth.live.core.view import ROWS, Placing, View, fit_by
from berth.model import Floats, Ints
from berth.registry import PolicySpec

__all__ = ["RulePolicy", "asked_of", "ends_of", "room_for", "rule_of"]


def rule_of(spec: PolicySpec) -> QueueRule | None:
    """The rule of a policy of the lab; None if it is more than a rule."""
    if not hasattr(spec.load(), "queue_rule"):
        return None
    any_cluster = PlacementProblem.of_servers([[1.0]], [1.0], [0.0], [0.0]).replace(gangs=True, exact=False)
    found: QueueRule | None = spec.build(any_cluster).queue_rule
    return found


class RulePolicy(Driver):
    """Starts jobs by a rule: levels are the first key of the order, and inside a level its score is."""

    def __init__(self, name: str, rule: QueueRule, waits: Waits) -> None:
        self._name, self.rule, self.waits = name, rule, waits
        self._heads: set[int] = set()
        """Numbers of the jobs that stay first in their levels until they start, if the rule says so."""

    def __str__(self) -> str:
        return self._name

    def learn(self, outcome: Outcome, /) -> None:
        """Learn nothing."""

    def propose(self, view: View, /) -> Placing:
        """Which jobs start now, and where."""
        if self.rule.backfill == SHADOW:
            raise UnsupportedProblem("backfill=shadow is a rule for one pool of processors (--processors)")
        if not len(view.rows) or not view.servers:
            return Placing.nothing()
        order = self._order(view)
        placing = self._started(view, order)
        if self.rule.committed:
            left = order[~np.isin(order, placing.job)]
            first = np.unique(view.level[left], return_index=True)[1]
            numbers = view.state.table.number(view.rows)
            self._heads = (self._heads - set(numbers.tolist())) | set(numbers[left[first]].tolist())
        return placing

    def _order(self, view: View) -> Ints:
        """The jobs of a view (n,) as they wait in the queue."""
        table, rows = view.state.table, view.rows
        submitted = np.maximum.accumulate(table.submitted(rows))  # the clock may have been set back
        estimate, size = estimates(view, rows), _sizes(view)
        order = self.rule.order(view.time - submitted, estimate, size, submitted, -view.level)
        if not self._heads:
            return order
        behind = ~np.isin(table.number(rows), list(self._heads))
        return order[np.lexsort((behind[order], -view.level[order]))]

    def _started(self, view: View, order: Ints) -> Placing:
        """The jobs of a queue that start, and where."""
        rule, asked, placed, free = self.rule, asked_of(view, self.rule), room_for(view), view.free.copy()
        if rule.turns == "fair":
            owner, used = _owners(view)
            start_fairly(asked, order, owner, used, view.capacity.sum(axis=0), free, placed)
        elif rule.turns == "packed":
            start_packed(asked, rule.hurry, free, placed)
        elif rule.backfill == "any":
            berth_in_order(asked.gangs, asked.fit, order, asked.reach, free, placed)
        else:
            ends = ends_of(view, len(placed.job) if rule.backfill == "easy" else 0)
            window, windows = np.zeros(len(order), dtype=np.int64), np.ones((1, len(free)), dtype=bool)
            if view.allowed is not None:
                window, windows = view.allowed
            start_in_order(asked, order, window, windows, BACKFILL[rule.backfill], free, ends, view.time, placed)
        size = int(placed.size[0])
        rows = np.lexsort((placed.server[:size], placed.role[:size], placed.job[:size]))
        return Placing(placed.job[rows], placed.role[rows], placed.server[rows], placed.count[rows])


def estimates(view: View, rows: Ints) -> Floats:
    """The run times of jobs (n,) at speed 1 by their estimates, else by their limits, else by what was learned."""
    _, estimate, limit = view.state.table.said(rows)
    said = np.where(estimate > 0, estimate, limit)
    return np.where(np.isfinite(said), said, works(view.state.table, rows, view.learned))


def _sizes(view: View) -> Floats:
    """How much of the first resource each job takes with all of its tasks (n,)."""
    if not view.resources:
        return np.zeros(len(view.rows))
    whole = view.gangs.most * view.gangs.demand[:, 0]
    found: Floats = np.add.reduceat(whole, view.gangs.start[:-1]) / view.unit[0]
    return found


def ends_of(view: View, spare: int) -> Ends:
    """The places of running jobs, with room for more."""
    running = view.state.table.running
    size, resources = len(running.server), len(view.resources)
    end, server = np.zeros(size + spare), np.zeros(size + spare, dtype=np.int64)
    amount = np.zeros((size + spare, resources), dtype=np.int64)
    if size:
        slowest = np.minimum.reduceat(view.state.speed[running.server], running.start[:-1])
        end[:size] = (running.began + estimates(view, running.rows) / slowest)[running.job]
        server[:size], amount[:size] = running.server, running.amount
    return Ends(end, server, amount, np.array([size]))


def asked_of(view: View, rule: QueueRule) -> Asked:
    """The question of a view for the kernels."""
    excess = np.maximum(view.state.used - view.capacity, 0)
    fit = fit_by(FITS[rule.fit], view.capacity)
    return Asked(view.gangs, estimates(view, view.rows), view.reach, fit, view.state.speed, excess)


def room_for(view: View) -> Placed:
    """Room for the places of all jobs: in a role a server may have two."""
    most = int(min(np.minimum(view.gangs.most, 2 * len(view.servers)).sum(), ROWS))
    job, role, server, count, size = (np.zeros(rows, dtype=np.int64) for rows in (most, most, most, most, 1))
    return Placed(job, role, server, count, size, np.zeros(int(view.gangs.shape.max()) + 1, dtype=bool))


def _owners(view: View) -> tuple[Ints, Ints]:
    """The owner of each job (n,), in the order of their names, and what running jobs of each hold (O, K)."""
    table, running = view.state.table, view.state.table.running
    user, names = table.named("user", view.rows), table.names["user"].names
    users = sorted(set(user.tolist()), key=names.__getitem__)
    number = np.full(len(names), -1)
    number[users] = np.arange(len(users))
    used = np.zeros((len(users), len(view.resources)), dtype=np.int64)
    held = number[table.named("user", running.rows)][running.job]
    np.add.at(used, held[held >= 0], running.amount[held >= 0])
    return number[user], used
