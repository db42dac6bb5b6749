"""Batch logs on one pool: the kernel against the plain reference, and what must hold in any case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.families.placement.pool_runs import run_pool
from tests.harness.examples import examples
from tests.reference import batch

RULES = {"none": batch.strict, "any": batch.whoever_fits, "easy": batch.easy}
ORDERS = {"arrival": batch.by_arrival, "length": batch.by_length}


@st.composite
def logs(draw: st.DrawFn, *, exact: bool | None = None) -> tuple[list[batch.Job], float]:
    """Jobs and a pool; whole numbers and halves, so that sums are exact and many things happen at one moment."""
    processors = draw(st.integers(1, 8))
    halves = st.integers(1, 16).map(lambda n: n / 2)
    known = draw(st.booleans()) if exact is None else exact
    jobs = []
    for _ in range(draw(st.integers(0, 14))):
        run = draw(halves)
        estimate = run if known else draw(halves)
        jobs.append((draw(st.integers(0, 20)) / 2, float(draw(st.integers(1, processors))), run, estimate))
    return sorted(jobs, key=lambda job: job[0]), float(processors)


def started(jobs: list[batch.Job], processors: float, backfill: str, order: str = "arrival") -> Any:
    submit, size, run, estimate = np.array(jobs, dtype=np.float64).reshape(-1, 4).T
    key = estimate if order == "length" else None
    return run_pool(submit, size, run, estimate, processors, backfill=backfill, key=key)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("backfill", RULES)
@examples(150)
@given(log=logs())
def test_the_kernel_is_the_reference(backfill: str, order: str, log: tuple[list[batch.Job], float]) -> None:
    jobs, processors = log
    plain = batch.simulate_batch(jobs, processors, RULES[backfill](ORDERS[order]))
    assert started(jobs, processors, backfill, order).tolist() == plain


@examples(200)
@given(log=logs())
def test_conservative_is_the_reference(log: tuple[list[batch.Job], float]) -> None:
    jobs, processors = log
    assert started(jobs, processors, "conservative").tolist() == batch.conservative(jobs, processors)


@pytest.mark.parametrize("backfill", [*RULES, "conservative"])
@examples(100)
@given(log=logs())
def test_never_more_than_there_is_and_never_too_early(backfill: str, log: tuple[list[batch.Job], float]) -> None:
    jobs, processors = log
    start = started(jobs, processors, backfill)
    submit, size, run, _ = np.array(jobs, dtype=np.float64).reshape(-1, 4).T
    assert (start >= submit).all()
    for moment in start:
        assert size[(start <= moment) & (moment < start + run)].sum() <= processors


@examples(150)
@given(log=logs())
def test_strict_order_and_no_idle_head_that_fits(log: tuple[list[batch.Job], float]) -> None:
    jobs, processors = log
    start = started(jobs, processors, "none")
    submit, size, run, _ = np.array(jobs, dtype=np.float64).reshape(-1, 4).T
    assert (np.diff(start) >= 0).all()
    for i in range(len(jobs)):
        before = float(start[i - 1]) if i else -np.inf
        ready = max(float(submit[i]), before)  # it is at the head from then on
        for moment in {ready, *(start[:i] + run[:i])}:
            if ready <= moment < start[i]:
                held = size[:i][(start[:i] <= moment) & (moment < start[:i] + run[:i])].sum()
                assert held + size[i] > processors


@examples(150)
@given(log=logs(exact=True))
def test_easy_never_delays_the_reservation_of_the_head(log: tuple[list[batch.Job], float]) -> None:
    """With estimates that hold, a job starts no later than the reservation that it got on becoming the head."""
    jobs, processors = log
    promised: dict[int, float] = {}
    rule = batch.easy(batch.by_arrival)

    def watch(jobs: Any, now: float, waiting: list[int], running: list[int], start: Any, free: float) -> list[int]:
        chosen = rule(jobs, now, waiting, running, start, free)
        left = [i for i in sorted(waiting) if i not in chosen]
        if left:
            head = left[0]
            now_running = [*running, *(i for i in chosen if i < head)]  # the reservation does not know who backfills
            ends = sorted((start[i] if i in running else now) + jobs[i][3] for i in now_running)
            for end in ends:
                held = sum(jobs[i][1] for i in now_running if (start[i] if i in running else now) + jobs[i][3] > end)
                if held + jobs[head][1] <= processors:
                    promised.setdefault(head, end)
                    break
        return chosen

    batch.simulate_batch(jobs, processors, watch)
    start = started(jobs, processors, "easy")
    for head, moment in promised.items():
        assert start[head] <= moment


def test_known_example() -> None:
    """The second job waits for four processors; a short one may pass it, a long one may not."""
    jobs = [(0.0, 2.0, 5.0, 5.0), (1.0, 4.0, 5.0, 5.0), (2.0, 2.0, 6.0, 6.0), (2.0, 2.0, 3.0, 3.0)]
    assert started(jobs, 4.0, "none").tolist() == [0.0, 5.0, 10.0, 10.0]
    assert started(jobs, 4.0, "easy").tolist() == [0.0, 5.0, 10.0, 2.0]
    assert started(jobs, 4.0, "any").tolist() == [0.0, 8.0, 2.0, 5.0]


def test_shares_that_do_not_add_up_exactly_still_fit() -> None:
    tenth = [(0.0, 0.1, 1.0, 1.0)] * 10
    assert started(tenth, 1.0, "none").tolist() == [0.0] * 10


@pytest.mark.parametrize(("column", "value"), [(0, float("nan")), (1, 9.0), (1, -1.0), (2, float("inf")), (3, -1.0)])
def test_impossible_jobs_are_refused(column: int, value: float) -> None:
    job = [0.0, 1.0, 1.0, 1.0]
    job[column] = value
    submit, size, run, estimate = ([part] for part in job)
    with pytest.raises(InvalidInput):
        run_pool(submit, size, run, estimate, 4.0)


def test_many_early_ends_leave_room_for_every_step() -> None:
    """Hundreds of jobs that all end early move many times: the tables of the kernel must hold all their steps."""
    rng = np.random.default_rng(1)
    count = 400
    submit = np.sort(rng.integers(0, 16_000, count)).astype(np.float64)
    run = rng.integers(1, 200, count).astype(np.float64)
    start = run_pool(
        submit, rng.integers(1, 17, count), run, run + rng.integers(0, 900, count), 16, backfill="conservative"
    )
    assert (start >= submit).all()


def test_jobs_must_come_by_arrival() -> None:
    with pytest.raises(InvalidInput, match="order of their arrival"):
        run_pool([1, 0], [1, 1], [1, 1], [1, 1], 4.0)
