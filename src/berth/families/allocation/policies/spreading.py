"""SPREADING: each job prefers the emptiest servers."""

from __future__ import annotations

from berth.families.allocation.policies.binpacking import BinPacking

__all__ = ["Spreading"]


class Spreading(BinPacking):
    """Ports in turn fill the emptiest servers first, with what they request on each; see `BinPacking`.

    >>> from berth.testing import example_problem, example_slot
    >>> problem = example_problem()
    >>> Spreading(problem).decide(example_slot(problem)).shape == problem.cap.shape
    True
    """

    reference = "OGASched, section 4, baseline SPREADING (Kubernetes LeastAllocated)"
    favour_full = False
    scatters = True
