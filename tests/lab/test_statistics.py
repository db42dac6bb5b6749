from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from berth.model import Floats
from berth.statistics import FEW, discoveries, estimate, paired, studentised


def test_paired_ratio_by_hand() -> None:
    # ratios 1.10, 1.20, 1.30: mean 1.2, standard error .1 / √3, t(.975, 2) = 4.302653
    ours, theirs = {0: 11.0, 1: 24.0, 5: 39.0}, {0: 10.0, 1: 20.0, 5: 30.0, 9: 1.0}
    found = paired(ours, theirs)
    assert found is not None
    assert found.seeds == 3
    assert found.mean == pytest.approx(1.2)
    assert found.half == pytest.approx(4.302652729911275 * 0.1 / math.sqrt(3))


def test_paired_difference_agrees_with_scipy() -> None:
    ours, theirs = {s: 3.0 * s + s**2 for s in range(7)}, {s: 2.5 * s + 1 for s in range(7)}
    found = paired(ours, theirs, difference=True)
    truth = stats.ttest_rel(list(ours.values()), list(theirs.values())).confidence_interval()
    assert found is not None
    assert (found.low, found.high) == pytest.approx((truth.low, truth.high))


def test_where_there_is_nothing_to_say() -> None:
    assert estimate([]) is None
    assert estimate([1.0, math.nan]) is None
    assert paired({0: 1.0}, {1: 1.0}) is None
    assert paired({0: 1.0, 1: 1.0}, {0: 1.0, 1: 0.0}) is None
    single = paired({0: 3.0}, {0: 2.0})
    assert single is not None
    assert (single.mean, single.low, single.high) == (1.5, None, None)


values = st.floats(-1e3, 1e3)


@given(st.lists(st.tuples(values, values, values), min_size=2, max_size=12))
def test_luck_that_both_share_does_not_change_their_difference(seeds: list[tuple[float, float, float]]) -> None:
    ours, theirs, luck = ({s: row[i] for s, row in enumerate(seeds)} for i in range(3))
    plain = paired(ours, theirs, difference=True)
    shared = paired(
        {s: v + luck[s] for s, v in ours.items()}, {s: v + luck[s] for s, v in theirs.items()}, difference=True
    )
    turned = paired(theirs, ours, difference=True)
    assert plain is not None
    assert shared is not None
    assert turned is not None
    assert plain.half is not None
    assert shared.mean == pytest.approx(plain.mean, abs=1e-9)
    assert shared.half == pytest.approx(plain.half, abs=1e-8)
    assert (turned.mean, turned.half) == pytest.approx((-plain.mean, plain.half), abs=1e-9)


def excess(means: Floats) -> Floats:
    return np.asarray(means[..., 0] / means[..., 1] - 1)


def test_with_few_seeds_the_interval_is_students() -> None:
    samples = np.array([[11.0, 10.0], [24.0, 20.0], [39.0, 30.0]])
    found = studentised(samples, lambda means: np.asarray(means[..., 0]))
    truth = stats.t.interval(0.95, 2, loc=samples[:, 0].mean(), scale=stats.sem(samples[:, 0]))
    assert found is not None
    assert (found.low, found.high) == pytest.approx(truth)
    assert found.chance == pytest.approx(stats.ttest_1samp(samples[:, 0], 0).pvalue)


def test_where_an_effect_cannot_be_told() -> None:
    assert studentised(np.zeros((0, 2)), excess) is None
    assert studentised(np.array([[1.0, 0.0], [2.0, 0.0]]), excess) is None
    single = studentised(np.array([[3.0, 2.0]]), excess)
    assert single is not None
    assert (single.mean, single.low, single.chance) == (0.5, None, None)
    sure = studentised(np.full((9, 2), 2.0), excess)
    assert sure is not None
    assert (sure.mean, sure.low, sure.high, sure.chance) == (0.0, 0.0, 0.0, 1.0)


def test_the_other_way_round_is_the_same_test() -> None:
    rng = np.random.default_rng(1)
    samples = rng.gamma(3.0, 1.0, (20, 2))
    difference = studentised(samples, lambda means: np.asarray(means[..., 0] - means[..., 1]))
    turned = studentised(samples[:, ::-1], lambda means: np.asarray(means[..., 0] - means[..., 1]))
    assert difference is not None
    assert difference.high is not None
    assert turned is not None
    assert (turned.mean, turned.low, turned.chance) == pytest.approx(
        (-difference.mean, -difference.high, difference.chance)
    )


WORLDS: dict[str, Callable[[np.random.Generator, int], tuple[Floats, Floats]]] = {
    # ours and theirs by seed, as effects of experiments come: regular, skewed, near zero in some seeds, unpaired
    "normal": lambda rng, n: (1.1 * (b := rng.normal(10, 2, n)) + rng.normal(0, 1, n), b),
    "skewed": lambda rng, n: (1.1 * (b := rng.gamma(4, 1, n)) * rng.lognormal(0, 0.2, n), b),
    "near zero": lambda rng, n: (0.2 + 0.9 * (b := rng.gamma(1, 1, n)) * rng.lognormal(0, 0.3, n), b),
    "long tail": lambda rng, n: (1.1 * (b := rng.lognormal(0, 0.8, n)) * rng.lognormal(0, 0.3, n), b),
    "unpaired": lambda rng, n: (rng.gamma(5, 1, n), rng.gamma(4, 1, n)),
}


def coverage(world: str, seeds: int, times: int) -> float:
    """How often the interval holds the true effect."""
    draw, rng = WORLDS[world], np.random.default_rng(seeds)
    ours, theirs = draw(rng, 4_000_000)
    truth, held = ours.mean() / theirs.mean() - 1, 0
    for _ in range(times):
        found = studentised(np.stack(draw(rng, seeds), axis=1), excess)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= truth <= found.high
    return held / times


@pytest.mark.parametrize("seeds", [FEW, 12, 30])
@pytest.mark.parametrize("world", WORLDS)
def test_intervals_hold_the_truth_about_as_often_as_they_say(world: str, seeds: int) -> None:
    assert 0.90 <= coverage(world, seeds, 250) <= 0.995


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [FEW, 12, 30])
@pytest.mark.parametrize("world", WORLDS)
def test_intervals_hold_the_truth_as_often_as_they_say(
    world: str, seeds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = coverage(world, seeds, 4000)
    with capsys.disabled():
        print(f"\ncoverage, {world}, {seeds} seeds: {100 * found:.1f} %")
    assert 0.925 <= found <= 0.975  # 93 to 97 %, and the noise of 4,000 draws


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_discoveries_are_those_of_scipy(chances: list[float]) -> None:
    assert discoveries(chances) == [bool(p <= 0.05) for p in stats.false_discovery_control(chances)]
