"""Which servers queue policies choose, against the plain reference: fits, Tetris, fragments."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.families.placement.kernels.gathering import Classes, Fleet, Free
from berth.families.placement.kernels.queueing import mean_fragments
from berth.families.placement.policies.packing import FragmentationAware, Tetris
from berth.families.placement.policies.rules import FCFS
from berth.families.placement.problem import Berths, PlacementDecision, PlacementProblem, PlacementSlot, Tasks
from berth.model import Cluster, Instance, JobType, Resource
from tests.harness.examples import examples
from tests.reference import gathering as plain

RNG = np.random.default_rng(0)


@dataclass
class Case:
    """The same moment twice: for policies, and plainly."""

    problem: PlacementProblem
    slot: PlacementSlot
    servers: list[plain.Server]
    tasks: list[plain.Task]
    most: list[float]


@st.composite
def moments(draw: st.DrawFn, *, devices: bool = False) -> Case:
    """Servers partly taken, and tasks that wait. Powers of two and quarters: floats are exact, and so are ties."""
    count = draw(st.integers(1, 4))
    gpus = [draw(st.integers(0, 4)) for _ in range(count)] if devices else [4] * count
    gpus[draw(st.integers(0, count - 1))] = 4
    capacity = np.array([[draw(st.sampled_from([4.0, 8.0])), float(g)] for g in gpus])
    capacity[0, 0] = 8.0
    ports = draw(st.integers(1, 2))
    pairs = [(p, r) for p in range(ports) for r in range(count) if p == 0 or draw(st.booleans())]
    cluster = Cluster((Resource("cpu"), Resource("gpu")), tuple(f"s{r}" for r in range(count)), capacity)
    graph = Instance(cluster, tuple(JobType(f"p{p}", np.ones(2)) for p in range(ports)), pairs)
    zero = np.zeros(count)
    problem = PlacementProblem(
        graph, np.ones(count), zero, zero, np.ones(2), np.inf, gangs=True, exact=False, devices=1 if devices else None
    )
    free, left = capacity.copy(), problem.all_devices.copy()
    for r in range(count):
        free[r, 0] -= draw(st.integers(0, 4))
        if devices:
            for g in range(gpus[r]):
                left[r, g] = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
            free[r, 1] = left[r].sum()
        else:
            free[r, 1] -= draw(st.integers(0, 4))
    shares = [0.0, 0.25, 0.5, 0.75, 1.0, 2.0] if devices else [0.0, 1.0, 2.0]
    rows = [
        (
            draw(st.sampled_from([0.0, 1.0, 2.0, 4.0])),
            draw(st.sampled_from(shares)),
            draw(st.integers(1, 4)),
            draw(st.integers(0, ports - 1)),
            draw(st.sampled_from([1.0, 2.0, 4.0, 8.0])),
        )
        for _ in range(draw(st.integers(1, 6)))
    ]
    table = np.array(rows)
    size = len(rows)
    tasks = Tasks(
        np.zeros(size), table[:, :2], table[:, 4], np.ones(size), np.zeros(size), np.full(size, 1e6),
        table[:, 2].astype(np.int64), table[:, 3].astype(np.int64),
    )  # fmt: skip
    nobody = np.zeros(0, dtype=np.int64)
    berths = Berths(nobody, nobody, np.zeros(0), np.zeros(0), np.zeros((0, 2)))
    slot = PlacementSlot(
        0, 0.0, np.arange(size), tasks, free, np.full(count, -np.inf), np.ones(count, dtype=bool), berths,
        left if devices else None,
    )  # fmt: skip
    servers = [plain.Server(free[r].tolist(), left[r, : gpus[r]].tolist() if devices else []) for r in range(count)]
    reach = [frozenset(np.flatnonzero(row).tolist()) for row in problem.reach]
    listed = [
        plain.Task((cpu, gpu), int(pieces), work, reach[int(port)]) for cpu, gpu, pieces, port, work in table.tolist()
    ]
    return Case(problem, slot, servers, listed, capacity.max(axis=0).tolist())


def chosen(decision: PlacementDecision) -> dict[int, list[int]]:
    """The server of each piece of what starts, sorted."""
    return {
        int(i): sorted(np.asarray(decision.gangs.get(int(i), decision.server[i : i + 1])).tolist())
        for i in np.flatnonzero(decision.server >= 0)
    }


def in_order(found: dict[int, list[int]]) -> dict[int, list[int]]:
    return {i: sorted(places) for i, places in found.items()}


@pytest.mark.parametrize("devices", [False, True])
@pytest.mark.parametrize("fit", ["first", "best", "worst", "aligned"])
@examples(60)
@given(data=st.data())
def test_fits_are_the_reference(fit: str, devices: bool, data: st.DataObject) -> None:
    case = data.draw(moments(devices=devices))
    decision = FCFS(case.problem, RNG, backfill="any", fit=fit).decide(case.slot)
    expected = plain.started(fit, case.servers, case.tasks, case.most, None, case.problem.devices)
    assert chosen(decision) == in_order(expected)


@pytest.mark.parametrize("hurry", [0.0, 1.0, 0.5])
@examples(80)
@given(case=moments())
def test_tetris_is_the_reference(hurry: float, case: Case) -> None:
    decision = Tetris(case.problem, RNG, hurry=hurry).decide(case.slot)
    assert chosen(decision) == in_order(plain.packed(case.servers, case.tasks, case.most, hurry))


def kinds_of(case: Case) -> list[plain.Kind]:
    return [plain.Kind(task.demand, task.servers, 1) for task in case.tasks]


def classes_of(case: Case) -> Classes:
    size = len(case.tasks)
    return Classes(case.slot.tasks.demand, case.slot.tasks.port, np.full(size, 1 / size))


@examples(100)
@given(case=moments(devices=True))
def test_fragments_are_the_reference(case: Case) -> None:
    capacity = case.problem.instance.capacity
    fleet = Fleet(capacity, case.problem.speed, case.problem.reach, capacity.max(axis=0), np.array([1]))
    free = Free(case.slot.free, case.slot.devices, np.zeros(len(capacity)))
    expected = sum(
        (plain.fragments(server, r, kinds_of(case), 1) for r, server in enumerate(case.servers)), Fraction(0)
    )
    assert mean_fragments(fleet, free, classes_of(case)) == pytest.approx(float(expected), rel=1e-12, abs=1e-12)


@examples(80)
@given(case=moments(devices=True))
def test_fragmentation_aware_adds_least(case: Case) -> None:
    """Ties are told apart by rounding alone: so every piece must go where it adds least, to within that."""
    policy = FragmentationAware(case.problem, RNG)
    decision = policy.decide(case.slot)
    found = chosen(decision)
    kinds = kinds_of(case)
    fitting = plain.started("first", [*map(_copied, case.servers)], case.tasks[:1], case.most, kinds, 1)
    assert (0 in found) == (0 in fitting)
    for i in sorted(found):
        task = case.tasks[i]
        able = {r for r in task.servers if plain.room(case.servers[r], task.demand, 1, 1)}
        cost: dict[int, Any] = {r: plain.cost("whole", case.servers, r, task, case.most, kinds, 1) for r in able}
        used = set(found[i])
        assert used <= able
        full = {r for r in used if plain.room(case.servers[r], task.demand, 1, task.pieces) == found[i].count(r)}
        assert len(used - full) <= 1  # all but the last are filled
        assert max(cost[r] for r in used) <= min([cost[r] for r in able - used], default=np.inf) + Fraction(1, 10**9)
        for r in found[i]:
            assert plain.put(case.servers[r], task.demand, 1)


def _copied(server: plain.Server) -> plain.Server:
    return plain.Server(list(server.amount), list(server.devices))
