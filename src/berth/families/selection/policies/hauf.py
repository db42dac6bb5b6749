"""HAUF, also called HSWF: ports with the highest estimated utility first."""

from __future__ import annotations

import numpy as np

from berth.families.selection.policies.baseline import Baseline
from berth.model import Ints

__all__ = ["HAUF"]


class HAUF(Baseline):
    """Ports by the sum of their channels' average net gain, highest first; within a port, the best channel first.

    One paper calls it HAUF, the other HSWF; both names are registered. `misfit` is `"stop"` or `"skip"`.

    >>> from berth.testing import example_selection
    >>> problem, slot = example_selection()
    >>> HAUF(problem).decide(slot)
    array([1, 0, 0])
    """

    reference = "ESDP, section 4.1, baseline HAUF (AOU version), HSWF (social-welfare version)"

    def order(self) -> Ints:
        ports, net = self.problem.instance.channel_port, self.net
        total = np.bincount(ports, weights=net, minlength=len(self.problem.instance.ports))
        return np.lexsort((-net, ports, -total[ports])).astype(np.int64)
