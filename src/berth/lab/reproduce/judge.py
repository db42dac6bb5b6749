"""Judge the claims of experiments: effects with their intervals, then the rule of `berth.lab.reproduce.results`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from berth.families import FAMILIES
from berth.lab.reproduce.experiments import Claim
from berth.lab.reproduce.results import ClaimResult, ExperimentResult, Verdict, verdict_of
from berth.model import Floats
from berth.statistics import Estimate, discoveries, studentised

__all__ = ["effect", "judge"]

Values = Mapping[int, float]
"""A number by seed."""


def judge(results: Sequence[ExperimentResult]) -> None:
    """Fill in the claims; a claim may refer to points or slots absent from the quick version, or without data.

    The false discovery rate is controlled over all claims of all experiments, apart for each column of verdicts.
    """
    for result in results:
        _measure(result)
    found = [claim for result in results for claim in result.claims]
    printed = discoveries(_chance(claim, claim.printed) for claim in found)
    best = discoveries(_chance(claim, claim.best) for claim in found)
    verdicts = iter(
        replace(claim, verdict=_verdict(claim, claim.printed, one), best_verdict=_best_verdict(claim, other))
        for claim, one, other in zip(found, printed, best, strict=True)
    )
    for result in results:
        result.claims = tuple(next(verdicts) for _ in result.claims)


def _chance(found: ClaimResult, effect: Estimate | None) -> float | None:
    """The p-value that counts; none where no difference is claimed, or nothing can be judged."""
    judged = found.claim.direction != "same" and found.claim.unclear is None
    return effect.chance if effect is not None and judged else None


def _verdict(found: ClaimResult, effect: Estimate | None, discovered: bool) -> Verdict:
    if found.claim.unclear is not None:
        return Verdict.unclear
    return verdict_of(effect, found.claim.value, found.claim.direction, discovered)


def _best_verdict(found: ClaimResult, discovered: bool) -> Verdict | None:
    return None if found.best_policy is None else _verdict(found, found.best, discovered)


def _measure(result: ExperimentResult) -> None:
    """The effect of every claim that can be measured; none has a verdict yet."""
    measured: list[ClaimResult] = []
    left: list[Claim] = []
    without: list[Claim] = []
    for claim in result.experiment.claims:
        meant = [claim.where] if claim.against is None else [claim.where, claim.against]
        if any(setting.is_at(where) for where in meant for setting in result.absent):
            without.append(claim)
            continue
        here = result.places(claim.where) and (claim.against is None or result.places(claim.against))
        length = min((run.length for runs in result.runs.values() for run in runs.values()), default=0)
        if result.quick and (not here or (claim.until or 0) > length):
            left.append(claim)
        else:
            measured.append(_measured(result, claim))
    result.claims, result.left_out, result.without_data = tuple(measured), tuple(left), tuple(without)


def _measured(result: ExperimentResult, claim: Claim) -> ClaimResult:
    policy = claim.policy or result.experiment.printed
    best_policy = claim.best or (None if claim.policy else result.experiment.best)
    claimed = None
    if claim.metric == "reward" and _broke(result, claim, policy):
        claimed = effect(result, claim, policy, "claimed")
    readings = [effect(result, other, other.policy or policy, claim.metric) for other in claim.other_readings]
    return ClaimResult(
        claim,
        policy,
        best_policy,
        effect(result, claim, policy, claim.metric),
        claimed,
        None if best_policy is None else effect(result, claim, best_policy, claim.metric),
        tuple(reading for reading in readings if reading is not None),
    )


def _broke(result: ExperimentResult, claim: Claim, policy: str) -> bool:
    return any(
        value > 0
        for place in result.places(claim.where)
        for value in result.values(place, policy, claim.arrivals, "violations").values()
    )


def effect(result: ExperimentResult, claim: Claim, policy: str, series: str) -> Estimate | None:
    """Relative lead of the policy's number over what the claim compares it with, of means over seeds.

    None if there is nothing to compare with.
    """
    places = result.places(claim.where)
    others = [] if claim.against is None else result.places(claim.against)
    if not places or (claim.against is not None and not others):
        return None
    if claim.over is None:
        mine = [result.values(p, policy, claim.arrivals, series, claim.until, claim.total) for p in (*places, *others)]
        count = len(places)
        return _estimated(mine, lambda m: _above(m[..., :count].mean(axis=-1), m[..., count:].mean(axis=-1)))
    pairs = [_pair(result, claim, policy, series, place) for place in (*places, *others)]
    columns, here = [side for pair in pairs for side in pair], 2 * len(places)
    if claim.against is None:
        return _estimated(columns, lambda m: _above(m[..., ::2], m[..., 1::2]).mean(axis=-1))
    as_ratio = all(_mean(column) > 0 for column in columns)

    def lead(m: Floats) -> Floats:
        ours, theirs = m[..., ::2], m[..., 1::2]
        return np.asarray((ours / theirs if as_ratio else ours - theirs).mean(axis=-1))

    return _estimated(columns, lambda m: _above(lead(m[..., :here]), lead(m[..., here:])))


def _estimated(columns: Sequence[Values], of_means: Callable[[Floats], Floats]) -> Estimate | None:
    """An effect of the means of columns, over the seeds that all of them have."""
    seeds = sorted(set.intersection(*(set(column) for column in columns))) if columns else []
    return studentised(np.array([[column[seed] for column in columns] for seed in seeds]), of_means) if seeds else None


def _pair(result: ExperimentResult, claim: Claim, policy: str, series: str, place: int) -> tuple[Values, Values]:
    """Values by seed of the policy at a point, and of what the claim compares it with."""
    family = FAMILIES[result.families[place]].lab
    oracle = claim.over in family.oracles and claim.over in (result.settings[place].run.oracles or ())
    # an oracle that knows only means is compared without noise
    measured = family.measured_in if oracle and series == "reward" else series
    ours = result.values(place, policy, claim.arrivals, measured, claim.until, claim.total)
    if not isinstance(claim.over, str):
        return ours, dict.fromkeys(ours, float(claim.over or 0.0))
    compared = "reward" if oracle else series
    return ours, result.values(place, claim.over, claim.arrivals, compared, claim.until, claim.total)


def _mean(column: Values) -> float:
    return sum(column.values()) / len(column) if column else 0.0


def _above(ours: Floats, theirs: Floats) -> Floats:
    """Relative excess of ours over theirs."""
    return np.asarray((ours - theirs) / np.abs(theirs))
