"""Scenarios from real workloads: the key `workload` in every family."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from berth.errors import InvalidInput
from berth.random import stream
from berth.registry import PolicySpec
from berth.scenario import load_scenario, scenario_names, scenario_schema
from berth.scenario.workload import planned
from berth.simulation import simulate
from berth.traces.fitting.fit import fit
from berth.traces.fitting.generate import generate
from berth.traces.fitting.workload import load_workload
from berth.traces.formats import load_trace
from berth.traces.formats.generic import write_trace

NAMES = [name for name in scenario_names() if name.startswith("trace-")]
FOLDER = Path(__file__).parents[2] / "src" / "berth" / "data" / "scenarios"
LOG = Path(__file__).parent.parent / "data" / "traces" / "swf" / "clean.swf"
FAMILIES = ("allocation", "selection", "placement")
SIMPLE = {"allocation": "fairness", "selection": "random-selection", "placement": "fcfs"}


def arrivals(world: Any) -> Any:
    return world.tasks.arrival if hasattr(world, "tasks") else world.arrivals


def same(one: Any, other: Any) -> bool:
    graphs = one.problem.instance, other.problem.instance
    return (
        np.array_equal(arrivals(one), arrivals(other))
        and np.array_equal(graphs[0].capacity, graphs[1].capacity)
        and np.array_equal(graphs[0].demand, graphs[1].demand)
        and np.array_equal(graphs[0].channel_server, graphs[1].channel_server)
    )


# --- those that come with berth


def test_the_names() -> None:
    families = {name: load_scenario(name).family for name in NAMES}
    assert {"trace-openb-selection", "trace-openb-allocation", "trace-openb-placement"} <= set(families)
    assert {list(families.values()).count(family) > 1 for family in FAMILIES} == {True}
    contended = {name for name in families if name.endswith("-contended")}
    assert {families[name] for name in contended} == {"placement"}
    assert all(name.endswith(families[name]) for name in families.keys() - contended)


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_scenario_builds_round_trips_and_runs(name: str, tmp_path: Path) -> None:
    scenario = load_scenario(name, {"horizon": 20})
    world = scenario.build(0)
    assert len(world) == 20
    assert scenario.description
    assert same(world, load_scenario(name, {"horizon": 20}).build(0))
    assert not same(world, scenario.build(1))
    dumped = json.loads(json.dumps(scenario.dump()))
    assert "cluster" not in dumped  # the workload gives it, and may be given other servers
    path = tmp_path / "again.json"
    path.write_text(json.dumps(dumped), encoding="utf-8")
    assert load_scenario(path).dump() == dumped
    assert same(load_scenario(path).build(0), world)
    assert same(pickle.loads(pickle.dumps(scenario)).build(0), world)
    written = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert scenario_names()[name] == written["title"]
    assert set(written) <= set(scenario_schema()["properties"])
    policy = PolicySpec.parse(SIMPLE[scenario.family]).build(world.problem, stream(0, "policy"))
    result = simulate(world, policy)
    assert len(result.reward) == 20
    assert not result.violations.any()


@pytest.mark.parametrize("name", NAMES)
def test_every_type_reaches_servers_that_hold_it(name: str) -> None:
    world = load_scenario(name, {"horizon": 5}).build(0)
    graph = world.problem.instance
    assert set(graph.channel_port.tolist()) == set(range(len(graph.ports)))
    if load_scenario(name).family == "placement":
        demand, reach = world.tasks.demand, world.problem.reach[world.tasks.port]
        fits = (demand[:, None, :] <= graph.capacity[None] + 1e-9).all(axis=2) & reach
        assert fits.any(axis=1).all()
    elif load_scenario(name).family == "selection":
        assert (graph.demand[graph.channel_port] <= graph.capacity[graph.channel_server] + 1e-9).all()


# --- what the key gives


@pytest.mark.parametrize("family", FAMILIES)
def test_one_line_chooses_a_workload(family: str) -> None:
    scenario = load_scenario({"family": family, "workload": "openb", "horizon": 10})
    assert scenario.dump()["workload"]["name"] == "openb"
    world = scenario.build(3)
    assert len(world.problem.instance.cluster.servers) == 40
    more = load_scenario(scenario.dump(), {"workload.servers": 60, "workload.ports": "needs"}).build(3)
    assert len(more.problem.instance.cluster.servers) == 60


def test_channels_go_where_gpu_model_and_size_allow() -> None:
    settings = {"family": "selection", "workload": {"name": "pai", "servers": 200, "ports": "needs"}, "horizon": 5}
    graph = load_scenario(settings).build(0).problem.instance
    names = [port.name for port in graph.ports]
    for port, server in zip(graph.channel_port, graph.channel_server, strict=True):
        model = names[port].split("/")[0]
        assert graph.cluster.servers[server].split(".")[0].rsplit("-", 1)[0] == model


@pytest.mark.parametrize("ports", ["demand", "kind", "needs", "size", "user"])
def test_job_types(ports: str) -> None:
    scenario = load_scenario(
        {"family": "allocation", "workload": {"name": "metacentrum", "ports": ports, "types": 5}, "horizon": 400}
    )
    plan = planned(scenario.settings.workload)
    assert 1 <= len(plan.names) <= 5
    assert len(set(plan.names)) == len(plan.names)
    assert plan.shares.sum() == pytest.approx(1)
    assert (np.diff(plan.shares[: len(plan.names) - 1]) <= 1e-9).all()
    assert scenario.build(0).arrivals.shape == (400, len(plan.names))


def test_arrivals_are_the_submit_times_of_the_trace(tmp_path: Path) -> None:
    trace = generate(load_workload("nasa-ipsc"), jobs=3000, seed=1)
    path = tmp_path / "jobs.csv"
    write_trace(trace, path)
    count = int(trace.machines["count"][0])
    settings = {"trace": str(path), "servers": count, "slot_seconds": 600.0, "ports": "kind", "types": 20}
    scenario = load_scenario({"family": "allocation", "workload": settings, "horizon": 100})
    plan = planned(scenario.settings.workload)
    jobs = plan.jobs(100, 2)
    start = jobs.jobs["job"][0]
    row = trace.jobs["job"].to_list().index(start)
    real = trace.jobs["submit_s"].to_numpy()[row : row + len(jobs)]
    ours = jobs.jobs["submit_s"].to_numpy()
    assert np.allclose(np.diff(real), np.diff(ours), atol=1e-6)  # a window of the trace, as it was
    slots = np.zeros(100, dtype=bool)
    slots[(ours / 600).astype(int)] = True
    assert np.array_equal(scenario.build(2).arrivals.any(axis=1), slots)
    assert not np.array_equal(scenario.build(2).arrivals, scenario.build(3).arrivals)


def test_jobs_before_since_are_left_out(tmp_path: Path) -> None:
    trace = generate(load_workload("nasa-ipsc"), jobs=3000, seed=1)
    path = tmp_path / "jobs.csv"
    write_trace(trace, path)
    later = trace.jobs["submit_s"].to_list()[1000]
    source = load_scenario({"family": "allocation", "workload": {"trace": str(path), "since": later}, "horizon": 10})
    played = planned(source.settings.workload).trace
    assert played is not None
    assert set(played.jobs["job"]) == set(trace.jobs.filter(trace.jobs["submit_s"] >= later)["job"])
    assert load_scenario(source.dump()).dump() == source.dump()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_hand_made_log_is_enough(family: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    (tmp_path / "clean.swf").write_bytes(LOG.read_bytes())
    text = f"family: {family}\nhorizon: 12\nworkload: {{trace: clean.swf, servers: 4}}\n"
    file.write_text(text, encoding="utf-8")
    scenario = load_scenario(file)  # the path starts at the scenario's folder
    world = scenario.build(0)
    assert len(world) == 12
    assert same(world, scenario.build(0))
    name = {"allocation": "ogasched", "selection": "cucb", "placement": "easy"}[family]
    result = simulate(world, PolicySpec.parse(name).build(world.problem, stream(0, "policy")))
    assert not result.violations.any()
    fit(load_trace(LOG), "own").save(tmp_path / "own.json")
    fitted = load_scenario({"family": family, "horizon": 12, "workload": {"fit": str(tmp_path / "own.json")}})
    assert len(fitted.build(0)) == 12


def test_other_keys_still_hold() -> None:
    small = {"resources": ["cpu", "memory", "gpu"], "servers": [{"name": "big", "count": 3, "capacity": {"gpu": 8}}]}
    world = load_scenario(
        {
            "family": "selection",
            "horizon": 50,
            "workload": "openb",
            "cluster": small,
            "ports": [{"name": "mine", "demand": {"gpu": 1}}],
            "arrivals": {"process": "bernoulli", "probability": 1.0},
            "gains": {"distribution": "bounded"},
        }
    ).build(0)
    assert world.problem.instance.capacity.tolist() == [[0.0, 0.0, 8.0]] * 3
    assert world.arrivals.all()


def test_gains_spread_as_measured() -> None:
    world = load_scenario({"family": "selection", "workload": "openb", "horizon": 300}).build(1)
    draws = np.array([drawn for _, (_, drawn) in zip(range(300), world.gains, strict=False)])
    means = next(iter(world.gains))[0]
    speeds = load_workload("pai").speeds
    assert speeds is not None
    assert means.max() / np.median(means) > 1.1
    assert np.quantile(means, 0.5) == pytest.approx(0.5 * np.median(speeds.between), rel=0.1)
    within = draws.std(axis=0) / draws.mean(axis=0)
    assert np.median(within) == pytest.approx(np.median(speeds.within), rel=0.5)


def test_faster_servers_gain_more() -> None:
    settings = {"family": "selection", "workload": {"name": "openb", "servers": 20}, "horizon": 5}
    plain = load_scenario(settings).build(0)
    group = load_scenario(settings).settings.cluster.servers[0].name  # type: ignore[attr-defined]
    fast = load_scenario({**settings, "gains": {"speed": {group: 0.5}}}).build(0)
    graph = plain.problem.instance
    there = np.array([graph.cluster.servers[r].startswith(f"{group}-") for r in graph.channel_server])
    ratio = fast.gains.centre / plain.gains.centre
    assert np.allclose(ratio[there], 0.5)
    assert np.allclose(ratio[~there], 1.0)


def test_load_in_one_slot_families_is_what_is_requested() -> None:
    for load in (0.5, 2.0):
        settings = {"name": "openb", "servers": 100, "load": load, "types": 4}
        plan = planned(load_scenario({"family": "selection", "workload": settings, "horizon": 5}).settings.workload)
        often = np.mean([plan.arrivals(plan.names, 2000, seed) for seed in (1, 2, 3)], axis=(0, 1))
        asked = (often[:, None] * plan.demand * plan.pieces[:, None]).sum(axis=0) * plan.copies()
        total = np.sum([group.count * group.capacity for group in plan.groups], axis=0)
        assert (asked / total).max() == pytest.approx(load, rel=0.15)


# --- placement


def test_placement_tasks_are_the_jobs() -> None:
    settings = {"family": "placement", "workload": {"name": "openb", "servers": 60, "load": 1.0}, "horizon": 50}
    scenario = load_scenario(settings)
    plan = planned(scenario.settings.workload)
    slot, faster = plan.pace()
    jobs = plan.jobs(50, 4, faster, slot).jobs
    world = scenario.build(4)
    tasks, problem = world.tasks, world.problem
    assert len(tasks) == len(jobs)
    assert len(jobs) / 50 == pytest.approx(10, rel=0.4)
    assert np.allclose(tasks.work * slot, jobs["run_s"].to_numpy())
    assert np.array_equal(tasks.arrival, np.floor(jobs["submit_s"].to_numpy() / slot))
    assert problem.devices == 2
    assert problem.exact
    assert not problem.gangs
    assert not problem.reach.all()
    labels, port = plan.needs(plan.jobs(50, 4, faster, slot))
    assert np.array_equal(port, tasks.port)
    for label, row in zip(labels, problem.reach, strict=True):
        there = {
            name.split(".")[0].rsplit("-", 1)[0]
            for name, yes in zip(problem.instance.cluster.servers, row, strict=True)
            if yes
        }
        assert label == "any" or there <= set(label.split("|")) or row.all()
    assert scenario.policies[0] == "drl-greedy"
    low, high = 1.0, 3.0
    stretch = (tasks.deadline - tasks.arrival) / tasks.work
    assert (stretch >= low - 1e-9).all()
    assert (stretch <= high + 1e-9).all()
    plain = load_scenario({**settings, "tasks": {"needs": False, "devices": False}}).build(4)
    assert plain.problem.reach.all()
    assert plain.problem.devices is None


def test_gangs_and_estimates() -> None:
    settings = {"family": "placement", "workload": {"name": "sdsc-sp2", "servers": 64}, "horizon": 30}
    world = load_scenario(settings).build(0)
    assert world.problem.gangs
    assert world.tasks.pieces.max() > 1
    assert world.tasks.pieces.max() <= 64
    apart = load_scenario({**settings, "tasks": {"gangs": False}}).build(0)
    assert not apart.problem.gangs
    assert len(apart.tasks) == world.tasks.pieces.sum()
    said = load_scenario({**settings, "tasks": {"known": "estimate"}}).build(0)
    assert not said.problem.exact
    assert np.allclose(said.runs, world.tasks.work)
    assert (said.tasks.work >= said.runs - 1e-9).mean() > 0.8


# --- mistakes

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"workload": 5}, r"workload: got 5, expected a mapping"),
    ({"workload": {"servers": 3}}, r"workload: got none of them, expected one of name, fit, trace"),
    ({"workload": {"name": "openb", "fit": "x.json"}}, r"workload: got name and fit, expected one of name, fit, trace"),
    ({"workload": "openbb"}, r"workload.name: got 'openbb', expected one of .*did you mean 'openb'"),
    ({"workload": {"name": "openb", "servers": 0}}, r"workload.servers: got 0, expected a whole number from 1"),
    ({"workload": {"name": "openb", "load": -1}}, r"workload.load: got -1, expected a number > 0"),
    ({"workload": {"name": "openb", "slot_seconds": "1h"}}, r"workload.slot_seconds: got '1h', expected a number > 0"),
    ({"workload": {"name": "openb", "ports": "sizes"}}, r"workload.ports: got 'sizes'.*did you mean 'size'"),
    ({"workload": {"name": "openb", "types": 0}}, r"workload.types: got 0"),
    ({"workload": {"name": "openb", "port": 3}}, r"workload.port: got an unknown key.*did you mean 'ports'"),
    ({"workload": {"name": "openb", "format": "swf"}}, r"workload.format: got 'swf', expected trace beside it"),
    ({"workload": {"name": "openb", "digest": "0"}}, r"workload.digest: got '0', expected the digest of openb.json"),
    ({"workload": {"name": "openb", "since": 5}}, r"workload.since: got 5.0, expected trace beside it"),
    ({"workload": {"trace": "none.swf"}}, r"workload.trace: got no such file"),
    ({"workload": {"fit": "."}}, r"workload.fit: got a folder"),
    (
        {"workload": {"name": "itp", "ports": "user"}},
        r"workload.ports: got 'user', expected a column that the",
    ),
    (
        {"arrivals": {"process": "workload"}, "cluster": {}, "ports": {}},
        r"arrivals.process: got 'workload', exp",
    ),
    (
        {"workload": "openb", "ports": [{"name": "x", "demand": {"gpu": 1}}]},
        r"ports\[0\].name: got 'x', expected a job type of the workload",
    ),
    (
        {"family": "placement", "workload": "openb", "arrivals": {"mean": 3}},
        r"arrivals: got arrivals beside tasks of",
    ),
    (
        {"family": "placement", "workload": "openb", "tasks": {"gangs": "yes"}},
        r"tasks.gangs: got 'yes'",
    ),
    (
        {"family": "placement", "workload": "openb", "tasks": {"value": {"mean": 1, "least": 2}}},
        r"tasks.value.least: got 2",
    ),
    (
        {"family": "selection", "workload": "openb", "gains": {"speed": {"nowhere": 2}}},
        r"gains.speed.nowhere: got an unknown server or group",
    ),
    (
        {"family": "selection", "gains": {"distribution": "measured"}},
        r"gains.between: got nothing, expected this key, for distribution: measured",
    ),
    (
        {"family": "selection", "gains": {"within": [0.1, 0.2]}},
        r"gains.within: got papers, expected distribution: measured beside it",
    ),
]


@pytest.mark.parametrize(("given", "message"), MISTAKES, ids=[f"{i}" for i in range(len(MISTAKES))])
def test_mistakes_name_key_and_expectation(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_scenario({"family": "allocation", **given})


def test_a_bad_file_is_told_where_the_scenario_names_it(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"format": "other"}', encoding="utf-8")
    file = tmp_path / "lab.yaml"
    file.write_text("family: allocation\n\nworkload: {fit: bad.json}\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"lab.yaml:3: workload.fit: .*bad.json: format: got 'other'"):
        load_scenario(file)


def test_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.json"
    fit(load_trace(LOG), "own").save(path)
    dumped = load_scenario({"family": "allocation", "workload": {"fit": str(path)}, "horizon": 5}).dump()
    fit(load_trace(LOG), "other").save(path)
    with pytest.raises(InvalidInput, match=r"workload\.digest"):
        load_scenario(dumped)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_without_jobs_is_a_run_without_reward(tmp_path: Path, family: str) -> None:
    """Jobs come once a day; the run lasts five minutes."""
    jobs = (f"{day} {day * 86400} -1 10 1 -1 -1 1 20 -1 1 1 1 1 1 -1 -1 -1\n" for day in range(1, 20))
    (tmp_path / "rare.swf").write_text("; MaxProcs: 8\n" + "".join(jobs))
    file = tmp_path / "rare.yaml"
    file.write_text(f"family: {family}\nhorizon: 5\nworkload: {{trace: rare.swf, slot_seconds: 60}}\n")
    totals = []
    for seed in range(5):
        world = load_scenario(str(file)).build(seed, True)
        result = simulate(world, PolicySpec.parse(SIMPLE[family]).build(world.problem, stream(seed, "policy")))
        totals.append(result.reward.tolist())
    assert [0.0] * 5 in totals
