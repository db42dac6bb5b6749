"""Forms of an answer: JSON, YAML and CSV hold the same, tables fold, colours and progress know terminals."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.cli import answers, common, main
from tests.cli.test_cli import TINY
from tests.cli.test_trace import CLEAN, DIRTY

ROOT = Path(__file__).parents[2]


def as_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        (["scenarios"], len),
        (["scenarios", "show", "small"], lambda _: 1),
        (["policies"], len),
        (["trace", "formats"], len),
        (["trace", "check", DIRTY], lambda value: len(value["skipped"]) + len(value["problems"])),
        (["trace", "info", CLEAN], lambda value: len(value["spreads"])),
        (["workload", "list"], len),
        (["workload", "show", "philly"], lambda value: len(value["classes"])),
        (["reproduce", "list"], len),
        (["compare", "small", "-p", "fairness", "-p", "drf", *TINY], lambda value: len(value["summary"])),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_every_form(words: list[str], rows: Any, capsys: pytest.CaptureFixture[str]) -> None:
    said = {}
    for form in ("json", "yaml", "csv"):
        code = main([*words, "-o", form])
        assert code in (0, 1)
        said[form] = capsys.readouterr().out
    value = json.loads(said["json"])
    if words[0] != "compare":  # which tells how long it took
        assert yaml.safe_load(said["yaml"]) == value
    table = as_csv(said["csv"])
    assert len(table) == rows(value) > 0
    assert all(None not in row and None not in row.values() for row in table)


def test_csv_flattens(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"a": {"b": 1, "c": {"d": "x,y"}}, "e": [1, 2]}, {"a": None, "e": None, "f": True}]
    assert answers.answered(rows, "csv")
    assert as_csv(capsys.readouterr().out) == [
        {"a.b": "1", "a.c.d": "x,y", "e": "[1, 2]", "f": ""},
        {"a.b": "", "a.c.d": "", "e": "", "f": "True"},
    ]
    assert answers.answered([], "csv")
    assert capsys.readouterr().out == ""
    assert not answers.answered(rows, "table")
    assert not answers.answered(rows, "wide")


def test_tables_fold_to_a_width_and_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": f"job-{n}", "where": " ".join(f"server-{i}" for i in range(12)), "why": "x" * 50} for n in range(2)]
    answers.print_table(rows, ("id", "where", "why"))
    assert len(capsys.readouterr().out.splitlines()) == 3
    answers.print_table(rows, ("id", "where", "why"), 80)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.count("server-") for line in lines) == 24
    assert sum(line.count("x") for line in lines) == 100
    answers.print_table(rows, ("id", "where", "why"), 10)  # less than its columns need: as narrow as they can be
    assert max(map(len, capsys.readouterr().out.splitlines())) == 25


def on_terminal(words: list[str], **environment: str) -> str:
    """What a command writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM")}
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    running = subprocess.Popen(
        [sys.executable, "-m", "berth", *words],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**plain, "PYTHONPATH": path, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end was closed
            break
        if not part:
            break
        said += part
    os.close(ours)
    running.wait(60)
    return said.decode().replace("\r\n", "\n")


COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38)")


def test_colours_are_for_terminals_and_can_be_switched_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert COLOUR.search(on_terminal(["trace", "check", CLEAN]))
    assert not COLOUR.search(on_terminal(["trace", "check", CLEAN], NO_COLOR="1"))
    assert main(["trace", "check", CLEAN]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [["policies"], ["scenarios"]])
def test_lists_fit_a_terminal(words: list[str]) -> None:
    said = on_terminal(words)
    assert said
    assert max(map(len, said.splitlines())) <= 80


def test_long_work_prints_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common, "PROGRESS_SECONDS", 0.05)

    def reporter(bar: Any) -> Any:
        task = bar.add_task("first", total=20)
        return lambda done: bar.update(task, completed=done)

    for quiet in (True, False):
        with common.progress(quiet, reporter, "cells") as show:
            if show is not None:
                show(3)
            time.sleep(0.5)
        lines = capsys.readouterr().err.splitlines()
        assert bool(lines) is not quiet
        assert all(re.fullmatch(r"berth: [03] of 20 cells after \d+ s \(first\)", line) for line in lines)
