"""Play tasks, gangs included, under a rule or a network in one call of compiled code: for the guard and for training.

`berth.simulate` asks a policy at every moment; this gives the same starts (up to ties of devices), far faster.

Axes: N tasks, R servers, K resources, L ports.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.errors import InvalidInput, UnknownName
from berth.families.placement.kernels.gang_greedy import Trial
from berth.families.placement.kernels.gang_network import Totals
from berth.families.placement.kernels.gang_run import Met, Play, play_gangs
from berth.families.placement.kernels.gathering import Free, Rows
from berth.families.placement.kernels.greedy import Batch, Servers
from berth.families.placement.policies.network import Network
from berth.families.placement.policies.queued import fleet_of, pieces_of
from berth.families.placement.policies.rule import Rule
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.model import Floats

__all__ = ["OBJECTIVES", "GangRun", "run_gangs", "totals_of", "whole_of"]

OBJECTIVES = ("gain", "slowdown", "wait", "completion")
"""What a network is trained for: the gain of runs, or a low mean of bounded slowdown, wait or time to completion."""
SHORT = 10.0
"""Run times below this, in the unit of time of the problem, count as this in the bounded slowdown."""
NO_NETWORK = Network(np.zeros(Network.fresh(np.random.default_rng(0), 1).weights.size), 1)


class GangRun(NamedTuple):
    """Start and end of each task (N,), NaN for tasks that never start; the gain; and what the network met."""

    start: Floats
    end: Floats
    gain: float
    bounds: Floats

    def cost(self, tasks: Tasks, objective: str, short: float = SHORT) -> float:
        """Mean bounded slowdown, wait or time to completion of all tasks that started."""
        ran = np.flatnonzero(np.isfinite(self.start))
        arrival, start, end = tasks.arrival[ran], self.start[ran], self.end[ran]
        if not len(ran):
            return 0.0
        if objective == "wait":
            return float((start - arrival).mean())
        if objective == "completion":
            return float((end - arrival).mean())
        if objective != "slowdown":
            raise UnknownName("objective", objective, OBJECTIVES)
        return float(np.maximum((end - arrival) / np.maximum(end - start, short), 1.0).mean())


def whole_of(tasks: Tasks) -> Batch:
    """Tasks with the demand of all their pieces, as networks see them."""
    demand = tasks.demand * tasks.pieces[:, None]
    return Batch(tasks.arrival, demand, tasks.work, tasks.value, tasks.decay, tasks.deadline)


def totals_of(problem: PlacementProblem) -> Totals:
    """Reach of each port and capacity of the cluster."""
    capacity = problem.instance.capacity
    return Totals(problem.reach.mean(axis=1), capacity.sum(axis=0), np.zeros(capacity.shape[1]))


def run_gangs(
    problem: PlacementProblem,
    tasks: Tasks,
    by: Network | Floats | None = None,
    *,
    runs: Floats | None = None,
    beta: float = 0.3,
    price: float = 0.0,
    forced: bool = False,
    only_order: bool = False,
    up: NDArray[np.bool_] | None = None,
    watched: bool = False,
) -> GangRun:
    """Play all tasks from an empty cluster, in the order of a network, of ranks (N,), or by default of the rule.

    `runs` (N,) is the true work if `tasks.work` is an estimate. Servers that are not `up` (R,) take no task. If
    `watched`, `bounds` has the smallest and largest inputs and outputs of the network.

    >>> from berth.testing import example_placement
    >>> tasks = Tasks(arrival=[0, 0], demand=[[2], [4]], work=[4, 2], value=[9, 5], decay=[1, 0.5], deadline=[6, 3])
    >>> run_gangs(example_placement(), tasks).start
    array([0., 2.])
    """
    (servers, resources), size = problem.instance.capacity.shape, len(tasks)
    network = by if isinstance(by, Network) else NO_NETWORK
    ranks = np.zeros(size)
    if by is None:
        ranks = Rule.ranks(tasks, problem.weight, 1.0)
    elif not isinstance(by, Network):
        ranks = np.array(by, dtype=np.float64)
        if ranks.shape != (size,) or np.isnan(ranks).any():
            raise InvalidInput(f"a number for each of {size} tasks", value=ranks.shape, key="ranks")
    places = int(np.minimum(tasks.pieces, servers).sum())
    devices = np.array(problem.all_devices)
    there = np.ones(servers, dtype=bool) if up is None else up
    amount = np.where(there[:, None], problem.instance.capacity, -1.0)

    def whole(*shape: int) -> NDArray[np.int64]:
        return np.zeros(shape, dtype=np.int64)

    play = Play(
        start=np.full(size, np.nan),
        end=np.full(size, np.nan),
        sums=np.zeros(3),
        order=whole(size),
        key=np.zeros(size),
        shown=np.zeros(size),
        spare=whole(size),
        started=whole(size),
        first=whole(size),
        size=whole(size),
        heap_time=np.zeros(size + 1),
        heap_task=whole(size + 1),
        running=whole(servers),
        on_until=np.full(servers, -np.inf),
        counts=whole(2),
    )
    width = devices.shape[1]
    rows = Rows(
        whole(places), whole(places), whole(places), whole(2), whole(servers), np.zeros((max(places, 1), width)),
        np.zeros((2, max(resources, width))),
    )  # fmt: skip
    scratch = network.scratch(size)
    wide = scratch.cluster.shape[0] + scratch.features.shape[1] + 2
    met = np.stack([np.full(wide, np.inf), np.full(wide, -np.inf)]) if watched else np.zeros((0, wide))
    play_gangs(
        Batch(tasks.arrival, tasks.demand, tasks.work, tasks.value, tasks.decay, tasks.deadline),
        whole_of(tasks),
        tasks.work if runs is None else runs,
        ranks,
        fleet_of(problem),
        Servers(problem.instance.capacity, problem.speed, problem.launch, problem.rate, problem.weight),
        pieces_of(tasks),
        1.0 if only_order else beta,
        0.0 if only_order else price,
        forced,
        only_order,
        isinstance(by, Network),
        problem.idle,
        network.net(),
        scratch,
        totals_of(problem),
        Free(amount, devices, np.ones(servers)),
        Trial(np.unique(problem.speed)[::-1].copy(), whole(servers), np.zeros(servers)),
        rows,
        play,
        Met(met),
    )
    value, execution, launch = play.sums.tolist()
    return GangRun(play.start, play.end, value - execution - launch, met)
