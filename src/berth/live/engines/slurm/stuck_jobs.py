"""Jobs that wait for ever: for tasks that were killed together with the slurmd of their node, which soon ran again.

Slurm does not see that. Nor does an srun begin tasks that was cut off by the death of slurmctld at the wrong moment. So
when a daemon was started after an attempt, it is asked whether its tasks are there. Where those of a node had ended
before, and others run, it cannot be told from a loss.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from berth.live.engines import EngineError
from berth.live.engines.slurm.commands import Slurm
from berth.live.engines.slurm.parsing import Node
from berth.live.engines.slurm.spool import Record

__all__ = ["parted"]

LAUNCHING = 10.0
"""Seconds for which tasks must be missing until they are taken for lost: they may be about to begin."""


async def parted(record: Record, nodes: Mapping[str, Node], boot: float, slurm: Slurm) -> str | None:
    """What is wrong with an attempt that should run; None where nothing is, or nobody knows yet."""
    if not record.parts or not all(job.running for job in record.parts):
        return None
    since = [nodes[name].since or 0.0 for job in record.parts for name in job.nodes if name in nodes]
    latest = max([boot, *since])
    if latest <= record.complete or latest < min(job.start or 0.0 for job in record.parts):
        return None
    try:
        lost = [await slurm.lost_steps(job.id) for job in record.parts]
    except EngineError:
        return None
    if not any(lost) and not (record.steps and set(lost) == {None}):
        record.complete, record.parted = latest, None
    elif record.parted is None:
        record.parted = time.monotonic()
    elif time.monotonic() - record.parted > LAUNCHING:
        return "tasks of it are gone, or never began, after a daemon of Slurm was started again"
    return None
