"""Scenario files: what they mean, what a seed draws, and how every mistake in them is told."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import BerthError, InvalidInput, UnknownName
from berth.families.allocation.world import AllocationWorld
from berth.files.yaml_tree import LARGEST_FILE, read_text
from berth.scenario import Scenario, load_scenario, parse_overrides, scenario_names, scenario_schema
from berth.scenario.catalog import FOLDER
from berth.scenario.drawing import draw_channels, draw_demands, draw_outages, draw_servers

NAMES = [
    name for name in scenario_names() if not name.startswith("trace-") and load_scenario(name).family == "allocation"
]
SEED = st.integers(0, 2**32)

DRAWN = "cluster: {servers: 4}\nports: {count: 2}\n"
EXPLICIT = """\
cluster:
  resources: [cpu, {name: gpu, unit: 1 device}]
  servers:
    - {name: a, count: 2, capacity: {cpu: 8}}
    - name: b
      capacity: {cpu: 4, gpu: 1}
ports:
  - name: train
    demand: {cpu: 4}
"""


def same(one: AllocationWorld, other: AllocationWorld) -> bool:
    """Whether two worlds hold the same instance, objective, arrivals and outages."""
    a, b = one.problem, other.problem
    pairs: list[tuple[Any, Any]] = [
        (a.instance.capacity, b.instance.capacity),
        (a.instance.demand, b.instance.demand),
        (a.instance.channel_port, b.instance.channel_port),
        (a.instance.channel_server, b.instance.channel_server),
        (a.utilities.kind, b.utilities.kind),
        (a.utilities.alpha, b.utilities.alpha),
        (a.overhead, b.overhead),
        (one.arrivals, other.arrivals),
    ]
    if one.up is not None and other.up is not None:
        pairs.append((one.up, other.up))
    return (one.up is None) == (other.up is None) and all(np.array_equal(x, y) for x, y in pairs)


def write(folder: Path, text: str, name: str = "lab.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def explicit(**overrides: Any) -> AllocationWorld:
    """The world of EXPLICIT, with overrides (dots written as __)."""
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    world: AllocationWorld = load_scenario(read_text(EXPLICIT).value, {"horizon": 50, **changes}).build(1, False)
    return world


# --- named scenarios


@pytest.mark.parametrize("name", NAMES)
def test_every_named_scenario_builds_and_round_trips(name: str, tmp_path: Path) -> None:
    scenario = load_scenario(name, {"horizon": 3})
    world = scenario.build(0, True)
    assert len(world) == 3
    assert world.problem.horizon == 3
    assert world.problem.arrivals_known
    assert scenario.title
    assert "aper" in scenario.description or name == "example-explicit" or "Zhao" in scenario.description
    dumped = json.loads(json.dumps(scenario.dump()))
    again = load_scenario(write(tmp_path, json.dumps(dumped), "again.json"))
    assert again.dump() == dumped
    assert again.name == name
    assert same(again.build(0, True), world)


@pytest.mark.parametrize("name", NAMES)
def test_titles_read_without_yaml_are_those_of_the_file(name: str) -> None:
    written = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert scenario_names()[name] == written["title"]


def test_the_papers_settings() -> None:
    grid = [f"t{t}" for t in (1000, 2000, 5000, 10000)] + [f"rho-{r}" for r in (0.3, 0.5, 0.7, 0.9)]
    grid += [f"density-{d}" for d in (2, 2.5, 3)] + ["linear", "log", "reciprocal", "poly"]
    others = ["default", "fig2", "large", "dense", "switching", "several-jobs", "gang"]
    assert {f"ogasched-{name}" for name in grid + others} | {"small", "demo", "example-explicit"} == set(NAMES)
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


def test_listing_names_imports_nothing_heavy() -> None:
    code = "import sys, berth.scenario as s; s.scenario_names(); print([m for m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "numba", "yaml", "pydantic", "scipy"} & set(eval(out))


def test_schema_knows_every_key_that_shipped_files_use() -> None:
    schema = scenario_schema()
    json.dumps(schema)
    used = {key for name in NAMES for key in yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))}
    assert used <= set(schema["properties"])
    assert set(load_scenario("small").dump()) | {"extends", "gangs", "outages"} <= set(schema["properties"])
    assert {"DrawnCluster", "GivenCluster", "PortEntry", "Switching", "Poisson", "Given"} <= set(schema["$defs"])


# --- draws


@given(SEED)
def test_same_seed_same_world_whoever_knows_the_arrivals(seed: int) -> None:
    scenario = load_scenario("small", {"outages.probability": 0.1, "outages.repair": 0.5})
    hidden, revealed = scenario.build(seed, False), scenario.build(seed, True)
    assert same(hidden, revealed)
    assert (hidden.problem.arrivals_known, revealed.problem.arrivals_known) == (False, True)
    assert not same(hidden, scenario.build(seed + 1, False))


PARTS = ("capacity", "demand", "reach", "kind", "alpha", "overhead", "arrivals")


def parts(world: AllocationWorld) -> dict[str, Any]:
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
    }


@pytest.mark.parametrize(
    ("overrides", "changed"),
    [
        ({"ports.contention": 5}, {"demand"}),
        ({"channels.density": 2}, {"reach"}),
        ({"utilities.kinds": ["log"]}, {"kind"}),
        ({"utilities.alpha": [2, 3]}, {"alpha"}),
        ({"overhead": [0.4, 0.6]}, {"overhead"}),
        ({"arrivals.probability": 0.3}, {"arrivals"}),
        ({"arrivals.process": "switching"}, {"arrivals"}),
        ({"outages": {"probability": 0.1, "repair": 0.1}}, set()),
        ({"arrivals_known": "hidden", "seeds": 9, "policies": ["drf"]}, set()),
    ],
)
def test_one_setting_shifts_no_other_draw(overrides: dict[str, Any], changed: set[str]) -> None:
    before, after = (parts(load_scenario("small", o).build(5, False)) for o in ({}, overrides))
    assert {name for name in PARTS if not np.array_equal(before[name], after[name])} == changed


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


# --- explicit scenarios


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


# --- layers


def test_extends_merges_mappings_and_keeps_its_own_words(tmp_path: Path) -> None:
    write(tmp_path, "extends: small\nports: {contention: 11}\ntitle: Mine\n", "base.yaml")
    scenario = load_scenario(write(tmp_path, "extends: base.yaml\nhorizon: 7\n"))
    assert (scenario.name, scenario.title, scenario.description, scenario.horizon) == ("lab", "", "", 7)
    assert scenario.dump()["ports"] == {"draw": "alibaba-like", "count": 4, "contention": 11.0}


@pytest.mark.parametrize(
    ("text", "servers", "resources"),
    [
        ("extends: small\narrivals: {process: poisson, mean: 1, most: 2}\n", 12, 6),
        ("extends: small\n" + EXPLICIT + "overhead: {cpu: 1, gpu: 1}\n", None, 2),
        (
            "extends: example-explicit\ncluster: {draw: alibaba-like, servers: 3}\nports: {count: 2}\noverhead: 0.5\n",
            3,
            6,
        ),
    ],
)
def test_a_part_given_in_another_form_replaces_the_one_below(
    text: str, servers: int | None, resources: int, tmp_path: Path
) -> None:
    cluster = load_scenario(write(tmp_path, text)).build(0, False).problem.instance.cluster
    assert len(cluster.resources) == resources
    assert servers is None or len(cluster.servers) == servers


def test_overrides() -> None:
    both = load_scenario("small", {"arrivals.every": 20, "arrivals.process": "switching"}).dump()["arrivals"]
    assert both == {"process": "switching", "every": 20, "low": 0.1, "high": 0.9}
    deep = load_scenario("example-explicit", {"ports[1].demand.gpu": 3, "ports[1].probability": 0})
    assert deep.dump()["ports"][1]["demand"] == {"cpu": 2.0, "memory": 1.0, "gpu": 3.0}
    arrays = load_scenario("small", {"ports.count": np.int64(3), "overhead": np.array([0.1, 0.2])})
    assert arrays.build(0, False).problem.jobs == 3
    tuples = load_scenario("small", {"utilities.kinds": ("log",), "ports": {"count": 2}})
    assert tuples.dump()["utilities"]["kinds"] == ["log"]
    assert tuples.dump()["ports"]["contention"] == 10


def test_overrides_as_text() -> None:
    texts = ["a.b=1e-3", "c=[1, no]", "d=", "e=x=y", "f=true"]
    assert parse_overrides(texts) == {"a.b": 0.001, "c": [1, "no"], "d": None, "e": "x=y", "f": True}
    for bad, message in [
        ("horizon", "override: got 'horizon', expected key=value, such as ports.count=20"),
        ("a=[1", "a: got text that is not YAML at column 1 (did not find expected ',' or ']'), expected YAML"),
    ]:
        with pytest.raises(InvalidInput) as caught:
            parse_overrides([bad])
        assert str(caught.value) == message


def test_scenarios_pickle() -> None:
    scenario: Scenario = pickle.loads(pickle.dumps(load_scenario("small")))
    assert same(scenario.build(1, True), load_scenario("small").build(1, True))


def test_seeds_below_zero_are_refused() -> None:
    with pytest.raises(InvalidInput, match="seed: got -1, expected a whole number ≥ 0"):
        load_scenario("small").build(-1, False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("-2", -2), ("+.5", 0.5), ("1.", 1.0), ("012", 12), ("1_000", "1_000"), ("1:30", "1:30"),
        ("yes", "yes"), ("No", "No"), ("true", True), ("True", True), ("tRue", "tRue"), ("~", None), ("", None),
        ("'5'", "5"), ("2024-01-01", "2024-01-01"), ("0x10", "0x10"), ("'true'", "true"), ("-.inf", -np.inf),
    ],
)  # fmt: skip
def test_values_are_those_of_yaml_1_2(text: str, value: object) -> None:
    got = read_text(f"a: {text}").value["a"]
    assert got == value
    assert type(got) is type(value)


# --- mistakes

GIVEN = DRAWN + "arrivals: {process: given, slots: "
OTHERS = ("channels", "extends", "gangs", "outages", "workload")
LISTING = ", ".join(sorted(load_scenario("small").dump() | dict.fromkeys(OTHERS)))

MISTAKES = [
    # the file as a whole
    ("", "lab.yaml: got an empty file, expected a mapping (key: value)"),
    ("# nothing\n", "lab.yaml: got an empty file, expected a mapping (key: value)"),
    ("- 1\n", "lab.yaml:1: got a list, expected a mapping (key: value)"),
    ("words\n", "lab.yaml:1: got 'words', expected a mapping (key: value)"),
    ("a: [1,\nb: }\n", "lab.yaml:2: got text that is not YAML at column 4 (did not find expected node content), "
     "expected YAML"),
    ("a: \x01\n", "lab.yaml: got text that is not YAML (unacceptable character #x0001: control characters are not "
     "allowed), expected YAML"),
    ("a: 1\n---\nb: 2\n", "lab.yaml:2: got a second YAML document (---), expected one document a file"),
    ("a: &x 1\nb: *x\n", "lab.yaml:2: b: got an alias (*x), expected the value itself, or `extends`"),
    ("a: !thing 1\n", "lab.yaml:1: a: got a YAML tag (!thing), expected a plain value"),
    ("? [a]\n: 1\n", "lab.yaml:1: got a list or mapping as key, expected a text as key"),
    ("a: " + "[" * 50_000, "lab.yaml:1: got deeper nesting, expected at most 32 levels"),
    (DRAWN + "ports: {count: 3}\n", "lab.yaml:3: ports: got the same key again, expected each key once "
     "(it is on line 2)"),
    # keys
    (DRAWN + "horizn: 3\n", "lab.yaml:3: horizn: got an unknown key, expected a known key; did you mean 'horizon'?"),
    (DRAWN + "extend: small\n", "lab.yaml:3: extend: got an unknown key, expected a known key; "
     "did you mean 'extends'?"),
    (DRAWN + "5: 3\n", f"lab.yaml:3: 5: got an unknown key, expected one of {LISTING}"),
    ("cluster: {}\nports:\n  cuont: 2\n", "lab.yaml:3: ports.cuont: got an unknown key, expected one of contention, "
     "count, draw; did you mean 'count'?"),
    ("ports: {count: 2}\n", "lab.yaml:1: cluster: got nothing, expected this key"),
    (DRAWN + "arrivals: {process: poisson, mean: 1}\n", "lab.yaml:3: arrivals.most: got nothing, expected this key"),
    # types
    (EXPLICIT.replace("cpu: 8", "cpu: -8"), "lab.yaml:4: cluster.servers[0].capacity.cpu: got -8, "
     "expected a number ≥ 0"),
    (EXPLICIT.replace("cpu: 8", "cpu: .nan"), "lab.yaml:4: cluster.servers[0].capacity.cpu: got nan, "
     "expected a number ≥ 0"),
    (EXPLICIT.replace("cpu: 8", "cpu: 1e999"), "lab.yaml:4: cluster.servers[0].capacity.cpu: got inf, "
     "expected a number ≥ 0"),
    (EXPLICIT.replace("cpu: 8", "cpu: true"), "lab.yaml:4: cluster.servers[0].capacity.cpu: got True, "
     "expected a number ≥ 0"),
    (EXPLICIT.replace("cpu: 8", "cpu: lots"), "lab.yaml:4: cluster.servers[0].capacity.cpu: got 'lots', "
     "expected a number ≥ 0"),
    (EXPLICIT.replace("count: 2", "count: 2.0"), "lab.yaml:4: cluster.servers[0].count: got 2.0, "
     "expected a whole number from 1 to 1000000"),
    (DRAWN + "title:\n", "lab.yaml:3: title: got nothing, expected a text"),
    (DRAWN + "name: 5\n", "lab.yaml:3: name: got 5, expected a text"),
    (DRAWN + "overhead: [0.1, 0.2, 0.3]\n", "lab.yaml:3: overhead: got [0.1, 0.2, 0.3], expected two numbers ≥ 0, "
     "[lowest, highest]"),
    (DRAWN + "overhead: high\n", "lab.yaml:3: overhead: got 'high', expected a number ≥ 0, a range [lowest, highest], "
     "or one for each resource"),
    (DRAWN + "channels: {density: dense}\n", "lab.yaml:3: channels.density: got 'dense', expected a number ≥ 1, "
     "or all"),
    (DRAWN + "channels: 3\n", "lab.yaml:3: channels: got 3, expected a mapping (key: value)"),
    (DRAWN + "policies: fairness\n", "lab.yaml:3: policies: got 'fairness', expected a list"),
    (DRAWN + "policies: []\n", "lab.yaml:3: policies: got an empty list, expected at least one entry"),
    ("cluster: {}\nports: 3\n", "lab.yaml:2: ports: got 3, expected a mapping (key: value)"),
    (DRAWN + "arrivals_known: yes\n", "lab.yaml:3: arrivals_known: got 'yes', expected one of hidden, revealed, both"),
    (DRAWN + "oracles: [slots]\n", "lab.yaml:3: oracles[0]: got 'slots', expected one of stationary, slot; "
     "did you mean 'slot'?"),
    (DRAWN + "arrivals: {process: bernouli}\n", "lab.yaml:3: arrivals.process: got 'bernouli', expected one of "
     "bernoulli, switching, poisson, given, workload; did you mean 'bernoulli'?"),
    (DRAWN + "arrivals: {probability: 70%}\n", "lab.yaml:3: arrivals.probability: got '70%', expected a probability, "
     "0 to 1"),
    ("cluster: {servers: 0}\nports: {count: -1, contention: no}\nhorizon: 2.5\n", "lab.yaml:1: cluster.servers: got 0, "
     "expected a whole number from 1 to 1000000 (and 3 more mistakes)"),
    # names
    (EXPLICIT.replace("demand: {cpu", "demand: {gpus"), "lab.yaml:9: ports[0].demand.gpus: got an unknown resource, "
     "expected one of cpu, gpu; did you mean 'gpu'?"),
    (EXPLICIT.replace("gpu: 1}", "gup: 1}"), "lab.yaml:6: cluster.servers[1].capacity.gup: got an unknown resource, "
     "expected one of cpu, gpu; did you mean 'gpu'?"),
    (EXPLICIT + "    servers: []\n", "lab.yaml:10: ports[0].servers: got a port with no channel, expected at least "
     "one server"),
    (EXPLICIT + "    servers: [a, c]\n", "lab.yaml:10: ports[0].servers[1]: got 'c', expected the name of a server "
     "or group"),
    (EXPLICIT + "    servers: some\n", "lab.yaml:10: ports[0].servers: got 'some', expected all, or a list of server "
     "names"),
    (EXPLICIT + "  - {name: train, demand: {cpu: 1}}\n", "lab.yaml:10: ports[1].name: got 'train', expected a port "
     "name not already used at ports[0].name"),
    (EXPLICIT.replace("name: b", "name: a-1"), "lab.yaml:5: cluster.servers[1].name: got 'a-1', expected a server name "
     "not already used at cluster.servers[0].name"),
    (EXPLICIT.replace("name: b", "name: a"), "lab.yaml:5: cluster.servers[1].name: got 'a', expected a server name "
     "not already used at cluster.servers[0].name"),
    (EXPLICIT.replace("[cpu, {", "[cpu, cpu, {"), "lab.yaml:2: cluster.resources[1]: got 'cpu', expected a resource "
     "name not already used at cluster.resources[0]"),
    (EXPLICIT.replace("    demand: {cpu: 4}\n", ""), "lab.yaml:8: ports[0]: got neither demand nor components, "
     "expected one of them"),
    (EXPLICIT.replace("{cpu: 4}\n", "{cpu: 0}\n"), "lab.yaml:9: ports[0].demand: got a job that requests nothing, "
     "expected more than 0 of some resource"),
    (EXPLICIT.replace("ports:\n  - name: train\n    demand: {cpu: 4}", "ports: {count: 2}").replace("cpu", "core"),
     "lab.yaml:7: ports.draw: got one with the resource 'core', expected a cluster of cpu, memory, gpu, npu, tpu, "
     "fpga only"),
    (DRAWN + "overhead: {cpu: 1, memory: 1}\n", "lab.yaml:3: overhead: got none for gpu, npu, tpu, fpga, expected a "
     "number for every resource"),
    (DRAWN + "utilities: {kinds: [lin]}\n", "lab.yaml:3: utilities.kinds[0]: got 'lin', expected one of linear, log, "
     "poly, reciprocal; did you mean 'linear'?"),
    (DRAWN + "policies: [drf, farness]\n", "lab.yaml:3: policies[1]: got 'farness', expected a known policy; "
     "did you mean 'fairness'?"),
    (DRAWN + "policies: ['fairness:step=1']\n", "lab.yaml:3: policies[0]: got 'fairness:step=1', expected a known "
     "setting of fairness (known: )"),
    (DRAWN + "policies: ['no.such:Thing']\n", "lab.yaml:3: policies[0]: got 'no.such:Thing', expected a module in "
     "this directory, or an installed one, as package.module:Class"),
    (DRAWN + "baseline: farness\n", "lab.yaml:3: baseline: got 'farness', expected a known policy; "
     "did you mean 'fairness'?"),
    # what must match
    (DRAWN + "overhead: [0.5, 0.3]\n", "lab.yaml:3: overhead: got [0.5, 0.3], expected [lowest, highest] in this "
     "order"),
    (DRAWN + "arrivals: {process: switching, low: 0.8, high: 0.2}\n", "lab.yaml:3: arrivals.low: got 0.8, expected at "
     "most high, 0.2"),
    (DRAWN + "arrivals: {probability: [0.1]}\n", "lab.yaml:3: arrivals.probability: got 1 of them, expected 2 numbers, "
     "one for each job type"),
    (GIVEN + "[[1, 0], [1]]}\n", "lab.yaml:3: arrivals.slots[1]: got 1 of them, expected 2 numbers, one for each job "
     "type"),
    (GIVEN + "[[1, 0], [1, 2]]}\n", "lab.yaml:3: arrivals.slots[1][1]: got 2, expected 0 or 1"),
    ("horizon: 5\n" + GIVEN + "[[1, 0]]}\n", "lab.yaml:1: horizon: got 5, expected at most the 1 slots given in "
     "arrivals"),
    (DRAWN.replace("count: 2", "count: 90000") + "horizon: 10000000\n", "lab.yaml:3: horizon: got 900000000000, "
     "expected at most 500000000 slots × job types"),
    (EXPLICIT + "    probability: 1\narrivals: {probability: [1]}\n", "lab.yaml:10: ports[0].probability: got a "
     "probability twice, expected it here or in the list arrivals.probability"),
    (EXPLICIT + "    probability: 1\narrivals: {process: switching}\n", "lab.yaml:10: ports[0].probability: got a "
     "probability beside process switching, expected arrivals.process bernoulli"),
    (EXPLICIT + "    minimum: 1\n", "lab.yaml:10: ports[0].minimum: got a minimum alone, expected components "
     "beside it"),
    (DRAWN + "gangs: {components: 2, minimum: 3}\n", "lab.yaml:3: gangs.minimum: got 3, expected at most the 2 "
     "components"),
    (DRAWN + "gangs: {share: 0.5}\n", "lab.yaml:3: gangs.components: got nothing, expected this key, or components at "
     "the ports"),
    (DRAWN + "gangs: {components: 2}\narrivals: {process: poisson, mean: 1, most: 2}\n", "lab.yaml:4: "
     "arrivals.process: got 'poisson', expected at most one job a slot where there are gangs"),
    # layers
    ("extends: ogasched-defalt\n", "lab.yaml:1: extends: got 'ogasched-defalt', expected the name or file of a "
     "scenario; did you mean 'ogasched-default'?"),
    ("extends: ./lab.yaml\n", "lab.yaml:1: extends: got a cycle lab.yaml → lab.yaml, expected a chain that ends"),
    ("extends: ./none.yaml\n", "lab.yaml:1: extends: got no such file './none.yaml', expected the name or file of a "
     "scenario"),
    ("extends: [small]\n", "lab.yaml:1: extends: got ['small'], expected the name or file of a scenario"),
    ("extends: small\nports: {count: 0}\n", "lab.yaml:2: ports.count: got 0, expected a whole number from 1 to 100000"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[f"{i}" for i in range(len(MISTAKES))])
def test_every_mistake_is_told_in_one_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, text)
    with pytest.raises(InvalidInput) as caught:
        load_scenario("lab.yaml")
    assert str(caught.value) == message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"ports.cuont": 3}, "ports.cuont: got an unknown key, expected one of contention, count, draw; "
         "did you mean 'count'?"),
        ({"horizon": True}, "horizon: got True, expected a whole number from 1 to 10000000"),
        ({"horizon": float("nan")}, "horizon: got nan, expected a whole number from 1 to 10000000"),
        ({"ports[0].count": 3}, "ports: got no list to index, expected a list"),
        ({"ports..count": 3}, "override: got 'ports..count', expected a key such as ports.count or "
         "ports[0].demand.gpu"),
        ({"": 3}, "override: got '', expected a key such as ports.count or ports[0].demand.gpu"),
        ({"ports": 3, "ports.count": 3}, "override: got 'ports.count', expected a key that no other override holds "
         "already"),
        ({"utilities.kinds[9]": "log"}, "utilities.kinds[9]: got 9, expected an index below 4"),
    ],
)  # fmt: skip
def test_mistakes_in_overrides_name_their_key(overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_scenario("small", overrides)
    assert str(caught.value) == message


def test_a_mistake_in_a_base_names_the_base(tmp_path: Path) -> None:
    base = write(tmp_path, "cluster: {}\nports: {}\nhorizon: -1\n", "base.yaml")
    with pytest.raises(InvalidInput) as caught:
        load_scenario(write(tmp_path, "extends: base.yaml\n"))
    assert str(caught.value) == f"{base}:3: horizon: got -1, expected a whole number from 1 to 10000000"


def test_cycles_through_several_files(tmp_path: Path) -> None:
    write(tmp_path, "extends: b.yaml\n", "a.yaml")
    write(tmp_path, "extends: a.yaml\n", "b.yaml")
    with pytest.raises(InvalidInput, match=r"b\.yaml:1: extends: got a cycle a\.yaml → b\.yaml → a\.yaml"):
        load_scenario(tmp_path / "a.yaml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"title: \xe9\n")
    with (tmp_path / "large.yaml").open("wb") as stream:
        stream.truncate(LARGEST_FILE + 2**20)
    for name, words in [
        ("none.yaml", "got no such file, expected a scenario file"),
        ("latin.yaml", "got something else at byte 7, expected text in UTF-8"),
        ("large.yaml", "got one of 5.0 MiB, expected a scenario file of at most 4 MiB"),
        ("", "got a folder, expected a scenario file"),
    ]:
        path = tmp_path / name
        with pytest.raises(InvalidInput) as caught:
            load_scenario(path)
        assert str(caught.value) == f"{path}: {words}"


@pytest.mark.parametrize("name", ["", "nothing-like-it", "a\0b", "x" * 5000])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UnknownName, match="unknown scenario"):
        load_scenario(name)


def test_unknown_name_suggests() -> None:
    with pytest.raises(UnknownName, match="did you mean 'ogasched-default'"):
        load_scenario("ogashed-default")


def trees(words: list[str], keys: list[str]) -> st.SearchStrategy[Any]:
    """Whatever YAML can hold, with these words and keys among it."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(words)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(keys), inner),
        max_leaves=8,
    )


TREE = trees(["all", "log", "a"], ["name", "draw", "servers", "process", "demand", "fixed", "x"])


@given(st.dictionaries(st.sampled_from(sorted(load_scenario("ogasched-gang").dump())), TREE, max_size=4))
def test_whatever_a_file_holds_ends_in_a_scenario_or_one_line(values: dict[str, Any]) -> None:
    for base in ("small", "example-explicit"):
        message = ""
        try:
            load_scenario({"extends": base, **values})
        except BerthError as error:
            message = str(error)
        assert "\n" not in message


@given(st.text(max_size=60))
def test_whatever_text_a_file_is(text: str) -> None:
    message = "lab.yaml"
    try:
        read_text(text, "lab.yaml")
    except InvalidInput as error:
        message = str(error)
    assert message.startswith("lab.yaml")
