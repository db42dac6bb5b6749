"""Documents and metadata name every engine that berth drives, and pages do not contradict themselves or the code."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from berth.cli import app
from berth.live.engines.registry import BUILTIN

ROOT = Path(__file__).parents[2]


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def engine_help() -> str:
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    (option,) = [one for one in command.params if one.name == "engine"]
    return str(option.help)


PLACES: dict[str, Callable[[], str]] = {
    "README.md": lambda: read("README.md").partition("## Install")[0],
    "docs/index.md": lambda: read("docs/index.md").partition("## The scheduler")[2].partition("</div>")[0],
    "pyproject.toml": lambda: tomllib.loads(read("pyproject.toml"))["project"]["description"],
    "keywords": lambda: " ".join([*tomllib.loads(read("pyproject.toml"))["project"]["keywords"], "simulated"]),
    "CITATION.cff": lambda: yaml.safe_load(read("CITATION.cff"))["abstract"],
    "serve --engine": engine_help,
    "bug template": lambda: read(".github/ISSUE_TEMPLATE/bug.md"),
    "start-scheduler.md": lambda: read("docs/start-scheduler.md").partition("## Next")[2] + "simulated",
}


@pytest.mark.parametrize("place", PLACES)
def test_every_engine_is_named(place: str) -> None:
    text = PLACES[place]().lower()
    wanted = set(BUILTIN) - ({"simulated"} if place == "pyproject.toml" else set())
    assert wanted <= set(re.findall(r"\w+", text))


def test_the_policy_that_the_start_page_suggests_gains_something_there() -> None:
    page = read("docs/start-scheduler.md").partition("## Try another policy")[2].partition("\n## ")[0]
    assert "equal servers" not in page
    gained = re.search(r"^  turnaround: .*, by job (\S+) s \((\S+) to (\S+)\)$", page, re.MULTILINE)
    assert gained is not None
    assert all(float(number) < 0.0 for number in gained.groups())


def test_decisions_give_each_reason_once() -> None:
    words = re.findall(r"[\w'-]+", read("docs/design.md").lower())
    runs = [" ".join(words[at : at + 6]) for at in range(len(words) - 5)]
    assert sorted({run for run in runs if runs.count(run) > 1}) == []


def test_the_rule_of_waiting_is_said_as_it_is() -> None:
    """`berth.live.core.drivers.deferral`: the time that a job has waited does not count."""
    (reason,) = re.findall(r"^\* \*\*Jobs wait for faster servers.*?(?=^\* |^## )", read("docs/design.md"), re.M | re.S)
    assert "while the time it has waited" not in reason
    assert re.search(r"time it has already waited does not\s+count", reason)


def test_that_tasks_of_the_measurements_sleep_is_said_first() -> None:
    page = read("docs/real-clusters.md").splitlines()
    assert page[2].startswith("Real daemons, tasks that sleep")
    assert re.search(r"real-clusters\.md\) \(real daemons,\s+tasks that sleep\)", read("README.md"))
