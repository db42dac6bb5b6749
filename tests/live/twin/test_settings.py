"""Rehearsal files: what is wrong is told with its line; streams, tables and traces are read."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from berth.cli import main
from berth.errors import BerthError, InvalidInput
from berth.lab import rehearsal
from berth.live.core.jobs import Server
from berth.live.twin.runs import Runner, run
from berth.live.twin.settings import read_rehearsal
from berth.live.twin.streams import ClassStream

EXAMPLES = Path(__file__).parents[3] / "examples"
CAPACITY = {"cpu": 64, "memory": 512 * 2**30, "gpu": 8}
TEXT = (EXAMPLES / "rehearse.yaml").read_text()


def test_the_example_is_the_stream_of_the_benchmark() -> None:
    plan = read_rehearsal(EXAMPLES / "rehearse.yaml").plan()
    assert [gang.seconds for gang in plan.stream.gangs(5)] == [gang.seconds for gang in ClassStream().gangs(5)]
    assert str(plan.told) == "completion told"
    assert len(plan.seeds) == 20
    assert plan.latency is not None
    assert plan.latency.start == 0.3


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("rehearse*.yaml")), ids=lambda file: file.stem)
def test_examples_can_be_played(file: Path) -> None:
    plan = read_rehearsal(file).plan()
    assert plan.told is not None
    assert len(plan.seeds) >= 8
    assert len(plan.stream.gangs(plan.seeds[0])) >= 100


def test_measured_speeds_bring_their_cluster() -> None:
    plan = read_rehearsal(EXAMPLES / "rehearse-gavel.yaml").plan()
    assert sum(server.capacity["gpu"] for server in plan.stream.servers) == 120_000


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("jobs: 110", "jobz: 110", r"yaml:11: stream.jobz: .*did you mean 'jobs'"),
        ("rate: 1.05/s", "rate: 1.05", "stream.rate: got 1.05, expected a rate > 0 with its unit"),
        ("work: 6s", "work: 0s", "stream.work: got 0.0, expected a duration > 0"),
        ("plain: slurm", "plain: slumr", "plain: got 'slumr', expected a policy or a plain scheduler"),
        ("{a: 1.0, b: 0.4, c: 0.7}", "{a: 1.0, d: 0.4}", "stream.types.solver.d: got 'd', expected a class of servers"),
        ("tasks: [1, 2, 3, 4]", "tasks: [33]", "stream.tasks: got 33, expected at most 32 tasks"),
        ("labels: {class: c}", "labels: {rack: c}", "the label class, its class"),
        ("stream:\n", "measured: {rate: 2/h}\nstream:\n", "expected one of stream, measured and trace"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, before: str, after: str, said: str) -> None:
    assert before in TEXT
    path = tmp_path / "bad.yaml"
    path.write_text(TEXT.replace(before, after))
    with pytest.raises(InvalidInput, match=said):
        read_rehearsal(path)


def test_other_servers_take_the_place_of_those_in_the_file() -> None:
    there = [Server(f"x{i}", {"cpu": 8000}, {"class": name}) for i, name in enumerate("abc")]
    plan = read_rehearsal(EXAMPLES / "rehearse.yaml").on(there).plan()
    assert [server.name for server in plan.stream.servers] == ["x0", "x1", "x2"]


def test_a_trace_is_rehearsed(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        f"servers: [{{name: a, count: 4, capacity: {CAPACITY}, labels: {{class: a}}}}]\n"
        f"trace: {{file: {EXAMPLES / 'own.csv'}, types: {{others: {{a: 0.5}}}}, luck: 0}}\n"
        "policies: [completion]\n"
    )
    stream = read_rehearsal(path).plan().stream
    first = stream.gangs(0)[0]
    assert (first.type, first.tasks, first.work, first.seconds) == ("training", 4, 7200.0, {"a": 14400.0})
    assert first.demand is not None
    assert {name: much / stream.units[name] for name, much in first.demand.items()} == {
        "cpu": 8,
        "memory": 64 * 2**30,
        "gpu": 1,
    }
    assert stream.servers[0].capacity == {name: much * stream.units[name] for name, much in CAPACITY.items()}


SMALL = "job,submit_s,run_s,pieces,cpu[machine]\n" + "\n".join(
    f"j{i},0,60,1,{cpu}" for i, cpu in enumerate([1 / 3] * 3 + [0.0006] * 2000)
)


def test_requests_of_a_trace_are_not_rounded_to_nothing(tmp_path: Path) -> None:
    """Three thirds of a machine fit on one; of 2000 requests for .0006 machines, 1666 fit on another."""
    (tmp_path / "small.csv").write_text(SMALL)
    path = tmp_path / "small.yaml"
    path.write_text(
        "servers: [{name: a, count: 2, capacity: {cpu: 1}, labels: {class: a}}]\n"
        "trace: {file: small.csv, types: {others: {a: 1}}, luck: 0}\n"
        "policies: [completion]\n"
    )
    stream = read_rehearsal(path).plan().stream
    for runner in ("pack", "in-order-best-fit alone", "completion"):
        at_once = run(stream, Runner.parse(runner), 0).began == 0.0
        assert (at_once[:3].all(), at_once.sum()) == (True, 3 + 1666)


TRAINING = (
    "servers:\n"
    "  - {name: k, count: 2, capacity: {gpu: 8}, labels: {class: k80}}\n"
    "  - {name: v, count: 2, capacity: {gpu: 8}, labels: {class: v100}}\n"
    f"trace: {{file: {EXAMPLES / 'own.csv'}, measured: gavel, luck: 0}}\n"
    "policies: [completion]\n"
)


def test_jobs_of_a_trace_become_training_jobs_with_measured_speeds(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(TRAINING)
    stream = read_rehearsal(path).plan().stream
    assert stream.demand == {"gpu": 1000}
    gangs = stream.gangs(0)
    assert [gang.tasks for gang in gangs] == [gang.tasks for gang in stream.gangs(1)]
    assert [gang.type for gang in gangs] != [gang.type for gang in stream.gangs(1)]
    for gang in gangs:
        assert gang.type.endswith(f"/g{gang.tasks}")
        assert gang.seconds == {
            model: gang.work / stream.speeds[gang.type, model, False]
            for model in ("k80", "v100")
            if (gang.type, model, False) in stream.speeds
        }


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("measured: gavel, ", "", "trace.types: got None, expected one of types and measured"),
        ("class: k80", "class: a100", "trace.measured: got 'a100', expected servers of the classes k80, p100, v100"),
        ("measured: gavel", "measured: sia", "trace.measured: got 'sia', expected gavel"),
    ],
)
def test_what_is_wrong_with_a_training_trace_is_said(tmp_path: Path, old: str, new: str, expected: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(TRAINING.replace(old, new))
    with pytest.raises(InvalidInput) as error:
        read_rehearsal(path)
    assert expected in str(error.value)


def test_the_command_prints_a_table_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "small.yaml", tmp_path / "out"
    path.write_text(TEXT.replace("jobs: 110", "jobs: 12").replace("best-fit, escb-v, ", ""))
    assert main(["rehearse", str(path), "--seeds", "2", "--workers", "1", "--out", str(out), "-q"]) == 0
    assert "completion told" in capsys.readouterr().out
    cells = {file: file.stat().st_mtime_ns for file in (out / "cells").iterdir()}
    assert len(cells) == 6
    assert (out / "summary.parquet").is_file()
    assert (out / "plots" / "turnaround.png").is_file()
    assert main(["rehearse", str(path), "--seeds", "2", "--workers", "1", "--out", str(out), "-q", "-o", "json"]) == 0
    assert {file: file.stat().st_mtime_ns for file in (out / "cells").iterdir()} == cells


def test_runs_of_other_jobs_or_another_version_are_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = tmp_path / "small.yaml", tmp_path / "out"
    path.write_text(
        "servers: [{name: a, count: 2, capacity: {cpu: 1}, labels: {class: a}}]\n"
        "trace: {file: small.csv, types: {others: {a: 1}}, luck: 0, jobs: 5}\npolicies: [best-fit]\n"
    )
    (tmp_path / "small.csv").write_text(SMALL)

    def new() -> int:
        before = {*out.glob("cells/*")}
        assert main(["rehearse", str(path), "--seeds", "1", "--workers", "1", "--out", str(out), "-q"]) == 0
        return len({*out.glob("cells/*")} - before)

    every = new()
    assert every > 0
    assert new() == 0
    (tmp_path / "small.csv").write_text(SMALL.replace(",60,", ",61,"))
    assert new() == every
    monkeypatch.setattr(rehearsal, "code_hash", lambda *more, family=None: f"another version of {more}")
    assert new() == every


def test_refused_decisions_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT.replace("jobs: 110", "jobs: 4").replace("best-fit, escb-v, completion", "esdp-printed"))
    assert main(["rehearse", str(path), "--seeds", "1", "--workers", "1", "-q"]) == 0
    assert "decisions of esdp-printed were refused, and made by the fallback" in capsys.readouterr().err


def test_a_trace_is_looked_for_beside_the_file_and_then_in_the_folder_of_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = (EXAMPLES / "batch.swf").read_text()
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "log.swf").write_text(log)
    file = tmp_path / "rehearsal.yaml"
    file.write_text(
        "servers: [{name: n, count: 64, capacity: {cpu: 8}, labels: {class: a}}]\n"
        "trace: {file: log.swf, types: {others: {a: 1}}, jobs: 5}\npolicies: [completion]\n"
    )
    monkeypatch.delenv("BERTH_TRACES", raising=False)
    with pytest.raises(BerthError, match=r"log\.swf"):
        read_rehearsal(file).plan()
    monkeypatch.setenv("BERTH_TRACES", str(tmp_path / "traces"))
    assert len(read_rehearsal(file).plan().stream.gangs(0)) == 5
    (tmp_path / "log.swf").write_text("".join(log.splitlines(keepends=True)[:6]))
    assert len(read_rehearsal(file).plan().stream.gangs(0)) == 3


@pytest.mark.parametrize(("memory", "starts"), [("64Gi", [0.0, 60.0]), ("96Gi", [0.0, 0.0])])
def test_memory_of_a_trace_counts_in_the_units_of_servers(tmp_path: Path, memory: str, starts: list[float]) -> None:
    (tmp_path / "log.csv").write_text("job,submit_s,run_s,pieces,memory[GiB]\na,0,60,1,48\nb,0,60,1,48\n")
    path = tmp_path / "own.yaml"
    path.write_text(
        f"servers: [{{name: a, capacity: {{memory: {memory}}}, labels: {{class: a}}}}]\n"
        "trace: {file: log.csv, types: {others: {a: 1}}, luck: 0}\npolicies: [completion]\n"
    )
    stream = read_rehearsal(path).plan().stream
    for runner in ("slurm", "completion"):
        assert run(stream, Runner.parse(runner), 0).began.tolist() == starts
    path.write_text(path.read_text().replace(memory, "64"))
    with pytest.raises(InvalidInput, match="more memory for a task of job g0 than any server has"):
        read_rehearsal(path).plan()


def test_runs_of_another_file_of_a_policy_or_with_the_queues_of_a_service_are_not_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out, service = tmp_path / "small.yaml", tmp_path / "out", tmp_path / "service.yaml"
    path.write_text(TEXT.replace("jobs: 110", "jobs: 4").replace("best-fit, escb-v, ", ""))
    service.write_text("store: service.db\n")  # its queues are those of a new service

    def new(*more: str) -> int:
        before = {*out.glob("cells/*")}
        assert main(["rehearse", str(path), "--seeds", "1", "--workers", "1", "--out", str(out), "-q", *more]) == 0
        return len({*out.glob("cells/*")} - before)

    assert new() == 3
    assert new("--cluster", str(service)) == 3
    assert new("--cluster", str(service)) == 0
    monkeypatch.setattr(rehearsal, "source_hash", lambda name: f"the file of {name}")
    assert new() == 0
    assert new("-p", "best-fit") == 2
    monkeypatch.setattr(rehearsal, "source_hash", lambda name: f"another file of {name}")
    assert new("-p", "best-fit") == 2


def test_small_and_large_seeds_are_written_to_one_table(tmp_path: Path) -> None:
    path, out = tmp_path / "small.yaml", tmp_path / "out"
    text = TEXT.replace("jobs: 110", "jobs: 4").replace("best-fit, escb-v, completion", "best-fit")
    path.write_text(text.replace("seeds: 20", f"seeds: [1, {2**63 - 1}]"))
    assert main(["rehearse", str(path), "--workers", "1", "--out", str(out), "-q"]) == 0
    assert sorted(set(pl.read_parquet(out / "jobs.parquet")["seed"])) == [1, 2**63 - 1]


@pytest.mark.parametrize("kind", ["_gpu", "a//b", "a/.b", "x" * 200, "(-)", "./_"])
def test_odd_kinds_of_a_trace_are_types_that_the_service_takes(tmp_path: Path, kind: str) -> None:
    (tmp_path / "log.csv").write_text(f"job,submit_s,run_s,pieces,kind,cpu[core]\na,0,60,1,{kind},1\n")
    path = tmp_path / "own.yaml"
    path.write_text(
        "servers: [{name: a, capacity: {cpu: 1}, labels: {class: a}}]\n"
        "trace: {file: log.csv, types: {others: {a: 1}}, luck: 0}\npolicies: [completion]\n"
    )
    stream = read_rehearsal(path).plan().stream
    assert run(stream, Runner("slurm"), 0).ended.tolist() == [60.0]


def test_gpus_of_a_piece_of_a_trace_are_tasks_of_a_training_job(tmp_path: Path) -> None:
    """Logs of Slurm, openb and PAI have nodes or pods as pieces, with several GPUs each."""
    (tmp_path / "log.csv").write_text(
        "job,submit_s,run_s,pieces,gpu[device]\na,0,60,1,8\nb,0,60,2,2\nc,0,60,1,0.5\nd,0,60,1,0\n"
    )
    (tmp_path / "own.yaml").write_text(TRAINING.replace(str(EXAMPLES / "own.csv"), "log.csv"))
    gangs = read_rehearsal(tmp_path / "own.yaml").plan().stream.gangs(0)
    assert [(gang.tasks, gang.type.rpartition("/g")[2]) for gang in gangs] == [(8, "8"), (4, "4"), (1, "1"), (1, "1")]
