"""berth's DRL-Greedy: a network gives the order of tasks, the weight of launches and the price of resources."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.kernels.gang_network import rank_gangs
from berth.families.placement.kernels.gathering import Free
from berth.families.placement.kernels.greedy import Batch, Servers, place_now
from berth.families.placement.kernels.network import meet
from berth.families.placement.policies.gang_runs import totals_of, whole_of
from berth.families.placement.policies.guard import RECENT, Guard
from berth.families.placement.policies.network import Network
from berth.families.placement.policies.ordered import OrderedPolicy
from berth.families.placement.policies.queued import pieces_of
from berth.families.placement.problem import PlacementDecision, PlacementProblem, PlacementSlot
from berth.model import Floats, Ints

__all__ = ["Learned", "network_named"]

SHIPPED = ("default", "gangs", "slowdown")
"""Networks that come with berth: for single tasks of known length, for all other problems, and for a low slowdown."""


@cache
def _shipped(name: str) -> Network:
    file = resources.files("berth.families.placement.policies") / "networks" / f"{name}.json"
    return Network.parse(file.read_text(encoding="utf-8"), f"{name}.json")


def network_named(file: str) -> Network:
    """A shipped network (`default`, `gangs`, `slowdown`) or that of a file."""
    return _shipped(file) if file in SHIPPED else Network.load(Path(file))


class Learned(OrderedPolicy):
    """Greedy with a queue in the order of a network, which is evaluated whenever a batch arrives.

    One network serves any number of tasks, servers and kinds: its inputs are dimensionless, and clipped to the range
    that it met in training. A guard plays the network and the rule on the recent past, and lets the rule decide while
    it is better there (`berth.families.placement.policies.guard`).

    Settings:

    * `file`: a network made by `berth train`; `default` is the shipped one for the problem: `gangs`, trained on
      workloads, where tasks are gangs, may use only some servers, share devices or have estimated run times. `slowdown`
      starts all tasks in an order for a low mean bounded slowdown, trained on the same workloads;
    * `guard`: number of recent tasks on which the network must not be worse than the rule; 0 for no guard. Only
      `waiting=queue` has one;
    * `only_order`: take only the order from the network; launches count in full and nothing has a price; with `waiting`
      `commit-immediate` that is the paper's scope;
    * `waiting`: as in `greedy`; a network works best in the mode in which it was trained;
    * `search`: for each batch, try this many more orders near that of the network, and take the one with the largest
      immediate gain (over a whole run this need not pay);
    * `spread`: scale of the noise on the ranks of drawn orders.

    >>> from berth.testing import example_placement
    >>> Learned(example_placement(), np.random.default_rng(0)).waiting
    'queue'
    """

    reference = "after Yang & Shen, DRL Enhanced Greedy Optimization; Zaheer et al., Deep Sets"

    def __init__(
        self,
        problem: PlacementProblem,
        rng: np.random.Generator,
        *,
        file: str = "default",
        only_order: bool = False,
        waiting: str = "queue",
        search: int = 0,
        spread: float = 0.3,
        guard: int = RECENT,
    ) -> None:
        paper = not problem.beyond_single and problem.exact
        self.network = network_named("gangs" if file == "default" and not paper else file)
        if self.network.gangs and waiting != "queue":
            raise InvalidInput("queue, for a network that sees gangs", value=waiting, key="waiting")
        self.objective = str(self.network.made.get("plan", {}).get("objective", "gain"))
        other = self.objective != "gain"  # start all tasks, however little they gain, and learn only the order
        super().__init__(problem, waiting=waiting, forced=other)
        if search < 0:
            raise InvalidInput("a whole number ≥ 0", value=search, key="search")
        if search and problem.beyond_single:
            raise UnsupportedProblem(f"drl-greedy with search=0 alone serves {problem.beyond_single}")
        if not 0.0 <= spread < np.inf:
            raise InvalidInput("a number ≥ 0", value=spread, key="spread")
        if guard < 0:
            raise InvalidInput("a whole number ≥ 0", value=guard, key="guard")
        self.rng, self.search, self.spread = rng, int(search), float(spread)
        self.only_order = bool(only_order) or other
        self.guard = None
        if guard and waiting == "queue":
            self.guard = Guard(problem, self.network, self.objective, self.only_order, int(guard))
        self._net = self.network.net()
        self._scratch, self._totals = self.network.scratch(64), totals_of(problem)
        self._known, self._ranks = np.zeros(0, dtype=np.int64), np.zeros(0)
        self._newest = -1

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        if not np.isin(slot.ids, self._known, assume_unique=True).all():
            self._renew(slot)
        return super().decide(slot)

    def rank(self, slot: PlacementSlot) -> Floats:
        ranks: Floats = self._ranks[np.searchsorted(self._known, slot.ids)]
        return ranks

    def _renew(self, slot: PlacementSlot) -> None:
        """Rank all tasks again, because a task is new or has come back."""
        tasks, size = slot.tasks, len(slot.ids)
        if size > len(self._scratch.features):
            means = self._scratch.means
            self._scratch = self.network.scratch(2 * size)
            self._scratch.means[:] = means
        batch = whole_of(tasks)
        first = int(np.searchsorted(slot.ids, self._newest, side="right"))
        if first < size:
            meet(batch, self.problem.weight, first, size, self._scratch.means)
            self._newest = int(slot.ids[-1])
        if self.guard is not None and not self.guard.trusts(tasks.take(np.arange(first, size)), slot.up):
            self._known, self._ranks = slot.ids, self.guard.ranks(tasks)
            self.beta, self.price = self.guard.beta, 0.0
            return
        servers = self._servers
        if not slot.up.all():
            servers = servers._replace(capacity=servers.capacity * slot.up[:, None])
        ranks = np.zeros(size)
        devices = np.zeros((len(slot.up), 0)) if slot.devices is None else slot.devices
        rank_gangs(
            batch,
            np.arange(size),
            size,
            self._fleet,
            servers,
            pieces_of(tasks),
            Free(slot.free, devices, np.zeros(len(slot.up))),
            self._totals,
            slot.on_until,
            slot.time,
            self._net,
            self._scratch,
            ranks,
        )
        self._known, self._ranks = slot.ids, ranks
        self.beta, self.price = (1.0, 0.0) if self.only_order else (float(part) for part in self._scratch.heads[:2])
        if self.search and size > 1 and self.waiting == "queue":
            self._ranks = self._best_of(slot, batch, servers, ranks)

    def _best_of(self, slot: PlacementSlot, batch: Batch, servers: Servers, ranks: Floats) -> Floats:
        """These ranks, or others near them with a larger immediate gain."""
        best, most = ranks, self._gain(slot, batch, servers, np.argsort(-ranks, kind="stable"))
        for _ in range(self.search):
            drawn = ranks + self.spread * self.rng.gumbel(size=len(ranks))
            gain = self._gain(slot, batch, servers, np.argsort(-drawn, kind="stable"))
            if gain > most:
                best, most = drawn, gain
        return best

    def _gain(self, slot: PlacementSlot, batch: Batch, servers: Servers, order: Ints) -> float:
        """Immediate gain of the tasks that find a place in this order, with launches and prices."""
        chosen = np.full(len(order), -1, dtype=np.int64)
        on_until = slot.on_until.copy()
        place_now(batch, order, servers, slot.time, self.beta, self.price, False, slot.free.copy(), on_until, chosen)
        tasks = np.flatnonzero(chosen >= 0)
        there = chosen[tasks]
        time = slot.tasks.work[tasks] / self.problem.speed[there]
        heavy = slot.tasks.demand[tasks] @ self.problem.weight
        gain = slot.tasks.take(tasks).worth(slot.time + time) - (self.problem.rate[there] + self.price) * heavy * time
        launched = np.unique(there[~(slot.time <= slot.on_until[there])])
        return float(gain.sum() - self.beta * self.problem.launch[launched].sum())
