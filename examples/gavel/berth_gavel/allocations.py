"""Gavel's policies: which share of the time each job runs on each model of GPU.

Each function takes the speeds of the jobs in order of arrival (steps a second, 0 where a job cannot run), how many GPUs
each of them takes, and how many there are of each model. It returns shares: rows sum to at most 1.

Axes: n jobs, m models of GPU, v variables, c constraints.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import block_array, csr_array, diags_array
from scipy.sparse.linalg import splu

from berth import InvalidInput
from berth.model import Floats, Ints

__all__ = ["central", "fifo", "max_min", "max_sum"]

NEAR = 1e-9
"""The search for an optimum ends at this duality gap, relative to the objective."""
STEPS = 100
INSIDE = 0.99
"""The share of the way to the boundary that a step goes at most."""


def fifo(speed: Floats, gpus: Ints, there: Ints) -> Floats:
    """Jobs in order of arrival, each on the model on which it is fastest among those with room; none passes another."""
    shares, left = np.zeros(speed.shape), there.copy()
    for job, row in enumerate(speed):
        room = left >= gpus[job]
        if not room.any():
            break
        model = int(np.where(room, row, -1.0).argmax())
        if row[model] > 0:
            shares[job, model], left[model] = 1.0, left[model] - gpus[job]
    return shares


def max_sum(speed: Floats, gpus: Ints, there: Ints) -> Floats:
    """The most steps a second of all jobs together."""
    matrix, bound = _room(gpus, there)
    return central(speed.ravel(), csr_array(matrix), bound).reshape(speed.shape)


def max_min(speed: Floats, gpus: Ints, there: Ints) -> Floats:
    """The largest least speed: GPUs times speed, relative to the mean speed of the job over all GPUs."""
    jobs, models = speed.shape
    worth = speed * (gpus / (speed @ (there / there.sum())))[:, None]
    matrix, bound = _room(gpus, there)
    least = np.zeros((jobs, jobs * models + 1))
    least[np.repeat(np.arange(jobs), models), np.arange(jobs * models)] = -worth.ravel()
    least[:, -1] = 1.0
    matrix = np.vstack([np.hstack([matrix, np.zeros((len(matrix), 1))]), least])
    found = central(np.append(np.zeros(speed.size), 1.0), csr_array(matrix), np.append(bound, np.zeros(jobs)))
    return found[:-1].reshape(speed.shape)


def _room(gpus: Ints, there: Ints) -> tuple[Floats, Floats]:
    """Constraints: no job runs more than all of the time, and no model has more GPUs than there are."""
    jobs, models = len(gpus), len(there)
    whole = np.kron(np.eye(jobs), np.ones(models))
    room = np.kron(gpus[None, :].astype(float), np.eye(models))
    return np.vstack([whole, room]), np.concatenate([np.ones(jobs), there.astype(float)])


def central(worth: Floats, matrix: csr_array, bound: Floats) -> Floats:
    """The centre of the optimal solutions x (v,) of: maximize worth · x where matrix (c, v) · x ≤ bound and x ≥ 0.

    These programs have many optimal solutions. Interior-point solvers, like the one that Gavel uses, follow the central
    path and end in their middle, a simplex solver in a corner; with the corner other jobs run. This is the primal-dual
    method of Mehrotra (1992).

    >>> central(np.ones(2), csr_array(np.ones((1, 2))), np.ones(1)).round(6)
    array([0.5, 0.5])
    """
    cost = -worth / np.abs(worth).max()
    x, slack, price, loss = np.ones(len(cost)), np.ones(len(bound)), np.ones(len(bound)), np.ones(len(cost))
    for _ in range(STEPS):
        primal, dual = bound - matrix @ x - slack, cost + matrix.T @ price - loss
        gap = (x @ loss + slack @ price) / (len(x) + len(slack))
        if gap < NEAR and max(np.abs(primal).max(), np.abs(dual).max()) < NEAR:
            return x
        step = _newton(matrix, x, slack, price, loss, primal, dual)
        dx, ds, dp, dl = step(-x * loss, -slack * price)
        far, near = _most((x, dx), (slack, ds)), _most((price, dp), (loss, dl))
        ahead = (x + far * dx) @ (loss + near * dl) + (slack + far * ds) @ (price + near * dp)
        aim = gap * (ahead / (len(x) + len(slack)) / gap) ** 3
        dx, ds, dp, dl = step(aim - x * loss - dx * dl, aim - slack * price - ds * dp)
        far, near = (min(INSIDE * _most(*pairs), 1.0) for pairs in (((x, dx), (slack, ds)), ((price, dp), (loss, dl))))
        x, slack, price, loss = x + far * dx, slack + far * ds, price + near * dp, loss + near * dl
    raise InvalidInput("a linear program with a bounded, feasible optimum", found=f"no end after {STEPS} steps")


Step = Callable[[Floats, Floats], tuple[Floats, Floats, Floats, Floats]]


def _newton(
    matrix: csr_array, x: Floats, slack: Floats, price: Floats, loss: Floats, primal: Floats, dual: Floats
) -> Step:
    """Newton's steps from here, towards products x · loss and slack · price that are larger by what is given."""
    system = splu(block_array([[diags_array(loss / x), matrix.T], [matrix, -diags_array(slack / price)]], format="csc"))

    def step(to_x: Floats, to_slack: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        both = system.solve(np.concatenate([to_x / x - dual, primal - to_slack / price]))
        dx, dp = both[: len(x)], both[len(x) :]
        return dx, (to_slack - slack * dp) / price, dp, (to_x - loss * dx) / x

    return step


def _most(*pairs: tuple[Floats, Floats]) -> float:
    """The longest step, at most 1 / `INSIDE`, that keeps these positive."""
    steps = [(-value[change < 0] / change[change < 0]).min(initial=1.0 / INSIDE) for value, change in pairs]
    return float(min(steps))
