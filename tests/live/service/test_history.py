"""A service's own history as a workload to train on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from berth.cli import main
from berth.errors import InvalidInput
from berth.live.client import Client
from berth.live.history import service_trace
from berth.scenario import load_scenario
from tests.live.service.live import Live, serving


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service in which 60 gangs have come and ended."""
    with serving(tmp_path_factory.mktemp("history"), "--faster", "20000", "--open") as found:
        for i in range(60):
            job = {"name": f"j{i}", "type": f"t{i % 3}", "tasks": 1 + i % 4, "resources": {"cpu": 1 + i % 2}}
            found.ask("POST", "/v1/jobs", {**job, "work": f"{1 + i % 5}h", "estimate": "6h"})
            time.sleep(0.02)
        found.wait_for("/v1/jobs?phase=finished&limit=1000", lambda page: len(page["jobs"]) == 60)
        yield found


def test_a_history_is_a_trace_of_its_jobs_and_servers(live: Live) -> None:
    trace = service_trace(Client(live.url))
    assert len(trace) == 60
    (one,) = trace.jobs.filter(trace.jobs["job"] == "j5").rows(named=True)
    assert {name: one[name] for name in ("pieces", "cpu", "memory", "estimate_s", "kind")} == {
        "pieces": 2,
        "cpu": 2.0,
        "memory": 0.0,
        "estimate_s": 21600.0,
        "kind": "t2",
    }
    told = live.ask("GET", "/v1/jobs/j5")
    seconds = [datetime.fromisoformat(told[name]).timestamp() for name in ("submitted", "started", "ended")]
    assert [one["wait_s"], one["run_s"]] == pytest.approx([seconds[1] - seconds[0], seconds[2] - seconds[1]])
    assert trace.jobs["submit_s"].min() == 0.0
    assert trace.machines["cpu"].to_list() == [16.0] * 4 + [32.0] * 4
    assert [resource.unit for resource in trace.resources if resource.name == "gpu"] == ["device"]


def test_a_policy_is_trained_on_it_and_the_same_command_goes_on(
    live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--from", live.url, "--objective", "completion", "--runs", "1", "--pairs", "2", "--steps", "2"]
    assert main([*words, "--out", str(tmp_path / "out"), "-o", "json", "-q"]) == 0
    trained = json.loads(capsys.readouterr().out)
    assert trained["steps"] == 2
    made = (tmp_path / "out" / "history.csv").stat().st_mtime_ns
    world = load_scenario(tmp_path / "out" / "history.yaml").build(seed=0)
    assert len(world.problem.speed) == 8
    assert main([*words, "--out", str(tmp_path / "out"), "-o", "json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out) == trained
    assert (tmp_path / "out" / "history.csv").stat().st_mtime_ns == made


def test_too_few_jobs_and_no_scenario_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["train", "--out", str(tmp_path / "out")]) == 2
    assert "got neither, expected a scenario, or --from URL" in capsys.readouterr().err
    monkeypatch.setattr(Client, "get", lambda *_, **__: {"jobs": [], "after": None})
    with pytest.raises(InvalidInput, match="got 0, expected a service with 50 finished jobs or more"):
        service_trace(Client("http://127.0.0.1:1"))


def test_jobs_that_all_come_at_once_are_not_repeated_without_end(tmp_path: Path) -> None:
    rows = "".join(f"{i},0,60,1,1\n" for i in range(50))
    (tmp_path / "burst.csv").write_text(f"job,submit_s,run_s,pieces,cpu[core]\n{rows}")
    (tmp_path / "burst.machines.csv").write_text("machine,count,cpu[core]\nm,2,4\n")
    (tmp_path / "burst.yaml").write_text(
        "family: placement\nhorizon: 50\nworkload: {trace: burst.csv, slot_seconds: 60}\ntasks: {power: 0.5}\n"
    )
    with pytest.raises(InvalidInput, match="expected jobs that come over a longer time"):
        load_scenario(tmp_path / "burst.yaml").build(seed=0)
