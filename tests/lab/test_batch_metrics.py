"""Numbers of a schedule: examples worked out by hand, and plain Python on random schedules."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.lab.replay.results import PERCENTILES, batch_metrics, bounded_slowdown
from tests.harness.examples import examples

NAN = float("nan")


def metrics(jobs: list[tuple[float, float, float, float]], capacity: float, owner: list[int] | None = None) -> Any:
    """Of jobs (submit, start, end, amount) of one resource."""
    submit, start, end, amount = np.array(jobs, dtype=np.float64).reshape(-1, 4).T
    owners = np.array(owner if owner is not None else [0] * len(jobs), dtype=np.int64)
    return batch_metrics(submit, start, end, amount[:, None], np.array([capacity]), owners)


def test_by_hand() -> None:
    """Two processors: a runs alone from 0 to 20 on both; b waits 20 s for its 5 s; c beside it waits 15 s."""
    found = metrics([(0, 0, 20, 2), (0, 20, 25, 1), (5, 20, 60, 1)], 2, [0, 0, 1])
    assert found["mean_wait_seconds"] == (0 + 20 + 15) / 3
    assert found["max_wait_seconds"] == 20
    assert found["p50_wait_seconds"] == 15
    assert found["mean_turnaround_seconds"] == (20 + 25 + 55) / 3
    slow = [1.0, 25 / 10, 55 / 40]  # b is counted as if it took 10 s
    assert found["mean_bounded_slowdown"] == pytest.approx(sum(slow) / 3, rel=1e-15)
    assert found["makespan_seconds"] == 60
    assert found["jobs_per_hour"] == 3 / 60 * 3600
    assert found["utilisation"] == (40 + 5 + 40) / 120
    assert found["waited_share"] == 2 / 3
    assert found["idle_while_waiting"] == 0  # both are busy until the last one starts
    mean = [(1 + 2.5) / 2, 1.375]
    assert found["owner_fairness"] == pytest.approx(sum(mean) ** 2 / (2 * (mean[0] ** 2 + mean[1] ** 2)), rel=1e-15)
    assert found["worst_owner_bounded_slowdown"] == 1.75
    assert (found["jobs"], found["never_started"], found["owners"]) == (3, 0, 2)


def test_idle_while_waiting_by_hand() -> None:
    """One of four is busy for 10 s while a job of four waits for 6 of them: 3 · 6 of 4 · 20 are idle for nothing."""
    assert metrics([(0, 0, 10, 1), (4, 10, 20, 4)], 4)["idle_while_waiting"] == 3 * 6 / (4 * 20)
    assert metrics([(0, 0, 10, 1), (10, 10, 20, 4)], 4)["idle_while_waiting"] == 0


@pytest.mark.parametrize(
    ("wait", "run", "slowdown"),
    [(90, 30, 4.0), (90, 1, 9.1), (0, 1, 1.0), (3, 4, 1.0), (0, 100, 1.0), (10, 10, 2.0), (10, 9.999, 1.9999)],
)
def test_bounded_slowdown_by_hand(wait: float, run: float, slowdown: float) -> None:
    assert bounded_slowdown(np.array([float(wait)]), np.array([float(run)])).tolist() == [pytest.approx(slowdown)]


def test_fairness_is_1_when_all_fare_alike_and_falls_to_1_over_owners() -> None:
    alike = [(0.0, 10.0, 20.0, 1.0)] * 4
    assert metrics(alike, 4, [0, 1, 2, 3])["owner_fairness"] == 1
    one = [(0.0, 1e9, 1e9 + 10, 1.0), *[(0.0, 0.0, 10.0, 1.0)] * 3]
    assert metrics(one, 4, [0, 1, 2, 3])["owner_fairness"] == pytest.approx(1 / 4, rel=1e-6)
    assert metrics(one, 4, [7, 7, 7, 7])["owner_fairness"] == 1


def test_jobs_that_never_started_count_as_such_alone() -> None:
    some = metrics([(0, 0, 20, 2), (0, NAN, NAN, 9), (5, 20, 60, 1)], 2, [0, 1, 2])
    rest = metrics([(0, 0, 20, 2), (5, 20, 60, 1)], 2, [0, 2])
    assert (some.pop("jobs"), some.pop("never_started")) == (3, 1)
    assert (rest.pop("jobs"), rest.pop("never_started")) == (2, 0)
    assert some == rest
    assert metrics([(0, NAN, NAN, 1)], 2) == {"jobs": 1, "never_started": 1}
    assert metrics([], 2) == {"jobs": 0, "never_started": 0}


def test_a_resource_that_nobody_has_is_not_used() -> None:
    found = batch_metrics(
        np.zeros(1), np.zeros(1), np.ones(1), np.array([[1.0, 0.0]]), np.array([4.0, 0.0]), np.zeros(1, np.int64)
    )
    assert found["utilisation_by_resource"] == [0.25, 0.0]


def plain_percentile(values: list[float], percent: float) -> float:
    """By linear interpolation between the two nearest ranks."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def plain_idle(jobs: list[tuple[float, float, float, float]], capacity: float) -> float:
    """Between any two moments at which something happens: is somebody waiting, and how much is idle?"""
    moments = sorted({moment for submit, start, end, _ in jobs for moment in (submit, start, end)})
    idle = 0.0
    for begin, until in pairwise(moments):
        if any(submit <= begin < start for submit, start, _, _ in jobs):
            busy = sum(amount for _, start, end, amount in jobs if start <= begin < end)
            idle += max(capacity - busy, 0.0) * (until - begin)
    return idle / (capacity * (moments[-1] - moments[0]))


halves = st.integers(0, 60).map(lambda n: n / 2)
rows = st.tuples(halves, halves, st.integers(1, 60).map(lambda n: n / 2), st.integers(1, 4), st.integers(0, 3))


@examples(150)
@given(st.lists(rows, min_size=1, max_size=12), st.integers(1, 12))
def test_random_schedules_in_plain_python(drawn: list[tuple[float, float, float, int, int]], capacity: int) -> None:
    jobs = [(submit, submit + wait, submit + wait + run, float(amount)) for submit, wait, run, amount, _ in drawn]
    owner = [row[4] for row in drawn]
    found = metrics(jobs, capacity, owner)
    wait = [start - submit for submit, start, _, _ in jobs]
    slow = [max((end - submit) / max(end - start, 10.0), 1.0) for submit, start, end, _ in jobs]
    turnaround = [end - submit for submit, _, end, _ in jobs]
    for name, values in (
        ("wait_seconds", wait),
        ("turnaround_seconds", turnaround),
        ("bounded_slowdown", slow),
    ):
        assert found[f"mean_{name}"] == pytest.approx(statistics.fmean(values), rel=1e-12)
        assert found[f"max_{name}"] == max(values)
        for percent in PERCENTILES:
            assert found[f"p{percent}_{name}"] == pytest.approx(plain_percentile(values, percent), rel=1e-12)
    span = max(end for _, _, end, _ in jobs) - min(submit for submit, _, _, _ in jobs)
    used = sum(amount * (end - start) for _, start, end, amount in jobs)
    assert found["utilisation"] == pytest.approx(used / (capacity * span), rel=1e-12)
    assert found["idle_while_waiting"] == pytest.approx(plain_idle(jobs, capacity), rel=1e-9, abs=1e-12)
    means = [
        statistics.fmean(value for value, whose in zip(slow, owner, strict=True) if whose == one)
        for one in sorted(set(owner))
    ]
    jain = sum(means) ** 2 / (len(means) * sum(value**2 for value in means))
    assert found["owner_fairness"] == pytest.approx(jain, rel=1e-12)
    assert found["worst_owner_bounded_slowdown"] == pytest.approx(max(means), rel=1e-12)
