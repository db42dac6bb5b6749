"""Tasks, slots and decisions of the placement family: what is worth what, what is feasible, what is repaired."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.families.placement.problem import (
    REJECT,
    WAIT,
    Berths,
    PlacementDecision,
    PlacementProblem,
    PlacementSlot,
    Tasks,
)
from berth.families.placement.world import PlacementWorld
from berth.testing.strategies import placement_decisions, placement_worlds

FIELDS: dict[str, list[Any]] = {
    "arrival": [0, 1, 1],
    "demand": [[2, 1], [1, 1], [4, 1]],
    "work": [4, 2, 3],
    "value": [9, 5, 7],
    "decay": [1, 0.5, 2],
    "deadline": [6, 3, 9],
}


def tasks(**changes: Any) -> Tasks:
    columns: Any = {name: np.array(value, dtype=np.float64) for name, value in {**FIELDS, **changes}.items()}
    return Tasks(**columns)


def problem(**changes: Any) -> PlacementProblem:
    made = PlacementProblem.of_servers([[4.0, 4.0], [2.0, 2.0]], [2.0, 1.0], [1.0, 0.5], [0.1, 0.1])
    return made.replace(**changes) if changes else made


def slot(time: float = 1.0, running: list[tuple[int, int, float, float, list[float]]] | None = None) -> PlacementSlot:
    """Three pending tasks; `running` are (task, server, start, end, demand)."""
    rows = running or []
    free = problem().instance.capacity.copy()
    for _, server, start, end, demand in rows:
        if start <= time < end:
            free[server] -= demand
    berths = Berths(
        np.array([row[0] for row in rows], dtype=np.int64),
        np.array([row[1] for row in rows], dtype=np.int64),
        np.array([row[2] for row in rows], dtype=np.float64),
        np.array([row[3] for row in rows], dtype=np.float64),
        np.array([row[4] for row in rows], dtype=np.float64).reshape(-1, 2),
    )
    return PlacementSlot(1, time, np.arange(3), tasks(), free, np.full(2, -np.inf), np.ones(2, dtype=bool), berths)


def decided(*servers: int, start: list[float] | None = None) -> PlacementDecision:
    return PlacementDecision(np.array(servers), None if start is None else np.array(start))


def broken(decision: PlacementDecision, at: PlacementSlot | None = None) -> list[str]:
    return [str(violation) for violation in problem().violations(at or slot(), decision)]


# --- tasks


def test_worth_falls_with_time_and_ends_with_the_deadline() -> None:
    given_tasks = tasks()
    assert given_tasks.worth(np.array([0.0, 1.0, 1.0])).tolist() == [9, 5, 7]
    assert given_tasks.worth(np.array([6.0, 3.0, 3.5])).tolist() == [3, 4, 2]
    assert given_tasks.worth(np.array([6.001, 3.001, 4.6])).tolist() == [0, 0, 0]
    assert len(given_tasks) == 3


def test_some_of_the_tasks() -> None:
    some = tasks().take(np.array([0, 2]))
    assert some.work.tolist() == [4, 3]
    assert some.demand.tolist() == [[2, 1], [4, 1]]
    with pytest.raises(ValueError, match="read-only"):
        some.work[0] = 1
    assert len(tasks().take(np.zeros(0, dtype=np.int64))) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"work": [4, 0, 3]}, r"tasks.work\[1\]: got 0.0, expected work > 0"),
        ({"arrival": [0, 2, 1]}, r"arrival\[2\]: got 1.0, expected tasks in the order of their arrival"),
        ({"value": [9, 5]}, r"tasks.value: got \(2,\), expected an array of shape \(3,\)"),
        ({"demand": [[1, 1]]}, r"tasks.demand: got \(1, 2\), expected demand \(3, K\)"),
        ({"deadline": [1, np.inf, 2]}, r"tasks.deadline\[1\]: got inf, expected a finite number ≥ 0"),
        ({"decay": [1, -1, 2]}, r"tasks.decay\[1\]: got -1.0, expected a finite number ≥ 0"),
    ],
)
def test_wrong_tasks_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        tasks(**changes)


# --- problems


def test_kinds_are_servers_that_differ_in_nothing() -> None:
    made = PlacementProblem.of_servers([[4.0], [4.0], [4.0], [2.0]], [1, 1, 2, 1], [1, 1, 1, 1], [0, 0, 0, 0])
    kind = made.kind.tolist()
    assert kind[0] == kind[1]
    assert len({kind[0], kind[2], kind[3]}) == 3
    assert len(set(made.replace(launch=np.array([1.0, 2.0, 1.0, 1.0])).kind.tolist())) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speed": np.array([1.0, 0.0])}, r"speed\[1\]: got 0.0, expected a speed > 0"),
        ({"idle": -1.0}, "idle: got -1.0, expected a time ≥ 0"),
        ({"idle": np.nan}, "idle: got nan, expected a time ≥ 0"),
        ({"horizon": 0}, "horizon: got 0, expected at least 1 slot"),
        ({"launch": np.array([1.0])}, r"launch: got \(1,\), expected an array of shape \(2,\)"),
        ({"weight": np.array([1.0])}, r"weight: got \(1,\), expected an array of shape \(2,\)"),
        ({"rate": np.array([1.0, -1.0])}, r"rate\[1\]: got -1.0, expected a finite number ≥ 0"),
    ],
)
def test_wrong_problems_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        problem(**changes)


def test_problems_pickle_and_stay_read_only() -> None:
    again: PlacementProblem = pickle.loads(pickle.dumps(problem(idle=np.inf)))
    assert again.idle == np.inf
    assert again.speed.tolist() == [2, 1]
    assert not again.speed.flags.writeable


# --- feasibility


def test_what_fits_is_feasible() -> None:
    assert broken(decided(0, 0, WAIT)) == []
    assert broken(decided(1, REJECT, 0)) == []
    assert broken(decided(WAIT, WAIT, REJECT)) == []


def test_capacity_is_that_of_every_moment() -> None:
    assert broken(decided(0, 0, 0)) == ["capacity of server-0/resource-0: 7 used, 4 allowed"]
    assert broken(decided(WAIT, WAIT, 1)) == ["capacity of server-1/resource-0: 4 used, 2 allowed"]
    # task 0 runs on server 0 from 1 to 3, task 2 from 3 on: never together
    assert broken(decided(0, WAIT, 0, start=[1, 1, 3])) == []
    assert broken(decided(0, WAIT, 0, start=[1, 1, 2.9])) == ["capacity of server-0/resource-0: 6 used, 4 allowed"]


def test_what_runs_and_what_is_reserved_counts() -> None:
    busy = slot(running=[(9, 0, 0.0, 2.0, [3.0, 1.0])])
    assert broken(decided(0, WAIT, WAIT), busy) == ["capacity of server-0/resource-0: 5 used, 4 allowed"]
    assert broken(decided(0, WAIT, WAIT, start=[2, 1, 1]), busy) == []
    later = slot(running=[(9, 0, 2.0, 4.0, [3.0, 1.0])])
    assert broken(decided(0, WAIT, WAIT), later) == ["capacity of server-0/resource-0: 5 used, 4 allowed"]
    assert broken(decided(WAIT, 0, WAIT), later) == []


def test_other_mistakes_are_found() -> None:
    assert broken(decided(2, WAIT, -3)) == [
        "server of task 0: 2 used, 1 allowed",
        "server of task 2: -3 used, 1 allowed",
    ]
    assert broken(decided(0, WAIT, 0, start=[0.5, 0, np.nan])) == [
        "start of task 0: 0.5 used, 1 allowed",
        "start of task 2: nan used, 1 allowed",
    ]
    down = slot()
    down.up[1] = False
    assert broken(decided(WAIT, 1, WAIT), down) == ["server of server-1, which is down: 1 used, 0 allowed"]


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (np.zeros(3), "got 'ndarray', expected a PlacementDecision"),
        (decided(0, 0), r"got \(2,\), expected a server for each of 3 tasks"),
        (decided(0, 0, 0, start=[0.0]), r"got \(1,\), expected a start for each of 3 tasks"),
    ],
)
def test_what_is_no_decision_is_refused(decision: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        problem().violations(slot(), decision)


def test_repair_keeps_what_fits_beside_those_before() -> None:
    repaired = problem().repaired(slot(), decided(0, 0, 0))
    assert repaired.server.tolist() == [0, 0, WAIT]
    assert problem().repaired(slot(), decided(9, REJECT, -7)).server.tolist() == [WAIT, REJECT, WAIT]
    early = problem().repaired(slot(), decided(0, 0, WAIT, start=[0.0, 1.0, np.inf]))
    assert early.server.tolist() == [WAIT, 0, WAIT]
    wild = PlacementDecision(np.array([np.nan, np.inf, 0.0]))
    assert problem().repaired(slot(), wild).server.tolist() == [WAIT, WAIT, 0]


@given(placement_worlds(), st.data())
def test_feasible_decisions_are_not_repaired(world: PlacementWorld, data: st.DataObject) -> None:
    for now in world:
        decision = data.draw(placement_decisions(world.problem, now))
        again = world.problem.repaired(now, decision)
        assert again.server.tolist() == decision.server.tolist()
        world.step(decision)


def test_berths() -> None:
    decision = decided(1, WAIT, 0)
    placed = problem().placed(slot(), decision)
    assert (placed.task.tolist(), placed.server.tolist()) == ([0, 2], [1, 0])
    assert (placed.start.tolist(), placed.end.tolist()) == ([1, 1], [5, 2.5])
    berths = problem().berths(slot(), decision)
    assert [(berth.server, berth.amounts) for berth in berths] == [("server-1", (2, 1)), ("server-0", (4, 1))]
    assert {berth.port for berth in berths} == {"tasks"}
