"""Scenario files of the allocation family: what they mean, and what a seed draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from berth.families.allocation.world import AllocationWorld
from berth.files.yaml_tree import read_text
from berth.scenario import load_scenario
from berth.scenario.drawing import draw_channels, draw_demands, draw_outages, draw_servers
from tests.scenario.builders import DRAWN, EXPLICIT

SEED = st.integers(0, 2**32)


def parts(world: AllocationWorld) -> dict[str, Any]:
    """All that a seed draws."""
    problem = world.problem
    graph = problem.instance
    return {
        "capacity": graph.capacity,
        "demand": graph.demand,
        "reach": np.stack([graph.channel_port, graph.channel_server]),
        "kind": problem.utilities.kind,
        "alpha": problem.utilities.alpha,
        "overhead": problem.overhead,
        "arrivals": world.arrivals,
        "up": np.zeros(0) if world.up is None else world.up,
    }


def changed(before: AllocationWorld, after: AllocationWorld) -> set[str]:
    one, other = parts(before), parts(after)
    return {name for name in one if not np.array_equal(one[name], other[name])}


def explicit(**overrides: Any) -> AllocationWorld:
    """The world of EXPLICIT, with overrides (dots written as __)."""
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    world: AllocationWorld = load_scenario(read_text(EXPLICIT).value, {"horizon": 50, **changes}).build(1, False)
    return world


def test_the_papers_settings() -> None:
    default = load_scenario("ogasched-default")
    world = default.build(0, False)
    assert (default.horizon, default.seeds, default.baseline, default.family) == (2000, 4, "fairness", "allocation")
    assert default.oracles == ("stationary", "slot")
    assert default.information == (False, True)
    assert world.problem.instance.capacity.shape == (128, 6)
    assert world.problem.jobs == 10
    assert load_scenario("ogasched-large").oracles == ("stationary",)
    large = load_scenario("ogasched-large", {"horizon": 2}).build(0, False).problem
    assert (large.jobs, large.instance.capacity.shape) == (100, (1024, 6))
    assert 0.01 <= large.overhead.min() <= large.overhead.max() <= 0.015
    dense = load_scenario("ogasched-dense", {"horizon": 2}).build(0, False).problem.instance
    assert len(dense.channel_port) == 1280


def test_default_policies_by_kind_of_problem() -> None:
    assert load_scenario("small").policies[:3] == ("ogasched-aware", "ogasched-rates", "ogasched")
    gang = load_scenario("ogasched-gang")
    assert (gang.policies, gang.baseline, gang.oracles) == (("ogasched-gang",), "ogasched-gang", ("slot",))


@given(SEED)
def test_same_seed_same_world_whoever_knows_the_arrivals(seed: int) -> None:
    scenario = load_scenario("small", {"outages.probability": 0.1, "outages.repair": 0.5})
    hidden, revealed = scenario.build(seed, False), scenario.build(seed, True)
    assert changed(hidden, revealed) == set()
    assert (hidden.problem.arrivals_known, revealed.problem.arrivals_known) == (False, True)
    assert changed(hidden, scenario.build(seed + 1, False))


@pytest.mark.parametrize(
    ("overrides", "differs"),
    [
        ({"ports.contention": 5}, {"demand"}),
        ({"channels.density": 2}, {"reach"}),
        ({"utilities.kinds": ["log"]}, {"kind"}),
        ({"utilities.alpha": [2, 3]}, {"alpha"}),
        ({"overhead": [0.4, 0.6]}, {"overhead"}),
        ({"arrivals.probability": 0.3}, {"arrivals"}),
        ({"arrivals.process": "switching"}, {"arrivals"}),
        ({"outages": {"probability": 0.1, "repair": 0.1}}, {"up"}),
        ({"arrivals_known": "hidden", "seeds": 9, "policies": ["drf"]}, set()),
    ],
)
def test_one_setting_shifts_no_other_draw(overrides: dict[str, Any], differs: set[str]) -> None:
    before, after = (load_scenario("small", o).build(5, False) for o in ({}, overrides))
    assert changed(before, after) == differs


@given(SEED, st.integers(1, 40), st.integers(1, 12), st.integers(1, 60))
def test_more_only_adds(seed: int, servers: int, ports: int, slots: int) -> None:
    base = {"cluster": {"servers": servers}, "ports": {"count": ports}, "horizon": slots}
    grown = {"cluster": {"servers": servers + 3}, "ports": {"count": ports + 2}, "horizon": slots + 5}
    one, more = parts(load_scenario(base).build(seed, False)), parts(load_scenario(grown).build(seed, False))
    for name in ("capacity", "kind", "alpha"):
        assert np.array_equal(one[name], more[name][:servers])
    assert np.array_equal(one["demand"], more["demand"][:ports])
    assert np.array_equal(one["arrivals"], more["arrivals"][:slots, :ports])


def test_servers_are_drawn_as_documented() -> None:
    capacity = draw_servers(3, 20_000)
    machines, counts = np.unique(capacity[:, :3], axis=0, return_counts=True)
    assert machines.tolist() == [[64 / 12, 8, 2], [8, 4, 0], [8, 8, 8]]
    assert np.allclose(counts / 20_000, [0.30, 0.35, 0.35], atol=0.015)
    expected = [([0, 4, 8], [0.4, 0.3, 0.3]), ([0, 4, 8], [0.5, 0.25, 0.25]), ([0, 2, 4], [0.4, 0.3, 0.3])]
    for column, (amounts, chances) in zip(capacity[:, 3:].T, expected, strict=True):
        values, counts = np.unique(column, return_counts=True)
        assert values.tolist() == amounts
        assert np.allclose(counts / 20_000, chances, atol=0.015)


@given(SEED, st.floats(0.1, 100))
def test_requests_are_drawn_as_documented(seed: int, contention: float) -> None:
    raw = draw_demands(seed, 50, contention) / contention * [12, 64, 1, 1, 1, 1]
    allowed: list[list[float]] = [
        [0.5, 1, 2, 4, 6, 8, 12],
        [2, 4, 8, 16, 29, 32, 64],
        [0, 0.25, 0.5, 1, 2],
        *[[0, 0.25, 0.5, 1]] * 2,
        [0, 0.25, 0.5],
    ]
    for column, sizes in zip(raw.T, allowed, strict=True):
        assert all(np.isclose(size, sizes).any() for size in column)


@pytest.mark.parametrize(
    ("density", "low", "high"), [(1, 1, 1), (1.5, 1, 2), (2, 1, 3), (2.5, 1, 4), (3, 2, 4), (3.5, 2, 5), (2.2, 1, 4)]
)
def test_density_is_the_mean_number_of_ports_a_server(density: float, low: int, high: int) -> None:
    counts = draw_channels(1, 10, 20_000, density).sum(axis=0)
    assert (counts.min(), counts.max()) == (low, high)
    assert abs(counts.mean() - density) < 0.03


@given(SEED, st.integers(1, 30), st.integers(1, 10), st.floats(1, 1e300))
def test_every_port_has_a_channel(seed: int, ports: int, servers: int, density: float) -> None:
    reach = draw_channels(seed, ports, servers, density)
    assert reach.any(axis=1).all()
    assert reach.shape == (ports, servers)
    if density >= ports + 1:
        assert reach.all()


def test_bernoulli_rates_and_lists() -> None:
    slots = {"horizon": 20_000}
    assert abs(load_scenario("small", slots).build(1, False).arrivals.mean() - 0.7) < 0.01
    each = load_scenario("small", {**slots, "arrivals.probability": [0.1, 0.2, 0.9, 1]}).build(1, False)
    assert np.allclose(each.arrivals.mean(axis=0), [0.1, 0.2, 0.9, 1], atol=0.015)


def test_switching_rates_change_only_between_spells() -> None:
    scenario = load_scenario("small", {"horizon": 3000, "arrivals": {"process": "switching", "every": 1000}})
    means = scenario.build(2, False).arrivals.reshape(3, 1000, 4).mean(axis=1)
    assert means.min() > 0.05
    assert means.max() < 0.95
    assert np.ptp(means, axis=0).max() > 0.2
    extreme = {"horizon": 60, "arrivals": {"process": "switching", "every": 7, "low": 1, "high": 1}}
    assert load_scenario("small", extreme).build(2, False).arrivals.all()


def test_several_jobs_a_port_follow_a_capped_poisson() -> None:
    arrivals = {"process": "poisson", "mean": [0.0, 0.5, 1.2, 3.0], "most": 3}
    world = load_scenario("small", {"horizon": 20_000, "arrivals": arrivals}).build(1, False)
    assert [p.name for p in world.problem.instance.ports][:4] == ["port-0#1", "port-0#2", "port-0#3", "port-1#1"]
    jobs = world.arrivals.reshape(-1, 4, 3)
    assert (np.diff(jobs, axis=2) <= 0).all()
    rng = np.random.default_rng(0)
    for port, mean in enumerate([0.0, 0.5, 1.2, 3.0]):
        drawn = np.minimum(rng.poisson(mean, 200_000), 3)
        shares = [np.mean(drawn >= n) for n in (1, 2, 3)]
        assert np.allclose(jobs[:, port].mean(axis=0), shares, atol=0.015)


def test_given_arrivals_set_the_horizon() -> None:
    scenario = load_scenario({**yaml.safe_load(DRAWN), "arrivals": {"process": "given", "slots": [[1, 0], [0, 1]]}})
    assert scenario.horizon == 2
    assert scenario.build(0, False).arrivals.tolist() == [[1, 0], [0, 1]]


def test_outages_start_up_and_settle_at_their_share() -> None:
    up = draw_outages(1, 20_000, 5, 0.02, 0.06)
    assert up[0].all()
    assert abs(up.mean() - 0.75) < 0.03
    world = load_scenario("small", {"outages": {"probability": 1, "repair": 0}}).build(0, False)
    assert world.free(0).any()
    assert not world.free(1).any()


@given(SEED)
def test_drawn_gangs_split_the_request_and_share_its_channels(seed: int) -> None:
    plain = load_scenario("small").build(seed, False)
    gangs = load_scenario("small", {"gangs": {"components": 3, "minimum": 2, "share": 0.25}}).build(seed, False)
    gang = gangs.problem.gang
    assert gang is not None
    assert (gang.minimum.tolist(), gang.share) == ([2] * 4, 0.25)
    split = gangs.problem.instance.demand.reshape(4, 3, 6)
    assert np.allclose(split.sum(axis=1), plain.problem.instance.demand)
    assert (split.max(axis=1) <= 3 * split.min(axis=1) + 1e-12).all()
    graph = gangs.problem.instance
    assert graph.reach("port-1/1") == graph.reach("port-1/3") == plain.problem.instance.reach("port-1")
    assert np.array_equal(gangs.arrivals, plain.arrivals)


def test_explicit_form() -> None:
    world = explicit()
    graph = world.problem.instance
    assert graph.cluster.servers == ("a-0", "a-1", "b")
    assert graph.cluster.resources[1].unit == "1 device"
    assert graph.capacity.tolist() == [[8, 0], [8, 0], [4, 1]]
    assert graph.demand.tolist() == [[4, 0]]
    assert graph.reach("train") == ("a-0", "a-1", "b")


@pytest.mark.parametrize(
    ("servers", "reach"),
    [
        ("all", ("a-0", "a-1", "b")),
        (["a"], ("a-0", "a-1")),
        (["b", "a-1"], ("a-1", "b")),
        (["a", "a-0"], ("a-0", "a-1")),
    ],
)
def test_ports_name_servers_or_groups(servers: Any, reach: tuple[str, ...]) -> None:
    changed = {"ports": [{"name": "train", "demand": {"cpu": 4}, "servers": servers}]}
    assert explicit(**changed).problem.instance.reach("train") == reach


def test_parts_may_be_drawn_and_given_side_by_side() -> None:
    cluster = {"resources": ["gpu", "cpu"], "servers": [{"name": "s", "count": 9, "capacity": {"gpu": 4}}]}
    mixed = load_scenario({"cluster": cluster, "ports": {"count": 3}}).build(1, False).problem.instance
    assert np.array_equal(mixed.demand, draw_demands(1, 3, 10)[:, [2, 0]])
    ports = [{"name": "a", "demand": {"gpu": 1}, "servers": ["server-3"]}, {"name": "b", "demand": {"cpu": 1}}]
    other = load_scenario({"cluster": {"servers": 5}, "ports": ports, "channels": {"density": 1}}).build(1, False)
    assert other.problem.instance.reach("a") == ("server-3",)
    assert len(other.problem.instance.reach("b")) == 5


def test_explicit_probability_overhead_and_utilities() -> None:
    world = explicit(
        ports=[{"name": "p", "demand": {"cpu": 1}, "probability": 1}, {"name": "q", "demand": {"cpu": 1}}],
        arrivals__probability=0,
        overhead={"gpu": 0.5, "cpu": 0.25},
        utilities__fixed={"gpu": {"kind": "log", "alpha": 1.25}},
        utilities__kinds=["linear"],
    )
    assert world.arrivals.mean(axis=0).tolist() == [1, 0]
    assert world.problem.overhead.tolist() == [[0.25, 0.5]] * 2
    assert world.problem.utilities.alpha[:, 1].tolist() == [1.25] * 3
    assert [u if isinstance(u, str) else u.name for u in world.problem.utilities.kinds] == ["linear", "log"]
    assert world.problem.utilities.choice.tolist() == [[0, 1]] * 3


def test_explicit_gangs() -> None:
    ports = [
        {"name": "solo", "demand": {"cpu": 1}},
        {"name": "mpi", "components": [{"name": "root", "demand": {"cpu": 2}}, {"demand": {"gpu": 1}}], "minimum": 1},
    ]
    problem = explicit(ports=ports, gangs={"share": 0.75}).problem
    assert [port.name for port in problem.instance.ports] == ["solo", "mpi/root", "mpi/2"]
    assert problem.gang is not None
    assert (problem.gang.job_of_port.tolist(), problem.gang.minimum.tolist()) == ([0, 1, 1], [0, 1])
    assert problem.gang.share == 0.75
