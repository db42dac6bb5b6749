"""Solvers of the combinatorial problems behind selection, behind one small interface.

A solver takes a **question** (plain arrays) and gives a **choice**: how many tasks through each channel, the value of
that, and a certified upper bound on the best. `choose` picks the method; every method can be asked for by name.

Axes: n channels, K resources, G pools, L roles (ports), J jobs.
"""

from __future__ import annotations

from berth.families.selection.solvers.choosing import choose
from berth.families.selection.solvers.gang import choose_gang
from berth.families.selection.solvers.question import Choice, GangQuestion, Question

__all__ = ["Choice", "GangQuestion", "Question", "choose", "choose_gang"]
