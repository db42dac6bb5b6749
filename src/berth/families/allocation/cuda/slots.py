"""Slots of blind and simple policies on a GPU: OGASched's ascent, FAIRNESS, DRF, and a fixed decision.

A slot is two launches: prices from the sums of the last decision, then the step. Nothing returns to the host before
the end of a run: arrivals, step sizes and rewards stay on the device, and many slots are recorded as one launch.

Axes: P problems, T slots, J jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from berth.cuda import source
from berth.families.allocation.cuda.batch import Batch
from berth.model import Floats

__all__ = ["Ascent", "SlotRuns", "Slots"]

RECORDED = 16  # slots of a recorded launch
STEPS = ("ascend", "fair", "in_turn", "start", "keep")


@dataclass(frozen=True, eq=False)
class Slots:
    """Numbers of the slots of a run, (P, T); `excess` is the largest excess over a capacity c, relative to 1 + c."""

    gain: Floats
    overhead: Floats
    excess: Floats


@dataclass(frozen=True)
class Ascent:
    """Settings of OGASched: a constant step, or 0 for AdaGrad's; slots over which arrivals are averaged, or 0."""

    pace: float = 0.0
    memory: int = 0


class SlotRuns:
    """Runs of one policy on every problem of a batch.

    `step` is `ascend`, `fair`, or `in_turn` (the batch must be made so).
    `everyone` counts every job as present in the decisions of `fair` and `in_turn`: arrivals are hidden from them.
    """

    def __init__(self, batch: Batch, step: str, ascent: Ascent | None = None, everyone: bool = True) -> None:
        self.batch, self.step, self.ascent = batch, step, ascent or Ascent()
        self.everyone = everyone and step in ("fair", "in_turn")
        self.lag = int(step in ("fair", "in_turn"))
        device, problems = batch.device, len(batch.problems)
        code = source(__file__, "common.cuh", "slot.cu")
        self._kernels = device.kernels(code, batch.macros, ("prices", *STEPS))
        self._group, self._groups, self._price_threads, self._price_shared = batch.price_blocks
        self.y, self.tau, self.sums = batch.element_values(), batch.lane_values(), batch.sums()
        self._scratch = batch.element_values() if not batch.rows else self.tau
        self._price = device.zeros((problems, batch.cells + 1, 2), batch.dtype)
        self._eta = device.zeros(problems, batch.dtype)
        self._stats = device.zeros((batch.blocks, 3), np.float64)
        self._clock = device.zeros(2, np.int64)  # slots of this call, and slots before it
        self._beta = device.array(np.stack([problem.overhead for problem in batch.problems]))
        self._rates = device.array(np.ones((problems, batch.jobs)))
        self._overheads = device.zeros((2, problems, self._groups), np.float64)
        self._rows = device.array(batch.sum_rows.astype(np.int32))
        self._length, self._squares = device.zeros(problems, np.float64), device.zeros(problems, np.float64)
        self._seen = 0
        self._played: _Played | None = None
        if step == "ascend":
            self._begin()

    def _begin(self) -> None:
        """Start as OGASched does: the gradient at 0 starts the sum of squares; half of each request, projected."""
        fill = self.batch.device.fill
        self._prices(self._buffers(1), everyone=True)
        self._launch("keep")
        fill(self._squares, self._by_problem(1))
        fill(self.sums, 0)
        self._launch("start")
        fill(self._length, np.sqrt(2.0 * self._by_problem(1)))
        fill(self._clock, 0)

    def _by_problem(self, number: int) -> Floats:
        """One of the numbers that blocks leave, added up over each problem, (P,)."""
        stats = self.batch.device.host(self._stats)[:, number]
        return np.add.reduceat(stats, self.batch.first_block[:-1])

    def _buffers(self, slots: int) -> tuple[Any, ...]:
        """Arrays on the device for arrivals and results of this number of slots."""
        zeros, shape = self.batch.device.zeros, (len(self.batch.problems), slots)
        return (zeros((*shape, self.batch.jobs), np.uint8), *(zeros(shape, np.float64) for _ in range(3)))

    def _prices(self, buffers: tuple[Any, ...], everyone: bool | None = None, ahead: int = 0) -> None:
        batch = self.batch
        arrivals, gain, overhead, excess = buffers
        counted = self.everyone if everyone is None else everyone
        sizes = (len(batch.problems), batch.jobs, batch.resources, arrivals.shape[1], self._group)
        self._kernels["prices"](
            len(batch.problems) * (self._groups + 1),
            self._price_threads,
            self._price_shared,
            [
                *(self._rows, batch.block_of_problem, arrivals, self._beta, self._length, self._squares, self._rates),
                *(self._overheads, gain, overhead, excess),
                *(self.sums, self._stats, self._price, self._eta, self._clock),
                *(np.float64(1.0 / batch.scale), np.float64(self.ascent.pace)),
                *(np.int32(size) for size in sizes),
                *(np.int32(0 if counted else self.ascent.memory), np.int32(self.lag), np.int32(counted)),
                np.int32(ahead),
            ],
        )

    def _launch(self, step: str) -> None:
        batch = self.batch
        self._kernels[step](
            batch.blocks,
            batch.warps * 32,
            batch.shared_bytes,
            [
                *batch.arguments,
                *(self._price, self._eta, self._scratch, self.tau, self.y, self.sums, self._stats, self._clock),
            ],
        )

    def play(self, arrivals: Sequence[Any] | NDArray[Any]) -> Slots:
        """Play the next slots with these arrivals, (P, T, J) of 0 and 1; the runs continue from call to call."""
        given = np.ascontiguousarray(arrivals, dtype=np.uint8)
        slots, device = given.shape[1], self.batch.device
        if self._played is None or self._played.slots != slots:
            self._played = _Played(slots, self._buffers(slots))
        played = self._played
        device.fill(played.buffers[0], given)

        def slot() -> None:
            self._prices(played.buffers)
            self._launch(self.step)

        def several() -> None:
            for _ in range(RECORDED):
                slot()

        left = slots
        if played.several is None and slots > RECORDED:
            slot()  # loads the kernels
            left -= 1
            played.several = device.recorded(several)
        while played.several is not None and left >= RECORDED:
            played.several()
            left -= RECORDED
        for _ in range(left):
            slot()
        for ahead in range(1 + self.lag):  # close the last slots
            self._prices(played.buffers, ahead=ahead)
        self._seen += slots
        device.fill(self._clock, np.array([0, self._seen]))
        return Slots(*(device.host(part) for part in played.buffers[1:]))


@dataclass
class _Played:
    """Buffers for a number of slots, and the recorded launch that uses them."""

    slots: int
    buffers: tuple[Any, ...]
    several: Callable[[], None] | None = None
