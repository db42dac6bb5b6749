"""berth's DRL-Greedy: a network gives the order of tasks, the weight of launches and the price of resources."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.kernels.greedy import Batch, Servers, place_now
from berth.families.placement.kernels.network import meet, rank_tasks
from berth.families.placement.policies.network import Network
from berth.families.placement.policies.ordered import OrderedPolicy
from berth.families.placement.problem import PlacementDecision, PlacementProblem, PlacementSlot
from berth.model import Floats, Ints

__all__ = ["Learned", "network_named"]

SHIPPED = "default"


@cache
def _shipped() -> Network:
    text = (resources.files("berth.families.placement.policies") / "networks" / "default.json").read_text(
        encoding="utf-8"
    )
    return Network.parse(text, "default.json")


def network_named(file: str) -> Network:
    """The shipped network (`default`) or that of a file."""
    return _shipped() if file == SHIPPED else Network.load(Path(file))


class Learned(OrderedPolicy):
    """Greedy with a queue in the order of a network, which is evaluated whenever a batch arrives.

    One network serves any number of tasks, servers and kinds: its inputs are dimensionless.

    Settings:

    * `file`: a network made by `berth train`; `default` is the shipped one;
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
        file: str = SHIPPED,
        only_order: bool = False,
        waiting: str = "queue",
        search: int = 0,
        spread: float = 0.3,
    ) -> None:
        super().__init__(problem, waiting=waiting)
        if search < 0:
            raise InvalidInput("a whole number ≥ 0", value=search, key="search")
        if not 0.0 <= spread < np.inf:
            raise InvalidInput("a number ≥ 0", value=spread, key="spread")
        self.network, self.rng = network_named(file), rng
        self.search, self.spread, self.only_order = int(search), float(spread), bool(only_order)
        self._net = self.network.net()
        self._scratch = self.network.scratch(64)
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
        batch = Batch(tasks.arrival, tasks.demand, tasks.work, tasks.value, tasks.decay, tasks.deadline)
        first = int(np.searchsorted(slot.ids, self._newest, side="right"))
        if first < size:
            meet(batch, self.problem.weight, first, size, self._scratch.means)
            self._newest = int(slot.ids[-1])
        servers = self._servers
        if not slot.up.all():
            servers = servers._replace(capacity=servers.capacity * slot.up[:, None])
        ranks = np.zeros(size)
        rank_tasks(
            batch, np.arange(size), size, servers, slot.free, slot.on_until, slot.time, self._net, self._scratch, ranks
        )
        self._known, self._ranks = slot.ids, ranks
        if not self.only_order:
            self.beta, self.price = (float(part) for part in self._scratch.heads)
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
