"""Published results of others: the rule of the verdict, the page, and the numbers where the traces are there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from berth.cli import main
from berth.lab.verify import CHECKS, Line, render_verified, verify

PAGE = Path(__file__).parents[2] / "docs" / "verified.md"


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (Line("", "", 1.23, 1.2349), "equal"),
        (Line("", "", 1.23, 1.2351), "different"),
        (Line("", "", 7.0, 6.6, 0), "equal"),
        (Line("", "", 1.0, 1.2, error=0.1), "within two standard errors"),
        (Line("", "", 1.0, 1.21, error=0.1), "different"),
        (Line("", "", None, 1.0), "not published"),
    ],
)
def test_the_rule(line: Line, verdict: str) -> None:
    assert line.verdict == verdict
    assert line.as_dict()["verdict"] == verdict


def test_the_page_has_every_result_with_its_verdict() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, check in CHECKS.items():
        assert f"`berth verify {name}`" in text
        assert check.protocol in text
    rows = re.findall(r"^\| .* \|$", text, re.MULTILINE)
    assert sum("| equal |" in row for row in rows) >= 24
    assert not any("| different |" in row for row in rows)


def test_without_traces_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--traces", str(tmp_path)]) == 2
    assert "expected a folder of public traces (--traces, or BERTH_TRACES)" in capsys.readouterr().err
    assert main(["verify", "rlsheduler", "--traces", str(tmp_path)]) == 2
    assert "did you mean 'rlscheduler'?" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("BERTH_TRACES"), reason="BERTH_TRACES is not set: the traces are not there")
def test_what_others_published_comes_out(capsys: pytest.CaptureFixture[str]) -> None:
    found = verify()
    assert render_verified(found, "berth verify --docs docs/verified.md") == PAGE.read_text(encoding="utf-8")
    assert not any(line.verdict == "different" for lines in found.values() for line in lines)
    assert main(["verify", "hpcopt", "-q"]) == 0
    assert "makespan (s)" in capsys.readouterr().out
