"""The rules of the linter once more, job by job in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["judged"]

Row = Mapping[str, Any]


def judged(jobs: Sequence[Row], machines: Sequence[Row], resources: Sequence[str]) -> tuple[list[int], Counter[str]]:
    """(Places of the jobs that are kept, in the order in which they came; how many rows each rule caught)."""
    counts: Counter[str] = Counter()
    kept: list[int] = []
    names: set[str] = set()
    known = [name for name in resources if not machines or any(machine[name] is not None for machine in machines)]
    latest = -math.inf
    sized = any(job[name] is not None for job in jobs for name in ("pieces", *resources))
    for place, job in enumerate(jobs):
        reason = _impossible(job, machines, resources, known, sized) or (
            "name seen before" if job["job"] is not None and job["job"] in names else None
        )
        if reason is not None:
            counts[reason] += 1
            continue
        kept.append(place)
        names.add(job["job"])
        estimate = job["estimate_s"]
        counts["started before it came"] += job["wait_s"] is not None and job["wait_s"] < 0
        counts["no estimate"] += estimate is None
        counts["estimate not above 0"] += estimate is not None and estimate <= 0
        counts["ran longer than estimated"] += estimate is not None and 0 < estimate < job["run_s"]
        counts["no number of pieces"] += job["pieces"] is None
        counts["out of order"] += job["submit_s"] < latest
        latest = max(latest, job["submit_s"])
        for name in known:
            counts[f"no amount of {name}"] += job[name] is None
    for name in resources:
        if all(jobs[place][name] is None for place in kept):
            del counts[f"no amount of {name}"]
    kept.sort(key=lambda place: jobs[place]["submit_s"])
    return kept, +counts


def _impossible(
    job: Row, machines: Sequence[Row], resources: Sequence[str], known: Sequence[str], sized: bool
) -> str | None:
    amounts = [job[name] for name in resources if job[name] is not None]
    if job["submit_s"] is None:
        return "no submit time"
    if job["submit_s"] < 0:
        return "negative submit time"
    if job["run_s"] is None:
        return "still running" if job["status"] == "running" else "no run time"
    if job["run_s"] <= 0:
        return "run time not above 0"
    if job["pieces"] is None and not amounts and sized:
        return "no size"
    if job["pieces"] is not None and job["pieces"] <= 0:
        return "size not above 0"
    if any(amount < 0 for amount in amounts):
        return "negative amount"
    if not machines:
        return None
    homes = [m for m in machines if job["needs"] is None or m["label"] in job["needs"].split("|")]
    if not homes:
        return "label that no machine has"
    room = 0.0
    for machine in homes:
        fits = [(machine[name] or 0.0) // job[name] for name in known if job[name]]
        room += machine["count"] * min(fits, default=math.inf)
    if room == 0:
        return "larger than any machine"
    return "larger than the cluster" if room < (job["pieces"] or 1) else None
