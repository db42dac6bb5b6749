"""Options of jobs submitted to Slurm that berth does not support: such jobs are left to Slurm.

hooks/job_submit.lua, which does not hold such jobs, has the same list. `companion` checks fixed nodes, ranges of node
counts, features and GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["beyond"]

WISHES = {
    "array_job_id": "an array (--array)",
    "het_job_id": "several components (a heterogeneous job)",
    "dependency": "a dependency (--dependency): Slurm does not look at those of a job that is held",
    "shared": "--exclusive or --oversubscribe",
    "excluded_nodes": "nodes to avoid (--exclude)",
    "resv_name": "a reservation (--reservation)",
    "licenses": "licences (--licenses)",
    "burst_buffer": "a burst buffer (--bb)",
    "contiguous": "nodes side by side (--contiguous)",
    "prefer": "features to prefer (--prefer)",
    "batch_features": "features of its first node (--batch)",
    "minimum_tmp_disk_per_node": "a temporary disk (--tmp)",
    "sockets_per_node": "sockets (--sockets-per-node)",
    "cores_per_socket": "cores of a socket (--cores-per-socket)",
    "threads_per_core": "threads of a core (--threads-per-core, --hint)",
    "tasks_per_socket": "tasks per socket (--ntasks-per-socket)",
    "tasks_per_core": "tasks per core (--ntasks-per-core)",
    "tres_per_socket": "GPUs per socket (--gpus-per-socket)",
    "cpus_per_tres": "CPUs per GPU (--cpus-per-gpu)",
    "memory_per_tres": "memory per GPU (--mem-per-gpu)",
}
"""Fields of `squeue --json`, and what they mean if they are set."""
MEMORY_SET = {"JOB_MEM_SET", "EXACT_MEMORY_REQUESTED"}
"""The flag of a job that says how much memory it wants, in older and newer versions."""


def _is_set(value: object) -> bool:
    """Whether the option was given; newer versions write numbers as {"set": true, "number": 4}."""
    if isinstance(value, Mapping):
        return bool(value.get("set")) and not value.get("infinite") and bool(value.get("number"))
    return bool(value) and value not in ("(null)", [""])


def beyond(found: Mapping[str, Any]) -> str:
    """The first unsupported option of a job of `squeue --json`; empty if there is none.

    >>> beyond({"shared": None, "licenses": ""}), beyond({"shared": ["user"]}), beyond({"licenses": "matlab:1"})
    ('', '--exclusive or --oversubscribe', 'licences (--licenses)')
    """
    for name, meaning in WISHES.items():
        if _is_set(found.get(name)):
            return meaning
    flags = set(found.get("flags") or [])
    if flags & MEMORY_SET and not any(_is_set(found.get(name)) for name in ("memory_per_node", "memory_per_cpu")):
        return "all memory (--mem=0)"
    return "times at which it is to run (scrontab)" if "CRON_JOB" in flags else ""
