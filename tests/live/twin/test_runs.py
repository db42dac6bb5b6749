"""The twin: paired by seed, latencies and slowest servers count, knowing the speeds helps."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from berth.errors import BerthError, InvalidInput
from berth.lab.rehearsal import played
from berth.lab.run.runner import Progress
from berth.lab.run.store import opened
from berth.live.core.events import ServerJoined, Submitted
from berth.live.core.jobs import Job, Role
from berth.live.core.speeds import Learned
from berth.live.engines.simulated.cluster import Latency
from berth.live.twin.knowledge import Pairs, PartDispatcher, Told, Unlearned, tell
from berth.live.twin.measured import gavel_stream
from berth.live.twin.rehearse import Rehearsal, rows_of, share_of_gain
from berth.live.twin.runs import Run, Runner, run
from berth.live.twin.streams import ClassStream, Gang, class_servers, job_of
from tests.live.core.builders import dispatcher

SMALL = ClassStream(jobs=40)


def test_the_same_seed_gives_the_same_run_and_the_same_gangs_to_all() -> None:
    one, two = (run(SMALL, Runner("completion"), 3) for _ in range(2))
    plain = run(SMALL, Runner("slurm"), 3)
    assert np.array_equal(one.ended, two.ended)
    assert not one.refused
    bare = run(SMALL, Runner("best-fit", mode="alone"), 3)
    assert [made.wrapped for made in (one, plain, bare)] == ["Leveled(completion)", "slurm", "Leveled(best-fit)"]
    assert Run.of(one.frame()).wrapped == one.wrapped
    assert np.array_equal(one.arrival, plain.arrival)
    assert np.array_equal(one.tasks, plain.tasks)
    assert (one.began >= one.arrival).all()
    assert (one.ended > one.began).all()


def test_run_times_are_those_of_the_slowest_class() -> None:
    one = ClassStream(jobs=1)
    gang, made = one.gangs(0)[0], run(one, Runner("slurm"), 0)
    assert made.ended[0] - made.began[0] == pytest.approx(gang.seconds["a"])  # Slurm fills nodes in order


def test_spread_gangs_take_their_own_time() -> None:
    gang = Gang("g", "t", 2, 0.0, 1.0, {"a": 1.0, "b": 2.0}, {"a": 3.0})
    assert (gang.takes("a", 1), gang.takes("a", 2), gang.takes("b", 2)) == (1.0, 3.0, 2.0)


def test_latency_delays_starts_and_reports() -> None:
    one = ClassStream(jobs=1)
    made = run(one, Runner("completion"), 0, Latency(start=0.5, report=2.0))
    assert made.began[0] == 0.5
    assert made.ended[0] - made.began[0] in [pytest.approx(s) for s in one.gangs(0)[0].seconds.values()]
    queued = ClassStream(jobs=6, rate=1e6, tasks=(4,), servers=class_servers(1))
    late, prompt = (run(queued, Runner("slurm"), 0, plain_latency=Latency(report=report)) for report in (1.0, 0.0))
    assert np.sort(late.began)[1:] - np.sort(prompt.began)[1:] == pytest.approx(np.arange(1, 6))


def test_a_job_that_fits_nowhere_is_told() -> None:
    with pytest.raises(BerthError, match="never end with slurm, seed 0"):
        run(ClassStream(jobs=2, tasks=(99,)), Runner("slurm"), 0)


def test_told_knows_the_true_speeds() -> None:
    stream = ClassStream(effect=0.3)
    effects = stream.effects(1)
    told = Told({}, stream, effects)
    for server in stream.servers:
        for type_, row in stream.table.items():
            true = row[server.labels["class"]] * effects[server.name]
            assert told.slowest(type_, [server.name]) == pytest.approx(true)


def test_told_does_not_learn() -> None:
    stream = ClassStream(effect=0.3)
    made = dispatcher(*stream.servers)
    tell(made, stream, 1)
    for gang in stream.gangs(1):
        made.state.learned.add(job_of(gang, stream), ["n1"], 60.0)
    effects = stream.effects(1)
    true = [stream.table["solver"][s.labels["class"]] * effects[s.name] for s in stream.servers]
    assert made.state.learned.speeds("solver") == pytest.approx(true)


def test_pairs_share_nothing() -> None:
    learned = Pairs(), Learned()
    job = job_of(SMALL.gangs(0)[0], SMALL).replace(type="t", work=1.0)
    for model in learned:
        for _ in range(10):
            model.add(job, ["n1"], 4.0)
        model._fit()
    pairs, pooled = learned
    assert pairs.slowest("t", ["n1"]) == pytest.approx(math.exp(10 / 11 * math.log(0.25)))
    assert pairs.slowest("t", ["n2"]) == pytest.approx(1.0)
    assert pooled.slowest("t", ["n2"]) < 0.9


def test_parts_of_a_policy_can_be_switched_off() -> None:
    whole, eager, unlearned = (
        run(SMALL, Runner.parse(f"completion{mode}"), 1) for mode in ("", " eager", " unlearned")
    )
    free = eager.wait < whole.wait
    assert free.any()
    assert (unlearned.ended - unlearned.began).mean() > (whole.ended - whole.began).mean()
    learned = Unlearned()
    for _ in range(10):
        learned.add(job_of(SMALL.gangs(0)[0], SMALL), ["n1"], 1.0)
    assert learned.slowest("solver", ["n1", "n2"]) == 1.0


def test_without_mixing_a_gang_takes_servers_of_one_class() -> None:
    """Two of class a are left, which is twice as fast as b: a gang of three takes them and one of b, or three of b."""
    for without, classes in (("eager", {"a", "b"}), ("unmixed", {"b"})):
        made = PartDispatcher("completion", without=without)
        for server in class_servers(6):
            made.handle(ServerJoined(0.0, replace(server, labels={"class": "a" if server.name < "n3" else "b"})))
        for name in made.state.servers:
            alone = Job("j", "t", (Role("task", 1, {}),), work=1.0)
            for _ in range(20):
                made.state.learned.add(alone, [name], 1.0 if name < "n3" else 2.0)
        made.handle(Submitted(1.0, Job("gang", "t", (Role("task", 3, {"cpu": 3000}),), work=1.0)))
        decided = made.decide(1.0)
        assert decided is not None
        places = {place.server for start in decided.starts for place in start.places}
        assert len(places) == 3
        assert {made.state.servers[name].server.labels["class"] for name in places} == classes
    with pytest.raises(InvalidInput, match="the policy completion"):
        run(SMALL, Runner.parse("best-fit unmixed"), 1)


def test_a_rehearsal_is_paired_resumes_and_knows_what_can_be_gained(tmp_path: Path) -> None:
    plan = Rehearsal(SMALL, (Runner("completion"),), (0, 1), Runner("slurm"), Runner("completion", mode="told"))
    seen: list[Progress] = []
    with opened(tmp_path, "rehearsal") as directory:
        assert directory is not None
        directory.create({})
        runs = played(plan, {}, directory)
        assert [(one.runner, one.seed) for one in runs] == [(str(r), s) for r in plan.all for s in (0, 1)]
        next((tmp_path / "cells").iterdir()).unlink()
        again = played(plan, {}, directory, workers=2, progress=seen.append)
    assert seen[-1] == Progress(len(runs), len(runs), len(runs) - 1, 0, seen[-1].note)
    assert np.array_equal(again[0].ended, runs[0].ended)
    frames = [Run.of(one.frame()) for one in runs]
    plain, berth, told = rows_of(plan, frames)
    assert plain.ratio is not None
    assert plain.ratio.mean == 1.0
    assert plain.share is None
    assert told.ratio is not None
    assert berth.ratio is not None
    assert told.ratio.mean < berth.ratio.mean
    assert told.share is not None
    assert told.share.mean == 1.0
    assert berth.share is not None
    assert 0.0 < berth.share.mean < 1.0


def test_told_knows_how_slow_spread_gangs_are() -> None:
    stream = gavel_stream(4, 1.0)
    told = Told({}, stream, stream.effects(0))
    spread = {type_ for type_, _, apart in stream.speeds if apart}
    assert spread
    for type_ in spread:
        ratios = [
            stream.speeds[type_, class_, True] / stream.speeds[type_, class_, False]
            for one, class_, apart in stream.speeds
            if one == type_ and apart
        ]
        assert told.apart(type_) == pytest.approx(min(math.exp(np.mean(np.log(ratios))), 1.0))
    assert min(told.apart(type_) for type_ in spread) < 0.9


def test_one_seed_may_have_all_that_can_be_gained() -> None:
    found = share_of_gain({0: 5.0, 1: 8.0}, {0: 9.0, 1: 8.0}, {0: 4.0, 1: 8.0})
    assert found is not None
    assert (found.mean, found.low, found.high) == (0.8, None, None)
