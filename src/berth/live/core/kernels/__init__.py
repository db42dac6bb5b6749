"""Kernels of the live scheduler: places for gangs, queues, and whether gangs do better to wait for faster servers."""

from __future__ import annotations

from berth.live.core.kernels.berthing import FEW, Fit, Gangs, Placed, berth_in_order, earliest, gather
from berth.live.core.kernels.completion import Paces, Releases, complete_in_order, ends_later
from berth.live.core.kernels.promises import Promises, plan_all
from berth.live.core.kernels.queueing import Asked, Ends, start_in_order
from berth.live.core.kernels.turns import start_fairly, start_packed

__all__ = [
    "FEW",
    "Asked",
    "Ends",
    "Fit",
    "Gangs",
    "Paces",
    "Placed",
    "Promises",
    "Releases",
    "berth_in_order",
    "complete_in_order",
    "earliest",
    "ends_later",
    "gather",
    "plan_all",
    "start_fairly",
    "start_in_order",
    "start_packed",
]
