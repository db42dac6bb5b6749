"""Gather gangs: a gang takes the fewest servers among those that are as fast for it as where the policy put it.

Policies place the tasks of a gang one by one, and most ignore whether tasks share a server. Tasks on one server talk to
each other faster, and leave larger pieces free on the others. Policies that draw servers at random or spread tasks on
purpose (`scatters`) keep their places.

Axes: n jobs, m roles, R servers.
"""

from __future__ import annotations

import numpy as np

from berth.live.core.kernels import Gangs, Placed, gather
from berth.live.core.shapes import part
from berth.live.core.speeds import EQUAL
from berth.live.core.view import Placing, View
from berth.model import Ints

__all__ = ["gathered"]


def gathered(view: View, placing: Placing) -> Placing:
    """The same jobs with the same numbers of tasks, each on the fewest servers."""
    jobs, which = np.unique(placing.job, return_inverse=True)
    spread = _servers(placing, which, len(jobs)) > 1
    if not spread.any():
        return placing
    moved = np.flatnonzero(spread[which])
    stay = _rows(placing, np.flatnonzero(~spread[which]))
    rows = moved[np.argsort(placing.job[moved], kind="stable")]
    free = np.where(view.usable[:, None], view.free, 0)
    np.subtract.at(free, placing.server, placing.count[:, None] * view.gangs.demand[placing.role])
    if (free < 0).any():  # the dispatcher's check reports it
        return placing
    chosen = jobs[spread]
    gangs = _exactly(view, placing, chosen)
    shift = view.gangs.start[chosen] - gangs.start[:-1]
    number = np.searchsorted(chosen, placing.job[rows])
    failed = np.zeros(1, dtype=bool)
    where = placing.role[rows] - shift[number], placing.server[rows], placing.count[rows]
    given = Placed(number, *where, np.array([len(rows)]), failed)
    first = np.searchsorted(number, np.arange(len(chosen) + 1))
    job, role, server, count = (np.zeros(len(rows) + len(gangs.minimum), dtype=np.int64) for _ in range(4))
    placed = Placed(job, role, server, count, np.zeros(1, dtype=np.int64), failed)
    reach = np.zeros((len(chosen), len(view.servers)), dtype=bool)
    for i, name in enumerate(chosen.tolist()):
        pace = view.learned.speeds(view.records[name].job.type)
        slowest = pace[given.server[first[i] : first[i + 1]]].min()
        reach[i] = view.reach[view.gangs.reach[name]] & (pace * EQUAL >= slowest)
    gather(gangs, view.fit, reach, free, given, first, placed)
    end = int(placed.size[0])
    again = Placing(chosen[job[:end]], role[:end] + shift[job[:end]], server[:end], count[:end])
    return Placing.joined([stay, again])


def _rows(placing: Placing, rows: Ints) -> Placing:
    return Placing(placing.job[rows], placing.role[rows], placing.server[rows], placing.count[rows])


def _servers(placing: Placing, which: Ints, jobs: int) -> Ints:
    """The number of servers (n,) that each job has."""
    pairs = np.unique(np.stack([which.reshape(-1), placing.server]), axis=1)
    return np.bincount(pairs[0], minlength=jobs)


def _exactly(view: View, placing: Placing, chosen: Ints) -> Gangs:
    """These jobs with exactly the number of tasks of each role that they were given."""
    tasks = np.bincount(placing.role, weights=placing.count, minlength=len(view.gangs.minimum)).astype(np.int64)
    exact = view.gangs._replace(minimum=tasks, most=tasks, each=np.minimum(view.gangs.each, tasks))
    return part(exact, chosen)._replace(reach=np.arange(len(chosen)))
