"""Promises of a policy, each a named check.

Each check is a function whose docstring is the promise; `CHECKS` is the whole list. A check yields a finding for every
instance on which the promise was broken: what was seen, and what was expected.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from berth.errors import InvalidInput, PolicyCheckFailed, UnknownName, UnsupportedProblem
from berth.families import FAMILIES
from berth.families.cases import Case, CheckFamily
from berth.live.core import LIVE
from berth.live.core.drivers.live import LIVE_FAMILY
from berth.protocols import Environment
from berth.random import stream
from berth.registry import PolicySpec, written
from berth.simulation import simulate
from berth.testing.live_checks import LIVE_CHECKS
from berth.testing.subject import (
    Broken,
    Finding,
    Subject,
    arrays_of,
    copied,
    decide,
    decisions_of,
    global_seed,
    must_be_feasible,
    observe,
    outcome_of,
    short,
    snapshot,
)

__all__ = ["CHECKS", "CheckResult", "check_policy"]


@dataclass(frozen=True)
class CheckResult:
    """Result of one check on one policy; passed if there are no findings.

    >>> result = CheckResult("beats-random", "fairness", 0, (Finding("easy instance", "2 a slot", "more than 3"),))
    >>> print(result)
    beats-random: on easy instance: 2 a slot; expected more than 3 (fairness, seed=0)
    """

    check: str
    policy: str
    seed: int
    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the promise was kept on every instance."""
        return not self.findings

    def __str__(self) -> str:
        if self.passed:
            return f"{self.check}: passed"
        first = self.findings[0]
        more = f"; and on {len(self.findings) - 1} more" if len(self.findings) > 1 else ""
        return (
            f"{self.check}: on {first.instance}: {first.seen}; expected {first.expected}{more} "
            f"({self.policy}, seed={self.seed})"
        )


def _always_feasible(subject: Subject, cases: Iterable[Case]) -> Iterator[Finding]:
    for case, world, policy in subject.served(cases):
        try:
            for slot in world:
                decision = decide(policy, slot)
                must_be_feasible(subject, world, slot, decision)
                observe(policy, world.step(decision))
        except Broken as broken:
            yield Finding(case.name, broken.seen, broken.expected)


def feasible_on_random_instances(subject: Subject) -> Iterator[Finding]:
    """Every decision is feasible on random instances of many kinds, with arrivals hidden and revealed."""
    yield from _always_feasible(subject, subject.family.random_cases(subject.seed))


def feasible_on_edge_instances(subject: Subject) -> Iterator[Finding]:
    """Every decision is feasible on edge cases: no arrivals, nothing free, a server lost, numbers of 1e±9."""
    yield from _always_feasible(subject, subject.family.edge_cases(subject.seed))


def _difference(ours: list[Any], theirs: list[Any]) -> int | None:
    return next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), None)


def decisions_are_fresh(subject: Subject) -> Iterator[Finding]:
    """A decision is a new, finite array of the right shape and type: the policy does not change it, and callers may."""
    for case, world, policy in subject.served(subject.family.plain_cases(subject.seed)):
        try:
            kept: list[tuple[int, Any, Any]] = []
            for slot in world:
                decision = decide(policy, slot)
                outcome = outcome_of(subject, world, slot, decision)
                kept.append((slot.index, decision, snapshot(decision)))
                observe(policy, outcome)
                for index, old, was in kept:
                    if snapshot(old) != was:
                        seen = f"the decision of slot {index} changed when the policy went on to slot {slot.index}"
                        raise Broken(seen, "a new array for each decision")
                if len(kept) == 12:
                    break
            _spoilt(subject, case)
        except Broken as broken:
            yield Finding(case.name, broken.seen, broken.expected)


def _spoilt(subject: Subject, case: Case) -> None:
    """Compare two equal runs, one of which overwrites every decision after it has been played."""
    slots = 12
    world, policy = case.make(), subject.build(case.make().problem)
    clean = decisions_of(subject, world, policy, slots)
    world, policy = case.make(), subject.build(case.make().problem)
    for slot, expected in zip(world, clean, strict=False):
        decision = decide(policy, slot)
        if snapshot(decision) != expected:
            seen = f"slot {slot.index}: another decision after the caller wrote into an earlier one"
            raise Broken(seen, "decisions that share no memory with the policy")
        outcome = outcome_of(subject, world, slot, decision)
        for part in arrays_of(decision):
            if part.flags.writeable:
                part[...] = -77  # a value that no policy writes
        observe(policy, outcome)


def same_seed_same_decisions(subject: Subject) -> Iterator[Finding]:
    """Built twice with the same random stream it decides the same, independent of the global random states."""
    for case, world, policy in subject.served(subject.family.plain_cases(subject.seed)):
        try:
            with global_seed(1):
                first = decisions_of(subject, world, policy, 25)
            with global_seed(2):
                world = case.make()
                second = decisions_of(subject, world, subject.build(world.problem), 25)
            differs = _difference(first, second)
            if differs is not None:
                seen = f"two runs with the same seed differ from slot {differs} on"
                raise Broken(seen, "the same decisions, from the generator it was given alone")
        except Broken as broken:
            yield Finding(case.name, broken.seen, broken.expected)


def _through_pickle(policy: Any) -> Any:
    try:
        return pickle.loads(pickle.dumps(policy))
    except Exception as error:
        raise Broken(f"pickling raised {short(error)}", "a policy that can be pickled") from error


def pickling_resumes(subject: Subject) -> Iterator[Finding]:
    """A copy pickled mid-run, before or after an outcome, continues exactly like the original."""
    for case, world, policy in subject.served(subject.family.plain_cases(subject.seed)):
        try:
            twins: list[tuple[int, Any]] = []
            for slot in world:
                decision = decide(policy, slot)
                for since, twin in twins:
                    if snapshot(decide(twin, slot)) != snapshot(decision):
                        seen = f"slot {slot.index}: a copy pickled in slot {since} decides otherwise"
                        raise Broken(seen, "the same decisions as the original")
                if slot.index == 5:  # between a decision and its outcome
                    twins.append((slot.index, _through_pickle(policy)))
                outcome = outcome_of(subject, world, slot, decision)
                for each in [policy, *(twin for _, twin in twins)]:
                    observe(each, outcome)
                if slot.index == 9:
                    twins.append((slot.index, _through_pickle(policy)))
                if slot.index == 25:
                    break
        except Broken as broken:
            yield Finding(case.name, broken.seen, broken.expected)


def inputs_untouched(subject: Subject) -> Iterator[Finding]:
    """The policy does not change problem, slots and outcomes, and works with read-only arrays."""
    for case, world, policy in subject.served(subject.family.plain_cases(subject.seed)):
        problem = snapshot(subject.family.parts(world.problem))
        try:
            given: list[tuple[str, Any, Any]] = []
            for slot in world:
                # the first slots are writable, so that a change shows; the rest are not
                lent = copied(slot, writable=slot.index < 8)
                given.append((f"slot {slot.index}", lent, snapshot(lent)))
                decision = decide(policy, lent)
                _compare(given)
                outcome = copied(outcome_of(subject, world, slot, decision), writable=slot.index < 8)
                given.append((f"the outcome of slot {slot.index}", outcome, snapshot(outcome)))
                observe(policy, outcome)
                _compare(given)
                if slot.index == 15:
                    break
            if snapshot(subject.family.parts(world.problem)) != problem:
                raise Broken("the problem has changed", "inputs as they were")
        except Broken as broken:
            yield Finding(case.name, broken.seen, broken.expected)


def _compare(given: list[tuple[str, Any, Any]]) -> None:
    for what, thing, was in given:
        now = snapshot(thing)
        if now != was:
            names = ", ".join(name for name in was if was[name] != now[name])
            raise Broken(f"{what} has changed ({names})", "inputs as they were")


def outcomes_in_any_order(subject: Subject) -> Iterator[Finding]:
    """Lost, late, duplicate or reordered outcomes raise no error, and decisions stay feasible."""
    for case, _, _ in subject.served(subject.family.plain_cases(subject.seed)):
        for lost, name in ((0.2, "outcomes late, doubled and lost"), (1.0, "no outcome ever")):
            world = case.make()
            try:
                _post(subject, world, subject.build(world.problem), lost)
            except Broken as broken:
                yield Finding(f"{case.name}, {name}", broken.seen, broken.expected)


def _post(subject: Subject, world: Environment, policy: Any, lost: float) -> None:
    rng = stream(subject.seed, "check_policy", "post")
    waiting: list[tuple[int, Any]] = []
    for slot in world:
        decision = decide(policy, slot)
        must_be_feasible(subject, world, slot, decision)
        outcome = world.step(decision)
        if rng.random() >= lost:
            copies = 2 if rng.random() < 0.3 else 1
            waiting.extend((slot.index + int(late), outcome) for late in rng.integers(0, 8, copies))
        due = [entry for entry in waiting if entry[0] <= slot.index]
        waiting = [entry for entry in waiting if entry[0] > slot.index]
        for place in rng.permutation(len(due)):
            observe(policy, due[place][1], f" in slot {slot.index}")
        if slot.index == 60:
            break


def bounded_memory(subject: Subject) -> Iterator[Finding]:
    """Its memory does not grow with the slots: its pickle after 300 is hardly larger than after 60."""
    for case, world, policy in subject.served(subject.family.plain_cases(subject.seed)):
        sizes: dict[int, int] = {}
        try:
            for slot in world:
                observe(policy, outcome_of(subject, world, slot, decide(policy, slot)))
                if slot.index + 1 in (60, 300):
                    sizes[slot.index + 1] = len(pickle.dumps(policy))
        except Broken as broken:
            yield Finding(case.name, broken.seen, broken.expected)
        except Exception:  # another check tests pickling
            continue
        else:
            limit = int(1.1 * sizes[60]) + 1024
            if sizes[300] > limit:
                seen = f"{sizes[60]} bytes pickled after 60 slots, {sizes[300]} after 300"
                yield Finding(case.name, seen, f"at most {limit}")


def refuses_clearly(subject: Subject) -> Iterator[Finding]:
    """The constructor refuses a problem it cannot serve with `UnsupportedProblem` and a reason; it serves some."""
    family, seed = subject.family, subject.seed
    served = 0
    for makers in (family.plain_cases, family.random_cases, family.edge_cases, family.easy_cases):
        for case in makers(seed):
            try:
                subject.factory(case.make().problem, stream(seed, "check_policy", "policy"))
                served += 1
            except UnsupportedProblem as error:
                if not str(error).strip():
                    yield Finding(case.name, "UnsupportedProblem without a message", "a message that says why")
            except Exception as error:
                yield Finding(case.name, f"its constructor raised {short(error)}", "UnsupportedProblem, saying why")
    if not served:
        yield Finding("all instances", "every problem was refused", "a policy that serves at least one setting")


@cache
def _floor(family: CheckFamily, seed: int, name: str) -> float:
    """Mean reward of a random policy on an easy instance: the same whatever policy is under test."""
    world = next(case for case in family.easy_cases(seed) if case.name == name).make()
    chance = family.random_policy(world.problem, stream(seed, "check_policy", "floor"))
    return float(simulate(world, chance).reward.mean())


def beats_random(subject: Subject) -> Iterator[Finding]:
    """On easy instances its mean reward is above that of a random policy."""
    for case, world, policy in subject.served(subject.family.easy_cases(subject.seed)):
        if isinstance(policy, subject.family.floor):
            continue
        try:
            mean = float(simulate(world, policy).reward.mean())
        except Exception as error:
            yield Finding(case.name, f"the run ended with {short(error)}", "a run to the end")
            continue
        floor = _floor(subject.family, subject.seed, case.name)
        if not mean > floor:
            yield Finding(case.name, f"a mean reward of {mean:.4g}", f"more than {floor:.4g}, which random earns")


Check = Callable[[Subject], Iterator[Finding]]

CHECKS: dict[str, Check] = {
    "feasible-on-random-instances": feasible_on_random_instances,
    "feasible-on-edge-instances": feasible_on_edge_instances,
    "decisions-are-fresh": decisions_are_fresh,
    "same-seed-same-decisions": same_seed_same_decisions,
    "pickling-resumes": pickling_resumes,
    "inputs-untouched": inputs_untouched,
    "outcomes-in-any-order": outcomes_in_any_order,
    "bounded-memory": bounded_memory,
    "refuses-clearly": refuses_clearly,
    "beats-random": beats_random,
}
"""Every check by name; the docstring of each is the promise."""


def _subject(policy: Any, settings: Mapping[str, Any], seed: int) -> Subject:
    cls: Any = policy
    if isinstance(policy, str):
        spec = PolicySpec.parse(policy)
        cls, name, settings = spec.load(), str(spec), {**dict(spec.settings), **settings}
    elif callable(policy):
        name = getattr(policy, "__name__", repr(policy))
    else:
        raise InvalidInput("a policy's name, its class, or a factory (problem, rng) -> policy", value=policy)
    family = getattr(cls, "family", None if isinstance(cls, type) else "allocation")
    if family not in FAMILIES:
        raise UnknownName(f"family of {name}", str(family), FAMILIES)
    return Subject(name, FAMILIES[family].checks, lambda problem, rng: cls(problem, rng, **settings), seed)


def check_policy(
    policy: Any,
    *,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    skip: Collection[str] = (),
) -> list[CheckResult]:
    """Run every check on a policy; raise `PolicyCheckFailed` with a line for each failure.

    `policy` is a name with settings (`"ogasched:step=0.5"`), a class, or a factory `(problem, rng) -> policy`; its
    attribute `family` selects the instances (default for a factory: allocation), and the checks: `CHECKS`, or
    `LIVE_CHECKS` for the family `live`. `settings` are passed to the constructor, `skip` names checks to leave out, and
    the same `seed` repeats the same instances. The error's `results` hold the result of each check.

    >>> from berth.families.allocation.policies.baselines import Fairness
    >>> [result.check for result in check_policy(Fairness, skip=list(CHECKS)[:-2])]
    ['refuses-clearly', 'beats-random']
    """
    for name in skip:
        if name not in CHECKS and name not in LIVE_CHECKS:
            raise UnknownName("check", name, {**CHECKS, **LIVE_CHECKS})
    if (live := _live_name(policy, settings or {})) is not None:
        policy, checks = live, {name: partial(check, live, seed) for name, check in LIVE_CHECKS.items()}
    else:
        subject = _subject(policy, settings or {}, seed)
        policy, checks = subject.name, {name: partial(check, subject) for name, check in CHECKS.items()}
    results = [CheckResult(name, policy, seed, tuple(check())) for name, check in checks.items() if name not in skip]
    failed = [result for result in results if not result.passed]
    if failed:
        raise PolicyCheckFailed(
            f"{policy} broke {len(failed)} of {len(results)} promises:\n" + "\n".join(map(str, failed)),
            results,
        )
    return results


def _live_name(policy: Any, settings: Mapping[str, Any]) -> str | None:
    """How a service is told of a policy that only runs live; None for others."""
    if isinstance(policy, str) and policy in LIVE:
        return policy
    spec = PolicySpec.parse(policy) if isinstance(policy, str) else None
    if getattr(policy if spec is None else spec.load(), "family", None) != LIVE_FAMILY:
        return None
    spec = spec or PolicySpec(written(policy))
    return str(PolicySpec(spec.name, tuple(sorted({**dict(spec.settings), **settings}.items()))))
