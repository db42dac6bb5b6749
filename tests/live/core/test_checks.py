"""The quick check of placings against the one rule by rule, and releases in order of time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.live.core.events import Submitted
from berth.live.core.jobs import Job
from berth.live.core.kernels.checks import keeps_rules
from berth.live.core.kernels.holding import released
from berth.live.core.order import make_view
from berth.live.core.view import Placing, listed_violations, placed_in_order, violations
from tests.harness.examples import examples
from tests.live.core.builders import dispatcher
from tests.live.core.plays import SERVERS, jobs


@examples(200)
@given(st.lists(jobs, min_size=1, max_size=5), st.data())
def test_what_is_checked_quickly_is_what_is_checked_rule_by_rule(submitted: list[Job], data: st.DataObject) -> None:
    made = dispatcher(*SERVERS)
    for number, job in enumerate(submitted):
        made.handle(Submitted(0.0, job.replace(id=f"j{number}", queue="default")))
    view = make_view(made.state, 0.0)
    placing = placed_in_order(view)
    columns = [placing.job.copy(), placing.role.copy(), placing.server.copy(), placing.count.copy()]
    for _ in range(data.draw(st.integers(0, 2)) if len(placing.job) else 0):
        column = data.draw(st.sampled_from(columns))
        column[data.draw(st.integers(0, len(column) - 1))] += data.draw(st.sampled_from([-1, 1, 9]))
    kept = np.arange(len(placing.job)) >= data.draw(st.integers(0, 1))
    placing = Placing(*(column[kept] for column in columns))
    listed = listed_violations(view, placing)
    job_, role, server, count = placing.job, placing.role, placing.server, placing.count
    sure = bool(keeps_rules(job_, role, server, count, view.gangs, view.reach, view.free))
    assert not (sure and listed)
    assert sure or listed or (view.gangs.each < view.gangs.most).any()
    assert violations(view, placing) == listed


@given(st.lists(st.tuples(st.integers(0, 3).map(float), st.integers(1, 3)), max_size=6))
def test_releases_are_in_order_of_time_and_then_of_jobs(ends: list[tuple[float, int]]) -> None:
    left, places = np.array([end for end, _ in ends]), [count for _, count in ends]
    start, size = np.concatenate([[0], np.cumsum(places)]).astype(np.int64), sum(places)
    server, amount = np.arange(size), np.arange(2 * size).reshape(size, 2)
    order = np.argsort(left, kind="stable")
    time, where, much = released(order, left, start, server, amount, 2)
    of_place = np.repeat(left, places) if size else np.zeros(0)
    expected = sorted(range(size), key=lambda place: float(of_place[place]))
    assert time.tolist() == [*of_place[expected].tolist(), 0.0, 0.0]
    assert where.tolist() == [*expected, 0, 0]
    assert much[:size].tolist() == amount[expected].tolist()
