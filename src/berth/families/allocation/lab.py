"""The allocation family in the lab."""

from __future__ import annotations

import numpy as np

from berth.families.allocation.oracle import best_stationary, slot_optima
from berth.families.allocation.problem import AllocationProblem
from berth.families.allocation.world import AllocationWorld
from berth.families.lab import HIDDEN, REVEALED, LabFamily, MeanShare, OracleWords, most_wanted
from berth.model import Floats

__all__ = ["LAB"]


def _stationary(world: AllocationWorld) -> tuple[Floats, float]:
    best = best_stationary(world)
    return best.reward, float(best.bound)


def _slot(world: AllocationWorld) -> tuple[Floats, float]:
    optima = slot_optima(world)
    return optima.reward, float(np.sum(optima.bound))


def _shortened(world: AllocationWorld, slots: int) -> AllocationWorld:
    return AllocationWorld(world.problem, world.arrivals[:slots], None if world.up is None else world.up[:slots])


def _share(problem: AllocationProblem) -> MeanShare:
    """Share of a server: the mean over its resources of held / capacity; the shares of a full server add up to 1."""
    graph = problem.instance
    capacity = graph.capacity[graph.channel_server]
    there = capacity > 0

    def share(held: Floats) -> Floats:
        part = np.divide(held, capacity, out=np.zeros_like(capacity), where=there)
        mean: Floats = part.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
        return mean

    return MeanShare(graph, share)


LARGE = 32.0
"""Units of a resource on a server above which gains and overhead are out of proportion."""


def _remarks(problem: AllocationProblem) -> list[str]:
    graph = problem.instance
    said = []
    most = graph.capacity.max(axis=0, initial=0.0)
    large = [f"{most[k]:g} of {r.name}" for k, r in enumerate(graph.cluster.resources) if most[k] > LARGE]
    if large:
        said.append(
            f"Servers have up to {', '.join(large)}. Utilities and overhead are meant for 5 to 10 units a server: with "
            "much smaller units a job gains little beyond the first few, and the overhead of the rest decides the "
            "ranking. Give amounts in larger units, such as memory in units of 64 GB."
        )
    wanted = np.zeros_like(graph.capacity)
    np.add.at(wanted, graph.channel_server, graph.demand[graph.channel_port])
    share = most_wanted(wanted, graph.capacity)
    if share <= 1.0:
        said.append(
            f"Nothing contends: all job types together request at most {100 * share:.0f} % of any server. Each job can "
            "have all it requests, so arrivals and sharing make no difference. Raise the demand, or take fewer servers."
        )
    return said


LAB = LabFamily(
    name="allocation",
    information=(HIDDEN, REVEALED),
    oracles={"stationary": _stationary, "slot": _slot},
    oracle_words={
        "stationary": OracleWords(
            "y* (best stationary)", "y* (best stationary)", "y*", "y*", "y*", "to y*, the best stationary decision"
        ),
        "slot": OracleWords(
            "slot optimum",
            "optimum of each slot",
            "slot optimum",
            "opt.",
            "the slot optimum",
            "to the optimum of each slot",
        ),
    },
    measured_in="reward",
    expense="overhead",
    share=_share,
    share_of="the server",
    shortened=_shortened,
    left_out=frozenset({"expected", "cost", "regret_log_fit", "fraction_of_information"}),
    remarks=_remarks,
    solver="berth.families.allocation.programme",
)
