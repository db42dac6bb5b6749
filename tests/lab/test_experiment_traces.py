from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from berth.cli import main
from berth.errors import InvalidInput
from berth.lab.reproduce.experiments import Experiment, Setting, load_experiment, settings_of
from berth.lab.reproduce.report import render_markdown
from berth.lab.reproduce.run import reproduce
from berth.lab.reproduce.traces import find_traces
from berth.scenario import load_scenario
from berth.traces.folder import VARIABLE, traces_folder
from tests.harness.examples import examples

HERE, AWAY = "own/here.csv", "own/away.csv"
TRACED: dict[str, Any] = {
    "paper": "ogasched",
    "figure": "section 0",
    "title": "Two traces",
    "what": "Four servers.",
    "data": "raw traces",
    "minutes": 0.1,
    "sweep": {
        "scenario": "trace-openb-allocation",
        "set": {"horizon": 20, "workload.servers": 4, "workload.load": 1},
        "policies": ["ogasched-printed", "ogasched-aware", "fairness"],
        "seeds": 2,
        "arrivals": "revealed",
        "oracles": [],
        "baseline": "fairness",
    },
    "parts": [{"trace": HERE}, {"trace": AWAY}],
    "quick": {"set": {"horizon": 10}},
    "printed": "ogasched-printed",
    "best": "ogasched-aware",
    "plots": [{"kind": "bars", "title": "by trace", "over": "fairness"}],
    "claims": [
        {"says": "the first: more", "over": "fairness", "where": {"trace": HERE}, "direction": "more"},
        {"says": "the second: more", "over": "fairness", "where": {"trace": AWAY}, "direction": "more"},
        {"says": "both: more", "over": "fairness", "direction": "more"},
        {"says": "more than there", "where": {"trace": HERE}, "against": {"trace": AWAY}, "direction": "more"},
    ],
}
QUICK = ["--quick", "--workers", "1", "--quiet"]


def trace_at(path: Path, jobs: int = 300, first: float = 10.0, gap: float = 60.0) -> Path:
    """A trace in berth's own format: a job a minute, of two sizes, on four machines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["submit_s,run_s,cpu[core],memory[GiB]"]
    lines += [f"{first + gap * n},{300 + n % 7},{2 + 6 * (n % 2)},{4 + 12 * (n % 2)}" for n in range(jobs)]
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    stem = path.name.split(".")[0]
    machines = "machine,count,cpu[core],memory[GiB]\n" + "".join(f"m{n},1,32,64\n" for n in range(4))
    (path.parent / f"{stem}.machines.csv").write_text(machines, encoding="utf-8")
    return path


def written(folder: Path, **changes: Any) -> str:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump({**TRACED, **changes}), encoding="utf-8")
    return str(path)


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_points_have_the_key_trace(tmp_path: Path) -> None:
    points = settings_of(load_experiment(Path(written(tmp_path))))
    assert [str(point) for point in points] == [f"trace={HERE}", f"trace={AWAY}"]
    assert [point.trace for point in points] == [HERE, AWAY]
    assert points[0].is_at({"trace": HERE})
    assert not points[1].is_at({"trace": HERE})


def test_what_is_there_is_played_and_the_rest_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = trace_at(tmp_path / "traces" / HERE)
    out, page = tmp_path / "out", tmp_path / "page.md"
    words = ["reproduce", written(tmp_path), "--out", str(out), "--docs", str(page), *QUICK]
    assert main([*words, "--traces", str(tmp_path / "traces")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"data: raw traces: {HERE}" in shown
    assert f"not run: {AWAY}: it is not in the traces folder" in shown
    assert "without that data, not judged: 3 claims" in shown
    (result,) = json.loads((out / "results.json").read_text(encoding="utf-8"))["experiments"]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert result["traces"] == {HERE: digest}
    assert result["data"] == f"raw traces: {HERE}"
    assert result["not_run"] == [f"{AWAY}: it is not in the traces folder"]
    assert [claim["says"] for claim in result["claims"]] == ["the first: more"]
    assert result["without_data"] == ["the second: more", "both: more", "more than there"]
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["traces"] == {HERE: digest}
    for text in ((out / "report.html").read_text(encoding="utf-8"), page.read_text(encoding="utf-8")):
        assert f"data: raw traces: {HERE}" in text
        assert f"Not run: {AWAY}: it is not in the traces folder." in text
        assert "Without that data, not judged: the second: more; both: more; more than there." in text
    assert str(tmp_path) not in page.read_text(encoding="utf-8").replace(str(page), "").replace(written(tmp_path), "")


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (HERE, AWAY):
        trace_at(tmp_path / "traces" / name)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "traces"))
    (result,) = reproduce([written(tmp_path)], workers=1).experiments
    assert sorted(result.traces) == sorted([HERE, AWAY])
    assert len(result.claims) == 4
    assert not result.missing
    assert result.claims[2].printed is not None


def test_without_a_folder_nothing_is_run_and_nothing_judged(tmp_path: Path) -> None:
    found = reproduce([written(tmp_path)], quick=True, workers=1, out=tmp_path / "out")
    (result,) = found.experiments
    assert result.settings == ()
    assert result.claims == ()
    assert not any(result.verdicts.values())
    assert len(result.without_data) == 4
    assert result.data == "raw traces: none of them is there"
    told = f"{HERE}: there is no traces folder (set BERTH_TRACES or --traces)"
    assert told in result.not_run
    assert f"Not run: {told}." in render_markdown(found, "x")
    assert told in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_whole_path_needs_no_folder(tmp_path: Path) -> None:
    file = str(trace_at(tmp_path / "mine.csv"))
    claims = [{**TRACED["claims"][0], "where": {"trace": file}}]
    (result,) = reproduce(
        [written(tmp_path, parts=[{"trace": file}], claims=claims)], quick=True, workers=1
    ).experiments
    assert list(result.traces) == [file]
    assert len(result.claims) == 1


def test_a_wrong_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere, out = str(tmp_path / "nowhere"), tmp_path / "out"
    assert main(["reproduce", written(tmp_path), "--out", str(out), "--traces", nowhere, *QUICK]) == 2
    error = capsys.readouterr().err
    assert "--traces" in error
    assert nowhere in error
    monkeypatch.setenv(VARIABLE, nowhere)
    assert main(["reproduce", written(tmp_path), "--out", str(out), *QUICK]) == 2
    assert f"{VARIABLE}: got {nowhere!r}, expected a folder" in capsys.readouterr().err
    assert not out.exists()
    with pytest.raises(InvalidInput, match="expected a folder"):
        traces_folder(trace_at(tmp_path / "a-file.csv"))


def test_a_bad_file_is_named_once_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "traces" / HERE
    bad.parent.mkdir(parents=True)
    bad.write_text("submit_s,run_s,cpu[core]\nsoon,3,1\n", encoding="utf-8")
    words = ["reproduce", written(tmp_path), "--out", str(tmp_path / "out"), *QUICK]
    assert main([*words, "--traces", str(tmp_path / "traces")]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert "here.csv" in error
    assert "experiment own" in error
    assert not (tmp_path / "out").exists()


def point(scenario: str, **changes: Any) -> Setting:
    experiment = Experiment.model_validate(
        {
            **TRACED,
            "name": "x",
            "paper": "drl-greedy",
            "sweep": {"scenario": scenario, "set": changes, "policies": ["greedy", "first-fit"], "seeds": 2},
            "parts": [{"trace": HERE}],
            "claims": [{"says": "more", "over": "first-fit", "direction": "more"}],
        }
    )
    (only,) = settings_of(experiment)
    return only


@examples(25)
@given(st.integers(50, 400), st.floats(0.5, 5), st.integers(1, 10), st.floats(0.1, 1e4))
def test_tasks_come_as_often_as_jobs_of_the_trace(
    tmp_path_factory: pytest.TempPathFactory, jobs: int, mean: float, horizon: int, gap: float
) -> None:
    folder = tmp_path_factory.mktemp("traces")
    trace_at(folder / HERE, jobs, gap=gap)
    (found,) = find_traces([point("drl-small", **{"horizon": horizon, "arrivals.mean": mean})], folder).settings
    sizes = found.changes["arrivals.sizes"]
    assert len(sizes) == horizon
    assert abs(sum(sizes) - mean * horizon) <= 2  # equal gaps: as many as the mean says, but for the ends
    assert max(sizes) - min(sizes) <= 2
    world = load_scenario(found.scenario, found.changes).build(0, True)
    assert np.bincount(world.tasks.arrival.astype(int), minlength=horizon).tolist() == sizes


def test_too_short_a_trace_and_a_scenario_that_cannot_play_one(tmp_path: Path) -> None:
    trace_at(tmp_path / HERE, jobs=5)
    with pytest.raises(InvalidInput, match=r"here\.csv: got 5 jobs, expected a trace of at least"):
        find_traces([point("drl-default")], tmp_path)
    with pytest.raises(InvalidInput, match="a scenario with a workload, or of the placement family"):
        find_traces([point("small")], tmp_path)
