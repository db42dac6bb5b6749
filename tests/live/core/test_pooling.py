"""Pooled speeds: what is known flows from all runs to classes, paths, types and servers, and follows what changes."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.files.quantities import format_amounts
from berth.kernels.effects import NONE, fit_effects
from berth.live.core import classes
from berth.live.core.cells import Runs
from berth.live.core.classes import classes_of
from berth.live.core.events import Finished, ServerJoined
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.records import ServerRecord
from berth.live.core.shapes import own_copy
from berth.live.core.speeds import Learned
from tests.harness.examples import examples
from tests.live.core.builders import begin, dispatcher, job, places


def table(*names: str, labels: tuple[str, ...] = ()) -> dict[str, ServerRecord]:
    """Servers of the class that their first letter says."""
    made = {}
    for i, name in enumerate(names):
        own = {"class": name[0], **{label: f"{label}{i}" for label in labels}}
        made[name] = ServerRecord(Server(name, {"cpu": 1000}, own), i)
    return made


def run(learned: Learned, type_: str, servers: str | list[str], speed: float) -> None:
    work = Job("j", type_, (Role("w", 1, {"cpu": 1000}),), work=10.0)
    learned.add(work, [servers] if isinstance(servers, str) else servers, 10.0 / speed)


@examples(50)
@given(st.integers(0, 10_000))
def test_effects_are_the_best_linear_prediction(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells, sizes = int(rng.integers(1, 12)), [1, 3, 4]
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    group = np.stack([rng.integers(0, size, cells) for size in sizes], axis=1)
    group[rng.random((cells, 3)) < 0.2] = NONE
    weight, mean = rng.uniform(0.5, 5.0, cells), rng.standard_normal(cells)
    variance, noise = rng.uniform(0.2, 2.0, 3), 0.5
    effect, seen = fit_effects(group, first, weight, mean, noise, variance.copy(), math.inf, 3000)
    design = np.zeros((cells, first[-1]))
    for i in range(cells):
        design[i, (first[:-1] + group[i])[group[i] != NONE]] = 1.0
    prior = np.diag(noise / np.repeat(variance, sizes))
    exact = np.linalg.solve(design.T @ (weight[:, None] * design) + prior, design.T @ (weight * mean))
    np.testing.assert_allclose(effect, exact, atol=1e-6)
    np.testing.assert_allclose(seen, design.T @ weight)


def test_a_type_is_expected_to_be_like_its_path_on_servers_of_that_class() -> None:
    learned = Learned(table("a1", "a2", "b1", "b2"))
    for _ in range(4):
        for type_ in ("train/resnet/b32", "train/resnet/b64"):
            run(learned, type_, "a1", 2.0)
            run(learned, type_, "b1", 0.5)
        for type_ in ("serve/x", "serve/y"):
            run(learned, type_, "a1", 0.5)
            run(learned, type_, "b1", 2.0)
    similar, other, new = (
        learned.speed(type_, "a2").mean / learned.speed(type_, "b2").mean
        for type_ in ("train/resnet/b128", "serve/z", "new")
    )
    assert similar > 2.0
    assert other < 0.5
    assert 0.7 < new < 1.4
    assert "path" in learned.speed("train/resnet/b128", "a2").level
    assert learned.speed("train/resnet/b32", "a1").low < 2.0 < learned.speed("train/resnet/b32", "a1").high * 1.2


def test_a_new_server_starts_with_its_class_and_a_slow_one_shows_after_a_dozen_runs() -> None:
    rng = np.random.default_rng(0)
    learned = Learned(table("a1", "a2", "a3", "b1", "b2", "b3"))
    types = ("x", "y", "z")
    for turn in range(36):
        for server in ("a1", "a2", "b1", "b2", "b3"):
            run(learned, types[turn % 3], server, (2.0 if server[0] == "a" else 1.0) * math.exp(0.1 * rng.normal()))
    assert 1.7 < learned.speed("x", "a3").mean < 2.3
    for turn in range(12):
        run(learned, types[turn % 3], "a3", 0.7 * math.exp(0.1 * rng.normal()))
        run(learned, types[turn % 3], "a1", 2.0 * math.exp(0.1 * rng.normal()))
    assert all(learned.speed(type_, "a3").mean < 1.0 for type_ in types)
    assert all(learned.speed(type_, "a1").mean > 1.6 for type_ in types)


def test_a_gang_over_several_classes_tells_of_the_slowest() -> None:
    learned = Learned(table("a1", "a2", "b1", "b2"))
    for _ in range(3):
        run(learned, "x", "a1", 2.0)
        run(learned, "x", "b1", 0.5)
    for _ in range(10):
        run(learned, "x", ["a2", "b2"], 0.5)
    assert learned.speed("x", "a2").mean > 1.7
    assert learned.speed("x", "b2").runs == 10


def test_whether_a_gang_is_spread_is_learned() -> None:
    learned = Learned(table("a1", "a2", "a3", "a4"))
    for _ in range(5):
        for pair in (["a1", "a2"], ["a3", "a4"]):
            run(learned, "talks", pair[0], 1.0)
            run(learned, "quiet", pair[1], 1.0)
            run(learned, "talks", pair, 0.33)
            run(learned, "quiet", pair, 1.0)
    assert learned.apart("talks") < 0.5
    assert learned.apart("quiet") > 0.75
    assert learned.slowest("talks", ["a1", "a2"]) < 0.5 < learned.slowest("talks", ["a1"])


def test_labels_of_single_servers_make_no_classes() -> None:
    names = ("a1", "a2", "b1", "b2")
    told = classes_of(table(*names, labels=("address",)))
    assert told["a1"] == told["a2"] != told["b1"] == told["b2"]
    assert classes_of(table(*names, labels=("rack",)), "rack")["a1"] == "rack=rack0"


def test_the_amounts_of_like_servers_are_formatted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    formatted = []

    def noted(given: dict[str, int]) -> dict[str, str]:
        formatted.append(given)
        return format_amounts(given)

    monkeypatch.setattr(classes, "format_amounts", noted)
    classes._amounts.cache_clear()
    fast, slow = (Server(name, {"cpu": 7000, "gpu": 500}, {}, speed) for name, speed in (("a", 2.0), ("b", 1.0)))
    small = Server("c", {"cpu": 3000})
    told = classes_of({one.name: ServerRecord(one, i) for i, one in enumerate((fast, slow, small))})
    assert told == {"a": "cpu:7 gpu:500m speed:2", "b": "cpu:7 gpu:500m", "c": "cpu:3"}
    assert formatted == [{"cpu": 7000, "gpu": 500}, {"cpu": 3000}]


def test_a_server_that_changes_is_noticed_within_a_dozen_of_its_runs_and_tried_again_after_it_recovers() -> None:
    rng = np.random.default_rng(1)
    made = dispatcher(policy="completion")
    for i in range(4):
        made.handle(ServerJoined(0.0, Server(f"n{i}", {"cpu": 1000}, {"class": "a"})))
    time, used = 0.0, list[set[str]]()
    slow, runs_while_slow = "n1", 0

    def turn(slower: float, jobs: int) -> None:
        nonlocal time
        time += 100.0
        begin(made, time, *(job(f"j{time}-{i}", type="xyz"[i % 3], work=10.0) for i in range(jobs)))
        used.append(set())
        for record in list(made.state.jobs.values()):
            (server,) = places(made, record.job.id)
            used[-1].add(server)
            seconds = 10.0 * math.exp(0.1 * rng.normal()) * (slower if server == slow else 1.0)
            made.handle(Finished(time + seconds, record.job.id, 1, seconds))

    for _ in range(30):
        turn(1.0, 4)
    while made.state.learned.speed("x", slow).mean > 0.5:
        turn(3.0, 4)
        runs_while_slow += slow in used[-1]
    assert runs_while_slow <= 12
    for _ in range(20):
        turn(3.0, 3)
    assert sum(slow in one for one in used[-20:]) <= 2
    for _ in range(250):
        turn(1.0, 3)
    assert sum(slow in one for one in used[-50:]) > 10
    assert made.state.learned.speed("x", slow).mean > 0.85


@pytest.mark.parametrize("runs", [7, 120])
def test_a_dump_goes_on_as_if_nothing_had_happened(runs: int) -> None:
    rng = np.random.default_rng(2)
    servers = table("a1", "a2", "b1", "b2")
    kept = Learned(servers)

    def some(learned: Learned, seed: int, count: int) -> None:
        draw = np.random.default_rng(seed)
        for _ in range(count):
            where = draw.choice(list(servers), int(draw.integers(1, 3)), replace=False).tolist()
            run(learned, "xy"[int(draw.integers(2))], where, float(draw.uniform(0.3, 2.0)))

    some(kept, int(rng.integers(1000)), runs)
    again = Learned.load(json.loads(json.dumps(kept.dump()))).over(servers)
    some(kept, 5, 30)
    some(again, 5, 30)
    assert again.dump() == kept.dump()
    assert again.speeds("x").tolist() == kept.speeds("x").tolist()


@pytest.mark.parametrize("loaded", [False, True])
def test_what_is_known_of_a_class_stays_when_its_servers_get_another_label(loaded: bool) -> None:
    servers = table("a1", "a2", "b1", "b2")
    learned = Learned(servers)
    for _ in range(10):
        run(learned, "t", "a1", 2.0)
        run(learned, "t", "b1", 0.5)
    before = learned.speeds("t").copy()
    if loaded:
        learned = Learned.load(json.loads(json.dumps(learned.dump()))).over(servers)
        assert learned.speeds("t") == pytest.approx(before)
    for name, record in servers.items():
        servers[name] = ServerRecord(Server(name, {"cpu": 1000}, {**record.server.labels, "rack": "r1"}), record.index)
    learned.servers_changed()
    assert learned.speeds("t") == pytest.approx(before, rel=0.01)


def drawn(seed: int, runs: int) -> tuple[Learned, np.random.Generator]:
    """What is learned of some runs of four types on five servers of two classes, alone and spread."""
    rng, names = np.random.default_rng(seed), ("a1", "a2", "b1", "b2", "b3")
    learned = Learned(table(*names))
    for _ in range(runs):
        where = rng.choice(names, int(rng.integers(1, 4)), replace=False).tolist()
        run(learned, ("x", "p/y", "p/z", "p/q/w")[int(rng.integers(4))], where, float(rng.uniform(0.3, 2.0)))
    return learned, rng


@examples(30)
@given(st.integers(0, 10_000), st.integers(0, 80))
def test_columns_and_single_speeds_agree(seed: int, runs: int) -> None:
    learned, rng = drawn(seed, runs)
    for type_ in ("x", "p/z"):
        learned.outlook(type_)  # and then another run is seen
    run(learned, "x", str(rng.choice(list(learned.servers))), 0.7)
    for type_ in ("x", "p/z", "p/q/w", "never/ran"):
        known = [learned.speed(type_, server) for server in learned.servers]
        mean, spread, deviation = learned.outlook(type_)
        assert mean == pytest.approx([speed.mean for speed in known], rel=1e-12)
        assert spread == pytest.approx([speed.spread for speed in known], rel=1e-12)
        assert deviation == pytest.approx([speed.deviation for speed in known], rel=1e-12)
        assert learned.speeds(type_) == pytest.approx(mean, rel=1e-12)
        assert learned.means(type_) == pytest.approx(np.log(mean), abs=1e-12)


@examples(30)
@given(st.integers(0, 10_000), st.integers(0, 80), st.integers(1, 6))
def test_supposed_runs_count_as_if_they_were_added_one_by_one(seed: int, runs: int, supposed: int) -> None:
    learned, rng = drawn(seed, runs)
    servers, types = list(learned.servers), ["x", "new"]
    places = [rng.integers(0, len(servers), int(rng.integers(1, 4))) for _ in range(supposed)]
    start, type_ = np.cumsum([0, *map(len, places)]), rng.integers(0, 2, supposed)
    given_ = Runs(types, type_, start, np.concatenate(places), rng.standard_normal(supposed))
    before = learned.dump()
    made, plain = learned.supposing(given_), own_copy(learned)
    for number, there in enumerate(places):
        where = list(dict.fromkeys(servers[row] for row in there))
        credited = learned._credited(types[type_[number]], where)
        for server in credited:
            cell = types[type_[number]], server, len(where) > 1
            plain._add_to(cell, float(given_.speed[number]), 1.0 / len(credited), 0, 0)
    plain._fit()
    assert made.dump() == plain.dump()
    assert learned.dump() == before
