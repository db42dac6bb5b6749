"""Policies by name, with settings, and from other packages."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from berth import registry
from berth.errors import InvalidInput, UnknownName, UnsupportedProblem
from berth.families import BUILTIN
from berth.families.allocation.policies.baselines import BinPacking, Fairness
from berth.lab.compare import compare
from berth.lab.replay import ReplaySetting, replay
from berth.live.engines.clock import Clock
from berth.live.engines.registry import engine_names, make_engine
from berth.live.engines.simulated.engine import SimulatedEngine
from berth.registry import PolicySpec, policy_names, policy_settings, resolve, written
from berth.scenario import load_scenario
from berth.testing import example_problem
from berth.traces.formats import format_names, trace_format
from berth.traces.trace import Trace


@pytest.mark.parametrize("name", list(BUILTIN))
def test_every_builtin_policy_says_what_it_is(name: str) -> None:
    cls = resolve(name)
    assert f".{cls.family}." in BUILTIN[name]
    assert cls.reference
    assert cls.__doc__
    assert all(key.isidentifier() for key in policy_settings(cls))


def test_names_include_every_builtin_with_where_it_is() -> None:
    assert policy_names().items() >= BUILTIN.items()


class Offered:
    """An entry point, as far as the registry looks at it."""

    def __init__(self, name: str, value: str) -> None:
        self.name, self.value = name, value


def test_packages_add_names_but_cannot_take_builtin_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [
        Offered("mine", "berth.families.allocation.policies.baselines:DRF"),
        Offered("fairness", "berth.families.allocation.policies.baselines:DRF"),
    ]
    monkeypatch.setattr("berth.registry.entry_points", lambda group: offered if group == "berth.policies" else [])
    registry.offered.cache_clear()
    try:
        assert resolve("mine").__name__ == "DRF"
        assert resolve("fairness") is Fairness
    finally:
        registry.offered.cache_clear()


def test_packages_add_engines_and_trace_formats_too(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, swf = "berth.live.engines.simulated.engine:ENGINE", "berth.traces.formats.swf:FORMAT"
    groups = {
        "berth.engines": [Offered("mine", simulated), Offered("slurm", simulated), Offered("bad", "math:pi")],
        "berth.traces": [Offered("mine", swf), Offered("gaia", swf)],
    }
    monkeypatch.setattr("berth.registry.entry_points", lambda group: groups.get(group, []))
    registry.offered.cache_clear()
    try:
        assert isinstance(make_engine("mine", Clock()), SimulatedEngine)
        assert engine_names()["slurm"] == "berth.live.engines.slurm.engine:ENGINE"
        with pytest.raises(InvalidInput, match="engine 'bad': got float, expected one EngineKind at math:pi"):
            make_engine("bad", Clock())
        assert list(format_names())[-2:] == ["mine", "generic"]
        assert trace_format("mine") is trace_format("swf")
        assert trace_format("gaia").title == "PAI, reduced by GAIA"
    finally:
        registry.offered.cache_clear()


def test_a_class_by_its_place() -> None:
    assert resolve("berth.families.allocation.policies.baselines:Fairness") is Fairness
    spec = PolicySpec.parse("berth.families.allocation.policies.baselines:BinPacking:quota=0.5")
    assert spec.load() is BinPacking
    assert dict(spec.settings) == {"quota": 0.5}


MODULE = "expected a module in this directory, or an installed one, as package.module:Class"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere:Policy", f"policy 'nowhere:Policy': got no module 'nowhere', {MODULE}"),
        ("berth.nowhere:Policy", f"policy 'berth.nowhere:Policy': got no module 'berth.nowhere', {MODULE}"),
        ("berth.families.allocation.policies.baselines:Farness", "baselines.py has; did you mean 'Fairness'?"),
        ("berth.families:", "got '', expected a class that"),
        (":Fairness", "policy: got ':Fairness', expected package.module:Class"),
        (".relative:Fairness", "policy: got '.relative:Fairness', expected package.module:Class"),
    ],
)
def test_what_cannot_be_imported(name: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        resolve(name)


@pytest.mark.parametrize("code", ["import not_there_at_all", "1 / 0", "def f(:"])
def test_a_module_that_raises_is_told_with_its_error(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raising_module.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidInput, match=r"got raising_module, which raises \w+Error: .*, expected a module"):
        resolve("raising_module:Policy")


@pytest.mark.parametrize("name", ["berth.model:Cluster", "berth.families:BUILTIN", "berth.registry:resolve"])
def test_what_is_no_policy(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"got '{name}', expected a class with the methods decide and observe"):
        resolve(name)


def test_a_class_is_written_by_its_name_or_place() -> None:
    assert [written(cls) for cls in (Fairness, Own, "drf:x")] == ["fairness", f"{__name__}:Own", "drf:x"]

    class Hidden(Fairness):
        pass

    for wrong in (Hidden, Own.Inner):
        with pytest.raises(InvalidInput, match="expected a class at the top level of its module"):
            written(wrong)
    with pytest.raises(InvalidInput, match="expected a class, its name, or module:Class:setting=value as a text"):
        written(lambda problem, rng: Fairness(problem))  # type: ignore[arg-type]


class Own(Fairness):
    """A policy of somebody's own."""

    class Inner(Fairness):
        """One that no name leads to."""


def test_unknown_names_suggest_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"unknown policy 'spredding'; did you mean 'spreading'\?"):
        resolve("spredding")
    with pytest.raises(UnknownName, match=r"unknown setting of binpacking 'qota'; did you mean 'quota'\?"):
        PolicySpec.parse("binpacking:qota=1")
    with pytest.raises(UnknownName, match="unknown setting of fairness 'quota'"):
        PolicySpec.parse("fairness:quota=1")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        ("1", 1),
        ("1e-3", 1e-3),
        ("1E3", 1000.0),
        ("-2.5e+2", -250.0),
        (".5e1", 5.0),
        ("true", True),
        ("null", None),
        ("word", "word"),
        ("1e", "1e"),
    ],
)
def test_values_of_settings(text: str, value: Any) -> None:
    read = registry._value(text, "quota")
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("binpacking:quota=true", "binpacking.quota: got True, expected a number"),
        ("binpacking:quota=null", "binpacking.quota: got None, expected a number"),
        ("ogasched-aware:iterations=2.5", "ogasched-aware.iterations: got 2.5, expected a whole number"),
        ("ogasched-rates:memory=abc", "ogasched-rates.memory: got 'abc', expected a whole number"),
        ("ogasched:optimistic=1", "ogasched.optimistic: got 1, expected true or false"),
        ("ogasched:step=true", "ogasched.step: got True, expected a word or a number"),
    ],
)
def test_settings_are_of_their_kind(text: str, expected: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(expected)):
        PolicySpec.parse(text)


def test_the_order_of_settings_does_not_matter() -> None:
    one, other = (
        PolicySpec.parse("ogasched:step=1,optimistic=true"),
        PolicySpec.parse("ogasched:optimistic=true,step=1"),
    )
    assert one == other
    assert str(one) == str(other)


@pytest.mark.parametrize("text", ["binpacking:quota=1,x", "binpacking:=1,quota=1"])
def test_settings_need_a_name_and_a_value(text: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"policy {text!r}") + ".*expected setting=value"):
        PolicySpec.parse(text)


def test_values_that_yaml_cannot_read() -> None:
    with pytest.raises(InvalidInput, match=r"got '{', expected a value that YAML can read"):
        PolicySpec.parse("binpacking:quota={")


@pytest.mark.parametrize("text", ["fairness", "binpacking:quota=0.5"])
def test_a_spec_is_written_as_it_is_read_and_can_be_pickled(text: str) -> None:
    spec = PolicySpec.parse(text)
    assert str(spec) == text
    assert PolicySpec.parse(str(spec)) == spec == pickle.loads(pickle.dumps(spec))


def test_a_spec_builds_its_policy() -> None:
    policy = PolicySpec.parse("binpacking:quota=0.5").build(example_problem(), np.random.default_rng(0))
    assert isinstance(policy, BinPacking)
    assert policy.quota == 0.5


def test_settings_are_the_keyword_only_parameters() -> None:
    assert policy_settings(BinPacking) == {"quota": 1.0}
    assert policy_settings(Fairness) == {}


def test_the_oracle_is_no_policy_and_that_is_said() -> None:
    with pytest.raises(InvalidInput, match="every comparison measures against it"):
        PolicySpec.parse("oracle")


def test_a_policy_of_another_family_is_refused_in_words() -> None:
    with pytest.raises(UnsupportedProblem, match="escb is of the selection family, and the problem of the allocation"):
        PolicySpec("escb").build(example_problem())
    drawn = [PolicySpec("random-allocation").build(example_problem()).rng.random() for _ in range(2)]
    assert drawn[0] == drawn[1]  # without a random stream: that of seed 0


def test_names_of_the_family_are_suggested_first() -> None:
    with pytest.raises(UnknownName, match="did you mean 'random-allocation'"):
        compare("small", ["random"], seeds=1)
    with pytest.raises(UnknownName, match="did you mean 'random-selection'"):
        compare("esdp-small", ["random"], seeds=1)
    with pytest.raises(UnknownName, match="did you mean 'conservative', of the placement family"):
        compare("small", ["conservativ"], seeds=1)
    with pytest.raises(UnknownName, match="did you mean 'random-placement'"):
        replay(Trace.of({"submit_s": [0.0], "run_s": [1.0], "cpu": [1.0]}), ["random"], ReplaySetting(processors=1))
    with pytest.raises(InvalidInput, match="did you mean 'random-selection'"):
        load_scenario("esdp-small", {"policies": ["random"]})
