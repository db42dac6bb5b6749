"""Scenarios of scale: channels drawn one by one, the layout of tiles, and a million servers in bounded memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.families.allocation.kernels.tiles import LANES, build_tiles, element_places
from berth.scenario import load_scenario
from berth.scenario.drawing import draw_channel_list
from tests.reference.allocation import random_graph

seeds = st.integers(0, 10**6)


@given(seeds, st.integers(1, 12), st.integers(1, 40), st.floats(1.0, 20.0))
def test_listed_channels_are_different_and_reach_every_port(
    seed: int, ports: int, servers: int, density: float
) -> None:
    pairs = draw_channel_list(seed, ports, servers, density)
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    assert set(pairs[:, 0].tolist()) == set(range(ports))
    assert set(pairs[:, 1].tolist()) <= set(range(servers))
    served = np.bincount(pairs[:, 1], minlength=servers)
    assert (served >= 1).all()


def test_more_servers_only_add_channels() -> None:
    few, many = (draw_channel_list(1, 30, servers, 5) for servers in (200, 300))
    assert np.array_equal(few, many[many[:, 1] < 200])


def test_listed_channels_have_the_density() -> None:
    pairs = draw_channel_list(2, 1000, 5000, 10)
    served = np.bincount(pairs[:, 1])
    assert (served.min(), served.max()) == (9, 11)
    assert served.mean() == pytest.approx(10, abs=0.05)
    assert np.bincount(pairs[:, 0]).std() == pytest.approx(np.sqrt(50), rel=0.2)


def test_gangs_have_the_channels_of_their_job() -> None:
    changes = {"channels.listed": True, "horizon": 2}
    graph = load_scenario("ogasched-gang", changes).build(0, False).problem
    ports = {
        job: [set(graph.instance.channel_server[graph.instance.channel_port == p]) for p in np.flatnonzero(members)]
        for job in range(graph.jobs)
        for members in [graph.gang.job_of_port == job]
    }
    assert all(reach == parts[0] for parts in ports.values() for reach in parts)


def test_named_servers_refuse_a_list() -> None:
    with pytest.raises(InvalidInput, match=r"channels\.listed: got true, and 'train' does, expected false"):
        load_scenario(
            {
                "horizon": 5,
                "cluster": {"resources": ["gpu"], "servers": [{"name": "a", "capacity": {"gpu": 4}}]},
                "ports": [{"name": "train", "demand": {"gpu": 1}, "servers": ["a"]}],
                "channels": {"density": 1, "listed": True},
                "overhead": 0.3,
            }
        )


@given(seeds, st.booleans())
def test_tiles_hold_every_element_once(seed: int, shuffled: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, jobs=6, servers=int(rng.integers(1, 60)), resources=3, most=5)
    jobs, resources = graph.beta.shape
    demand = rng.integers(0, 3, (jobs, resources)).astype(float)
    server = graph.channel_server
    order = np.lexsort((rng.random(len(server)), server)) if shuffled else np.arange(len(server))
    tiles = build_tiles(graph.server_start, graph.channel_job, demand, graph.capacity, graph.kind, order)
    element = np.full(tiles.cell.shape, -1)
    element_places(graph.server_start, graph.channel_job, demand, order, tiles.segment, tiles.start, element)
    open_ = (demand[graph.channel_job] > 0) & (graph.capacity[server] > 0)
    assert sorted(element[element >= 0].tolist()) == np.flatnonzero(open_).tolist()
    assert ((element < 0) == (tiles.cell == jobs * resources)).all()
    rank = np.empty(len(order), dtype=int)
    rank[order] = np.arange(len(order))
    for tile, kind in enumerate(tiles.kind):
        rows = slice(tiles.start[tile], tiles.start[tile + 1])
        for lane in range(LANES):
            segment, places = tiles.segment[tile * LANES + lane], element[rows, lane]
            e, k = np.divmod(places[places >= 0], resources)
            assert (places[: len(e)] >= 0).all()
            assert (server[e] * resources + k == segment).all()
            assert (tiles.cell[rows, lane][: len(e)] == graph.channel_job[e] * resources + k).all()
            assert (np.diff(rank[e]) > 0).all()
            assert segment < 0 or graph.kind.reshape(-1)[segment] == kind


@pytest.mark.slow
def test_a_million_servers_in_bounded_memory() -> None:
    code = """
import resource
import numpy as np
from berth.families.allocation.cuda.batch import Batch
from berth.scenario import load_scenario
from tests.reference.cuda_on_cpu import EmulatedDevice
world = load_scenario("ogasched-1m").build(0, False)
batch = Batch(EmulatedDevice(132, 232_448), [world.problem], np.float32)
assert batch.elements > 37_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(out) < 3_000_000  # kilobytes
