from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import berth
from berth.cli import main
from berth.cli.common import complete_policy, complete_scenario
from berth.errors import UnknownName

ROOT = Path(__file__).parents[2]
TINY = ["--set", "horizon=15", "--set", "cluster.servers=4", "--oracle", "none", "--workers", "1", "--quiet"]
HEAVY = ("numpy", "numba", "scipy", "polars", "matplotlib", "rich", "yaml", "ray", "pandas")


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"berth {berth.__version__}"
    for words in ([], ["--help"], ["compare", "-h"], ["scenarios", "--help"]):
        assert main(words) == 0
        assert "Usage: berth" in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    commands = ["", "compare", "replay", "sweep", "trace check", "scenarios"]
    code = (
        f"import sys; from berth.cli import main\nfor command in {commands}:\n"
        f"    main([*command.split(), '--help']); print(command, [m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    for command in commands:
        assert any(line.startswith(f"Usage: berth {command}".rstrip()) for line in lines)
        assert f"{command} []" in lines, command


def test_completion_imports_nothing_heavy() -> None:
    code = (
        "import sys; from berth.cli.common import complete_policy, complete_scenario;"
        "print(complete_policy('fair'), complete_scenario('smal')[0][0]);"
        "print([m for m in ('numpy', 'numba', 'polars', 'matplotlib', 'pydantic', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['fairness'] small", "[]"]
    assert "drf" in complete_policy("")
    assert dict(complete_scenario("de")).keys() == {"demo"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "smal"], "did you mean 'small'"),
        (["compare", "small", "--policy", "farness"], "did you mean 'fairness'"),
        (["compare", "small", "--policy", "ogasched:stp=1"], "did you mean 'step'"),
        (["compare", "small", "--baseline", "nobody"], "unknown policy 'nobody'"),
        (["compare", "small", "--set", "horizn=3"], "horiz"),
        (["compare", "small", "--set", "horizon"], "key=value"),
        (["compare", "small", "--set", "horizon=-1"], "horizon"),
        (["compare", "small", "--seeds", "0"], "--seeds"),
        (["compare", "small", "--seeds", "many"], "--seeds"),
        (["compare", "small", "--seeds", "2", "--seed", "1"], "not both"),
        (["compare", "small", "--workers", "0"], "--workers"),
        (["compare", "small", "--arrivals", "sometimes"], "--arrivals"),
        (["compare", "small", "--oracle", "delphi"], "unknown oracle"),
        (["compare", "small", "-o", "xml"], "xml"),
        (["compare"], "SCENARIO"),
        (["compare", "no/such/file.yaml"], "no/such/file.yaml"),
        (["compare", "small", "--policy", "ogasched-aware", "--arrivals", "hidden"], "needs arrivals revealed"),
        (["frobnicate"], "frobnicate"),
        (["scenarios", "show", "smal"], "did you mean 'small'"),
        (["explain", "train-1"], "Did you mean 'berth job explain'?"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("berth: error: ")
    assert said.lower() in lines[0].lower()


def test_a_directory_with_other_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    assert main(["compare", "small", "--out", str(tmp_path)]) == 2
    assert "holds other files" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--debug", "compare", "smal"], ["compare", "smal", "--debug"]])
def test_debug_shows_where_it_comes_from(words: list[str]) -> None:
    with pytest.raises(UnknownName):  # of which Python prints a traceback
        main(words)


def test_compare_as_json_is_only_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ["compare", "small", "-p", "fairness", "-p", "drf", "--seeds", "2", *TINY, "-o", "json", "--out", str(out)]
    assert main([word for word in words if word != "--quiet"]) == 0
    shown = capsys.readouterr()

    def refuse(text: str) -> float:
        raise AssertionError(f"{text} in JSON")

    found = json.loads(shown.out, parse_constant=refuse)
    assert {row["information"] for row in found["summary"]} == {"hidden", "revealed"}
    assert found["cells"] == {"computed": 8, "reused": 0, "failed": 0}
    assert "8 cells" in shown.err
    assert (out / "report.html").exists()


def test_compare_as_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for width in ("60", "140"):
        monkeypatch.setenv("COLUMNS", width)
        assert main(["compare", "small", "-p", "fairness", "-p", "drf", "--seeds", "2", *TINY]) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        assert "Arrivals hidden until the decision" in shown.out
        assert "Arrivals revealed before the decision" in shown.out
        assert max(map(len, shown.out.splitlines())) <= int(width)


def test_failed_cells_are_told_and_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "small", "-p", "fairness", "-p", "tests.lab.policies:Fails", "--seed", "3", *TINY]
    assert main(words) == 1
    shown = capsys.readouterr()
    assert "fairness" in shown.out
    assert "berth: failed: tests.lab.policies:Fails, seed 3, arrivals hidden: ValueError" in shown.err
    assert "Traceback" not in shown.err
    assert main([*words, "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies", "-o", "json"]) == 0
    listed = {item["name"]: item for item in json.loads(capsys.readouterr().out)}
    assert listed["fairness"]["source"] == "builtin"
    assert listed["fairness"]["summary"].startswith("Proportional shares")
    assert listed["ogasched-printed"]["settings"] == {"step": 25.0, "decay": 0.9999, "zero_dropped": False}
    assert all(item.keys() == listed["fairness"].keys() for item in listed.values())
    assert main(["policies"]) == 0
    assert "fairness" in capsys.readouterr().out


def test_scenarios(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios"]) == 0
    assert "small" in capsys.readouterr().out
    assert main(["scenarios", "-o", "json"]) == 0
    assert {"demo", "small"} <= {item["name"] for item in json.loads(capsys.readouterr().out)}
    assert main(["scenarios", "show", "small"]) == 0
    assert "extends: ogasched-default" in capsys.readouterr().out
    assert main(["scenarios", "show", "small", "--full"]) == 0
    assert "overhead" in capsys.readouterr().out
    assert main(["scenarios", "show", "small", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "small"
    assert main(["scenarios", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "berth scenario"


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's own words and files; on a smaller scenario, so that it takes no time."""
    import berth.lab.compare as lab

    real = lab.compare
    monkeypatch.setattr(
        lab,
        "compare",
        lambda name, **more: real(
            name, ["fairness", "drf"], 1, oracles=[], overrides={"horizon": 10, "cluster.servers": 4}, **more
        ),
    )
    assert main(["demo", "--out", str(tmp_path / "demo"), "--workers", "1", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert str(tmp_path / "demo" / "report.html") in shown.replace("\n", "")
    assert (tmp_path / "demo" / "report.html").exists()
    assert "Next:" in shown
