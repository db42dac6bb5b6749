"""The graph: validated when it is made, sorted, frozen, and changed only by `replace`."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.vendor.pretty import pretty

from berth.errors import InvalidInput, UnknownName
from berth.model import Berth, Cluster, Instance, JobType, Resource, frozen_array

CPU, GPU = Resource("cpu"), Resource("gpu", unit="device")


def small() -> Instance:
    cluster = Cluster((CPU, GPU), ("a", "b"), np.array([[8.0, 1.0], [4.0, 0.0]]))
    ports = (JobType("train", np.array([4.0, 1.0])), JobType("query", np.array([1.0, 0.0])))
    return Instance(cluster, ports, [(1, 1), (0, 0), (1, 0)])


def message(error: pytest.ExceptionInfo[InvalidInput]) -> str:
    return str(error.value)


@pytest.mark.parametrize(
    ("values", "shape", "text"),
    [
        ([1.0, -2.0], None, "x[1]: got -2.0, expected a finite number ≥ 0"),
        ([[1.0, 2.0], [float("nan"), 0.0]], None, "x[1][0]: got nan, expected a finite number ≥ 0"),
        ([float("inf")], None, "x[0]: got inf, expected a finite number ≥ 0"),
        ([1.0, 2.0], (3,), "x: got (2,), expected an array of shape (3,)"),
    ],
)
def test_frozen_array_says_what_is_wrong(values: Any, shape: tuple[int, ...] | None, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        frozen_array(values, "x", shape)
    assert message(error) == text


def test_frozen_array_is_a_read_only_copy() -> None:
    given_array = np.array([1.0, 2.0])
    array = frozen_array(given_array, "x")
    given_array[0] = 9.0
    assert array.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 3.0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Cluster((), ("a",), np.zeros((1, 0))), "resources: expected at least one resource"),
        (lambda: Cluster((CPU,), (), np.zeros((0, 1))), "servers: expected at least one server"),
        (
            lambda: Cluster((CPU, CPU), ("a",), np.zeros((1, 2))),
            "resources[1]: got 'cpu', expected a name not already used at resources[0]",
        ),
        (
            lambda: Cluster((CPU,), ("a", "b", "a"), np.zeros((3, 1))),
            "servers[2]: got 'a', expected a name not already used at servers[0]",
        ),
        (
            lambda: Cluster((CPU,), ("a",), np.array([[-1.0]])),
            "capacity[0][0]: got -1.0, expected a finite number ≥ 0",
        ),
        (lambda: Cluster((CPU,), ("a",), np.zeros((2, 1))), "capacity: got (2, 1), expected an array of shape (1, 1)"),
        (lambda: JobType("x", np.zeros((1, 1))), "demand: got (1, 1), expected one number per resource"),
        (lambda: JobType("x", np.array([1.0, -1.0])), "demand[1]: got -1.0, expected a finite number ≥ 0"),
    ],
)
def test_wrong_clusters_and_ports(make: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        make()
    assert message(error) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"ports": ()}, "ports: expected at least one port"),
        (
            {"ports": (JobType("x", np.ones(2)), JobType("x", np.ones(2)))},
            "ports[1]: got 'x', expected a name not already used at ports[0]",
        ),
        (
            {"ports": (JobType("x", np.ones(2)), JobType("y", np.ones(1)))},
            "ports[1].demand: got (1,), expected 2 numbers, one per resource",
        ),
        ({"channels": [(0, 0), (2, 0)]}, "channels[1]: got 2, expected a port index below 2"),
        ({"channels": [(0, -1)]}, "channels[0]: got -1, expected a server index below 2"),
        ({"channels": [(0, 1), (1, 1), (0, 1)]}, "channels: got (0, 1), expected each channel (port, server) once"),
        (
            {"channels": [(0, 0, 1), (0, 1, 1)]},
            "channels: got an array of int64 and shape (2, 3), expected pairs of integers (port, server)",
        ),
        (
            {"channels": [(0.5, 1)]},
            "channels: got an array of float64 and shape (1, 2), expected pairs of integers (port, server)",
        ),
        ({"channels": [(0, 1), (1,)]}, "channels: expected pairs of integers (port, server)"),
    ],
)
def test_wrong_instances(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        small().replace(**changes)
    assert message(error) == text


def test_channels_are_sorted_by_server_and_then_port() -> None:
    graph = small()
    assert list(zip(graph.channel_port.tolist(), graph.channel_server.tolist(), strict=True)) == [
        (0, 0),
        (1, 0),
        (1, 1),
    ]
    assert graph.server_start.tolist() == [0, 2, 3]
    assert graph.reach("query") == ("a", "b")
    assert graph.reach("train") == ("a",)
    with pytest.raises(UnknownName, match="unknown port 'qery'; did you mean 'query'"):
        graph.reach("qery")


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_any_order_of_channels_gives_the_same_graph(ports: int, servers: int, data: st.DataObject) -> None:
    every = [(port, server) for port in range(ports) for server in range(servers)]
    channels = data.draw(st.lists(st.sampled_from(every), unique=True))
    shuffled = data.draw(st.permutations(channels))
    capacity, demand = np.ones((servers, 1)), np.ones((ports, 1))
    graph = Instance.from_arrays(capacity, demand, channels)
    other = Instance.from_arrays(capacity, demand, np.array(shuffled, dtype=np.int64).reshape(-1, 2))
    assert np.array_equal(graph.channel_port, other.channel_port)
    assert np.array_equal(graph.channel_server, other.channel_server)
    pairs = list(zip(graph.channel_server.tolist(), graph.channel_port.tolist(), strict=True))
    assert pairs == sorted((server, port) for port, server in channels)
    for server in range(servers):
        inside = graph.channel_server[graph.server_start[server] : graph.server_start[server + 1]]
        assert (inside == server).all()
    assert graph.server_start[-1] == len(channels)
    start, channel = graph.port_channels
    for port in range(ports):
        assert channel[start[port] : start[port + 1]].tolist() == np.flatnonzero(graph.channel_port == port).tolist()


def test_replace_changes_a_copy_and_validates_again() -> None:
    graph = small()
    wider = graph.replace(channels=[(0, 0), (0, 1)])
    assert wider.channel_port.tolist() == [0, 0]
    assert graph.channel_port.tolist() == [0, 1, 1]
    smaller = graph.replace(cluster=graph.cluster.replace(capacity=np.ones((2, 2))))
    assert smaller.capacity.sum() == 4.0
    assert np.array_equal(smaller.channel_port, graph.channel_port)
    with pytest.raises(InvalidInput):
        graph.cluster.replace(servers=("a",))
    with pytest.raises(TypeError, match="chanels"):
        graph.replace(chanels=[])


def test_nothing_can_be_assigned() -> None:
    graph = small()
    for thing, name in ((graph, "ports"), (graph.cluster, "capacity"), (graph.ports[0], "demand"), (CPU, "name")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, name, None)
    assert Berth("train", "a", (1.0,)) == Berth("train", "a", (1.0,), 0)


def arrays_of(graph: Instance) -> list[np.ndarray[Any, Any]]:
    return [
        graph.capacity,
        graph.demand,
        graph.channel_port,
        graph.channel_server,
        graph.server_start,
        *graph.port_channels,
        *(port.demand for port in graph.ports),
    ]


@pytest.mark.parametrize(
    "again", [lambda g: g, lambda g: pickle.loads(pickle.dumps(g)), copy.deepcopy], ids=["made", "pickled", "copied"]
)
def test_arrays_are_read_only_also_after_pickling_and_copying(again: Any) -> None:
    graph = small()
    arrays_of(graph)  # fills the caches, which travel too
    for ours, theirs in zip(arrays_of(again(graph)), arrays_of(graph), strict=True):
        assert not ours.flags.writeable
        assert np.array_equal(ours, theirs)


def test_pretty_printers_can_show_an_instance() -> None:
    """Else a failing property test hides the example that made it fail."""
    assert pretty(small()).startswith("Instance(cluster=Cluster(")


def test_from_arrays_names_everything() -> None:
    graph = Instance.from_arrays([[1.0, 2.0]], [[1.0, 1.0]], [])
    assert graph.cluster.servers == ("server-0",)
    assert [r.name for r in graph.cluster.resources] == ["resource-0", "resource-1"]
    assert graph.channel_port.shape == (0,)
    with pytest.raises(InvalidInput) as error:
        Instance.from_arrays([1.0], [[1.0]], [])
    assert message(error) == "got ((1,), (1, 1)), expected capacity (R, K) and demand (L, K)"
