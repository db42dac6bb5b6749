"""Judge the claims of an experiment: the effect seed by seed, then the rule of `berth.lab.reproduce.results`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from berth.families import FAMILIES
from berth.lab.reproduce.experiments import Claim
from berth.lab.reproduce.results import ClaimResult, ExperimentResult, verdict_of
from berth.statistics import Estimate, estimate

__all__ = ["effect", "judge"]


def judge(result: ExperimentResult) -> None:
    """Fill in the claims; a claim may refer to points or slots absent from the quick version, or without data."""
    judged: list[ClaimResult] = []
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
            judged.append(_judged(result, claim))
    result.claims, result.left_out, result.without_data = tuple(judged), tuple(left), tuple(without)


def _judged(result: ExperimentResult, claim: Claim) -> ClaimResult:
    policy = claim.policy or result.experiment.printed
    best_policy = claim.best or (None if claim.policy else result.experiment.best)
    printed = effect(result, claim, policy, claim.metric)
    claimed = None
    if claim.metric == "reward" and _broke(result, claim, policy):
        claimed = effect(result, claim, policy, "claimed")
    best = None if best_policy is None else effect(result, claim, best_policy, claim.metric)
    return ClaimResult(
        claim,
        policy,
        best_policy,
        printed,
        claimed,
        best,
        verdict_of(printed, claim.value, claim.direction),
        None if best_policy is None else verdict_of(best, claim.value, claim.direction),
    )


def _broke(result: ExperimentResult, claim: Claim, policy: str) -> bool:
    return any(
        value > 0
        for place in result.places(claim.where)
        for value in result.values(place, policy, claim.arrivals, "violations").values()
    )


def effect(result: ExperimentResult, claim: Claim, policy: str, series: str) -> Estimate | None:
    """Relative lead of the policy's number over what the claim compares it with: mean and interval over seeds.

    None if a seed has nothing to compare with.
    """
    places = result.places(claim.where)
    others = [] if claim.against is None else result.places(claim.against)
    if claim.over is None:
        ours, theirs = (
            _averaged([result.values(p, policy, claim.arrivals, series, claim.until, claim.total) for p in points])
            for points in (places, others)
        )
        return estimate(_above(ours, theirs).values())
    here = [_pair(result, claim, policy, series, place) for place in places]
    if claim.against is None:
        return estimate(_averaged([_above(*pair) for pair in here]).values())
    there = [_pair(result, claim, policy, series, place) for place in others]
    as_ratio = all(value > 0 for pair in (*here, *there) for side in pair for value in side.values())
    now, before = (_averaged([_lead(*pair, as_ratio) for pair in pairs]) for pairs in (here, there))
    return estimate(_above(now, before).values())


def _pair(
    result: ExperimentResult, claim: Claim, policy: str, series: str, place: int
) -> tuple[dict[int, float], dict[int, float]]:
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


def _lead(ours: Mapping[int, float], theirs: Mapping[int, float], as_ratio: bool) -> dict[int, float]:
    """Lead of ours over theirs, seed by seed: the ratio, or the difference."""
    seeds = sorted(ours.keys() & theirs.keys())
    return {seed: ours[seed] / theirs[seed] if as_ratio else ours[seed] - theirs[seed] for seed in seeds}


def _above(ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[int, float]:
    """Relative excess of ours over theirs, seed by seed.

    If theirs is not positive in some seed, differences are divided by the mean absolute value of theirs over all seeds.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if all(theirs[seed] > 0 for seed in seeds):
        return {seed: ours[seed] / theirs[seed] - 1.0 for seed in seeds}
    size = math.fsum(abs(theirs[seed]) for seed in seeds) / len(seeds)
    return {seed: (ours[seed] - theirs[seed]) / size if size else math.nan for seed in seeds}


def _averaged(values: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Mean over points, for each seed that all points have."""
    seeds = set.intersection(*(set(found) for found in values)) if values else set()
    return {seed: math.fsum(found[seed] for found in values) / len(values) for seed in sorted(seeds)}
