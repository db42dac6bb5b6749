"""The allocation family in the lab."""

from __future__ import annotations

import numpy as np

from berth.families.allocation.oracle import best_stationary, slot_optima
from berth.families.allocation.problem import AllocationProblem
from berth.families.allocation.world import AllocationWorld
from berth.families.lab import HIDDEN, REVEALED, Board, LabFamily, MeanShare, OracleWords
from berth.model import Floats

__all__ = ["LAB"]


def _stationary(world: AllocationWorld) -> tuple[Floats, float]:
    best = best_stationary(world)
    return best.reward, float(best.bound)


def _slot(world: AllocationWorld) -> tuple[Floats, float]:
    optima = slot_optima(world)
    return optima.reward, float(np.sum(optima.bound))


def _stationary_on(world: AllocationWorld, device: str) -> tuple[Floats, float]:
    from berth.families.allocation.cuda.oracles import best_stationary_reward  # few comparisons run on a GPU

    return best_stationary_reward(world, device)


def _slot_on(world: AllocationWorld, device: str) -> tuple[Floats, float]:
    from berth.families.allocation.cuda.oracles import slot_optima as slot_optima_on

    optima = slot_optima_on(world, device)
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


LAB = LabFamily(
    name="allocation",
    information=(HIDDEN, REVEALED),
    oracles={"stationary": _stationary, "slot": _slot},
    device_oracles={"stationary": _stationary_on, "slot": _slot_on},
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
    solver="berth.families.allocation.programme",
    boards=(
        Board("ogasched-default", 2000, 10),
        Board("ogasched-fig2", 2000, 10),
        Board("ogasched-switching", 2000, 10),
        Board("trace-openb-allocation", 300, 5),
        Board("ogasched-gang", 200, 5),
    ),
    baseline="fairness",
)
