"""A policy that waits for a test."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from berth.families.allocation.policies.baselines import Fairness
from berth.families.allocation.problem import AllocationProblem, AllocationSlot
from berth.live.clusters import NODE
from berth.model import Floats


class Waits(Fairness):
    """Writes down in its fourth slot on which node it runs, and waits there until the folder has a file `go`."""

    def __init__(self, problem: AllocationProblem, rng: np.random.Generator | None = None, *, folder: str = "") -> None:
        super().__init__(problem, rng)
        self._folder = Path(folder)

    def decide(self, slot: AllocationSlot, /) -> Floats:
        if slot.index == 3:
            (self._folder / f"{os.getpid()}.begun").write_text(os.environ.get(NODE, ""))
            while not (self._folder / "go").exists():
                time.sleep(0.02)
        return super().decide(slot)
