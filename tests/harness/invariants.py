"""Failures that get no second try."""

from __future__ import annotations

__all__ = ["InvariantBroken"]


class InvariantBroken(AssertionError):
    """A job was lost, ran twice or was another user's: however sick the cluster was, berth is at fault."""
