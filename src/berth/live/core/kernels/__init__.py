"""Kernels of the live scheduler: places for gangs, and whether they do better to wait for faster servers."""

from __future__ import annotations

from berth.live.core.kernels.berthing import Gangs, Placed, berth_in_order, earliest, gather
from berth.live.core.kernels.completion import Paces, Releases, complete_in_order, ends_later

__all__ = [
    "Gangs",
    "Paces",
    "Placed",
    "Releases",
    "berth_in_order",
    "complete_in_order",
    "earliest",
    "ends_later",
    "gather",
]
