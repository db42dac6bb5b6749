from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from berth.cli import main
from berth.cli.lab.compare import complete_experiment
from berth.lab.reproduce.experiments import experiment_names
from tests.lab.test_reproduce import TINY

QUICK = ["--quick", "--workers", "1", "--quiet"]


def written(folder: Path) -> str:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(TINY), encoding="utf-8")
    return str(path)


def test_list_shows_paper_number_title_and_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "list"]) == 0
    shown = capsys.readouterr().out
    for text in ("experiment", "in the paper", "minutes", "ogasched/table-3", "esdp/fig-7", "drl-greedy/fig-4"):
        assert text in shown
    assert main(["reproduce", "list", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in listed] == experiment_names()
    assert main(["reproduce", "list", "esdp", "-o", "json"]) == 0
    assert {item["paper"] for item in json.loads(capsys.readouterr().out)} == {"esdp"}


def test_a_table_a_report_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, docs = tmp_path / "out", tmp_path / "page.md"
    assert main(["reproduce", written(tmp_path), "--out", str(out), "--docs", str(docs), *QUICK]) == 0
    shown = capsys.readouterr().out
    for text in ("Fig. 0: A small one", "more than FAIRNESS", "as printed", "berth's best", "Quick version"):
        assert text in shown
    assert (out / "report.html").is_file()
    page = docs.read_text(encoding="utf-8")
    assert page.startswith("# The papers, reproduced")
    assert f"Not run for this page: {', '.join(experiment_names())}." in page


def test_json_and_a_second_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", written(tmp_path), "--out", str(tmp_path / "out"), "-o", "json", *QUICK]
    assert main(words) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(words) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["cells_reused"] == 12
    assert first["experiments"] == second["experiments"]
    assert first["experiments"][0]["claims"][0]["verdict"] in ("reproduced", "direction only", "undecided", "refuted")


def test_bad_names_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "ogashed", "--out", str(tmp_path / "out")]) == 2
    assert "did you mean 'ogasched'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    (tmp_path / "bad.yaml").write_text("paper: ogasched\n", encoding="utf-8")
    assert main(["reproduce", str(tmp_path / "bad.yaml")]) == 2
    assert "bad.yaml" in capsys.readouterr().err


def test_completion() -> None:
    assert complete_experiment("ogasched/ta") == ["ogasched/table-3"]
    assert complete_experiment("li") == ["list"]
