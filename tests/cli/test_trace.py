"""`berth trace`: what it says, its exit codes, and that nothing is left half done."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from berth.cli import main
from berth.cli.lab import trace as commands
from berth.traces.formats import format_names, load_trace, swf

SWF = Path(__file__).parent.parent / "data" / "traces" / "swf"
CLEAN, DIRTY = str(SWF / "clean.swf"), str(SWF / "dirty.swf")


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def as_json(text: str) -> Any:
    def refuse(word: str) -> float:
        raise AssertionError(f"{word} in JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize(
    "words", [["trace"], ["trace", "--help"], ["trace", "check", "-h"], ["trace", "convert", "-h"]]
)
def test_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Usage: berth trace")
    assert shown.err == ""


def test_help_says_what_exit_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    main(["trace", "check", "--help"])
    assert "Exit code: 0 every row can be read and used" in " ".join(capsys.readouterr().out.split())


def test_check_of_a_clean_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "check", CLEAN]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "4 rows read, 4 usable" in shown.out
    assert "cpu 0.588" in shown.out
    assert "Every row could be read and can be used." in shown.out
    assert main(["trace", "check", CLEAN, "--strict"]) == 0


def test_check_of_a_dirty_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "check", DIRTY]) == 1
    shown = capsys.readouterr().out
    assert "9 rows read, 2 unreadable, 4 usable" in shown
    lines = {" ".join(line.split()) for line in shown.splitlines()}
    assert "1 no finite number unreadable line 9: run 'soon'" in lines
    assert "1 larger than the cluster left out line 8: pieces 9" in lines
    assert "1 out of order sorted by submit time line 12: submit_s 7000" in lines
    assert "7 rows cannot be used." in lines


def test_check_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "check", DIRTY, "-o", "json"]) == 1
    found = as_json(capsys.readouterr().out)
    assert (found["rows"], found["usable"], found["clean"]) == (9, 4, False)
    assert {item["reason"]: item["count"] for item in found["skipped"]} == {
        "no finite number": 1,
        "wrong number of columns": 1,
    }
    problems = {item["reason"]: item for item in found["problems"]}
    assert problems["name seen before"]["action"] == "dropped"
    assert problems["name seen before"]["examples"] == [
        f"{DIRTY}:13: job: got '8', expected a name that no job above has"
    ]
    assert problems["started before it came"]["remedy"] == "wait forgotten"
    assert found["load"].keys() == {"cpu"}


def test_strict_refuses_with_file_line_column_and_value(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["trace", "check", DIRTY, "--strict"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", f"berth: error: {DIRTY}:9: run: got 'soon', expected a finite number\n")
    own = tmp_path / "own.csv"
    own.write_text("submit_s,run_s\n0,60\n5,0\n")
    assert main(["trace", "check", str(own), "--strict"]) == 2
    assert capsys.readouterr().err == f"berth: error: {own}:3: run_s: got 0, expected a run time above 0\n"
    assert main(["trace", "check", str(own)]) == 1


def test_machines_may_be_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "cluster.tsv"
    table.write_text("cluster\tnodes\tcpus_per_node\tspeed\tmem_per_node_kib\nc\t2\t2\t1\t1048576\n")
    assert main(["trace", "check", CLEAN, "--machines", str(table), "-o", "json"]) == 1
    found = as_json(capsys.readouterr().out)
    assert found["capacity"] == {"cpu": 4.0, "memory": 2.0}
    assert [item["reason"] for item in found["problems"] if item["action"] == "dropped"] == ["larger than the cluster"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("none.swf", None, "nothing there"),
        ("empty.swf", b"", "an empty file"),
        ("cut.swf.gz", gzip.compress(b"1 2 3 4\n" * 1000, mtime=0)[:-20], "gzip file that ends too early"),
        ("text.csv", b"dear,sir\n1,2\n", "a trace in one of the formats"),
        ("binary.csv", b"\x00\x01\x02", "binary data"),
        ("own.csv", b"submit_s,run_s,usr\n1,2,3\n", "did you mean 'user'?"),
        ("own.parquet", b"PAR1 and no more", "a Parquet file that can be read"),
    ],
)
@pytest.mark.parametrize("command", ["check", "info"])
def test_bad_input_is_one_line_and_exit_2(
    command: str, name: str, data: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    assert main(["trace", command, str(tmp_path / name)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith("berth: error: ")
    assert said in shown.err


def test_a_directory_and_an_unknown_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "check", str(tmp_path)]) == 2
    assert "got a directory, expected a file" in capsys.readouterr().err
    assert main(["trace", "check", CLEAN, "--format", "swg"]) == 2
    assert "did you mean 'swf'?" in capsys.readouterr().err


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "info", CLEAN]) == 0
    lines = capsys.readouterr().out.splitlines()
    run = next(line for line in lines if line.startswith("run time"))
    assert run.split()[:12] == ["run", "time", "60", "s", "100", "s", "1.0", "h", "1.0", "h", "1.0", "h"]
    assert sum(sign in "▁▂▃▄▅▆▇█" for sign in run) == 4  # four jobs, each in a bin of its own
    hours = next(line for line in lines if line.startswith("arrivals by hour"))
    assert hours == f"arrivals by hour of the day   0 {' ' * 9}█▄▄{' ' * 12} 23"
    assert main(["trace", "info", DIRTY]) == 0
    assert main(["trace", "info", CLEAN, "-o", "json"]) == 0


def test_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "formats"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["NAME", *format_names()]
    assert main(["trace", "formats", "-o", "json"]) == 0
    assert [item["name"] for item in as_json(capsys.readouterr().out)] == list(format_names())


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_convert(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / f"own{suffix}"
    assert main(["trace", "convert", CLEAN, "--out", str(out)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"4 rows: {out}, {tmp_path / f'own.machines{suffix}'}\n"
    assert shown.err == ""
    assert load_trace(out).jobs.equals(load_trace(CLEAN).jobs)
    assert load_trace(out).machines.equals(load_trace(CLEAN).machines)
    before = out.read_bytes()
    assert main(["trace", "convert", DIRTY, str(out)]) == 2
    assert "expected a new name, or --force" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert main(["trace", "convert", DIRTY, str(out), "--force"]) == 1
    shown = capsys.readouterr()
    assert f"berth: left out: no finite number (1), first {DIRTY}:9: run: got 'soon'" in shown.err
    assert len(load_trace(out)) == 9
    assert main(["trace", "convert", DIRTY, str(out), "--force", "--strict"]) == 2
    assert len(load_trace(out)) == 9


def test_convert_needs_one_place_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--out", str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]):
        assert main(["trace", "convert", CLEAN, *words]) == 2
        assert "expected one file to write: --out FILE" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_convert_to_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "convert", CLEAN, str(tmp_path / "own.xlsx")]) == 2
    assert "a name that ends in one of" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (["check", CLEAN], "stopped after 0 rows"),
        (["convert", CLEAN, "own.csv"], "stopped after 0 rows; own.csv was not written"),
        (["convert", CLEAN, "own.parquet"], "stopped after 0 rows; own.parquet was not written"),
        (["plot", CLEAN, "--out", "own.png"], "stopped after 0 rows; own.png was not written"),
    ],
)
def test_stopping_says_what_happened_and_leaves_nothing(
    command: list[str],
    kept: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(swf, "_jobs", stop)
    assert main(["trace", *command]) == 130
    assert capsys.readouterr().err == f"berth: {kept}\n"
    assert list(tmp_path.iterdir()) == []


def test_long_files_show_how_far_they_are(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(commands, "FIRST_SECONDS", 0.0)
    assert main(["trace", "check", CLEAN]) == 0
    assert capsys.readouterr().err == "berth: 4 rows\n"
    assert main(["trace", "check", CLEAN, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("name", "mark"), [("own.png", b"\x89PNG"), ("own.svg", b"<?xml")])
@pytest.mark.parametrize("log", [CLEAN, DIRTY])
def test_plot(log: str, name: str, mark: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / name
    assert main(["trace", "plot", log, "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"Picture: {out}\n"
    assert out.read_bytes().startswith(mark)
    assert list(tmp_path.iterdir()) == [out]


def test_plot_of_a_trace_that_tells_little(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("submit_s,run_s\n0,60\n")
    assert main(["trace", "plot", str(tmp_path / "own.csv"), "--out", str(tmp_path / "own.svg")]) == 0
    assert "not given" in (tmp_path / "own.svg").read_text()


@pytest.mark.parametrize("row", ["0,soon", "1e200,1e200", ",", "5,0"])
def test_traces_of_which_little_is_left(row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = str(tmp_path / "own.csv")
    Path(own).write_text(f"submit_s,run_s,pieces,cpu[core]\n{row},1000000,1e110\n{row},1,1\n")
    for command in (["check"], ["info"], ["info", "-o", "json"], ["plot", "--out", str(tmp_path / "own.png")]):
        assert main(["trace", command[0], own, *command[1:]]) in (0, 1)
        shown = capsys.readouterr()
        assert shown.err == ""
        if "json" in command:
            assert as_json(shown.out)["rows"] == (0 if "soon" in row else 2)


def test_plot_to_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "plot", CLEAN, "--out", str(tmp_path / "own.gif")]) == 2
    assert "a name that ends in .png or .svg" in capsys.readouterr().err
    assert main(["trace", "plot", CLEAN, "--out", str(tmp_path / "none" / "own.png")]) == 2
    assert "a file that can be written" in capsys.readouterr().err


def real_files() -> list[str]:
    """The real logs where they are, and in any case the one made by hand."""
    real = os.environ.get("BERTH_TRACES")
    return [CLEAN, *(map(str, sorted((Path(real) / "swf").glob("*.swf*"))) if real else [])]


@pytest.mark.parametrize("path", real_files(), ids=lambda path: Path(path).name)
def test_every_log_can_be_summed_up_and_converted(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "info", path, "-o", "json"]) == 0
    found = as_json(capsys.readouterr().out)
    assert main(["trace", "convert", path, str(tmp_path / "own.parquet")]) == 0
    capsys.readouterr()
    assert main(["trace", "info", str(tmp_path / "own.parquet"), "-o", "json"]) == 0
    again = as_json(capsys.readouterr().out)
    for key in ("rows", "usable", "missing", "span_s", "jobs_per_hour", "capacity", "load", "spreads"):
        assert again[key] == found[key]
