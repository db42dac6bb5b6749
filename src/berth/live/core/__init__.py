"""The live scheduler's core: events in, commands out; no IO and no clock."""

from __future__ import annotations

__all__ = ["FALLBACK"]

FALLBACK = "in-order-best-fit"
"""What serves when the policy does not: everybody who fits, in order, where they leave least."""
