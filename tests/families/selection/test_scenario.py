"""Scenario files of the selection family: what they mean, what a seed draws, and how every mistake in them is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.families.selection.gains import DrawnGains
from berth.families.selection.world import SelectionWorld
from berth.scenario import load_scenario
from berth.traces.throughputs import read_gavel
from tests.harness.examples import examples

SEED = st.integers(0, 2**32)
DRAWN = "family: selection\n"
EXPLICIT = """\
family: selection
cluster:
  resources: [cpu, gpu]
  servers:
    - {name: a, count: 2, capacity: {cpu: 8}}
    - {name: b, capacity: {cpu: 4, gpu: 1}}
ports:
  - name: train
    demand: {cpu: 4}
"""


def build(seed: int = 1, text: str = DRAWN, **overrides: Any) -> SelectionWorld:
    """The world of these settings (dots written as __)."""
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    world: SelectionWorld = load_scenario(yaml.safe_load(text), {"horizon": 50, **changes}).build(seed)
    return world


def parts(world: SelectionWorld) -> dict[str, Any]:
    """All that a seed draws."""
    problem = world.problem
    graph = problem.instance
    count = len(problem.cost)
    drawn = list(zip(range(20), world.gains, strict=False))
    return {
        "reach": np.stack([graph.channel_port, graph.channel_server]),
        "takes": problem.takes,
        "cost": problem.cost,
        "limits": problem.limits,
        "arrivals": world.arrivals,
        "means": np.array([means for _, (means, _) in drawn]).reshape(-1, count),
        "draws": np.array([draws for _, (_, draws) in drawn]).reshape(-1, count),
        "delay": np.zeros(0) if world.delay is None else world.delay,
        "up": np.zeros(0) if world.up is None else world.up,
    }


def changed(before: SelectionWorld, after: SelectionWorld) -> set[str]:
    one, other = parts(before), parts(after)
    return {name for name in one if not np.array_equal(one[name], other[name])}


# --- named scenarios


def test_the_papers_settings() -> None:
    default = load_scenario("esdp-default")
    assert (default.horizon, default.baseline, default.policies[0]) == (2000, "hauf", "reservation")
    assert load_scenario("esdp-t8000").horizon == 8000
    for seed in range(5):
        world = default.build(seed)
        problem = world.problem
        graph = problem.instance
        assert (len(graph.ports), graph.capacity.shape) == (8, (40, 3))
        assert problem.limits.tolist() == [[2.0, 2.0, 2.0]]
        assert np.isin(problem.takes, (1.0, 2.0)).all()
        assert len(problem.cost) >= 8
        assert set(graph.channel_port.tolist()) == set(range(8))
        assert abs(world.arrivals.mean() - 0.9) < 0.01
        assert abs(problem.cost.mean() - 3 * 0.5 / 15) < 0.01
        means, draws = next(iter(world.gains))
        assert ((draws - problem.cost >= 0) & (draws - problem.cost <= 1)).all()
        assert ((means - problem.cost > 0) & (means - problem.cost < 1)).all()
    assert load_scenario("esdp-c8").build(0).problem.limits.tolist() == [[8.0, 8.0, 8.0]]
    assert not load_scenario("esdp-dead-port").build(0).arrivals[:, 0].any()
    assert abs(load_scenario("esdp-rare-arrivals").build(0).arrivals.mean() - 0.1) < 0.02
    assert load_scenario("esdp-server-capacity").build(0).problem.limits.shape == (40, 3)
    late = load_scenario("esdp-late-feedback").build(0).delay
    assert (late.min(), late.max()) == (-1, 20)
    assert abs((late == -1).mean() - 0.1) < 0.03


def test_what_differs_between_named_scenarios_is_what_they_say() -> None:
    default = load_scenario("esdp-default", {"horizon": 30}).build(3)
    for name, differs in [
        ("esdp-c8", {"limits"}),
        ("esdp-rare-arrivals", {"arrivals"}),
        ("esdp-dead-port", {"arrivals"}),
        ("esdp-walk", {"means", "draws"}),
        ("esdp-drift", set()),  # nothing changes before slot 1000
        ("esdp-late-feedback", {"delay"}),
        ("esdp-server-capacity", {"limits"}),
    ]:
        assert changed(load_scenario(name, {"horizon": 30}).build(3), default) == differs, name


def test_drift_moves_means_when_it_says() -> None:
    world = build(drift={"kind": "redraw", "every": 5, "share": 0.5})
    means = parts(world)["means"]
    moves = [int((means[t] != means[t - 1]).sum()) for t in range(1, 20)]
    assert [t + 1 for t, n in enumerate(moves) if n] == [5, 10, 15]
    assert set(moves) == {0, round(0.5 * len(world.problem.cost))}
    walk = parts(build(drift={"kind": "walk", "step": 0.05}))["means"]
    assert (np.diff(walk, axis=0) != 0).all()


def test_gang_jobs() -> None:
    problem = load_scenario("gang-100x40", {"horizon": 2}).build(0).problem
    roles = problem.roles
    assert roles is not None
    assert problem.jobs == 100
    sizes = np.bincount(roles.job_of_port)
    assert 0.55 < (sizes == 2).mean() < 0.85
    assert set(sizes.tolist()) == {1, 2}
    assert ((roles.minimum >= 0.25 * roles.most) & (roles.minimum >= 1)).all()
    capacity = problem.instance.capacity
    assert {tuple(row) for row in capacity.tolist()} == {(96, 384, 0), (64, 256, 4), (96, 768, 8)}
    graph = problem.instance
    assert (problem.takes <= capacity[graph.channel_server]).all()  # no channel that could hold no task
    assert set(graph.channel_port.tolist()) == set(range(len(graph.ports)))
    assert load_scenario("gang-30x40").baseline == "random-selection"


# --- draws


@examples(20)
@given(SEED)
def test_same_seed_same_world(seed: int) -> None:
    scenario = load_scenario("esdp-small")
    assert changed(scenario.build(seed, True), scenario.build(seed, False)) == set()
    # a port may be alone on few channels, so two seeds can agree in a little, never in everything
    assert len(changed(scenario.build(seed), scenario.build(seed + 1))) >= 5


@pytest.mark.parametrize(
    ("overrides", "differs"),
    [
        ({"capacity": {"each": 5}}, {"limits"}),
        ({"capacity": {"scope": "server"}}, {"limits"}),
        ({"ports__demand": [1, 2, 3]}, {"takes"}),
        ({"arrivals__probability": 0.5}, {"arrivals"}),
        ({"arrivals": {"process": "switching"}}, {"arrivals"}),
        ({"costs": 0.1}, {"cost", "means", "draws"}),
        ({"gains__mean": [0.5, 0.6]}, {"means", "draws"}),
        ({"gains__spread": 0.1}, {"means", "draws"}),
        ({"gains__distribution": "normal", "costs": [0, 0]}, {"cost", "means", "draws"}),
        ({"delay": {"most": 3}}, {"delay"}),
        ({"capacity": {"scope": "server"}, "outages": {"probability": 0.1, "repair": 0.1}}, {"limits", "up"}),
        ({"seeds": 9, "policies": ["escb"], "baseline": "lcf"}, set()),
    ],
)
def test_one_setting_shifts_no_other_draw(overrides: dict[str, Any], differs: set[str]) -> None:
    assert changed(build(5), build(5, **overrides)) == differs


@examples(15)
@given(SEED, st.integers(2, 20), st.integers(2, 6))
def test_more_ports_and_servers_only_add(seed: int, servers: int, ports: int) -> None:
    def drawn(grow: int) -> dict[tuple[int, int], tuple[Any, ...]]:
        sizes: dict[str, Any] = {
            "cluster__servers": servers + grow,
            "ports__count": ports + grow,
            "channels": {"least": 0},
        }
        world = build(seed, **sizes)
        problem = world.problem
        graph = problem.instance
        centre = world.gains.centre if isinstance(world.gains, DrawnGains) else None
        assert centre is not None
        where = zip(graph.channel_port.tolist(), graph.channel_server.tolist(), strict=True)
        return {pair: (*problem.takes[e].tolist(), problem.cost[e], centre[e]) for e, pair in enumerate(where)}

    small, large = drawn(0), drawn(3)
    both = small.keys() & large.keys()
    assert all(small[pair] == large[pair] for pair in both)
    # a channel that a port was given because it had none may move to a server that is new
    assert len(small.keys() - large.keys()) <= ports


@examples(30)
@given(SEED, st.integers(1, 10), st.integers(1, 12), st.floats(0, 1), st.integers(0, 30))
def test_every_port_has_a_channel_and_there_are_enough(
    seed: int, ports: int, servers: int, probability: float, least: int
) -> None:
    channels = {"probability": probability, "least": least}
    graph = build(seed, ports__count=ports, cluster__servers=servers, channels=channels).problem.instance
    assert set(graph.channel_port.tolist()) == set(range(ports))
    assert len(graph.channel_port) >= min(least, ports * servers)


@pytest.mark.parametrize("distribution", ["normal", "bounded", "lognormal", "empirical", "papers"])
def test_draws_fall_around_their_means(distribution: str) -> None:
    gains: dict[str, Any] = {"distribution": distribution, "mean": [0.4, 0.6], "spread": 0.5}
    if distribution == "empirical":
        gains["samples"] = [0.1, 0.2, 0.9]
    world = build(2, gains=gains)
    drawn = [pair for _, pair in zip(range(4000), world.gains, strict=False)]
    means, draws = drawn[0][0], np.array([draw for _, draw in drawn])
    assert np.allclose(draws.mean(axis=0), means, atol=0.03)
    if distribution in ("normal", "lognormal"):
        assert np.allclose(draws.std(axis=0), 0.5 * means, atol=0.04)


def test_several_jobs_a_port_share_its_truth() -> None:
    world = build(arrivals={"process": "poisson", "mean": 1.0, "most": 2}, gains__spread=0.0)
    graph = world.problem.instance
    assert [port.name for port in graph.ports[:4]] == ["port-0#1", "port-0#2", "port-1#1", "port-1#2"]
    means = parts(world)["means"][0]
    first, second = (graph.channel_port % 2 == copy for copy in (0, 1))
    assert np.array_equal(means[first], means[second])
    assert np.array_equal(world.problem.takes[first], world.problem.takes[second])
    assert world.arrivals.shape == (50, 16)


def test_given_arrivals_set_the_horizon() -> None:
    scenario = load_scenario({"family": "selection", "ports": {"count": 2}, "arrivals": {"process": "given",
        "slots": [[1, 0], [0, 1]]}})  # fmt: skip
    assert scenario.horizon == 2
    assert scenario.build(0).arrivals.tolist() == [[1, 0], [0, 1]]


# --- explicit scenarios


def test_explicit_form_has_capacity_by_server() -> None:
    problem = build(text=EXPLICIT).problem
    assert problem.limits.tolist() == [[8, 0], [8, 0], [4, 1]]
    assert problem.instance.reach("train") == ("a-0", "a-1", "b")
    assert problem.takes.tolist() == [[4, 0]] * 3
    pool = build(text=EXPLICIT, capacity={"scope": "cluster"}).problem
    assert pool.limits.tolist() == [[20, 1]]
    pool = build(text=EXPLICIT, capacity={"scope": "cluster", "each": {"cpu": 3, "gpu": 1}}).problem
    assert pool.limits.tolist() == [[3, 1]]


def test_explicit_costs_and_ports() -> None:
    ports = [
        {"name": "p", "demand": {"cpu": 2, "gpu": 1}, "servers": ["b"], "probability": 1},
        {"name": "q", "demand": {"cpu": 1}, "servers": "all"},
    ]
    world = build(text=EXPLICIT, ports=ports, costs={"cpu": 0.1, "gpu": 0.5}, arrivals__dead=["q"])
    graph = world.problem.instance
    prices = [0.7 if port == 0 else 0.1 for port in graph.channel_port]
    assert world.problem.cost.tolist() == pytest.approx(prices)
    assert world.arrivals.mean(axis=0).tolist() == [1, 0]
    shaped = {"cpu": {"price": 0.1, "shape": "quadratic"}, "gpu": {"price": 0.5, "shape": "sqrt"}}
    assert build(text=EXPLICIT, ports=ports, costs=shaped).problem.cost.max() == pytest.approx(0.1 * 4 + 0.5)
    drawn = build(text=EXPLICIT, ports=ports, channels={"probability": 0, "least": 0}).problem.instance
    assert (drawn.reach("p"), drawn.reach("q")) == (("b",), ("a-0", "a-1", "b"))


def test_explicit_roles() -> None:
    ports = [
        {"name": "solo", "demand": {"cpu": 1}},
        {"name": "mpi", "roles": [{"name": "root", "demand": {"cpu": 2}},
                                  {"name": "worker", "demand": {"gpu": 1}, "minimum": 2, "most": 5}]},
    ]  # fmt: skip
    problem = build(text=EXPLICIT, ports=ports).problem
    assert [port.name for port in problem.instance.ports] == ["solo", "mpi/root", "mpi/worker"]
    assert problem.roles is not None
    assert problem.roles.job_of_port.tolist() == [0, 1, 1]
    assert (problem.roles.minimum.tolist(), problem.roles.most.tolist()) == ([1, 1, 2], [1, 1, 5])


def test_a_part_given_in_another_form_replaces_the_one_below() -> None:
    walk = load_scenario("esdp-drift", {"drift": {"kind": "walk"}}).dump()["drift"]
    assert walk == {"kind": "walk"}
    machines = {"cluster": {"draw": "machines"}, "ports": {"draw": "gangs"}, "capacity.scope": "cluster"}
    assert load_scenario("esdp-default", machines).dump()["cluster"] == {"draw": "machines", "servers": 40}


def test_gavel_selection_has_the_measured_speeds_with_effects_of_servers() -> None:
    world = load_scenario("gavel-selection").build(3)
    table, instance = read_gavel(), world.problem.instance
    known = {type_.replace("/", "-"): type_ for type_ in table.gpus}
    assert isinstance(world.gains, DrawnGains)
    off: dict[int, list[float]] = {}
    for port, server, mean in zip(instance.channel_port, instance.channel_server, world.gains.centre, strict=True):
        name = instance.cluster.servers[server]
        speed = table.speed[known[instance.ports[port].name], name.split("-")[0], "spread" in name]
        off.setdefault(int(server), []).append(mean / (0.4 * speed))
    assert all(max(ratios) / min(ratios) < 1.02 for ratios in off.values())  # three digits are stated
    assert 0.01 < np.std([np.log(np.mean(ratios)) for ratios in off.values()]) < 0.15


@pytest.mark.parametrize(
    ("speeds", "said"),
    [
        ({"trian": {"a": 1.0}}, "gains.speeds.trian: .*did you mean 'train'"),
        ({"train": {"c": 1.0}}, "gains.speeds.train.c: got an unknown server or group"),
    ],
)
def test_speeds_name_types_and_servers(speeds: Any, said: str) -> None:
    gains = {"distribution": "measured", "between": [1.0, 1.0], "within": [0.1, 0.1], "speeds": speeds}
    with pytest.raises(InvalidInput, match=said):
        build(text=EXPLICIT, gains=gains)
