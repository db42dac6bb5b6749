"""Traces as placement worlds: pools, ports from labels, devices, outages, loads, and when a cluster is but a pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput, UnknownName
from berth.families.placement.pool_runs import run_pool
from berth.families.placement.trace_world import as_pool, batch_jobs, batch_world, merged, pooled, squeezed
from berth.lab.replay import ReplaySetting, replay
from berth.model import Floats
from berth.registry import PolicySpec
from berth.simulation import simulate
from berth.traces.lint import usable
from berth.traces.pools import spoken_merging
from berth.traces.trace import CORES, GPUS, MEMORY, OUTAGE_COLUMNS, Trace
from tests.harness.examples import examples
from tests.reference import batch as reference

JOBS: dict[str, list[Any]] = {
    "job": ["a", "b", "c"],
    "submit_s": [0.0, 0.0, 2.0],
    "run_s": [6.0, 4.0, 3.0],
    "estimate_s": [6.0, 5.0, 2.0],
    "pieces": [2, 1, 3],
    "user": ["ann", "bob", "ann"],
    "cpu": [2.0, 1.0, 1.0],
}
MACHINES: dict[str, list[Any]] = {"machine": ["m"], "count": [2], "cpu": [4.0]}


def made(jobs: dict[str, list[Any]] | None = None, machines: Any = MACHINES, resources: Any = (CORES,)) -> Trace:
    return usable(Trace.of({**JOBS, **(jobs or {})}, machines, resources))[0]


def starts(trace: Trace, policy: str = "fcfs", **choice: bool) -> Floats:
    """When jobs start if the policy is asked at every moment, and none of its decisions breaks a constraint."""
    batch = batch_jobs(trace)
    found = np.full(len(batch.tasks), np.nan)

    def note(slot: Any, decision: Any, outcome: Any) -> None:
        found[outcome.lost] = np.nan
        found[outcome.started] = outcome.time

    built = PolicySpec.parse(policy).build(batch.problem, np.random.default_rng(0))
    simulate(batch_world(batch, trace, **choice), built, observers=[note], infeasible="raise")
    return found


# --- jobs and machines


def test_a_world_is_the_trace() -> None:
    batch = batch_jobs(made())
    assert batch.problem.instance.cluster.servers == ("m-0", "m-1")
    assert batch.problem.instance.capacity.tolist() == [[4.0], [4.0]]
    assert (batch.problem.gangs, batch.problem.exact, batch.problem.devices) == (True, False, None)
    assert batch.tasks.pieces.tolist() == [2, 1, 3]
    assert batch.tasks.work.tolist() == [6.0, 5.0, 2.0]  # what users said
    assert batch.runs.tolist() == [6.0, 4.0, 3.0]
    assert batch.tasks.owner.tolist() == [0, 1, 0]


def test_run_times_may_be_known_or_cut() -> None:
    exact = batch_jobs(made(), exact=True)
    assert (exact.problem.exact, exact.tasks.work.tolist()) == (True, [6.0, 4.0, 3.0])
    stopped = batch_jobs(made(), stopped=True)
    assert stopped.runs.tolist() == [6.0, 4.0, 2.0]
    assert not stopped.problem.exact  # b ends before its estimate
    assert batch_jobs(made({"estimate_s": [6.0, 4.0, 2.0]}), stopped=True).problem.exact


def test_nothing_to_place_is_said() -> None:
    with pytest.raises(InvalidInput, match="a number of --processors"):
        batch_jobs(made(machines=None))
    with pytest.raises(InvalidInput, match="at least one usable job"):
        batch_jobs(made({"run_s": [0.0, -1.0, None]}))
    sizeless = made({"cpu": [None] * 3, "pieces": [None] * 3})
    with pytest.raises(InvalidInput, match="jobs that ask for something that machines have"):
        batch_jobs(sizeless)


LABELLED: dict[str, list[Any]] = {
    "machine": ["old", "new", "fast"],
    "count": [1, 1, 2],
    "label": ["T4", "A100", "H100"],
    "speed": [1.0, 1.0, 2.0],
    "cpu": [4.0, 4.0, 2.0],
}


def test_labels_become_ports() -> None:
    trace = made({"needs": ["A100|H100", None, "H100"], "pieces": [2, 1, 2]}, LABELLED)
    batch = batch_jobs(trace)
    names = [port.name for port in batch.problem.instance.ports]
    reach = {name: batch.problem.reach[p].tolist() for p, name in enumerate(names)}
    assert reach == {
        "any": [True, True, True, True],
        "A100|H100": [False, True, True, True],
        "H100": [False, False, True, True],
    }
    assert [names[p] for p in batch.tasks.port] == ["A100|H100", "any", "H100"]
    assert merged(trace) is None


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "best-fit", "tetris", "drf-placement"])
def test_gangs_go_where_they_may_and_take_as_long_as_their_slowest(policy: str) -> None:
    """a takes 2 × 2 cores on A100 or H100, c 2 × 1 on H100, of speed 2; b goes anywhere."""
    trace = made({"needs": ["A100|H100", None, "H100"], "pieces": [2, 1, 2]}, LABELLED)
    batch = batch_jobs(trace)
    places: dict[int, set[int]] = {}
    lasted: dict[int, float] = {}

    def note(slot: Any, decision: Any, outcome: Any) -> None:
        new = batch.problem.placed(slot, decision)
        for task, server, start, end in zip(new.task, new.server, new.start, new.end, strict=True):
            places.setdefault(int(task), set()).add(int(server))
            lasted[int(task)] = float(end - start)

    built = PolicySpec.parse(policy).build(batch.problem, np.random.default_rng(0))
    simulate(batch_world(batch, trace), built, observers=[note], infeasible="raise")
    assert places[0] <= {1, 2, 3}
    assert places[2] <= {2, 3}
    for task, servers in places.items():
        assert lasted[task] == batch.tasks.work[task] / batch.problem.speed[list(servers)].min()


# --- devices


def shares(gpu: list[float], there: float = 2.0, pieces: int = 1) -> Trace:
    count = len(gpu)
    jobs: dict[str, list[Any]] = {
        "submit_s": [0.0] * count,
        "run_s": [5.0] * count,
        "pieces": [pieces] * count,
        "gpu": gpu,
    }
    return usable(Trace.of(jobs, {"machine": ["m"], "count": [1], "gpu": [there]}, [GPUS]))[0]


@pytest.mark.parametrize(
    ("gpu", "there", "devices"),
    [
        ([0.5, 1.0, 2.0], 2.0, 0),
        ([1.0, 2.0], 2.0, None),  # whole ones alone are a resource like any other
        ([0.5, 1.5], 2.0, None),  # one and a half are no share, and no devices
        ([0.5, 1.0], 2.5, None),
        ([0.0, 1.0], 2.0, None),
    ],
)
def test_when_gpus_are_devices(gpu: list[float], there: float, devices: int | None) -> None:
    trace = shares(gpu, there)
    assert batch_jobs(trace).problem.devices == devices
    assert not np.isnan(starts(trace)).any()


def test_shares_of_different_devices_do_not_add_up() -> None:
    """0.6 and 0.6 leave 0.4 and 0.4: together 0.8, but no room for 0.6 of one device."""
    assert starts(shares([0.6, 0.6, 0.6])).tolist() == [0.0, 0.0, 5.0]
    assert starts(shares([0.6, 0.6, 0.4, 0.4])).tolist() == [0.0] * 4


# --- pools


def test_a_pool_has_one_resource_and_no_labels() -> None:
    jobs: dict[str, list[Any]] = {"needs": ["x", None, None], "memory": [1.0, 2.0, 3.0]}
    trace = Trace.of({**JOBS, **jobs}, None, [CORES, MEMORY])
    one = pooled(trace, 16)
    assert one.jobs.select("cpu", "pieces", "needs").rows() == [(4.0, 1, None), (1.0, 1, None), (3.0, 1, None)]
    assert one.machines.select("count", "cpu").rows() == [(1, 16.0)]
    assert pooled(trace, 16, "memory").jobs["memory"].to_list() == [2.0, 2.0, 9.0]


def test_pieces_of_unknown_size_take_a_unit_each() -> None:
    trace = Trace.of({"submit_s": [0.0, 0.0], "run_s": [1.0, 1.0], "pieces": [3, None]}, None, [CORES, MEMORY])
    assert pooled(trace, 4).jobs["cpu"].to_list() == [3.0, 1.0]
    found = replay(trace, ["fcfs"], ReplaySetting(processors=3)).rows[0]
    assert (found["mean_wait_seconds"], found["resource"]) == (0.5, "cpu")
    bare = Trace.of({"submit_s": [0.0, 0.0], "run_s": [1.0, 1.0]}, None, [])  # that tells of no resource at all
    assert replay(bare, ["fcfs"], ReplaySetting(processors=1)).rows[0]["mean_wait_seconds"] == 0.5


@pytest.mark.parametrize("processors", [0.0, -1.0, float("nan"), float("inf")])
def test_a_pool_of_nothing_is_refused(processors: float) -> None:
    with pytest.raises(InvalidInput, match="a number above 0"):
        pooled(Trace.of(JOBS), processors)


def test_a_pool_of_what_no_job_asks_for_is_refused() -> None:
    with pytest.raises(UnknownName, match="gpu"):
        pooled(Trace.of(JOBS), 4, "gpu")
    trace = Trace.of({**JOBS, "memory": [None, 0.0, None]}, None, [CORES, MEMORY])
    with pytest.raises(InvalidInput, match="a resource that jobs ask for: cpu"):
        pooled(trace, 4, "memory")


# --- load


def test_squeezing_gives_the_load() -> None:
    trace = made()
    for load in (0.3, 1.0, 2.5):
        jobs = squeezed(trace, load).jobs
        work = float((jobs["run_s"] * jobs["pieces"] * jobs["cpu"]).sum())
        span = float(jobs["submit_s"][-1] - jobs["submit_s"][0])
        assert work / (8.0 * span) == pytest.approx(load, rel=1e-12)


@pytest.mark.parametrize("load", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_loads_are_refused(load: float) -> None:
    with pytest.raises(InvalidInput, match="a number above 0"):
        squeezed(made(), load)
    with pytest.raises(InvalidInput, match="more than one moment"):
        squeezed(made({"submit_s": [1.0, 1.0, 1.0]}), 1.0)


# --- outages


def away(*rows: tuple[str, float, float | None]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=dict(OUTAGE_COLUMNS), orient="row")


def test_what_runs_on_a_machine_that_goes_away_starts_again() -> None:
    one: dict[str, list[Any]] = {"machine": ["m", "n"], "count": [1, 1], "cpu": [4.0, 1.0]}
    jobs: dict[str, list[Any]] = {"submit_s": [0.0, 0.0], "run_s": [6.0, 3.0], "pieces": [1, 1], "cpu": [4.0, 1.0]}
    trace = usable(Trace.of(jobs, one, outages=away(("m", 2.0, 5.0), ("elsewhere", 0.0, 9.0))))[0]
    assert starts(trace).tolist() == [0.0, 0.0]
    assert starts(trace, outages=True).tolist() == [5.0, 0.0]
    row = replay(trace, ["fcfs"], ReplaySetting(outages=True))
    assert row.jobs.select("start_s", "end_s").rows() == [(5.0, 11.0), (0.0, 3.0)]
    gone = trace.replace(outages=away(("m", 2.0, None)))
    assert np.isnan(starts(gone, outages=True)).tolist() == [True, False]
    assert replay(gone, ["fcfs"], ReplaySetting(outages=True)).rows[0]["never_started"] == 1
    early = trace.replace(outages=away(("m", -5.0, 1.0), ("n", -5.0, -1.0)))  # from before the trace began
    assert starts(early, outages=True).tolist() == [1.0, 1.0]


# --- clusters that are pools


@st.composite
def equal_pieces(draw: st.DrawFn, *, machines: int = 3) -> Trace:
    """Jobs whose pieces are all equal, on machines that hold some of them."""
    rows = []
    for _ in range(draw(st.integers(1, 10))):
        run = draw(st.integers(1, 8)) / 2
        estimate = draw(st.sampled_from([run, run, run + 1, run / 2]))
        rows.append((draw(st.integers(0, 10)) / 2, run, estimate, draw(st.integers(1, 4)), draw(st.integers(0, 2))))
    rows.sort(key=lambda row: row[0])
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=machines))
    jobs: dict[str, list[Any]] = {
        "submit_s": [row[0] for row in rows],
        "run_s": [row[1] for row in rows],
        "estimate_s": [row[2] for row in rows],
        "pieces": [row[3] for row in rows],
        "user": [str(row[4]) for row in rows],
        "cpu": [2.0] * len(rows),
        "memory": [1.0] * len(rows),
    }
    table: dict[str, list[Any]] = {
        "machine": [f"m{r}" for r in range(len(counts))],
        "count": [1] * len(counts),
        "cpu": [2.0 * n + 1.0 for n in counts],
        "memory": [4.0] * len(counts),
    }
    return Trace.of(jobs, table, [CORES, MEMORY])


def at_once(trace: Trace, backfill: str, shortest: bool = False) -> Floats:
    batch = batch_jobs(whole if (whole := merged(trace)) is not None else trace)
    pool = as_pool(batch)
    assert pool is not None
    key = batch.tasks.work if shortest else None
    size, run, estimate, capacity = pool
    return run_pool(batch.tasks.arrival, size, run, estimate, capacity, backfill=backfill, key=key)


@pytest.mark.parametrize(
    ("policy", "backfill", "shortest"),
    [
        ("fcfs", "none", False),
        ("fcfs:fit=best", "none", False),
        ("sjf", "none", True),
        ("fcfs:backfill=any", "any", False),
        ("best-fit", "any", False),
    ],
)
@examples(40)
@given(trace=equal_pieces())
def test_with_equal_pieces_a_cluster_is_a_pool(policy: str, backfill: str, shortest: bool, trace: Trace) -> None:
    playable, _ = usable(trace)
    if len(playable):
        assert at_once(playable, backfill, shortest).tolist() == starts(playable, policy).tolist()


@pytest.mark.parametrize(("policy", "backfill"), [("easy", "easy"), ("conservative", "conservative")])
@examples(40)
@given(trace=equal_pieces(machines=1))
def test_reservations_on_one_machine_are_those_of_a_pool(policy: str, backfill: str, trace: Trace) -> None:
    playable, _ = usable(trace)
    if len(playable):
        assert at_once(playable, backfill).tolist() == starts(playable, policy).tolist()


def test_reservations_on_several_machines_have_their_servers() -> None:
    """On three machines of one core: a leaves m0 at 2, b holds the others until 5, c wants two, d one for long.

    On a pool d may use what c leaves, whichever that is. A policy that is asked reserves m0 and m1 for c, so that only
    m0 is free now and d, which would still be there at 5, must wait.
    """
    jobs: dict[str, list[Any]] = {
        "submit_s": [0.0, 0.0, 3.0, 3.0],
        "run_s": [2.0, 5.0, 1.0, 9.0],
        "pieces": [1, 2, 2, 1],
        "cpu": [1.0] * 4,
    }
    trace = usable(Trace.of(jobs, {"machine": ["m"], "count": [3], "cpu": [1.0]}))[0]
    assert at_once(trace, "easy").tolist() == replay(trace, ["easy"]).jobs["start_s"].to_list() == [0.0, 0.0, 5.0, 3.0]
    assert starts(trace, "easy").tolist() == [0.0, 0.0, 5.0, 5.0]
    pool = merged(trace)
    assert pool is not None
    assert starts(pool, "easy").tolist() == [0.0, 0.0, 5.0, 3.0]


@examples(40)
@given(trace=equal_pieces(), policy=st.sampled_from(["easy", "conservative", "sjf", "tetris", "drf-placement", "wfp3"]))
def test_a_policy_that_is_asked_sees_the_same_pool(trace: Trace, policy: str) -> None:
    playable, _ = usable(trace)
    pool = merged(playable) if len(playable) else None
    if pool is not None:
        assert replay(playable, [policy]).jobs["start_s"].to_list() == starts(pool, policy).tolist()


@examples(40)
@given(trace=equal_pieces())
def test_a_pool_of_processors_is_the_reference(trace: Trace) -> None:
    one, _ = usable(pooled(trace, 8))
    jobs = one.jobs.select("submit_s", "cpu", "run_s", "estimate_s").rows()
    if jobs:
        plain = reference.simulate_batch(jobs, 8.0, reference.easy(reference.by_arrival))
        assert replay(one, ["easy"]).jobs["start_s"].to_list() == plain


def test_what_is_merged_into_a_pool() -> None:
    assert merged(made()) is None  # pieces differ
    equal: dict[str, list[Any]] = {"cpu": [1.0, 1.0, 1.0]}
    pool = merged(made(equal))
    assert pool is not None
    assert pool.machines.select("machine", "count", "speed", "cpu").rows() == [("pool", 1, 1.0, 8.0)]
    assert pool.jobs["pieces"].to_list() == [2, 1, 3]
    found = as_pool(batch_jobs(pool))
    assert found is not None
    assert (found.capacity, found.size.tolist()) == (8.0, [2.0, 1.0, 3.0])
    assert spoken_merging(made(equal)) == "2 machines are one pool of 8 places, as all pieces are equal (cpu 1)"
    uneven: dict[str, list[Any]] = {"machine": ["m", "n"], "count": [1, 1], "speed": [1.0, 2.0], "cpu": [4.0, 4.0]}
    assert merged(made(equal, uneven)) is None
    labels: dict[str, list[Any]] = {"machine": ["m", "n"], "count": [1, 1], "label": ["a", None], "cpu": [4.0, 4.0]}
    assert merged(made(equal, labels)) is not None
    assert merged(made({**equal, "needs": [None, "a", None], "pieces": [2, 1, 3]}, labels)) is None
    fast: dict[str, list[Any]] = {"machine": ["m"], "count": [2], "speed": [2.0], "cpu": [4.0]}
    quick = merged(made(equal, fast))
    assert quick is not None
    found = as_pool(batch_jobs(quick))
    assert found is not None
    assert (found.run.tolist(), found.estimate.tolist()) == ([3.0, 2.0, 1.5], [3.0, 2.5, 1.0])


def test_a_replay_says_what_was_merged_and_counts_what_the_machines_have() -> None:
    jobs: dict[str, list[Any]] = {"submit_s": [0.0], "run_s": [10.0], "pieces": [2], "cpu": [2.0]}
    trace = Trace.of(jobs, {"machine": ["m"], "count": [2], "cpu": [5.0]})
    found = replay(trace, ["fcfs"])
    assert found.merging.startswith("2 machines are one pool of 4 places, ")
    assert (found.rows[0]["resource"], found.rows[0]["capacity"], found.rows[0]["utilisation"]) == ("cpu", 10.0, 0.4)
    assert replay(trace, ["fcfs"], ReplaySetting(outages=True)).merging == ""
    assert replay(trace, ["fcfs"], ReplaySetting(processors=4)).merging == ""
