"""Published results of others: the rule of the verdict, the page, and the numbers where the traces are there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from berth.cli import main
from berth.lab.verify import CHECKS, Line, render_verified, verify
from berth.lab.verify.openb import filled
from tests.reference import node_scores

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
        (Line("", "", 1.0, 0.99, rival=True), "ahead"),
        (Line("", "", 1.0, 1.01, rival=True), "behind"),
        (Line("", "", 1.0, 1.001, rival=True), "equal"),
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
    assert sum("| within two standard errors |" in row or "| equal |" in row for row in rows) == 52
    assert not any("| different |" in row for row in rows)
    learned = [row for row in rows if "learned-order:file=" in row]
    assert len(learned) == 4
    assert all("| ahead |" in row or "| behind |" in row for row in learned)


def test_without_traces_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--traces", str(tmp_path)]) == 2
    assert "expected a folder of public traces (--traces, or BERTH_TRACES)" in capsys.readouterr().err
    assert main(["verify", "rlsheduler", "--traces", str(tmp_path)]) == 2
    assert "did you mean 'rlscheduler'?" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("BERTH_TRACES"), reason="BERTH_TRACES is not set: the traces are not there")
def test_what_others_published_comes_out(capsys: pytest.CaptureFixture[str]) -> None:
    found = verify()  # what is optional is left out where its files are not there
    made, page = render_verified(found, "berth verify --docs docs/verified.md"), PAGE.read_text(encoding="utf-8")
    assert set(made.rstrip().split("\n\n## ")[1:]) <= set(page.rstrip().split("\n\n## "))
    assert made == page or not CHECKS.keys() <= found.keys()
    assert not any(line.verdict == "different" for lines in found.values() for line in lines)
    assert main(["verify", "hpcopt", "-q"]) == 0
    assert "makespan (s)" in capsys.readouterr().out


NODES = {
    "sn": [f"n{i}" for i in range(12)],
    "cpu_milli": [32_000] * 12,
    "memory_mib": [65_536] * 12,
    "gpu": [0, 0] + [2, 4] * 5,
    "model": [None, None] + ["T4", "V100"] * 5,
}


def made(seed: int, count: int = 60) -> pl.DataFrame:
    """Pods with shares, whole GPUs and none, some for one model only."""
    rng = np.random.default_rng(seed)
    number = rng.choice([0, 1, 1, 1, 2], count)
    part = np.where(number == 1, rng.choice([200, 500, 1000], count), np.where(number > 1, 1000, 0))
    return pl.DataFrame(
        {
            "cpu_milli": rng.choice([1000, 4000, 9000], count),
            "memory_mib": rng.choice([1024, 8192], count),
            "num_gpu": number,
            "gpu_milli": part,
            "gpu_spec": rng.choice(["", "V100", "T4|V100"], count),
        }
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", range(6))
def test_places_of_pods_are_those_of_the_reference(rule: int, seed: int) -> None:
    """The kernel keeps scores and computes few again; the reference computes all of them for every pod."""
    nodes, pods = pl.DataFrame(NODES), made(seed)
    assert filled(nodes, pods, rule, seed) == pytest.approx(node_scores.filled(nodes, pods, rule, seed))
