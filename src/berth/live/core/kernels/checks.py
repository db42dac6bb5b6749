"""Whether a placing keeps all rules: whole gangs, servers that may be used, capacities.

Axes: n jobs, m roles, p rows of a placing, R servers, K resources.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.kernels.compiled import compiled
from berth.live.core.kernels.berthing import Gangs

__all__ = ["keeps_rules"]


@compiled
def keeps_rules(job: Any, role: Any, server: Any, count: Any, gangs: Gangs, reach: Any, free: Any) -> Any:
    """Whether a placing surely breaks no rule. It is not sure of roles of which a server takes only some tasks."""
    jobs, roles = gangs.reach.shape[0], gangs.minimum.shape[0]
    tasks, used, begun = np.zeros(roles, dtype=np.int64), np.zeros_like(free), np.zeros(jobs, dtype=np.bool_)
    for row in range(job.shape[0]):
        i, m, r = job[row], role[row], server[row]
        if i < 0 or i >= jobs or m < gangs.start[i] or m >= gangs.start[i + 1] or r < 0 or r >= free.shape[0]:
            return False
        if count[row] < 1 or gangs.each[m] < gangs.most[m] or not reach[gangs.reach[i], r]:
            return False
        begun[i] = True
        tasks[m] += count[row]
        for k in range(free.shape[1]):
            used[r, k] += count[row] * gangs.demand[m, k]
    for i in range(jobs):
        for m in range(gangs.start[i], gangs.start[i + 1]):
            if tasks[m] > gangs.most[m] or (begun[i] and tasks[m] < gangs.minimum[m]):
                return False
    for r in range(free.shape[0]):
        for k in range(free.shape[1]):
            if used[r, k] > free[r, k]:
                return False
    return True
