"""Files for those who run it: what they name is there."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from typer.main import get_command

from berth.cli import app
from berth.live.core.events import Decided, Failed, Finished, Start, Started, Submitted
from berth.live.core.jobs import Place
from berth.live.engines.slurm import SlurmSettings
from berth.live.service.metrics import Metrics
from tests.live.core.builders import dispatcher, job, server

DEPLOY = Path(__file__).parents[3] / "deploy"
AGGREGATE = re.compile(r"\bberth_[a-z_]+")


@pytest.fixture(scope="module")
def told() -> dict[str, tuple[str, set[str]]]:
    """Every series that Prometheus sees after a few jobs: its type, and its labels."""
    made = dispatcher(server("a"))
    metrics = Metrics(made.state)
    decided = Decided(1.0, "best-fit", (Start("j", 1, (Place("a", "main", 1),)),), 1, 0.01)
    refused = Decided(1.0, "best-fit", (Start("k", 1, (Place("a", "main", 1),)),), 1, 0.01, "late: too slow")
    for event in (
        Submitted(0.0, job("j")),
        Submitted(0.0, job("k")),
        Submitted(0.0, job("w")),
        decided,
        refused,
        Started(1.0, "j", 1),
        Started(1.0, "k", 1),
        Finished(2.0, "j", 1, 1.0),
        Failed(2.0, "k", 1, "oops", "job"),
    ):
        made.handle(event)
        metrics.note(event)
    body, _ = metrics.render("application/openmetrics-text")
    found: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            kind, labels = found.get(sample.name, (family.type, set()))
            found[sample.name] = kind, labels | set(sample.labels)
    return found


def queries() -> list[tuple[str, str]]:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]


@pytest.mark.parametrize(("title", "query"), queries())
def test_what_is_drawn_is_told(told: dict[str, tuple[str, set[str]]], title: str, query: str) -> None:
    names = AGGREGATE.findall(query)
    assert names, title
    for name in names:
        assert name in told, f"{title}: there is no {name}"
        kind, labels = told[name]
        over_time = re.search(rf"rate\({name}\{{", query) is not None
        assert over_time == (kind in ("counter", "histogram")), f"{title}: {name} is a {kind}"
        inside = re.search(rf"{name}\{{([^}}]*)\}}", query)
        asked = {part.split("=", 1)[0].rstrip("!~") for part in inside[1].split(",")} if inside else set()
        by = re.search(rf"by \(([^)]*)\) \((?:rate\()?{name}", query)
        asked |= {label.strip() for label in by[1].split(",")} if by else set()
        assert asked <= labels | {"instance"}, f"{title}: {name} has no such label"
    if "histogram_quantile" in query:
        assert names[0].endswith("_bucket")


def test_everything_that_is_told_is_drawn(told: dict[str, tuple[str, set[str]]]) -> None:
    drawn = " ".join(query for _, query in queries())
    families = {re.sub(r"_(total|bucket|sum|count|created|info)$", "", name) for name in told}
    assert [name for name in sorted(families) if name not in drawn] == []


def test_panels_lie_beside_each_other() -> None:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_prometheus_asks_where_the_service_answers() -> None:
    from berth.live.service.serving import Address

    config: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    scrape = config["scrape_configs"][0]
    assert scrape["metrics_path"] == "/metrics"
    assert scrape["static_configs"][0]["targets"] == [f"127.0.0.1:{Address().port}"]


def test_the_unit_runs_a_command_that_there_is() -> None:
    unit = read_unit("berth.service")
    program, command, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "berth"
    commands: Any = get_command(app)
    known = {option for parameter in commands.commands[command].params for option in parameter.opts}
    assert {word for word in arguments if word.startswith("-")} <= known


def read_unit(*names: str) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    for name in names:
        with (DEPLOY / name).open(encoding="utf-8") as file:
            unit.read_file(file)
    return unit


def test_the_unit_for_several_users_of_slurm_can_run_jobs_as_them(tmp_path: Path) -> None:
    """A dynamic user can neither run jobs as others nor let them reach its state directory."""
    assert read_unit("berth.service")["Service"]["DynamicUser"] == "yes"
    service = read_unit("berth.service", "slurm-users.conf")["Service"]
    assert (service["DynamicUser"], service["User"]) == ("no", "root")
    assert set(service["CapabilityBoundingSet"].split()) == {"CAP_CHOWN", "CAP_DAC_OVERRIDE"}
    assert (service["StateDirectory"], service["StateDirectoryMode"]) == ("berth", "0755")
    assert SlurmSettings(users=True).outputs.is_relative_to(Path("/var/lib") / service["StateDirectory"])
    if shutil.which("systemd-analyze") is None:
        return
    text = (DEPLOY / "berth.service").read_text(encoding="utf-8")
    (tmp_path / "berth.service").write_text(text.replace("/opt/berth/bin/berth", "/bin/true"))
    (tmp_path / "berth.live.service.d").mkdir()
    shutil.copy(DEPLOY / "slurm-users.conf", tmp_path / "berth.live.service.d")
    words = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "berth.service")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert "berth.service" not in done.stderr, done.stderr
