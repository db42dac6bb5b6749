"""Replays with types, speeds and a service's configuration: one truth for all policies, and who learns from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from berth.cli import main
from berth.errors import BerthError, InvalidInput, UnknownName
from berth.families.placement.cluster_runs import run_cluster
from berth.lab.replay import Measurement, Replay, ReplaySetting, replay
from berth.lab.replay.live_runs import play_live
from berth.lab.replay.types import TypedJobs, read_speeds, typed_jobs
from berth.live.core.jobs import check_type
from berth.registry import PolicySpec
from berth.traces.trace import GPUS, Trace
from tests.families.placement.test_cluster_runs import Log
from tests.families.placement.test_cluster_runs import logs as random_logs
from tests.families.placement.test_queued import fits_alone
from tests.harness.examples import examples

TWO: dict[str, Any] = {"machine": ["a", "b"], "count": [2, 2], "cpu": [4.0, 4.0]}
JOBS: dict[str, Any] = {
    "submit_s": [0.0, 0.0, 10.0, 20.0],
    "run_s": [100.0, 100.0, 100.0, 100.0],
    "kind": ["x", "y", "x", "y"],
    "user": ["ann", "bob", "ann", "eve"],
    "group": ["vision", "vision", "speech", None],
    "cpu": [4.0, 4.0, 4.0, 4.0],
}
SPEEDS = "types:\n  x: {a: 1.0, b: 0.5}\n  others: {a: 0.25, b: 1.0}\n"
FIRST = ["fcfs", "sjf", "easy", "conservative", "saf:backfill=any", "f2:pick=committed"]


@examples(40)
@given(log=random_logs(), name=st.sampled_from(FIRST), classes=st.integers(1, 3), drawn=st.randoms())
def test_speeds_that_are_all_1_change_no_start(log: Log, name: str, classes: int, drawn: Any) -> None:
    assume(fits_alone(log).all())
    policy = PolicySpec.parse(name).build(log.problem, np.random.default_rng(0))
    kernel = run_cluster(policy, log.tasks, log.runs)
    assert kernel is not None
    there = [f"c{drawn.randrange(classes)}" for _ in log.problem.speed]
    types = [drawn.choice(["x", "y/1", "y/2"]) for _ in range(len(log.tasks))]
    ones = {(t, c, apart): 1.0 for t in types for c in there for apart in (False, True)}
    run = play_live(log.batch, name, typed=TypedJobs(tuple(types), tuple(there), ones))
    assert run.start.tolist() == kernel.start.tolist()
    assert run.end.tolist() == kernel.end.tolist()


def played(folder: Path, policies: list[str], jobs: dict[str, Any] = JOBS, **setting: Any) -> Replay:
    for name, text in (("speeds", SPEEDS), ("cluster", setting.pop("queues", None))):
        if text is not None:
            (folder / f"{name}.yaml").write_text(text)
            setting.setdefault(name, str(folder / f"{name}.yaml"))
    return replay(Trace.of(jobs, TWO), policies, ReplaySetting(**setting))


def runs(found: Replay, policy: str) -> list[float]:
    """How long each job ran."""
    jobs = found.jobs.filter(pl.col("policy") == policy)
    return (jobs["end_s"] - jobs["start_s"]).to_list()


def test_run_times_depend_on_where_jobs_are_placed_whoever_plays(tmp_path: Path) -> None:
    found = played(tmp_path, ["fcfs:fit=first", "best-fit", "completion"])
    assert runs(found, "fcfs:fit=first") == [100.0, 400.0, 200.0, 100.0]  # a-0, a-1, b-0, b-1
    assert set(runs(found, "completion")) <= {100.0, 200.0, 400.0}
    assert any("0.25 to 1 by type on 2 classes; no policy is told them" in note for note in found.notes)
    assert any(note == "types: 2 types by kind" for note in found.notes)


def many(count: int) -> dict[str, Any]:
    kinds = ["x" if i % 2 else "y" for i in range(count)]
    return {"submit_s": [60.0 * i for i in range(count)], "run_s": [100.0] * count, "kind": kinds, "cpu": [4.0] * count}


def test_completion_learns_speeds_that_easy_does_not(tmp_path: Path) -> None:
    rows = {row["policy"]: row for row in played(tmp_path, ["easy", "completion"], many(300)).rows}
    assert rows["completion"]["mean_turnaround_seconds"] < 0.8 * rows["easy"]["mean_turnaround_seconds"]


def test_without_speeds_the_result_says_that_nothing_can_be_learned() -> None:
    assert replay(Trace.of(JOBS, TWO), ["easy"]).notes == ()
    (said,) = replay(Trace.of(JOBS, TWO), ["easy", "completion"]).notes
    assert said.startswith("speeds: all 1")
    unequal = Trace.of(JOBS, {**TWO, "speed": [1.0, 2.0]})
    assert "every policy is told" in replay(unequal, ["completion"]).notes[0]


def test_turnarounds_are_compared_where_run_times_depend_on_the_policy(tmp_path: Path) -> None:
    (tmp_path / "speeds.yaml").write_text(SPEEDS)
    setting = ReplaySetting(speeds=str(tmp_path / "speeds.yaml"))
    found = replay(Trace.of(many(80), TWO), ["easy", "completion"], setting, Measurement(windows=2, window_jobs=30))
    assert found.differences[0].measure == "mean_turnaround_seconds"
    assert "mean_turnaround_seconds" in found.rows[1]["interval"]


def test_a_job_is_kept_off_classes_on_which_its_type_cannot_run(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("types: {x: {a: 1.0}, y: {a: 1.0, b: 1.0}}")
    found = played(tmp_path, ["easy"], {**JOBS, "kind": ["x", "x", "x", "y"]}, speeds=str(tmp_path / "s.yaml"))
    assert found.jobs["start_s"].to_list() == [0.0, 0.0, 100.0, 20.0]


@pytest.mark.parametrize(
    ("rule", "types"),
    [("kind", ("x", "y", "x", "y")), ("user+size", ("ann/4", "bob/4", "ann/4", "eve/4")), ("group", ("vision",) * 2)],
)
def test_rules_of_types(rule: str, types: tuple[str, ...]) -> None:
    typed = typed_jobs(Trace.of(JOBS, TWO), rule, None)
    assert typed is not None
    assert typed.types[: len(types)] == types
    assert typed.classes == ("a", "a", "b", "b")


def test_odd_names_become_types_that_the_service_takes() -> None:
    odd: dict[str, Any] = {
        "submit_s": [0.0] * 4,
        "run_s": [1.0] * 4,
        "user": ["a b", "/x//y/", None, "é"],
        "kind": ["k"] * 4,
    }
    typed = typed_jobs(Trace.of({**odd, "cpu": [1.0] * 4}, TWO), "user+kind", None)
    assert typed is not None
    assert tuple(check_type(name, "type") for name in typed.types) == typed.types


def test_types_are_drawn_by_the_size_where_the_log_does_not_tell_them() -> None:
    jobs: dict[str, Any] = {"submit_s": [0.0] * 3, "run_s": [1.0] * 3, "pieces": [1, 4, 6], "gpu": [1.0] * 3}
    there: dict[str, Any] = {"machine": ["m", "n"], "label": ["v100", "k80"], "gpu": [8.0, 8.0]}
    trace = Trace.of(jobs, there, [GPUS])
    one, again, other = (typed_jobs(trace, None, read_speeds("gavel"), seed) for seed in (1, 1, 2))
    assert one is not None
    assert one == again != other
    assert [name.rpartition("/g")[2] for name in one.types] == ["1", "4", "4"]
    assert one != typed_jobs(trace, None, read_speeds("gavel"), 1, "window 2")


@pytest.mark.parametrize(
    ("speeds", "types", "said"),
    [
        ("types: {x: {a: 1.0}}", None, "got 'y', expected speeds of this type of job, or of others"),
        ("types: {others: {c: 1.0}}", None, "expected speeds of x on a class of the machines: a, b"),
        ("types: {x: {a: 0}}", None, "types.x.a: got 0, expected a number > 0"),
        ("tipes: {x: {a: 1}}", None, "did you mean 'types'"),
        ("types: {'a b': {a: 1.0}}", None, "got 'a b'"),
        (SPEEDS, "usr", "unknown column of types 'usr'; did you mean 'user'"),
        (SPEEDS, "script", "a column that the log tells"),
    ],
)
def test_mistakes_in_speeds_and_types_are_told(tmp_path: Path, speeds: str, types: str | None, said: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(speeds)
    with pytest.raises((InvalidInput, UnknownName)) as error:
        replay(Trace.of(JOBS, TWO), ["easy"], ReplaySetting(speeds=str(path), types=types))
    assert said in str(error.value)


# --- the configuration of a service


def starts(found: Replay) -> list[float]:
    return found.jobs["start_s"].to_list()


def test_priorities_of_queues_and_quotas_of_users_hold(tmp_path: Path) -> None:
    jobs: dict[str, Any] = {**JOBS, "submit_s": [0.0, 0.0, 1.0, 2.0], "cpu": [8.0] * 4, "pieces": [1] * 4}
    big = Trace.of(jobs, {"machine": ["m"], "cpu": [8.0]})
    file = tmp_path / "service.yaml"
    file.write_text("queues: {queues: {x: {}, y: {priority: 10}}, aging: 0}")
    assert starts(replay(big, ["fcfs"], ReplaySetting(cluster=str(file)))) == [200.0, 0.0, 300.0, 100.0]
    file.write_text("queues: {queues: {default: {}}, quotas: {'user:ann': {cpu: 4}}}")
    four = Trace.of(JOBS, TWO)
    found = replay(four, ["best-fit"], ReplaySetting(cluster=str(file)))
    assert starts(found) == [0.0, 0.0, 100.0, 20.0]
    assert found.notes[-1] == "4 jobs of kind x, y in queue default, as no queue has that name"
    assert found.remarks == [*found.notes, "best-fit is played as Leveled(Deferring(Gathering(best-fit)))"]


def test_jobs_that_the_service_refuses_are_counted(tmp_path: Path) -> None:
    text = "queues: {queues: {x: {users: [ann]}, y: {accepts: false}}}"
    found = played(tmp_path, ["easy"], speeds=None, queues=text)
    assert found.left_out["refused: queue y accepts no jobs"] == 2
    assert found.rows[0]["jobs"] == 2


def test_time_limits_are_those_of_the_estimates_with_stop(tmp_path: Path) -> None:
    text = "queues: {queues: {x: {max_time: 60s}, y: {}}}"
    jobs: dict[str, Any] = {**JOBS, "estimate_s": [50.0, 70.0, 80.0, 90.0]}
    found = played(tmp_path, ["easy"], jobs, speeds=None, queues=text, stopped=True)
    assert runs(found, "easy") == [50.0, 70.0, 90.0]
    assert any("max_time of queue x" in reason for reason in found.left_out)
    with pytest.raises(InvalidInput, match=r"cluster.yaml: queues.x: .*without time limits, or --stop"):
        played(tmp_path, ["easy"], jobs, speeds=None, queues=text)


def test_servers_and_the_policy_of_the_file_are_used(tmp_path: Path) -> None:
    text = (
        "policy: completion\nlearn_by: gpu\nservers:\n- {name: m, count: 2, capacity: {gpu: 4}, labels: {gpu: v100}}\n"
    )
    (tmp_path / "service.yaml").write_text(text)
    jobs = Trace.of({"submit_s": [0.0], "run_s": [60.0], "pieces": [6], "gpu": [1.0]}, None, [GPUS])
    setting = ReplaySetting(cluster=str(tmp_path / "service.yaml"), speeds="gavel")
    found = replay(jobs, None, setting)
    assert [row["policy"] for row in found.rows] == ["completion"]
    assert found.rows[0]["capacity"] == 8.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "servers: [{name: m, capacity: {cpu: 4}}]\ntruth: {noise: 0.1}",
            "expected no truth: jobs run as long as the log",
        ),
        ("queues: {queues: {x: {}}}", "got 'y', expected a queue for each kind of job, or one named default"),
        ("queues: {queues: {default: {limit: {gpu: 2}}}}", "got 'gpu', expected a resource that the log counts: cpu"),
        ("servers: [{name: m, capacity: {tpu: 4}}]", "servers with a resource that jobs of the log ask for: cpu"),
        ("quues: {}", "did you mean 'queues'"),
    ],
)
def test_what_a_replay_cannot_play_is_told(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BerthError) as error:
        played(tmp_path, ["easy"], speeds=None, queues=text)
    assert said in str(error.value)


@pytest.mark.usefixtures("undrawn")
def test_results_are_kept_with_the_files_that_made_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds, out = tmp_path / "s.yaml", tmp_path / "out"
    speeds.write_text(SPEEDS)
    setting = ReplaySetting(speeds=str(speeds))
    first, again = (replay(Trace.of(JOBS, TWO), ["easy"], setting, out=out).rows for _ in range(2))
    assert first == again
    speeds.write_text(SPEEDS.replace("0.5", "0.6"))
    with pytest.raises(InvalidInput, match="which has others"):
        replay(Trace.of(JOBS, TWO), ["easy"], setting, out=out)
    assert "types" not in ReplaySetting().stated()


def test_a_job_that_shares_a_gpu_gets_a_whole_one() -> None:
    jobs: dict[str, Any] = {"submit_s": [0.0] * 3, "run_s": [60.0] * 3, "gpu": [0.5, 0.5, 1.0]}
    trace = Trace.of(jobs, {"machine": ["m"], "gpu": [2.0]}, [GPUS])
    assert starts(replay(trace, ["completion"], ReplaySetting(whole_gpus=True))) == [0.0, 0.0, 60.0]


def test_rehearsals_take_the_configuration_of_a_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.csv").write_text(
        "submit_s,run_s,user,kind,cpu[core]\n" + "".join(f"{i},9,u{i % 2},{'xy'[i % 2]},4\n" for i in range(12))
    )
    (tmp_path / "rehearsal.yaml").write_text(
        "servers: [{name: m, count: 2, capacity: {cpu: 4}, labels: {class: a}}]\n"
        "trace: {file: log.csv, types: {others: {a: 1.0}}, luck: 0}\npolicies: [best-fit]\nseeds: 1\n"
    )
    config = tmp_path / "service.yaml"
    shown = []
    for text in ("queues: {queues: {default: {}}}", "queues: {queues: {default: {limit: {cpu: 4}}}}"):
        config.write_text(text)
        assert main(["rehearse", str(tmp_path / "rehearsal.yaml"), "--cluster", str(config), "--quiet"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] != shown[1]
    config.write_text("queues: {queues: {x: {}, y: {accepts: false}}}")
    assert main(["rehearse", str(tmp_path / "rehearsal.yaml"), "--cluster", str(config), "--quiet"]) == 2
    assert "job g1: queue y accepts no jobs" in capsys.readouterr().err


def test_refused_jobs_are_counted_in_the_order_of_the_log(tmp_path: Path) -> None:
    names = [f"q{i}" for i in range(12)]
    text = "queues: {queues: {x: {}, " + ", ".join(f"{name}: {{accepts: false}}" for name in names) + "}}"
    jobs: dict[str, Any] = {"submit_s": [0.0] * 13, "run_s": [1.0] * 13, "kind": [*names, "x"], "cpu": [1.0] * 13}
    found = played(tmp_path, ["easy"], jobs, speeds=None, queues=text)
    refused = [reason for reason in found.left_out if reason.startswith("refused")]
    assert refused == [f"refused: queue {name} accepts no jobs" for name in names]


def test_machines_from_a_file_without_servers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text("policy: completion\n")
    with pytest.raises(InvalidInput, match=r"service.yaml: servers: got none, expected a file with servers"):
        replay(Trace.of(JOBS, TWO), ["easy"], machines=tmp_path / "service.yaml")
