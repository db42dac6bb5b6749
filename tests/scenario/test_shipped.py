"""Every scenario that comes with berth builds and survives a round trip and pickling; the schema knows its keys."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.scenario import Scenario, load_scenario, scenario_names, scenario_schema
from berth.scenario.catalog import FOLDER
from tests.families.allocation import test_scenario as allocation
from tests.families.placement import test_scenario as placement
from tests.families.selection import test_scenario as selection
from tests.scenario.builders import write

CHANGED: dict[str, Callable[[Any, Any], set[str]]] = {
    "allocation": allocation.changed,
    "selection": selection.changed,
    "placement": placement.changed,
}
LARGE = ("ogasched-100k", "ogasched-1m")
NAMES = {
    family: [
        name for name in scenario_names() if not name.startswith("trace-") and load_scenario(name).family == family
    ]
    for family in CHANGED
}


@pytest.mark.parametrize("name", [name for names in NAMES.values() for name in names])
def test_every_named_scenario_builds_and_round_trips(name: str, tmp_path: Path) -> None:
    family = load_scenario(name).family
    horizon = {"allocation": 3, "selection": 30, "placement": 12}[family]
    smaller = {"cluster.servers": 200} if name in LARGE else {}  # test_scale.py has it whole
    scenario = load_scenario(name, {"horizon": horizon, **smaller})
    world = scenario.build(0, True)
    assert len(world) == world.problem.horizon == horizon
    assert scenario.title
    assert name == "example-explicit" or any(word in scenario.description for word in ("aper", "Zhao", "Narayanan"))
    if family == "allocation":
        assert world.problem.arrivals_known
    else:
        drifts = name in ("esdp-drift", "esdp-walk")  # what such gains are drawn from is not known
        oracles = ("slot", "information") if family == "selection" and not drifts else ("slot",)
        assert (scenario.arrivals_known, scenario.information, scenario.oracles) == ("revealed", (True,), oracles)
        assert family == "selection" or scenario.baseline == "greedy"
    dumped = json.loads(json.dumps(scenario.dump(), allow_nan=False))
    again = load_scenario(write(tmp_path, json.dumps(dumped), "again.json"))
    assert again.dump() == dumped
    assert again.name == name
    assert CHANGED[family](again.build(0, True), world) == set()
    unpickled: Scenario = pickle.loads(pickle.dumps(scenario))
    assert CHANGED[family](unpickled.build(0, True), world) == set()


@pytest.mark.parametrize("name", [name for name in scenario_names() if not name.startswith("trace-")])
def test_titles_read_without_yaml_are_those_of_the_file(name: str) -> None:
    written = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert scenario_names()[name] == written["title"]


def test_the_names() -> None:
    grid = [f"t{t}" for t in (1000, 2000, 5000, 10000)] + [f"rho-{r}" for r in (0.3, 0.5, 0.7, 0.9)]
    grid += [f"density-{d}" for d in (2, 2.5, 3)] + ["linear", "log", "reciprocal", "poly"]
    others = ["default", "fig2", "large", "dense", "switching", "several-jobs", "gang", "100k", "1m"]
    allocations = {f"ogasched-{name}" for name in grid + others} | {"small", "demo", "example-explicit"}
    assert set(NAMES["allocation"]) == allocations
    esdp = ("default", "t8000", "c8", "rare-arrivals", "dead-port", "drift", "walk", "late-feedback", "server-capacity")
    more = {"gang-30x40", "gang-100x40", "example-selection", "gavel-selection"}
    assert set(NAMES["selection"]) == {f"esdp-{name}" for name in (*esdp, "small")} | more
    plain = {"default", "launch", "scarce", "scarce-30", "failures", "scarce-failures", "transient", "application"}
    sweeps = {"eta-2", "eta-4", "eta-8", "eta-10", "tasks-2000", "tasks-4000", "tasks-8000"}
    assert set(NAMES["placement"]) == {f"drl-{name}" for name in plain | sweeps | {"small", "overload", "thousand"}} | {
        "example-placement"
    }


def test_listing_names_imports_nothing_heavy() -> None:
    code = "import sys, berth.scenario as s; s.scenario_names(); print([m for m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "numba", "yaml", "pydantic", "scipy"} & set(eval(out))


def test_schema_knows_every_key_that_shipped_files_use() -> None:
    schema = scenario_schema()
    told = json.dumps(schema, allow_nan=False)
    names = [name for names in NAMES.values() for name in names]
    used = {key for name in names for key in yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))}
    assert used <= set(schema["properties"])
    assert set(load_scenario("small").dump()) | {"extends", "gangs", "outages"} <= set(schema["properties"])
    assert {"DrawnCluster", "GivenCluster", "PortEntry", "Switching", "Poisson", "Given"} <= set(schema["$defs"])
    assert schema["properties"]["family"]["enum"] == ["allocation", "selection", "placement"]
    pointers = {part.split('"')[0] for part in told.split("#/$defs/")[1:]}
    assert pointers <= set(schema["$defs"])
