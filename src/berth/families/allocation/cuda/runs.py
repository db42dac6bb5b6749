"""Whole runs of allocation policies on a GPU, one for each world, side by side.

Decisions stay on the device: a run of any length keeps only its numbers of each slot.

Axes: P worlds, T slots, J jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from berth.capacity import TOLERANCE
from berth.cuda import Device, open_device
from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.allocation.cuda.batch import Batch
from berth.families.allocation.cuda.programme import CudaProgramme
from berth.families.allocation.cuda.slots import Ascent, SlotRuns, Slots
from berth.families.allocation.policies.aware import OGASchedAware
from berth.families.allocation.policies.baselines import DRF, Fairness
from berth.families.allocation.policies.ogasched import MEMORY, OGASched
from berth.families.allocation.policies.rates import ArrivalRates, OGASchedRates
from berth.families.allocation.world import AllocationWorld
from berth.model import Floats
from berth.simulation import Result

__all__ = ["POLICIES", "PRECISIONS", "runs_on_device"]

POLICIES = (OGASched, OGASchedRates, OGASchedAware, Fairness, DRF)
"""Policies that have kernels for a GPU."""

PRECISIONS = {"float64": np.float64, "float32": np.float32}
ROUNDING = {"float64": TOLERANCE, "float32": 1e-5}
"""Excess over a capacity c, relative to 1 + c, that counts as rounding."""

CHUNK = 256  # slots played at once


def runs_on_device(
    worlds: Sequence[AllocationWorld],
    policies: Sequence[Any],
    device: str | Device = "cuda",
    precision: str = "float64",
    progress: Callable[[int], None] | None = None,
) -> list[Result]:
    """Run each policy through its world; the policies must be of one class with equal settings.

    Runs begin afresh: only the settings of the policies are used. Runs of `ogasched-aware` also measure `bound`, a
    certified upper bound on the reward of any decision in each slot. A slot with a capacity exceeded beyond rounding
    counts as a violation. `decide_seconds` is the time of a slot of all runs, divided by their number.
    """
    if precision not in PRECISIONS:
        raise InvalidInput(" or ".join(PRECISIONS), value=precision, key="precision")
    first = policies[0]
    if type(first) not in POLICIES:
        known = ", ".join(kind.__name__ for kind in POLICIES)
        raise UnsupportedProblem(f"{type(first).__name__} has no kernels for a GPU ({known} have); use device='cpu'")
    for world in worlds:
        if world.up is not None and not world.up.all():
            raise UnsupportedProblem("servers that come and go have no kernels for a GPU; use device='cpu'")
        if len(world) != len(worlds[0]):
            raise InvalidInput(f"worlds of {len(worlds[0])} slots", value=len(world))
    play = _player(worlds, policies, open_device(device) if isinstance(device, str) else device, PRECISIONS[precision])
    parts: list[dict[str, Floats]] = []
    seconds: list[Floats] = []
    arrivals = np.stack([world.arrivals for world in worlds])
    for begin in range(0, arrivals.shape[1], CHUNK):
        began = time.perf_counter()
        parts.append(play(arrivals[:, begin : begin + CHUNK]))
        slots = parts[-1]["gain"].shape[1]
        spent = (time.perf_counter() - began) / slots / len(worlds)
        seconds.append(np.full(slots, spent))
        if progress is not None:
            progress(begin + slots)
    whole = {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}
    return [_result(whole, place, np.concatenate(seconds), ROUNDING[precision]) for place in range(len(worlds))]


Play = Callable[[Any], dict[str, Floats]]
"""Plays the next slots with arrivals (P, T, J); returns measures (P, T)."""


def _player(worlds: Sequence[AllocationWorld], policies: Sequence[Any], device: Device, dtype: Any) -> Play:
    first, problems = policies[0], [world.problem for world in worlds]
    if isinstance(first, OGASched):
        pace, averaged = _ascent(first)
        return _slots(SlotRuns(Batch(device, problems, dtype), "ascend", Ascent(pace, MEMORY if averaged else 0)))
    if isinstance(first, Fairness | DRF):
        in_turn = isinstance(first, DRF)
        batch = Batch(device, problems, dtype, in_turn=in_turn)
        hidden = not problems[0].arrivals_known
        return _slots(SlotRuns(batch, "in_turn" if in_turn else "fair", everyone=hidden))
    programme = CudaProgramme(Batch(device, problems, dtype, programme=True))
    if isinstance(first, OGASchedAware):
        return lambda arrivals: _aware(programme, first.iterations, arrivals)
    rates = [ArrivalRates(policy.problem.jobs, policy.rates.memory, policy.rates.alarm) for policy in policies]
    return lambda arrivals: _rates(programme, first.iterations, rates, arrivals)


def _ascent(policy: OGASched) -> tuple[float, bool]:
    """Constant step (0: AdaGrad's), and whether arrivals are averaged."""
    if policy.step == "horizon" or policy.geometry != "euclidean" or policy.optimistic:
        raise UnsupportedProblem(
            "a GPU runs ogasched with step=adagrad or a number, geometry=euclidean and optimistic=false; "
            "use device='cpu'"
        )
    return 0.0 if isinstance(policy.step, str) else float(policy.step), policy.gradient == "ewma"


def _slots(runs: SlotRuns) -> Play:
    def play(arrivals: Any) -> dict[str, Floats]:
        slots: Slots = runs.play(arrivals)
        return dict(vars(slots))

    return play


def _aware(programme: CudaProgramme, iterations: int, arrivals: Any) -> dict[str, Floats]:
    """Slots of `ogasched-aware`, each with its certificate."""
    rows = []
    for t in range(arrivals.shape[1]):
        played = programme.improve(arrivals[:, t], iterations)
        rows.append((played.gain, played.overhead, played.excess, programme.bound()))
    return dict(zip(("gain", "overhead", "excess", "bound"), _stacked(rows), strict=True))


def _rates(
    programme: CudaProgramme, iterations: int, rates: Sequence[ArrivalRates], arrivals: Any
) -> dict[str, Floats]:
    """Slots of `ogasched-rates`."""
    rows = []
    for t in range(arrivals.shape[1]):
        played = programme.improve(np.stack([one.mean for one in rates]), iterations, rewarded=arrivals[:, t])
        rows.append((played.gain, played.overhead, played.excess))
        for one, arrived in zip(rates, arrivals[:, t], strict=True):
            one.observe(arrived)
    return dict(zip(("gain", "overhead", "excess"), _stacked(rows), strict=True))


def _stacked(rows: Sequence[tuple[Floats, ...]]) -> list[Floats]:
    """Slots of (P,) numbers as arrays (P, T)."""
    return [np.stack(series, axis=1) for series in zip(*rows, strict=True)]


def _result(whole: dict[str, Floats], place: int, seconds: Floats, rounding: float) -> Result:
    reward = whole["gain"][place] - whole["overhead"][place]
    broken = (whole["excess"][place] > rounding).astype(np.int64)
    measures = {name: series[place] for name, series in whole.items() if name != "excess"}
    return Result(reward, reward.copy(), broken, seconds, measures)
