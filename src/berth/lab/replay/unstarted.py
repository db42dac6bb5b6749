"""Metrics that no policy improves by not starting jobs: lower bounds for those that never started, and the load.

Axes: N jobs, K resources.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from berth.lab.replay.results import batch_metrics
from berth.model import Floats, Ints

__all__ = ["fair_metrics"]

BOUNDS = ("mean_", "p50_", "p90_", "p95_", "p99_", "max_", "waited_share", "owner", "worst_owner")
"""Beginnings of the names of numbers that count jobs that never started."""


def fair_metrics(
    submit: Floats,
    start: Floats,
    end: Floats,
    run: Floats,
    amount: Floats,
    capacity: Floats,
    owner: Ints | None,
    main: int = 0,
    **options: Any,
) -> dict[str, Any]:
    """`batch_metrics`, where jobs that never started wait to the end of the log at least, and then run.

    `run` (N,) are run times on a server of mean speed: `offered_load` and `largest_job_share`, of the work of all jobs,
    depend on no policy. `options` are further ones of `batch_metrics`.

    >>> submit, start, end = np.array([[0.0, 0.0], [0.0, np.nan], [50.0, np.nan]])
    >>> found = fair_metrics(submit, start, end, submit + 50, np.ones((2, 1)), np.ones(1), None)
    >>> found["never_started"], found["mean_wait_seconds"], found["utilisation"]
    (1, 25.0, 1.0)
    """

    def measured(start: Floats, end: Floats) -> dict[str, Any]:
        return batch_metrics(submit, start, end, amount, capacity, owner, main, **options)

    found, missing = measured(start, end), np.isnan(start)
    if missing.any():
        if "utilisation" not in found:
            found |= {"makespan_seconds": 0.0, "jobs_per_hour": 0.0, "utilisation": 0.0, "idle_while_waiting": 0.0}
            found |= {"utilisation_by_resource": [0.0] * len(capacity), "utilisation_while_arriving": 0.0}
        late = np.nanmax(np.concatenate([end, submit]))
        bounds = measured(np.where(missing, late, start), np.where(missing, late + run, end))
        found |= {name: value for name, value in bounds.items() if name.startswith(BOUNDS)}
    found["offered_load"] = measured(submit, submit + run).get("offered_load")
    work = amount[:, main] * run
    found["largest_job_share"] = float(work.max() / work.sum()) if work.sum() > 0 else None
    return found
