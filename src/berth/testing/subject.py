"""Policy under test: build it, play it slot by slot, and report broken promises."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from berth.capacity import Violation
from berth.errors import InvalidInput
from berth.families.cases import Case, CheckFamily
from berth.protocols import Environment
from berth.random import stream

__all__ = [
    "Broken",
    "Finding",
    "Subject",
    "arrays_of",
    "copied",
    "decide",
    "decisions_of",
    "global_seed",
    "must_be_feasible",
    "observe",
    "outcome_of",
    "short",
    "snapshot",
]


@dataclass(frozen=True)
class Finding:
    """A broken promise: the instance, what was seen, and what was expected."""

    instance: str
    seen: str
    expected: str


class Broken(Exception):
    """A promise broken while an instance was played."""

    def __init__(self, seen: str, expected: str) -> None:
        self.seen, self.expected = seen, expected


def short(error: Exception) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


@dataclass(frozen=True)
class Subject:
    """Policy under test: its name, its family, and how to build it."""

    name: str
    family: CheckFamily
    factory: Callable[[Any, np.random.Generator], Any]
    seed: int

    def build(self, problem: Any) -> Any:
        """Build the policy for this problem; None if it refuses (`refuses_clearly` judges how)."""
        try:
            return self.factory(problem, stream(self.seed, "check_policy", "policy"))
        except Exception:
            return None

    def served(self, cases: Iterable[Case]) -> Iterator[tuple[Case, Environment, Any]]:
        """Each case that the policy serves, with a new environment and a new policy."""
        for case in cases:
            world = case.make()
            policy = self.build(world.problem)
            if policy is not None:
                yield case, world, policy


def decide(policy: Any, slot: Any) -> Any:
    """Decision of the policy; raising is a broken promise."""
    try:
        return policy.decide(slot)
    except Exception as error:
        raise Broken(f"slot {slot.index}: decide raised {short(error)}", "a decision") from error


def observe(policy: Any, outcome: Any, how: str = "") -> None:
    """Pass an outcome to the policy; raising is a broken promise."""
    try:
        policy.observe(outcome)
    except Exception as error:
        seen = f"observe of slot {outcome.slot}{how} raised {short(error)}"
        raise Broken(seen, "every outcome to be taken in") from error


def _violations(subject: Subject, world: Environment, slot: Any, decision: Any) -> Sequence[Violation]:
    """Violations of the decision; raises if it is malformed."""
    wrong = subject.family.malformed(world.problem, decision)
    if wrong:
        raise Broken(f"slot {slot.index}: decided {wrong}", subject.family.well_formed)
    try:
        return world.problem.violations(slot, decision)
    except InvalidInput as error:
        raise Broken(f"slot {slot.index}: its decision was refused, {error}", subject.family.well_formed) from error


def outcome_of(subject: Subject, world: Environment, slot: Any, decision: Any) -> Any:
    """Outcome of a decision after repair: another check tests whether it was feasible."""
    if _violations(subject, world, slot, decision):
        decision = world.problem.repaired(slot, decision)
    return world.step(decision)


def must_be_feasible(subject: Subject, world: Environment, slot: Any, decision: Any) -> None:
    """Raise `Broken` if the decision breaks a constraint."""
    broken = _violations(subject, world, slot, decision)
    if broken:
        seen = f"slot {slot.index}: {len(broken)} constraints broken, first {broken[0]}"
        raise Broken(seen, "a feasible decision in every slot")


def snapshot(thing: Any) -> Any:
    """Contents of arrays, dataclasses and containers, to compare later with `==`."""
    if isinstance(thing, np.ndarray):
        return (thing.dtype.str, thing.shape, thing.tobytes())
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return {f.name: snapshot(getattr(thing, f.name)) for f in dataclasses.fields(thing) if f.name[0] != "_"}
    if isinstance(thing, tuple | list):
        return [snapshot(item) for item in thing]
    if isinstance(thing, dict):
        return {key: snapshot(value) for key, value in thing.items()}
    return thing


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed the global random states, and restore them afterwards."""
    numpys, pythons = np.random.get_state(), random.getstate()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(numpys)  # noqa: NPY002
        random.setstate(pythons)


def arrays_of(decision: Any) -> list[np.ndarray[Any, Any]]:
    """Arrays of a decision."""
    parts = vars(decision).values() if dataclasses.is_dataclass(decision) else [decision]
    return [part for part in parts if isinstance(part, np.ndarray)]


def copied(record: Any, writable: bool) -> Any:
    """Copy of a slot or an outcome with its own arrays, writable or read-only."""
    changes: dict[str, Any] = {}
    for f in dataclasses.fields(record):
        value = getattr(record, f.name)
        if isinstance(value, np.ndarray):
            changes[f.name] = value.copy()
            changes[f.name].setflags(write=writable)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes[f.name] = copied(value, writable)
    return dataclasses.replace(record, **changes)


def decisions_of(subject: Subject, world: Environment, policy: Any, slots: int) -> list[Any]:
    """Snapshots of the first decisions of a run."""
    kept: list[Any] = []
    for slot in world:
        decision = decide(policy, slot)
        kept.append(snapshot(decision))
        observe(policy, outcome_of(subject, world, slot, decision))
        if len(kept) == slots:
            break
    return kept
