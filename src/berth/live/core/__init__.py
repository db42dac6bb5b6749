"""The live scheduler's core: events in, commands out; no IO and no clock."""

from __future__ import annotations

__all__ = ["COMPLETION", "FALLBACK", "LIVE"]

FALLBACK = "in-order-best-fit"
"""The fallback when the policy gives no decision: start every job that fits, in queue order, on the tightest fit."""
COMPLETION = "completion"
"""Starts each job where it is expected to complete first; a job waits while waiting completes it earlier."""
LIVE = FALLBACK, COMPLETION
"""Policies that only the live scheduler has."""
