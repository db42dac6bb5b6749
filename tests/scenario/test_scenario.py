"""Scenario files: layers, overrides and values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from berth.errors import InvalidInput
from berth.files.yaml_tree import read_text
from berth.scenario import load_scenario, parse_overrides
from tests.scenario.builders import EXPLICIT, write


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


def test_an_override_changes_an_entry_of_a_list_by_its_name() -> None:
    by_name = {"ports.serve.probability": 0.25, "cluster.servers.plain.count": 2, "ports.serve.demand.gpu": 2}
    by_place = {"ports[1].probability": 0.25, "cluster.servers[1].count": 2, "ports[1].demand.gpu": 2}
    changed = load_scenario("example-explicit", by_name)
    assert changed.settings == load_scenario("example-explicit", by_place).settings
    assert changed.settings != load_scenario("example-explicit").settings
    drawn = load_scenario("example-explicit", {"cluster": {"draw": "alibaba-like"}, "ports.count": 3, "overhead": 0.5})
    assert drawn.dump()["ports"]["count"] == 3  # no name of a port: replaces the list


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("ports.trian.probability", "ports.trian: got an unknown name, expected one of train, serve, query; "
         "did you mean 'train'?"),
        ("ports.train.probability", "ports[0].probability: got 2, expected a probability, 0 to 1"),
    ],
)  # fmt: skip
def test_a_wrong_override_by_name_is_told(key: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_scenario("example-explicit", {key: 2})
    assert str(caught.value) == message
