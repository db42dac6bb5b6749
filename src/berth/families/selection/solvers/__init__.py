"""Solvers of the combinatorial problems of selection, behind one small interface.

A solver takes a **question** (plain arrays) and returns a **choice**: the number of tasks through each channel, its
value, and a certified upper bound on the optimum. `choose` picks the method; every method is available by name.

Axes: n channels, K resources, G pools, L roles (ports), J jobs.
"""

from __future__ import annotations

from berth.families.selection.solvers.choosing import choose
from berth.families.selection.solvers.gang import choose_gang
from berth.families.selection.solvers.question import Choice, GangQuestion, Question

__all__ = ["Choice", "GangQuestion", "Question", "choose", "choose_gang"]
