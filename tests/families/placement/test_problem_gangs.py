"""Gangs, ports and devices: for each rule a decision that breaks it, and one that nearly does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.problem import WAIT, Berths, PlacementDecision, PlacementProblem, PlacementSlot, Tasks
from berth.families.placement.world import PlacementWorld
from berth.model import Cluster, Instance, JobType, Resource
from tests.families.placement.test_queued import gang_worlds
from tests.harness.examples import examples

CAPACITY = [[4.0, 2.0], [4.0, 2.0], [2.0, 0.0]]
NOBODY = Berths(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros((0, 2)))


def problem(**changes: Any) -> PlacementProblem:
    """Servers a, b (speed 2) and c; port 0 reaches all, port 1 only a and b."""
    cluster = Cluster((Resource("cpu"), Resource("gpu")), ("a", "b", "c"), np.array(CAPACITY))
    ports = (JobType("any", np.ones(2)), JobType("big", np.ones(2)))
    graph = Instance(cluster, ports, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)])
    zero = np.zeros(3)
    made = PlacementProblem(graph, np.array([1.0, 2.0, 1.0]), zero, zero, np.ones(2), np.inf, gangs=True)
    return made.replace(**changes) if changes else made


def tasks(**changes: Any) -> Tasks:
    """Task 0: three pieces of 2 cpu; task 1: one of 1 cpu on port 1; task 2: two pieces of 1 cpu."""
    columns: dict[str, Any] = {
        "arrival": np.zeros(3),
        "demand": np.array([[2.0, 0.0], [1.0, 0.0], [1.0, 0.0]]),
        "work": np.array([6.0, 4.0, 2.0]),
        "value": np.ones(3),
        "decay": np.zeros(3),
        "deadline": np.full(3, 99.0),
        "pieces": np.array([3, 1, 2]),
        "port": np.array([0, 1, 0]),
        **changes,
    }
    return Tasks(**columns)


def slot(some: Tasks | None = None, devices: Any = None) -> PlacementSlot:
    up = np.ones(3, dtype=bool)
    held = None if devices is None else np.array(devices, dtype=np.float64)
    return PlacementSlot(
        0, 1.0, np.arange(3), some or tasks(), np.array(CAPACITY), np.full(3, -np.inf), up, NOBODY, held
    )


def decided(server: list[int], gangs: dict[int, Any] | None = None, start: list[float] | None = None) -> Any:
    listed = {i: np.array(servers) for i, servers in (gangs or {}).items()}
    return PlacementDecision(np.array(server), None if start is None else np.array(start), listed)


def broken(decision: PlacementDecision, at: PlacementSlot | None = None, **changes: Any) -> list[str]:
    return [str(violation) for violation in problem(**changes).violations(at or slot(), decision)]


# --- gangs


@pytest.mark.parametrize("servers", [[0, 0, 1], [0, 1, 2], [1, 0, 1]])
def test_a_whole_gang_that_fits_is_feasible(servers: list[int]) -> None:
    assert broken(decided([servers[0], WAIT, WAIT], {0: servers})) == []


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (decided([0, WAIT, WAIT]), "pieces of task 0: 1 used, 3 allowed"),
        (decided([0, WAIT, WAIT], {0: [0, 1]}), "pieces of task 0: 2 used, 3 allowed"),
        (decided([0, WAIT, WAIT], {0: [0, 0, 1, 1]}), "pieces of task 0: 4 used, 3 allowed"),
        (decided([WAIT, 0, WAIT], {1: [0, 1]}), "pieces of task 1: 2 used, 1 allowed"),
        (decided([0, WAIT, WAIT], {0: [0, 0, 3]}), "server of gang of task 0: -1 used, 2 allowed"),
        (decided([0, WAIT, WAIT], {0: [0, -1, 1]}), "server of gang of task 0: -1 used, 2 allowed"),
        (decided([0, WAIT, WAIT], {0: [0.0, 0.0, 1.0]}), "server of gang of task 0: -1 used, 2 allowed"),
        (decided([0, WAIT, WAIT], {0: [[0, 0, 1]]}), "server of gang of task 0: -1 used, 2 allowed"),
        (decided([WAIT, WAIT, WAIT], {3: [0]}), "task of place 3 among the pending: 3 used, 2 allowed"),
        (decided([0, WAIT, WAIT], {0: [0, 0, 0]}), "capacity of a/cpu: 6 used, 4 allowed"),
        (decided([0, WAIT, 2], {0: [0, 1, 2], 2: [2, 0]}), "capacity of c/cpu: 3 used, 2 allowed"),
    ],
)
def test_what_breaks_a_gang(decision: PlacementDecision, said: str) -> None:
    assert broken(decision) == [said]


def test_gangs_share_servers_as_far_as_they_go() -> None:
    assert broken(decided([0, 0, 1], {0: [0, 1, 2], 2: [1, 1]})) == []
    assert broken(decided([0, 1, 1], {0: [0, 1, 2], 2: [1, 1]})) == ["capacity of b/cpu: 5 used, 4 allowed"]


def test_the_slowest_server_says_how_long_and_rows_are_by_server() -> None:
    placed = problem().placed(slot(), decided([1, WAIT, 1], {0: [1, 0, 1], 2: [1, 1]}))
    assert placed.task.tolist() == [0, 0, 2]
    assert placed.server.tolist() == [0, 1, 1]
    assert placed.demand[:, 0].tolist() == [2.0, 4.0, 2.0]
    assert placed.end.tolist() == [7.0, 7.0, 2.0]  # 6 at speed 1; 2 at speed 2
    berths = problem().berths(slot(), decided([1, 0, WAIT], {0: [1, 0, 1]}))
    assert [(berth.port, berth.server, berth.amounts[0]) for berth in berths] == [
        ("any", "a", 2.0),
        ("any", "b", 4.0),
        ("big", "a", 1.0),
    ]


def test_a_gang_waits_as_a_whole_when_repaired() -> None:
    repaired = problem().repaired(slot(), decided([0, 0, 2], {0: [0, 1, 2], 2: [2, 0]}))
    assert repaired.server.tolist() == [0, 0, WAIT]
    assert {i: part.tolist() for i, part in repaired.gangs.items()} == {0: [0, 1, 2]}
    assert broken(repaired) == []
    short = problem().repaired(slot(), decided([0, 0, 1], {0: [0, 1], 2: [1, 1], 9: [0]}))
    assert short.server.tolist() == [WAIT, 0, 1]
    assert broken(short) == []


# --- ports


def test_tasks_keep_to_the_servers_of_their_port() -> None:
    assert broken(decided([WAIT, 1, WAIT])) == []
    assert broken(decided([WAIT, 2, WAIT])) == ["channel of task 1 on c: 1 used, 0 allowed"]
    gang = slot(tasks(port=np.array([1, 0, 0])))
    assert broken(decided([0, WAIT, WAIT], {0: [0, 1, 1]}), gang) == []
    assert broken(decided([0, WAIT, WAIT], {0: [0, 1, 2]}), gang) == ["channel of task 0 on c: 1 used, 0 allowed"]
    assert problem().repaired(slot(), decided([WAIT, 2, WAIT])).server.tolist() == [WAIT, WAIT, WAIT]
    assert problem().reach.tolist() == [[True, True, True], [True, True, False]]


def test_ports_that_are_not_there_are_refused() -> None:
    with pytest.raises(InvalidInput, match="a port below 2"):
        PlacementWorld(problem(), tasks(port=np.array([0, 2, 0])), 1)
    with pytest.raises(InvalidInput, match="1, in a problem without gangs"):
        PlacementWorld(problem(gangs=False), tasks(), 1)


# --- devices

FREE = [[1.0, 0.5], [0.25, 1.0], [0.0, 0.0]]


def sharing(*gpu: float, pieces: tuple[int, int, int] = (1, 1, 1)) -> PlacementSlot:
    demand = np.stack([np.full(3, 0.5), gpu], axis=1)
    return slot(tasks(demand=demand, pieces=np.array(pieces), port=np.zeros(3, np.int64)), FREE)


def test_shares_go_to_the_fullest_device_that_has_them() -> None:
    shared = problem(devices=1)
    placed = shared.placed(sharing(0.5, 0.25, 1.0), decided([0, 0, 1]))
    assert placed.devices is not None
    assert placed.devices.tolist() == [[0.0, 0.5], [0.25, 0.0], [0.0, 1.0]]
    assert shared.all_devices.tolist() == [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("gpu", "server", "lacking"),
    [
        ((0.5, 1.0, 0.0), [0, 0, WAIT], None),
        ((0.75, 0.5, 0.25), [0, 0, 0], None),  # the last gets what the first left of a device
        ((0.75, 0.75, 0.0), [0, 0, WAIT], "device of a for task 1: 0.75 used, 0 allowed"),  # 0.25 and 0.5 are free
        ((1.0, 1.0, 0.0), [0, 0, WAIT], "device of a for task 1: 1 used, 0 allowed"),
        ((2.0, 0.0, 0.0), [0, WAIT, WAIT], "device of a for task 0: 2 used, 0 allowed"),
        ((0.5, 0.5, 0.25), [1, 1, 1], None),
        ((0.5, 0.5, 0.3), [1, 1, 1], "device of b for task 2: 0.3 used, 0 allowed"),
        ((0.5, 0.0, 0.0), [WAIT, 2, 2], None),
    ],
)
def test_devices_are_what_counts_not_their_sum(gpu: Any, server: list[int], lacking: str | None) -> None:
    assert broken(decided(server), sharing(*gpu), devices=1) == ([] if lacking is None else [lacking])


def test_what_finds_no_device_waits_when_repaired() -> None:
    repaired = problem(devices=1).repaired(sharing(0.75, 0.75, 0.25), decided([0, 0, 0]))
    assert repaired.server.tolist() == [0, WAIT, 0]
    gang = sharing(0.5, 0.0, 0.0, pieces=(3, 1, 1))
    assert problem(devices=1).repaired(gang, decided([0, 0, 0], {0: [0, 0, 0]})).server.tolist() == [0, 0, 0]
    gang = sharing(0.5, 0.0, 0.0, pieces=(4, 1, 1))
    assert problem(devices=1).repaired(gang, decided([0, 0, 0], {0: [0, 0, 0, 0]})).server.tolist() == [WAIT, 0, 0]


def test_devices_must_be_whole() -> None:
    with pytest.raises(InvalidInput, match="the number of a resource, below 2"):
        problem(devices=2)
    cluster = Cluster((Resource("gpu"),), ("a",), np.array([[1.5]]))
    graph = Instance(cluster, (JobType("any", np.ones(1)),), [(0, 0)])
    one = np.ones(1)
    with pytest.raises(InvalidInput, match=r"capacity\[0\]: got 1.5, expected whole devices"):
        PlacementProblem(graph, one, one, one, one, devices=0)
    demand = np.array([[0.0, 1.5], [0.0, 1.0], [0.0, 0.5]])
    with pytest.raises(InvalidInput, match="a share of one device, or whole devices"):
        PlacementWorld(problem(devices=1), tasks(demand=demand), 1)


# --- times


def test_only_what_is_known_can_be_reserved() -> None:
    later = decided([WAIT, 0, WAIT], start=[1.0, 2.0, 1.0])
    assert broken(later) == []
    assert broken(later, exact=False) == ["start of task 1: 2 used, 1 allowed"]
    assert broken(later, sharing(0.0, 0.0, 0.0), devices=1) == ["start of task 1: 2 used, 1 allowed"]
    assert broken(decided([WAIT, 0, WAIT], start=[1.0, 1.0, 1.0]), exact=False) == []


def test_who_needs_more_than_a_policy_knows_is_told() -> None:
    single = problem(gangs=False)
    for changed, what in (
        (problem(), "gangs"),
        (single, "ports that do not reach every server"),
        (problem(devices=1), "gangs"),
    ):
        with pytest.raises(UnsupportedProblem, match=f"somebody cannot serve a problem with {what}"):
            changed.require_single("somebody")
    plain = PlacementProblem.of_servers([[4.0]], [1.0], [0.0], [0.0])
    plain.require_single("somebody", exact=True)
    plain.replace(exact=False).require_single("somebody")
    with pytest.raises(UnsupportedProblem, match="not known exactly"):
        plain.replace(exact=False).require_single("somebody", exact=True)


@pytest.mark.parametrize("devices", [False, True])
@examples(50)
@given(data=st.data())
def test_whatever_is_decided_is_feasible_once_repaired(devices: bool, data: st.DataObject) -> None:
    """Random gangs, whole or not: what is repaired breaks nothing, and is not repaired again."""
    world = data.draw(gang_worlds(devices=devices))
    servers = len(world.problem.speed)
    for now in world:
        anywhere = st.integers(-2, servers)
        server = [data.draw(anywhere) for _ in now.ids]
        gangs = {}
        for i, pieces in enumerate(now.tasks.pieces.tolist()):
            if server[i] >= 0 and (pieces > 1 or data.draw(st.booleans())):
                gangs[i] = np.array([data.draw(st.integers(0, servers - 1)) for _ in range(pieces)])
        decision = world.problem.repaired(now, PlacementDecision(np.array(server, dtype=np.int64), None, gangs))
        assert world.problem.violations(now, decision) == []
        again = world.problem.repaired(now, decision)
        assert again.server.tolist() == decision.server.tolist()
        world.step(decision)
        if now.time > 20:
            break
