"""What a policy of the family `live` needs: the view of a cluster, and a decision about it."""

from __future__ import annotations

from berth.live.core.decisions import may_be_interrupted
from berth.live.core.drivers.live import LivePolicy
from berth.live.core.records import JobRecord, Outcome
from berth.live.core.table import Running
from berth.live.core.view import Allowed, Placing, View, placed_in_order, view_of

__all__ = [
    "Allowed",
    "JobRecord",
    "LivePolicy",
    "Outcome",
    "Placing",
    "Running",
    "View",
    "may_be_interrupted",
    "placed_in_order",
    "view_of",
]
