"""Train the order of a queue on windows of a trace, for the policy `learned-order`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from berth.errors import InvalidInput
from berth.families.placement.trace_world import as_pool, batch_jobs
from berth.families.placement.training.orders import OrderPlan, QueuedJobs, TrainedOrder, train_order
from berth.lab.replay.results import ReplaySetting
from berth.lab.replay.samples import Measurement, job_windows, samples_of

__all__ = ["train_order_on"]


def train_order_on(
    trace: str | Path,
    plan: OrderPlan,
    out: str | Path,
    *,
    setting: ReplaySetting | None = None,
    held_out: Sequence[int] = (),
    held_out_jobs: int = 1024,
    format: str | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> TrainedOrder:
    """Train an order on windows of a trace, played on a pool, and write it to `order.json` in the directory `out`.

    `setting` says how the trace is read, as in a replay. No window of training overlaps the windows of `held_out_jobs`
    jobs that start at the jobs `held_out` (from 0), which are kept for a test.
    """
    setting = ReplaySetting(processors=plan.capacity) if setting is None else setting
    sample = samples_of(trace, setting, Measurement(), format=format).samples[0]
    batch = batch_jobs(sample.played, exact=setting.exact, stopped=setting.stopped)
    pool = as_pool(batch)
    if pool is None:
        raise InvalidInput("one pool of processors", key="processors")
    named = sample.trace.jobs["user"].is_not_null().to_numpy()
    owner = np.where(named, batch.tasks.owner, -1)
    jobs = QueuedJobs(batch.tasks.arrival, pool.size, pool.run, pool.estimate, owner)
    found = train_order(jobs, plan, job_windows(held_out, held_out_jobs), progress)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    found.order.save(folder / "order.json")
    return found
