"""The kernels that let gangs wait or start where they complete first, against their plain twins."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.live.core.kernels import FEW, Fit, Gangs, Paces, Placed, Releases, complete_in_order, ends_later
from tests.harness.examples import examples
from tests.reference import deferral as twin
from tests.reference.berthing import needed_whole

PACES = [[2.0], [1.0, 0.5], [2.0, 1.0, 0.5]]
Case = tuple[list[list[int]], list[twin.Gang], list[twin.Release]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    servers, resources = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    amount = st.integers(0, 4)
    amounts = st.lists(amount, min_size=resources, max_size=resources)
    free = draw(st.lists(amounts, min_size=servers, max_size=servers))
    release = st.tuples(st.integers(1, 9).map(float), st.integers(0, servers - 1), amounts)
    releases = sorted(draw(st.lists(release, max_size=6)), key=lambda one: one[0])
    types = []
    for _ in range(2):
        pace = draw(st.sampled_from(PACES))
        tier = st.lists(st.integers(0, len(pace) - 1), min_size=servers, max_size=servers)
        types.append((draw(tier), pace, draw(st.sampled_from([1.0, 0.5]))))
    gangs, mixes = [], draw(st.booleans())
    for shape in range(draw(st.integers(1, 8))):
        roles = []
        for _ in range(draw(st.integers(1, 2))):
            least, more = draw(st.integers(0, 3)), draw(st.integers(0, 2))
            most = max(least + more, 1)
            roles.append((draw(amounts), least, most, draw(st.integers(1, most))))
        if not any(role[1] for role in roles):
            continue
        reach = sorted(draw(st.sets(st.integers(0, servers - 1))))
        work, of = draw(st.sampled_from([1.0, 7.0])), draw(st.sampled_from(types))
        gangs.append(twin.Gang(reach, roles, work, *of, shape, mixes))
    for _ in range(draw(st.integers(0, 4)) if gangs else 0):  # of the same shape, perhaps of another type
        again, of = draw(st.sampled_from(gangs)), draw(st.sampled_from(types))
        gangs.append(twin.Gang(again.reach, again.roles, draw(st.sampled_from([1.0, 7.0])), *of, again.shape, mixes))
    return free, gangs, releases


def numbered(values: list[Any]) -> tuple[list[Any], Any]:
    """Each value once, and the number of each."""
    numbers: dict[Any, int] = {}
    found = [numbers.setdefault(value, len(numbers)) for value in values]
    return list(numbers), np.array(found, dtype=np.int64)


def arrays(case: Case) -> tuple[Any, ...]:
    free, gangs, releases = case
    whole, roles = np.int64, [role for gang in gangs for role in gang.roles]
    start = np.concatenate([[0], np.cumsum([len(gang.roles) for gang in gangs])]).astype(whole)
    demand = np.array([role[0] for role in roles], dtype=whole).reshape(len(roles), len(free[0]))
    numbers = (np.array([role[i] for role in roles], dtype=whole) for i in (1, 2, 3))
    sets, set_of = numbered([tuple(gang.reach) for gang in gangs])
    reach = np.array([[r in one for r in range(len(free))] for one in sets]).reshape(-1, len(free))
    types, kind = numbered([(tuple(gang.tier), tuple(gang.pace), gang.apart) for gang in gangs])
    pace = np.zeros((len(types), 3))
    for i, (_, one, _) in enumerate(types):
        pace[i, : len(one)] = one
    tier = np.array([one for one, _, _ in types], dtype=whole).reshape(-1, len(free))
    paces = Paces(tier, pace, np.array([apart for _, _, apart in types]), gangs[0].mixes)
    time, server = np.zeros(200), np.zeros(200, dtype=whole)
    amount = np.zeros((200, len(free[0])), dtype=whole)
    for i, one in enumerate(releases):
        time[i], server[i], amount[i] = one
    given_ = Releases(time, server, amount, np.array([len(releases)], dtype=whole))
    work = np.array([gang.work for gang in gangs])
    return (
        Gangs(start, set_of, np.array([gang.shape for gang in gangs], dtype=whole), demand, *numbers),
        kind,
        work,
        reach,
        np.array(free, dtype=whole),
        paces,
        given_,
    )


def table(rows: int, shapes: int) -> Placed:
    job, role, server, count = (np.zeros(rows, dtype=np.int64) for _ in range(4))
    return Placed(job, role, server, count, np.zeros(1, dtype=np.int64), np.zeros(shapes, dtype=bool))


@examples(300)
@given(cases(), st.sampled_from([0, 1, 5]))
def test_completion_is_its_plain_twin(case: Case, counted: int) -> None:
    free, gangs, releases = case
    if not gangs:
        return
    arranged, kind, work, reach, left, paces, coming = arrays(case)
    placed, fit = table(200, 8), Fit(FEW, np.ones(len(free[0])), np.ones(len(free[0])))
    complete_in_order(arranged, kind, work, fit, reach, left, paces, coming, placed, 1.05, counted)
    size = int(placed.size[0])
    found = [
        (int(j), int(m - arranged.start[j]), int(r), int(c))
        for j, m, r, c in zip(*(column[:size] for column in placed[:4]), strict=True)
    ]
    mine, noted = [list(row) for row in free], list(releases)
    expected = twin.complete_in_order(gangs, mine, [1.0] * len(free[0]), noted, 1.05, counted)
    assert found == expected
    assert left.tolist() == mine
    assert int(coming.size[0]) == len(noted)


@examples(300)
@given(cases())
def test_the_judgement_of_placings_is_its_plain_twin(case: Case) -> None:
    free, some, releases = case
    left, gangs = [list(row) for row in free], []
    for gang in some:
        places = needed_whole(left, gang.reach, [1.0] * len(free[0]), gang.roles)
        if places:
            gangs.append(twin.Gang(**{**vars(gang), "given": places}))
    if not gangs:
        return
    arranged, kind, work, reach, room, paces, coming = arrays((free, gangs, releases))
    rows = [(j, arranged.start[j] + role, r, c) for j, gang in enumerate(gangs) for role, r, c in gang.given]
    job, role, server, count = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    placed = Placed(job, role, server, count, np.array([len(rows)]), np.zeros(1, dtype=bool))
    first = np.searchsorted(placed.job, np.arange(len(gangs) + 1))
    ends = ends_later(arranged, kind, work, reach, room, paces, coming, placed, first, 1.05)
    mine = [list(row) for row in free]
    assert ends.tolist() == twin.ends_later(gangs, mine, list(releases), 1.05)
    assert room.tolist() == mine
