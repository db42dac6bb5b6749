"""What is wrong with a replay, in words: jobs left waiting, broken decisions, and a load that misleads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from berth.lab.show.words import percent
from berth.traces.load import LARGE

__all__ = ["complaints", "load_notes"]


def complaints(row: Mapping[str, Any]) -> list[str]:
    """What a policy did wrong, in words."""
    told = []
    if row["never_started"]:
        told.append(
            f"{row['never_started']:,} of {row['jobs']:,} jobs never started; they count as if they started at the end "
            "of the log, so its waits and slowdowns are lower bounds"
        )
    if row.get("broken_decisions"):
        told.append(f"{row['broken_decisions']:,} decisions broke constraints; what could not be started waited")
    return told


def load_notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why the offered load says little about this replay, in words; nothing if it does."""
    load = rows[0].get("offered_load")
    used = max((row.get("utilisation_while_arriving") or 0.0 for row in rows), default=0.0)
    share = rows[0].get("largest_job_share") or 0.0
    if load is None or used >= 0.5 * min(load, 1.0):
        return []
    reason = "most work is done after the last submission, as jobs run long beside the time in which they arrive"
    if share >= LARGE:
        left = f"without it the offered load is {load * (1 - share):.2g}"
        reason = f"the largest job has {percent(share)} of all work; {left}"
    told = f"The offered load of {load:.3g} says little here: at most {percent(used)} is in use while jobs arrive"
    return [told + f"; {reason}."]
