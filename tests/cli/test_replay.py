"""`berth replay`: what it says, its JSON, its exit codes, and one clear line for whatever cannot be played."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from berth.cli import common, main
from berth.cli.lab import replay as commands
from tests.cli.test_trace import CLEAN, as_json

EXAMPLE = Path(__file__).parents[2] / "examples" / "batch.swf"

SAMPLES = Path(__file__).parent.parent / "data" / "traces"
ITP = str(SAMPLES / "itp" / "cluster01.csv")
NUMBERS = {
    "policy",
    "jobs",
    "never_started",
    "mean_wait_seconds",
    "p95_wait_seconds",
    "max_wait_seconds",
    "mean_turnaround_seconds",
    "mean_bounded_slowdown",
    "p99_bounded_slowdown",
    "utilisation",
    "utilisation_by_resource",
    "idle_while_waiting",
    "owner_fairness",
    "makespan_seconds",
    "jobs_per_hour",
    "resource",
}


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["replay", *words, "-o", "json"]) == 0
    return as_json(capsys.readouterr().out)


def test_one_policy_is_an_object_and_several_are_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    one = answered(capsys, CLEAN, "--policy", "fcfs", "--processors", "8")
    assert one.keys() >= NUMBERS
    assert (one["policy"], one["jobs"]) == ("fcfs", 4)
    assert one["mean_wait_seconds"] == 450.0  # only the third waits: from 3600 until the second ends at 5400
    several = answered(capsys, CLEAN, "-p", "fcfs", "-p", "easy", "--processors", "8")
    assert [row["policy"] for row in several] == ["fcfs", "easy"]
    assert {k: v for k, v in several[0].items() if k != "simulation_seconds"} == {
        k: v for k, v in one.items() if k != "simulation_seconds"
    }
    assert [row["policy"] for row in answered(capsys, CLEAN)] == ["fcfs", "sjf", "easy", "conservative"]


def test_several_of_which_one_can_serve_are_a_list_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", CLEAN, "-p", "fcfs", "-p", "random-placement", "-o", "json"]) == 0
    shown = capsys.readouterr()
    assert [row["policy"] for row in as_json(shown.out)] == ["fcfs"]
    assert main(["replay", CLEAN, "-p", "fcfs", "--processors", "4", "-o", "json"]) == 0
    assert as_json(capsys.readouterr().out)["left_out"] == {"larger than any machine": 1}
    assert "berth: not here: random-placement: random-placement cannot serve a problem with gangs\n" in shown.err


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", CLEAN, "-p", "fcfs", "-p", "first-fit", "--processors", "4", "-q"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert lines[0] == "policy wait p95 turnaround slowdown p95 used fair"
    assert lines[1].startswith("fcfs 0 s 0 s 7.6 min 1.000 1.000 ")
    assert "left out or repaired: larger than any machine 1 (see: berth trace check)" in lines
    assert main(["replay", CLEAN, "-p", "fcfs", "-p", "random-placement", "-q"]) == 0
    assert "not here: random-placement: random-placement cannot serve a problem with gangs" in capsys.readouterr().out


def test_long_names_are_folded_and_numbers_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["replay", CLEAN, "-p", "fcfs:backfill=any,fit=best", "-q"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[-2:] == ["used", "fair"]
    assert lines[1].split()[-1] == "0.419"
    assert lines[1].split()[0] + lines[2].strip() == "fcfs:backfill=any,fit=best"


def test_long_replays_show_how_far_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common, "PROGRESS_SECONDS", 1e6)
    monkeypatch.setattr(commands, "FIRST_SECONDS", 1e9)
    assert main(["replay", CLEAN, "-p", "drf-placement"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(commands, "FIRST_SECONDS", 0.0)
    assert main(["replay", CLEAN, "-p", "drf-placement"]) == 0
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 1
    assert shown[0].startswith("berth: drf-placement: ")
    assert shown[0].endswith(" of 4 moments")
    assert main(["replay", CLEAN, "-p", "drf-placement", "-q"]) == 0
    assert capsys.readouterr().err == ""


def test_results_are_kept_where_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "kept"
    words = ["replay", CLEAN, "-p", "fcfs", "--processors", "8", "--out", str(out), "-q"]
    assert main(words) == 0
    assert f"Report: {out / 'report.html'}" in capsys.readouterr().out
    assert json.loads((out / "summary.json").read_text())[0]["mean_wait_seconds"] == 450.0
    assert main(words) == 0
    capsys.readouterr()
    assert main([*words, "--stop"]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert "this very trace and setting" in shown.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([ITP], "machines: got none, expected a table of machines (--machines), or a number of --processors"),
        ([CLEAN, "--processors", "0"], "processors: got 0.0, expected a number above 0"),
        ([CLEAN, "--processors", "nan"], "processors: got nan, expected a number above 0"),
        ([CLEAN, "--processors", "many"], "'--processors'"),
        ([CLEAN, "--processors", "0.5"], "jobs: got none, expected at least one usable job"),
        ([CLEAN, "--processors", "8", "--resource", "gpu"], "unknown resource of this trace 'gpu'"),
        ([CLEAN, "--processors", "8", "--resource", "memory"], "a resource that jobs ask for: cpu"),
        ([CLEAN, "--resource", "cpu"], "processors too"),
        ([CLEAN, "-p", "easey"], "did you mean 'easy'?"),
        ([CLEAN, "-p", "easy:order=best"], "one of arrival, shortest"),
        ([CLEAN, "-p", "random-placement"], "gangs"),
        ([CLEAN, "--first", "0"], "'--first'"),
        ([CLEAN, "--load", "nan"], "load: got nan, expected a number above 0"),
        ([CLEAN, "--format", "swg"], "did you mean 'swf'?"),
        ([CLEAN, "--machines", "nowhere.tsv"], "nowhere.tsv"),
        ([str(SAMPLES)], "got a directory, expected a file"),
        (["nowhere.swf"], "nothing there"),
        ([str(SAMPLES / "openb" / "openb_node_list_all_node.csv")], "at least one usable job"),
        ([str(SAMPLES / "openb" / "openb_pod_list_multigpu20.csv")], "at least one usable job"),
        ([str(SAMPLES / "swf" / "dirty.swf"), "--strict"], "dirty.swf:9: run: got 'soon', expected a finite number"),
    ],
)
def test_what_cannot_be_played_is_one_line_and_exit_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith("berth: error: ")
    assert said in shown.err


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("empty.swf", b"", "an empty file"),
        ("cut.swf.gz", gzip.compress(Path(CLEAN).read_bytes() * 99, mtime=0)[:-20], "gzip file that ends too early"),
        ("binary.csv", b"\x00\x01\x02", "binary data"),
        ("text.csv", b"dear,sir\n1,2\n", "a trace in one of the formats"),
        ("own.csv", b"submit_s,run_s\n0,-5\n", "at least one usable job"),
    ],
)
def test_bad_files_are_one_line_and_exit_2(
    name: str, data: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(data)
    assert main(["replay", str(tmp_path / name), "--processors", "8"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, len(shown.err.splitlines())) == ("", 1)
    assert said in shown.err


def test_a_job_larger_than_the_pool_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert answered(capsys, CLEAN, "-p", "fcfs", "--processors", "4")["jobs"] == 3


def test_jobs_that_never_start_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.csv"
    own.write_text("submit_s,run_s,cpu[core]\n0,60,2\n")
    (tmp_path / "own.machines.csv").write_text("machine,count,cpu[core]\nm,1,2\n")
    (tmp_path / "own.outages.csv").write_text("machine,down_s,up_s\nm,30,\n")
    assert main(["replay", str(own), "-p", "fcfs", "--outages", "-q"]) == 0
    assert "1 of 1 jobs never started" in " ".join(capsys.readouterr().out.split())
    found = answered(capsys, str(own), "-p", "fcfs", "--outages")
    assert (found["jobs"], found["never_started"]) == (1, 1)


def test_stopping_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("berth.lab.replay.run.played", stop)
    assert main(["replay", CLEAN]) == 130
    assert capsys.readouterr().err == "berth: stopped\n"


def test_a_replay_in_which_nothing_waits_says_that_it_tells_nothing_apart(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["replay", str(EXAMPLE), "-p", "fcfs", "-p", "easy", "--processors"]
    assert main([*words, "1000000", "-q"]) == 0
    assert "does not tell policies apart" in " ".join(capsys.readouterr().out.split())
    assert main([*words, "8", "-q"]) == 0
    assert "does not tell policies apart" not in " ".join(capsys.readouterr().out.split())
