"""Forms of an answer: JSON, YAML and CSV hold the same, tables fold, colours and progress know terminals."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import threading
from contextlib import redirect_stdout, suppress
from typing import Any

import pytest
import yaml

from berth.cli import answers, common, main
from tests.cli.test_cli import TINY
from tests.cli.test_trace import CLEAN, DIRTY
from tests.harness.waiting import eventually


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


def on_terminal(words: list[str], patch: pytest.MonkeyPatch, **environment: str) -> str:
    """What a command writes to a terminal of 80 columns."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        patch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80", **environment}.items():
        patch.setenv(name, value)
    ours, theirs = pty.openpty()
    said: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # the other end was closed
            while part := os.read(ours, 65536):
                said.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    with open(theirs, "w", encoding="utf-8") as terminal, redirect_stdout(terminal):
        assert main(words) in (0, 1)
    reader.join()
    os.close(ours)
    return b"".join(said).decode().replace("\r\n", "\n")


COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38)")


def test_colours_are_for_terminals_and_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert COLOUR.search(on_terminal(["trace", "check", CLEAN], monkeypatch))
    assert not COLOUR.search(on_terminal(["trace", "check", CLEAN], monkeypatch, NO_COLOR="1"))
    assert main(["trace", "check", CLEAN]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("words", [["policies"], ["scenarios"]])
def test_lists_fit_a_terminal(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said = on_terminal(words, monkeypatch)
    assert said
    assert max(map(len, said.splitlines())) <= 80


def test_long_work_prints_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common, "PROGRESS_SECONDS", 0.05)

    def reporter(bar: Any) -> Any:
        task = bar.add_task("first", total=20)
        return lambda done: bar.update(task, completed=done)

    with common.progress(True, reporter, "cells") as show:
        assert show is None
    with common.progress(False, reporter, "cells") as show:
        show(3)
        lines = eventually(lambda: capsys.readouterr().err.splitlines())
        assert all(re.fullmatch(r"berth: [03] of 20 cells after \d+ s \(first\)", line) for line in lines)
