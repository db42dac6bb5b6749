"""Laws have the means that they claim, drift moves what it should, and costs take any shape."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.families.selection import gains as laws
from berth.families.selection.gains import DrawnGains, Law, Redraw, Walk, clipped_normal_mean, normal_costs, supply_cost
from berth.model import Floats

CENTRE = np.array([0.1, 0.5, 0.9])
LAWS: dict[str, Law] = {
    "normal": laws.Normal(0.3),
    "normal, relative": laws.Normal(0.5, relative=True),
    "normal, a deviation per channel": laws.Normal(np.array([0.1, 0.0, 0.4])),
    "clipped": laws.ClippedNormal(0.5, relative=True),
    "clipped elsewhere": laws.ClippedNormal(1.0, low=-0.5, high=0.6),
    "beta": laws.Beta(3.0),
    "uniform": laws.Uniform(0.2),
    "lognormal": laws.Lognormal(0.7),
    "empirical": laws.Empirical([[0.0, 1.0, 5.0], [2.0], [0.5, 0.25]]),
    "papers": laws.NetNormal(0.5, np.array([0.1, 0.12, 0.08]), relative=True),
}


def taken(gains: DrawnGains, slots: int) -> tuple[Floats, Floats]:
    means, draws = zip(*islice(gains, slots), strict=True)
    return np.array(means), np.array(draws)


@pytest.mark.parametrize("name", list(LAWS))
def test_draws_have_the_mean_that_the_law_gives(name: str) -> None:
    slots = 40_000
    means, draws = taken(DrawnGains(LAWS[name], CENTRE, seed=5), slots)
    assert (means == means[0]).all()
    error = draws.std(axis=0) / np.sqrt(slots)
    assert (np.abs(draws.mean(axis=0) - means[0]) <= 4.5 * error + 1e-12).all()


@pytest.mark.parametrize("drift", [None, Walk(), Redraw(every=7)])
def test_every_iteration_is_the_same_and_seeds_differ(drift: laws.Drift | None) -> None:
    slots = 60_000 // 2  # more than one chunk
    gains = DrawnGains(laws.Normal(0.1), CENTRE, 1, drift)
    first, again = taken(gains, slots), taken(gains, slots)
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(taken(DrawnGains(laws.Normal(0.1), CENTRE, 2, drift), 10)[1], first[1][:10])
    assert len(np.unique(first[1][:, 0])) == slots


def test_what_is_given_cannot_be_written_to() -> None:
    for drift in (None, Walk()):
        means, draws = next(iter(DrawnGains(laws.Normal(0.1), CENTRE, 1, drift)))
        assert not means.flags.writeable
        assert not draws.flags.writeable


@given(st.floats(-2, 3), st.floats(0.01, 2))
def test_the_mean_of_a_clipped_normal_is_that_of_the_integral(centre: float, sd: float) -> None:
    x = centre + sd * np.linspace(-9, 9, 60_001)
    weight = np.exp(-0.5 * ((x - centre) / sd) ** 2)
    integral = float((np.clip(x, 0, 1) * weight).sum() / weight.sum())
    assert float(clipped_normal_mean(centre, sd)) == pytest.approx(integral, abs=1e-6)


def test_the_papers_net_gain_lies_in_0_1() -> None:
    cost = np.array([0.1, 0.12, 0.08])
    means, draws = taken(DrawnGains(LAWS["papers"], CENTRE, 3), 2000)
    assert (draws - cost >= -1e-12).all()
    assert (draws - cost <= 1 + 1e-12).all()
    assert (means[0] > CENTRE)[0]  # cutting off at 0 lifts the mean of a small gain
    assert (means[0] < CENTRE)[2]


def test_a_walk_is_slow_and_stays_within_its_range() -> None:
    means, _ = taken(DrawnGains(laws.Normal(0.1), CENTRE, 1, Walk(0.02, 0.1, 1.0)), 30_000)
    assert np.array_equal(means[0], CENTRE)
    assert means.min() >= 0.1
    assert means.max() <= 1.0
    assert np.abs(np.diff(means, axis=0)).max() < 0.12
    assert (np.ptp(means, axis=0) > 0.6).all()


def test_a_redraw_moves_the_share_of_channels_at_its_time_and_no_other() -> None:
    centre = np.full(10, 0.5)
    means, _ = taken(DrawnGains(laws.Normal(0.1), centre, 1, Redraw(every=1000, share=0.3)), 25_000)
    moved = (np.diff(means, axis=0) != 0).sum(axis=1)
    assert np.array_equal(np.flatnonzero(moved), np.arange(999, 24_999, 1000))
    assert set(moved[moved > 0]) == {3}
    assert np.array_equal(means[0], centre)


@pytest.mark.parametrize(
    "make",
    [
        lambda: laws.Normal(-1.0),
        lambda: laws.Beta(0.0),
        lambda: laws.Lognormal(float("nan")),
        lambda: laws.ClippedNormal(0.1, low=1.0, high=0.0),
        lambda: laws.Empirical([[]]),
        lambda: Walk(step=-1.0),
        lambda: Walk(low=1.0, high=0.0),
        lambda: Redraw(every=0),
        lambda: Redraw(share=1.5),
        lambda: DrawnGains(laws.Normal(0.1), [[0.5]], 0),
        lambda: supply_cost([[1.0, 2.0]], "cubic"),
        lambda: supply_cost([[1.0, 2.0]], ["linear"]),
        lambda: supply_cost([1.0, 2.0]),
    ],
)
def test_nonsense_is_refused(make: object) -> None:
    with pytest.raises(InvalidInput):
        make()  # type: ignore[operator]


def test_costs_of_any_shape() -> None:
    takes = np.array([[4.0, 1.0], [0.0, 2.0]])
    assert supply_cost(takes).tolist() == [5.0, 2.0]
    assert supply_cost(takes, "quadratic", 0.5).tolist() == [8.5, 2.0]
    steps = supply_cost(takes, [np.ceil, lambda a: np.where(a > 1.5, 10.0, 0.0)], [1.0, 2.0])
    assert steps.tolist() == [4.0, 20.0]


def test_the_papers_costs() -> None:
    costs = normal_costs(np.random.default_rng(0), 20_000, 3)
    assert costs.mean() == pytest.approx(1.5, abs=0.01)
    assert costs.std() == pytest.approx(0.1 * np.sqrt(3), abs=0.01)
