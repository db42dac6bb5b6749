"""The selection family in the lab."""

from __future__ import annotations

import math

import numpy as np

from berth.families.lab import REVEALED, LabFamily, MeanShare, OracleWords, most_wanted
from berth.families.selection.oracle import informed_rewards, selection_optima
from berth.families.selection.problem import SelectionProblem
from berth.families.selection.world import SelectionWorld
from berth.model import Floats

__all__ = ["LAB"]


def _knows_the_means(world: SelectionWorld) -> tuple[Floats, float]:
    optima = selection_optima(world)
    return optima.reward, float(np.sum(optima.bound))


def _knows_the_distribution(world: SelectionWorld) -> tuple[Floats, float]:
    return informed_rewards(world), math.nan


def _shortened(world: SelectionWorld, slots: int) -> SelectionWorld:
    up, delay = (None if part is None else part[:slots] for part in (world.up, world.delay))
    return SelectionWorld(world.problem, world.arrivals[:slots], world.gains, up, delay)


def _share(problem: SelectionProblem) -> MeanShare:
    """Shares of the pool that a channel draws from."""
    limits = problem.limits[problem.channel_pool]
    there = limits > 0
    part = np.divide(problem.takes, limits, out=np.zeros_like(limits), where=there)
    each = part.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    return MeanShare(problem.instance, lambda opened: opened * each)


def _remarks(problem: SelectionProblem) -> list[str]:
    tasks = 1 if problem.roles is None else problem.roles.most[problem.instance.channel_port][:, None]
    wanted = np.zeros_like(problem.limits)
    np.add.at(wanted, problem.channel_pool, problem.takes * tasks)
    share = most_wanted(wanted, problem.limits)
    if share > 1.0:
        return []
    pool = "any server" if problem.pool is None else "the cluster"
    return [
        f"Nothing contends: all channels open at once take at most {100 * share:.0f} % of {pool}. Every channel that "
        "pays can be opened, so policies differ only in finding out which do. Raise the demand, or lower the capacity."
    ]


LAB = LabFamily(
    name="selection",
    information=(REVEALED,),
    oracles={"slot": _knows_the_means, "information": _knows_the_distribution},
    oracle_words={
        "slot": OracleWords(
            "oracle (knows the means)",
            "oracle that knows the means",
            "oracle",
            "oracle",
            "the oracle",
            "to the oracle that knows the mean gains",
        ),
        "information": OracleWords(
            "limit of information (knows what gains are drawn from)",
            "limit of information: a learner that is told what the gains were drawn from",
            "limit of information",
            "limit",
            "the limit of information",
            "to a learner that knows what the gains were drawn from",
        ),
    },
    learners=("information",),
    measured_in="expected",
    expense="cost",
    share=_share,
    remarks=_remarks,
    share_of="its pool",
    shortened=_shortened,
    left_out=frozenset({"overhead", "fraction_of_stationary", "regret_stationary", "regret_stationary_growth"}),
    logarithmic=True,
    captions={
        "regret": "Expected reward that the oracle with known mean gains earns above the policy, summed "
        "over the slots so far. On the right, only policies with slowly growing regret, against ln T: growth like "
        "ln T is a straight line there. Bands are 95 % intervals over seeds.",
        "gain-overhead": "Gain minus cost is the reward.",
        "allocation": "The mean share that each port holds through each server, of what that server, or the whole "
        "cluster where it is one pool, has; for the first seed.",
    },
    solver="berth.families.selection.solvers",
)
