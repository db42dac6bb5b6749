"""Gangs stay together: whatever policy places them, they take about as few servers as packing nodes in order does."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.live.core.dispatcher import Dispatcher
from berth.live.core.drivers.gathering import gathered
from berth.live.core.events import Decided, ServerJoined, Submitted
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.order import make_view
from berth.live.core.view import Placing, violations
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.simulation import play
from tests.live.core.builders import dispatcher, job
from tests.reference.berthing import fewest_servers

NODES, CPUS, GANGS = 8, 4, 100


def stream(seed: int) -> list[tuple[float, int, float]]:
    """When gangs come, how many tasks of one cpu they have, and how long they run."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1.0, GANGS))
    return list(zip(arrival, rng.integers(1, 5, GANGS).tolist(), rng.uniform(4.0, 12.0, GANGS), strict=True))


def servers_packed_in_order(gangs: list[tuple[float, int, float]]) -> float:
    """Servers a gang where everybody that fits starts, in order, on the first nodes that have room."""
    free, waiting, taken = [CPUS] * NODES, list[tuple[int, float]](), list[int]()
    events = [(time, number, "come") for number, (time, _, _) in enumerate(gangs)]
    held: dict[int, list[int]] = {}
    heapq.heapify(events)
    while events:
        now, number, what = heapq.heappop(events)
        if what == "come":
            waiting.append((number, now))
        else:
            for r in held.pop(number):
                free[r] += 1
        for item in list(waiting):
            tasks, seconds = gangs[item[0]][1:]
            if sum(free) >= tasks:
                waiting.remove(item)
                held[item[0]] = [r for r in range(NODES) for _ in range(free[r])][:tasks]
                for r in held[item[0]]:
                    free[r] -= 1
                taken.append(len(set(held[item[0]])))
                heapq.heappush(events, (now + seconds, item[0], "end"))
    return float(np.mean(taken))


@pytest.mark.parametrize("policy", ["in-order-best-fit", "best-fit", "escb-v", "ogasched"])
def test_gangs_on_equal_nodes_take_as_few_servers_as_packing_in_order(policy: str) -> None:
    found = {"ours": list[float](), "in order": list[float]()}
    for seed in (501,):
        gangs = stream(seed)
        cluster = SimulatedCluster([Server(f"n{i}", {"cpu": CPUS * 1000}) for i in range(NODES)], Truth())
        given = [
            Submitted(time, Job(f"g{i}", "t", (Role("w", tasks, {"cpu": 1000}),), work=seconds))
            for i, (time, tasks, seconds) in enumerate(gangs)
        ]
        played = play(Dispatcher(policy), cluster, given)
        assert len(played.ended) == GANGS
        starts = [start for event in played.events if isinstance(event, Decided) for start in event.starts]
        found["ours"].append(float(np.mean([len({p.server for p in start.places}) for start in starts])))
        found["in order"].append(servers_packed_in_order(gangs))
    assert np.mean(found["ours"]) <= 1.05 * np.mean(found["in order"])


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(1, 4), st.data())
def test_a_gang_is_gathered_on_the_fewest_of_the_servers_that_are_as_fast(
    free: list[int], tasks: int, data: st.DataObject
) -> None:
    cells = [r for r, cpu in enumerate(free) for _ in range(cpu)]
    if len(cells) < tasks:
        return
    made = dispatcher()
    for r, cpu in enumerate(free):
        made.handle(
            ServerJoined(0.0, Server(f"n{r}", {"cpu": 1000 * cpu}, speed=data.draw(st.sampled_from([0.5, 1.0]))))
        )
    made.handle(Submitted(0.0, job("g", count=tasks)))
    view = make_view(made.state, 0.0)
    where = data.draw(st.permutations(cells))[:tasks]
    speed = made.state.learned.speeds("t")
    servers, count = np.unique(where, return_counts=True)
    zeros = np.zeros(len(servers), dtype=np.int64)
    again = gathered(view, Placing(zeros, zeros, servers.astype(np.int64), count.astype(np.int64)))
    assert not violations(view, again)
    assert again.count.sum() == tasks
    slowest = speed[servers].min()
    allowed = [r for r in range(len(free)) if speed[r] >= slowest]
    assert speed[again.server].min() >= slowest
    role = [1], tasks, tasks, tasks
    assert len(set(again.server.tolist())) == fewest_servers([[cpu] for cpu in free], allowed, [role])
