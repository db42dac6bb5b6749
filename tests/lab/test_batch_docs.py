"""The pages on replays: what they show is what the command prints; one tells of every policy and number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from berth.cli import main
from berth.families import BUILTIN, PRIORITIES
from berth.lab.replay import ReplaySetting, replay

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "batch.md").read_text(encoding="utf-8")
ANY_LOG = (ROOT / "docs" / "any-log.md").read_text(encoding="utf-8")
CONSOLE = re.compile(r"```console\n\$ berth (.*?)\n(.*?)```", re.DOTALL)
SHOWN = CONSOLE.findall(PAGE)
MORE = CONSOLE.findall(ANY_LOG)


def test_the_example_is_the_file() -> None:
    for name in ("mixed-speeds.yaml", "mixed-service.yaml"):
        assert f"```yaml\n{(ROOT / 'examples' / name).read_text()}```" in ANY_LOG
    assert re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) == [(ROOT / "examples" / "batch.swf").read_text()]


@pytest.mark.parametrize(("command", "printed"), SHOWN + MORE, ids=[command for command, _ in SHOWN + MORE])
def test_what_is_shown_is_printed(
    command: str, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)
    assert main([*command.split(), "-q"]) == 0
    assert capsys.readouterr().out == printed


def test_every_queue_policy_and_number_is_told() -> None:
    assert (len(SHOWN), len(MORE)) == (4, 2)
    told = {
        name
        for line in re.findall(r"^((?:`[a-z0-9-]+`(?:, )?)+) — ", PAGE, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", line)
    }
    assert told >= {"fcfs", "sjf", "easy", "conservative", "best-fit", "tetris", "drf-placement", "fgd"}
    assert told >= {name.lower() for name in PRIORITIES}
    assert told <= BUILTIN.keys()
    row = replay(ROOT / "examples" / "batch.swf", ["fcfs"], ReplaySetting(processors=8)).rows[0]
    for name in row.keys() - {"policy", "jobs", "owners"}:
        general = re.sub(r"^(mean|p\d\d|max)_", "…_", name)
        assert f"`{name}`" in PAGE or f"`{general}`" in PAGE or name == "resource"
