"""Whole logs on any cluster: the kernels give the starts of the engine that asks the policy at every moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.families.placement import cluster_runs
from berth.families.placement.cluster_runs import common_classes, run_cluster
from berth.families.placement.policies.queued import CLASSES, InOrder
from berth.families.placement.problem import PlacementProblem, PlacementSlot, Tasks
from berth.families.placement.trace_world import BatchJobs
from berth.families.placement.world import PlacementWorld
from berth.lab.replay.run import _Fragments
from berth.model import Cluster, Floats, Instance, Ints, JobType, Resource
from berth.registry import PolicySpec
from berth.simulation import simulate
from tests.harness.examples import examples

SHARED = [
    "fcfs",
    "sjf",
    "best-fit",
    "fcfs:backfill=any,fit=worst",
    "wfp3:backfill=any",
    "saf:fit=aligned",
    "fgd",
    "tetris",
]
RESERVING = [
    "conservative",
    "conservative",
    "easy",
    "easy:fit=best",
    "easy:order=shortest,fit=worst",
    "unicep:backfill=easy,pick=committed",
]


@dataclass(frozen=True, eq=False)
class Log:
    problem: PlacementProblem
    tasks: Tasks
    runs: Floats

    @property
    def batch(self) -> BatchJobs:
        return BatchJobs(self.problem, self.tasks, self.runs)


def tasks_of(*parts: Any) -> Tasks:
    return Tasks(*parts)


@st.composite
def logs(draw: st.DrawFn, *, devices: bool = False, most: int = 12) -> Log:
    """A few tasks on unequal servers: pieces, ports, early and late ends, and shares of devices if wanted."""
    servers, resources, ports = (draw(st.integers(1, n)) for n in (5, 2, 2))
    amount = st.sampled_from([1.0, 2.0, 3.0, 4.5, 8.0])
    capacity = np.array([[draw(amount) for _ in range(resources)] for _ in range(servers)])
    if devices:
        capacity[:, -1] = [draw(st.sampled_from([0.0, 1.0, 2.0, 3.0])) for _ in range(servers)]
        capacity[0, -1] = max(capacity[0, -1], 1.0)
    pairs = [(p, r) for p in range(ports) for r in range(servers) if draw(st.integers(0, 3))]
    names = tuple(Resource(f"resource-{k}") for k in range(resources))
    types = tuple(JobType(f"type-{p}", capacity.max(axis=0)) for p in range(ports))
    cluster = Cluster(names, tuple(f"server-{r}" for r in range(servers)), capacity)
    graph = Instance(cluster, types, np.array(pairs, dtype=np.int64).reshape(-1, 2))
    size = draw(st.integers(1, most))
    arrival = np.sort([draw(st.integers(0, 12)) for _ in range(size)]).astype(np.float64)
    demand = np.array([[draw(st.sampled_from([0.0, 0.1, 0.7, 1.0, 1.5, 2.0])) for _ in names] for _ in range(size)])
    if devices:
        demand[:, -1] = [draw(st.sampled_from([0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 1.0, 2.0])) for _ in range(size)]
    whole = st.integers(1, 6)
    work, runs = (np.array([draw(whole) for _ in range(size)], dtype=np.float64) for _ in range(2))
    runs = work if draw(st.booleans()) else runs
    speed = np.array([draw(st.sampled_from([1.0, 1.0, 2.0])) for _ in range(servers)])
    zeros = np.zeros(servers)
    problem = PlacementProblem(
        graph,
        speed,
        zeros,
        zeros,
        np.ones(resources),
        np.inf,
        gangs=True,
        exact=runs is work,
        devices=resources - 1 if devices else None,
    )
    pieces: Ints = np.array([draw(st.sampled_from([1, 1, 2, 3])) for _ in range(size)])
    port: Ints = np.array([draw(st.integers(0, ports - 1)) for _ in range(size)])
    ones = np.ones(size)
    return Log(problem, Tasks(arrival, demand, work, ones, 0 * ones, 1e15 * ones, pieces, port), runs)


def asked(log: Log, policy: Any) -> tuple[Floats, float]:
    """Starts, and the fragmentation, if the policy is asked at every moment; no decision may break a constraint."""
    start = np.full(len(log.tasks), np.nan)
    seen = _Fragments(log.batch)

    def note(slot: PlacementSlot, decision: Any, outcome: Any) -> None:
        start[outcome.started] = outcome.time
        seen.look(slot)

    runs = None if log.problem.exact else log.runs
    world = PlacementWorld(log.problem, log.tasks, len(np.unique(log.tasks.arrival)), None, (), runs)
    simulate(world, policy, observers=[note], infeasible="raise")
    return start, seen.mean


def assert_same_starts(log: Log, name: str) -> None:
    spec = PolicySpec.parse(name)
    start, fragmentation = asked(log, spec.build(log.problem, np.random.default_rng(0)))
    typical = None if log.problem.devices is None else common_classes(log.tasks, 60)
    played = run_cluster(spec.build(log.problem, np.random.default_rng(0)), log.tasks, log.runs, typical=typical)
    assert played is not None
    np.testing.assert_array_equal(played.start, start)
    if typical is not None:
        assert played.fragmentation == fragmentation


@given(log=logs(), name=st.sampled_from(SHARED + RESERVING))
@examples(150)
def test_starts_are_those_of_the_engine(log: Log, name: str) -> None:
    assert_same_starts(log, name)


@given(log=logs(devices=True), name=st.sampled_from(SHARED))
@examples(150)
def test_with_devices_too(log: Log, name: str) -> None:
    assert_same_starts(log, name)


@pytest.mark.parametrize(("kept", "states"), [(1 << 23, 1 << 13), (1, 1)])
def test_fragments_are_those_of_the_engine_after_more_states_and_classes_than_are_kept(
    kept: int, states: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_runs, "KEPT", kept)
    monkeypatch.setattr(cluster_runs, "STATES", states)
    rng, size = np.random.default_rng(0), 250
    capacity = np.array([[8.0, 2.0], [8.0, 2.0], [12.0, 3.0], [12.0, 0.0]])
    cluster = Cluster((Resource("cpu"), Resource("gpu")), tuple("abcd"), capacity)
    graph = Instance(cluster, (JobType("any", capacity.max(axis=0)),), np.array([[0, r] for r in range(4)]))
    nothing, ones = np.zeros(4), np.ones(size)
    problem = PlacementProblem(graph, np.ones(4), nothing, nothing, np.ones(2), np.inf, gangs=True, devices=1)
    share = rng.choice([0.0, 0.1, 0.3, 0.5, 0.7, 1.0, 2.0], size)
    demand = np.column_stack([rng.integers(1, 20, size) / 10, share])
    arrival, work = np.cumsum(rng.integers(0, 3, size)).astype(np.float64), rng.integers(1, 9, size).astype(np.float64)
    tasks = tasks_of(arrival, demand, work, ones, 0 * ones, 1e15 * ones, rng.choice([1, 1, 2], size))
    assert len(np.unique(demand, axis=0)) > CLASSES
    assert_same_starts(Log(problem, tasks, work), "fgd")


@pytest.mark.parametrize("name", ["drf-placement", "random-placement"])
def test_other_policies_have_no_kernel(name: str) -> None:
    problem = PlacementProblem.of_servers([[4.0]], [1.0], [0.0], [0.0])
    tasks = tasks_of([0.0], [[1.0]], [1.0], [1.0], [0.0], [9.0])
    assert run_cluster(PolicySpec.parse(name).build(problem, np.random.default_rng(0)), tasks, tasks.work) is None


def test_a_policy_with_a_queue_of_its_own_has_no_kernel() -> None:
    class Backwards(InOrder):
        def queue(self, slot: PlacementSlot) -> Ints:
            return np.arange(len(slot.ids))[::-1]

    problem = PlacementProblem.of_servers([[4.0]], [1.0], [0.0], [0.0])
    tasks = tasks_of([0.0], [[1.0]], [1.0], [1.0], [0.0], [9.0])
    assert run_cluster(Backwards(problem), tasks, tasks.work) is None


def test_devices_are_taken_in_the_order_of_the_policy() -> None:
    """The longest first: .4, .3 and .3 fit on devices with .4 and .6 left; .3, .3 and .4 would not, fullest first."""
    cluster = Cluster((Resource("gpu"),), ("server",), np.array([[2.0]]))
    graph = Instance(cluster, (JobType("any", np.array([2.0])),), np.array([[0, 0]]))
    nothing = np.zeros(1)
    problem = PlacementProblem(graph, np.ones(1), nothing, nothing, np.ones(1), np.inf, devices=0)
    share, work = [0.6, 0.4, 0.3, 0.3, 0.4], [9.0, 9.0, 1.0, 1.0, 2.0]
    ones = np.ones(5)
    tasks = tasks_of([0.0, 0.0, 1.0, 1.0, 1.0], np.array(share)[:, None], work, ones, 0 * ones, 1e15 * ones)
    log = Log(problem, tasks, tasks.work)
    start, _ = asked(log, PolicySpec.parse("ljf").build(problem, np.random.default_rng(0)))
    assert start.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert_same_starts(log, "ljf")
