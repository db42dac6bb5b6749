"""The kernel that berths gangs in order: against its plain twin, and against a search of everything."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.live.core import view
from berth.live.core.kernels import Gangs
from tests.reference.berthing import fewest_servers, in_order

Case = tuple[list[list[int]], list[tuple[list[int], list[Any]]]]


@st.composite
def cases(draw: st.DrawFn, jobs: int = 5, tasks: int = 3) -> Case:
    servers, resources = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    amount = st.integers(0, 6)
    free = draw(st.lists(st.lists(amount, min_size=resources, max_size=resources), min_size=servers, max_size=servers))
    demand = st.lists(st.integers(0, 4), min_size=resources, max_size=resources)
    counts = st.tuples(st.integers(0, tasks), st.integers(0, 3))
    role = st.builds(
        lambda need, count, each: (need, count[0], max(sum(count), 1), min(each, max(sum(count), 1))),
        demand,
        counts,
        st.integers(1, 6),
    )
    gang = st.lists(role, min_size=1, max_size=3).filter(lambda roles: any(role[1] for role in roles))
    reach = st.lists(st.integers(0, servers - 1), min_size=0, max_size=servers, unique=True).map(sorted)
    return free, draw(st.lists(st.tuples(reach, gang), min_size=1, max_size=jobs))


def placed(case: Case, shapes: list[int] | None = None) -> tuple[list[tuple[int, ...]], Any]:
    free, jobs = case
    left = np.array(free, dtype=np.int64)
    roles = [role for _, gang in jobs for role in gang]
    start = np.concatenate([[0], np.cumsum([len(gang) for _, gang in jobs])])
    gangs = Gangs(
        start.astype(np.int64),
        np.arange(len(jobs)),
        np.array(shapes or range(len(jobs)), dtype=np.int64),
        np.array([need for need, _, _, _ in roles], dtype=np.int64),
        np.array([minimum for _, minimum, _, _ in roles], dtype=np.int64),
        np.array([most for _, _, most, _ in roles], dtype=np.int64),
        np.array([each for _, _, _, each in roles], dtype=np.int64),
    )
    reach = np.zeros((len(jobs), len(free)), dtype=bool)
    for number, (servers, _) in enumerate(jobs):
        reach[number, servers] = True
    made = view.placed(gangs, reach, np.ones_like(left), left)
    rows = zip(*(column.tolist() for column in (made.job, made.role, made.server, made.count)), strict=True)
    return [(j, int(m - start[j]), r, tasks) for j, m, r, tasks in rows], left


@given(cases())
def test_it_is_its_plain_twin(case: Case) -> None:
    free = [list(row) for row in case[0]]
    expected = in_order(free, [1.0] * len(free[0]), case[1], list(range(len(case[1]))))
    rows, left = placed(case)
    assert rows == expected
    assert left.tolist() == free


@given(cases())
def test_gangs_are_whole_and_fit_where_they_may(case: Case) -> None:
    free, jobs = case
    rows, left = placed(case)
    used = np.zeros_like(left)
    for job, role, server, count in rows:
        assert count > 0
        assert server in jobs[job][0]
        used[server] += count * np.array(jobs[job][1][role][0])
    assert (used <= np.array(free)).all()
    assert (left == np.array(free) - used).all()
    for job in {row[0] for row in rows}:
        for role, (_, minimum, most, each) in enumerate(jobs[job][1]):
            mine = [r for r in rows if r[:2] == (job, role)]
            assert minimum <= sum(r[3] for r in mine) <= most
            for server in {r[2] for r in mine}:
                assert sum(r[3] for r in mine if r[2] == server) <= each


@given(cases(jobs=1, tasks=2))
def test_a_gang_that_cannot_fit_is_not_placed_and_one_of_a_single_role_that_can_is(case: Case) -> None:
    free, [(reach, roles)] = case
    possible = fewest_servers(free, reach, roles)
    rows, _ = placed(case)
    if not possible:
        assert not rows
    elif len(roles) == 1:
        assert rows


@given(cases(jobs=1, tasks=3))
def test_a_gang_of_one_role_takes_the_fewest_servers_and_any_gang_one_where_one_is_enough(case: Case) -> None:
    free, [(reach, roles)] = case
    exact = [(need, minimum, max(minimum, 1), min(each, max(minimum, 1))) for need, minimum, _, each in roles]
    if sum(minimum for _, minimum, _, _ in exact) > 4:
        exact = exact[:1]
    fewest = fewest_servers(free, reach, exact)
    servers = {row[2] for row in placed((free, [(reach, exact)]))[0] if exact[row[1]][1]}
    if fewest == 1 or len(exact) == 1:
        assert len(servers) <= fewest


@given(cases())
def test_those_in_front_are_not_touched_by_those_behind(case: Case) -> None:
    free, jobs = case
    rows, _ = placed(case)
    first, _ = placed((free, jobs[:-1])) if len(jobs) > 1 else ([], None)
    assert [row for row in rows if row[0] < len(jobs) - 1] == first


@given(cases(jobs=3))
def test_jobs_of_one_shape_may_be_told_so(case: Case) -> None:
    free, jobs = case
    single = [(reach, gang[:1]) for reach, gang in jobs if gang[0][1]]
    if single:
        doubled = [job for job in single for _ in range(2)]
        shapes = [number // 2 for number in range(len(doubled))]
        assert placed((free, doubled), shapes)[0] == placed((free, doubled))[0]
