"""Policies that interrupt jobs, as examples: Gavel's, and least attained service."""

from __future__ import annotations

import numpy as np

from berth.model import Floats, Ints
from berth_gavel.allocations import fifo, max_min, max_sum
from berth_gavel.least_attained import LeastAttained
from berth_gavel.rounds import Rounds

__all__ = ["FIFO", "LeastAttained", "MaxMin", "MaxMinBlind", "MaxSum"]


class FIFO(Rounds):
    """Jobs in order of arrival, each on the model on which it is fastest among those with room (`fifo_perf`)."""

    strict = True

    def allocation(self, speed: Floats, gpus: Ints, there: Ints) -> Floats:
        return fifo(speed, gpus, there)


class MaxMin(Rounds):
    """Max-min fairness in normalized speed: least attained service on unequal GPUs (`max_min_fairness_perf`)."""

    def allocation(self, speed: Floats, gpus: Ints, there: Ints) -> Floats:
        return max_min(speed, gpus, there)


class MaxMinBlind(Rounds):
    """Max-min fairness in time, which ignores speeds (`max_min_fairness`)."""

    informed = False

    def allocation(self, speed: Floats, gpus: Ints, there: Ints) -> Floats:
        return max_min(np.ones(speed.shape), gpus, there)


class MaxSum(Rounds):
    """The most steps a second of all jobs together (`max_sum_throughput_perf`)."""

    def allocation(self, speed: Floats, gpus: Ints, there: Ints) -> Floats:
        return max_sum(speed, gpus, there)
