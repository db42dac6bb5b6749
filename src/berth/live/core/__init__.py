"""The live scheduler's core: events in, commands out; no IO and no clock."""

from __future__ import annotations

__all__ = ["COMPLETION", "FALLBACK", "LIVE"]

FALLBACK = "in-order-best-fit"
"""What serves when the policy does not: everybody who fits, in order, where they leave least."""
COMPLETION = "completion"
"""Every job starts where it completes first, or waits while it completes earlier by waiting."""
LIVE = FALLBACK, COMPLETION
"""Policies that only the live scheduler has."""
