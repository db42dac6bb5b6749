"""`--config FILE`: read as meant, or refused with the file, the place, and what was expected, in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest

from berth.errors import InvalidInput
from berth.live.service.serving import Config, read_config


def settings_of(text: str, folder: Path) -> Config:
    file = folder / "berth.yaml"
    file.write_text(text, encoding="utf-8")
    return read_config(file)


def test_a_file_of_settings(tmp_path: Path) -> None:
    text = "{port: 9000, faster: 60, tick: 0.5, names: [lab], queues: {queues: {default: {}, night: {priority: -5}}}}"
    settings = settings_of(text, tmp_path)
    assert (settings.faster, settings.tick, settings.port, list(settings.names)) == (60, 0.5, 9000, ["lab"])
    assert settings.queues is not None
    assert settings.queues.queues["night"].priority == -5
    assert settings_of("", tmp_path) == Config()


def test_the_ceilings_of_the_page_on_security(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
    settings = settings_of(page.split("```yaml\n")[1].split("```")[0], tmp_path)
    assert settings.queues is not None
    urgent = settings.queues.queues["urgent"]
    assert (urgent.max_priority, urgent.users, urgent.teams) == (10, ("ann",), ("oncall",))
    assert settings.queues.members == {"oncall": ("bob", "carol"), "vision": ("ann",)}


def test_a_file_that_the_engine_reads_is_relative_to_the_configuration(tmp_path: Path) -> None:
    assert settings_of("engine: slurm:slurm.yaml", tmp_path).engine == f"slurm:{tmp_path}/slurm.yaml"
    assert settings_of("engine: slurm:/etc/slurm.yaml", tmp_path).engine == "slurm:/etc/slurm.yaml"
    assert settings_of("engine: simulated:unix:s", tmp_path).engine == f"simulated:unix:{tmp_path}/s"
    assert settings_of("engine: simulated", tmp_path).engine == "simulated"
    given = {"engine": "slurm:slurm.yaml", "tick": None, "port": 0}
    config = read_config(tmp_path / "berth.yaml", given)
    assert (config.engine, config.port) == ("slurm:slurm.yaml", 0)
    with pytest.raises(InvalidInput, match=r"^port: got -1, expected a port"):
        read_config(tmp_path / "berth.yaml", {"port": -1})
    with pytest.raises(
        InvalidInput, match=r"berth.yaml:1: engine: got 'slrum', expected one of .*did you mean 'slurm'"
    ):
        settings_of("engine: slrum", tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot: 1", ":1: prot: got an unknown key, expected another"),
        ("prot: 1", "; did you mean 'port'?"),
        ("port: high", "port: got 'high', expected a port from 0 to 65535"),
        ("port: 70000", "port: got 70000, expected a port from 0 to 65535"),
        ("faster: true", "faster: got True, expected a number"),
        ("store: 5", "store: got 5, expected a text"),
        ("names: lab", "names: got 'lab', expected a list of texts"),
        ("show_commands: 1", "show_commands: got 1, expected true or false"),
        ("tick: 0", "tick: got 0, expected a number ≥ 0.001"),
        ("queues: {}", "queues.queues: got nothing, expected this key"),
        ("queues: 5", "queues: got 5, expected a mapping"),
        ("queues: {queues: {a: {prio: 1}}}", "queues.queues.a.prio: got an unknown key, expected one of accepts, "),
        ("queues: {queues: {a: {prio: 1}}}", "; did you mean 'priority'?"),
        ("queues: {queues: {'a b': {}}}", "expected letters, digits and . _ @ -"),
        ("queues: {queues: {a: {limit: {gpu: many}}}}", "limit.gpu: got 'many', expected a quantity such as 2, 500m"),
        ("queues: {queues: {a: {}}, quotas: {vision: {gpu: 1}}}", "vision"),
        ("queues: {queues: {a: {}}, aging: -1}", "queues.aging: got -1, expected a number ≥ 0"),
        ("queues: {queues: {a: {teams: [x]}}}", "queues.a.teams: got 'x', expected a team with members: there is none"),
        ("[1, 2]", "expected a mapping (key: value)"),
        ("port: [", "expected YAML"),
        ("port: 1\ntick: 1\nport: 2", ":3: port: got the same key again, expected each key once (it is on line 1)"),
        ("port: 1\nqueues:\n  queues:\n    a: {prio: 1}", ":4: queues.queues.a.prio: got an unknown key"),
    ],
)
def test_bad_settings_are_told_in_plain_words(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        settings_of(text, tmp_path)
    assert str(caught.value).startswith(str(tmp_path / "berth.yaml"))
    assert said in str(caught.value)
    for foreign in ("Input should", "permitted", "valid dictionary", "match pattern", "Field required"):
        assert foreign not in str(caught.value)
