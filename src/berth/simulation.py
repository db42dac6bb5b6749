"""Simulation loop of all families, and the record of a run."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from berth.errors import InfeasibleDecision, InvalidInput, UnsupportedProblem
from berth.model import Floats, Ints
from berth.protocols import Environment, Observer, Policy

__all__ = ["Result", "check_precision", "runs_on_device", "simulate"]


@dataclass(frozen=True, eq=False)
class Result:
    """One run, slot by slot; every array has shape (T,).

    `reward` is the reward actually earned. A decision that breaks constraints (`violations` > 0) is first made
    feasible; `claimed` holds the reward it would have had without the check. `measures` are further numbers of the
    family, such as `gain` and `overhead` for allocation.
    """

    reward: Floats
    claimed: Floats
    violations: Ints
    decide_seconds: Floats
    measures: dict[str, Floats]

    @property
    def total(self) -> float:
        """Cumulative reward."""
        return float(self.reward.sum())


def runs_on_device(environment: Environment) -> Callable[..., list[Result]]:
    """The function that plays runs of such environments on a GPU; its family has it, named by the environment."""
    place = getattr(environment, "gpu", "")
    if not place:
        raise UnsupportedProblem("only the allocation family has kernels for a GPU; use device='cpu'")
    module, _, name = place.partition(":")
    found: Callable[..., list[Result]] = getattr(importlib.import_module(module), name)
    return found


def check_precision(device: str, precision: str) -> None:
    """Refuse a precision that the CPU does not have."""
    if device == "cpu" and precision != "float64":
        raise InvalidInput("float64: only a GPU has another one", value=precision, key="precision")


def simulate(
    environment: Environment,
    policy: Policy[Any, Any, Any],
    *,
    observers: Iterable[Observer] = (),
    infeasible: str = "repair",
    progress: Callable[[int], None] | None = None,
    device: str = "cpu",
    precision: str = "float64",
) -> Result:
    """Run the policy through every slot of the environment.

    A slot may come in several parts, one after the other with the same index: their numbers are summed.

    `infeasible="repair"` counts an infeasible decision, makes it feasible and plays it; `infeasible="raise"` ends the
    run with `InfeasibleDecision`. `progress` is called with the number of slots done. `decide_seconds` times `decide`
    and `observe` together.

    `device="cuda"` plays the whole run on a GPU, in float64 or float32, if the policy has kernels for it: an allocation
    policy among ogasched, ogasched-rates, ogasched-aware, fairness and drf. The run begins afresh with the policy's
    settings, and decisions stay on the GPU, so there are no observers.
    """
    check_precision(device, precision)
    if device != "cpu":
        if tuple(observers):
            raise InvalidInput("no observers: decisions stay on the device", value=device, key="device")
        played: list[Result] = runs_on_device(environment)([environment], [policy], device, precision, progress)
        return played[0]
    if infeasible not in ("repair", "raise"):
        raise InvalidInput("'repair' or 'raise'", value=infeasible, key="infeasible")
    problem = environment.problem
    watchers = tuple(observers)
    reward: list[float] = []
    claimed: list[float] = []
    broken_counts: list[int] = []
    seconds: list[float] = []
    measured: dict[str, list[float]] = {name: [] for name in environment.measures}
    everything: tuple[list[Any], ...] = (reward, claimed, broken_counts, seconds, *measured.values())
    index = -1
    for slot in environment:
        if slot.index != index:
            index = slot.index
            for series in everything:
                series.append(0)
        began = time.perf_counter()
        decision = policy.decide(slot)
        spent = time.perf_counter() - began
        broken = problem.violations(slot, decision)
        played = decision
        if broken:
            if infeasible == "raise":
                raise InfeasibleDecision(f"slot {slot.index}: {len(broken)} constraints broken, first: {broken[0]}")
            claimed[-1] += environment.score(decision)
            played = problem.repaired(slot, decision)
        outcome = environment.step(played)
        if not broken:
            claimed[-1] += outcome.reward
        reward[-1] += outcome.reward
        broken_counts[-1] += len(broken)
        for values, value in zip(measured.values(), environment.measured(outcome), strict=True):
            values[-1] += value
        for watch in watchers:
            watch(slot, played, outcome)
        due = environment.feedback(outcome)
        began = time.perf_counter()
        for known in due:
            policy.observe(known)
        seconds[-1] += spent + time.perf_counter() - began
        if progress is not None:
            progress(len(reward))
    return Result(
        np.array(reward),
        np.array(claimed),
        np.array(broken_counts, dtype=np.int64),
        np.array(seconds),
        {name: np.array(values) for name, values in measured.items()},
    )
