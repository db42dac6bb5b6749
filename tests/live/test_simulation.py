"""What a simulation starts, a dispatcher with a simulated cluster starts too: the same jobs, places and times."""

from __future__ import annotations

import numpy as np
import pytest

from berth.families.placement.problem import PlacementDecision, PlacementOutcome, PlacementSlot
from berth.families.placement.trace_world import batch_jobs, batch_world
from berth.files.quantities import amounts
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Decided, Submitted
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.queues import Queues
from berth.live.engines.simulated.cluster import SimulatedCluster
from berth.live.simulation import play
from berth.random import stream
from berth.registry import PolicySpec
from berth.simulation import simulate
from berth.traces.trace import Trace

Berth = tuple[int, str, int, float]
"""Number of a job, server, pieces, and when."""


def batch_trace(seed: int, jobs: int = 150) -> Trace:
    """Jobs of one to four pieces with estimates that are too long, on machines of two kinds."""
    rng = np.random.default_rng(seed)
    quick = rng.random(jobs) < 0.3
    run = np.round(rng.exponential(100.0, jobs) + 1.0, 3)
    return Trace.of(
        {
            "submit_s": np.sort(np.round(rng.uniform(0.0, 700.0, jobs), 2)).tolist(),
            "run_s": run.tolist(),
            "estimate_s": np.round(run * rng.uniform(1.0, 3.0, jobs) + 1.0, 3).tolist(),
            "pieces": np.where(quick, 1, rng.choice([1, 1, 1, 2, 4], jobs)).tolist(),
            "needs": np.where(quick, "quick", "").tolist(),
            "cpu": rng.choice([0.5, 1.0, 2.0, 4.0], jobs).tolist(),
        },
        {"machine": ["a", "b"], "count": [4, 2], "speed": [1.0, 2.0], "label": ["slow", "quick"], "cpu": [8.0, 4.0]},
    )


def simulated(trace: Trace, policy: str, seed: int) -> set[Berth]:
    """What is started in the placement world of a trace."""
    batch = batch_jobs(trace)
    names = batch.problem.instance.cluster.servers
    spec = PolicySpec.parse(policy)
    berths: set[Berth] = set()

    def watch(slot: PlacementSlot, decision: PlacementDecision, outcome: PlacementOutcome) -> None:
        for i in np.flatnonzero(np.asarray(decision.server) >= 0).tolist():
            pieces = decision.gangs.get(i, decision.server[i : i + 1])
            for r, count in zip(*np.unique(pieces, return_counts=True), strict=True):
                berths.add((int(slot.ids[i]), names[r], int(count), slot.time))

    world = batch_world(batch, trace)
    simulate(world, spec.build(batch.problem, stream(seed, "live", str(spec))), observers=[watch], infeasible="raise")
    return berths


def dispatched(trace: Trace, policy: str, seed: int) -> set[Berth]:
    """What is started when the same jobs are submitted to a dispatcher."""
    servers = [
        Server(f"{name}-{i}", amounts({"cpu": cpu}), {"label": label}, speed)
        for name, many, speed, label, cpu in trace.machines.select(
            "machine", "count", "speed", "label", "cpu"
        ).iter_rows()
        for i in range(many)
    ]
    given = [
        Submitted(
            row["submit_s"],
            Job(
                f"j{number}",
                "t",
                (Role("main", row["pieces"], amounts({"cpu": row["cpu"]})),),
                needs={"label": row["needs"]} if row["needs"] else {},
                work=row["run_s"],
                estimate=row["estimate_s"],
            ),
        )
        for number, row in enumerate(trace.jobs.iter_rows(named=True))
    ]
    queues = Queues(aging=0.0, fairness=0.0, patience=1e12)
    played = play(Dispatcher(policy, seed=seed, queues=queues, bare=True), SimulatedCluster(servers), given)
    assert len(played.ended) == len(given)
    return {
        (int(start.job[1:]), place.server, place.count, event.time)
        for event in played.events
        if isinstance(event, Decided)
        for start in event.starts
        for place in start.places
    }


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "sjf", "best-fit", "first-fit", "tetris"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_trace_gives_the_same_berths(policy: str, seed: int) -> None:
    trace = batch_trace(seed)
    ours, theirs = dispatched(trace, policy, seed), simulated(trace, policy, seed)
    assert len({berth[0] for berth in theirs}) == len(trace.jobs)
    assert max(berth[3] for berth in theirs) > trace.jobs["submit_s"].to_list()[-1]  # somebody had to wait
    assert ours == theirs
