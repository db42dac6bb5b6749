"""Changed verdicts between two runs: from results and from pages, with the reason of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from berth import cli
from berth.errors import InvalidInput
from scripts.verdicts import REASONS, changed_verdicts, main, render_changes

PAGE = """# The papers, reproduced

### Fig. 2: A figure

**2 reproduced** · `berth reproduce ogasched/fig-2` · data: synthetic · 8 seeds

| claim | the paper says | as printed | unchecked | berth's best | verdict | with berth's best |
|---|---|---|---|---|---|---|
| stays | +11.3 % | −17.4 % ± 1.8 | – | +2.0 % ± 1.0 | refuted | direction only |
| by the rule | more | −17.4 % ± 1.8 | – | – | not reproduced | – |
| no discovery | more | −3.4 % ± 0.8 | – | – | refuted | – |
| wider | more | +3.0 % ± 1.0 | – | – | reproduced | – |
| elsewhere | more | −17.4 % ± 1.8 | – | – | not reproduced | – |
| open | more | +3.0 % ± 1.0 | – | – | reproduced | – |
| \\|x\\| is gone | the same | – | – | – | undecided | – |
"""


def claim(says: str, verdict: str, low: float, high: float, paper: Any = "more") -> dict[str, Any]:
    effect = {"mean": (low + high) / 2, "low": low, "high": high, "seeds": 12}
    return {"says": says, "paper": paper, "printed": effect, "verdict": verdict}


CLAIMS = [
    claim("stays", "refuted", -0.2, -0.1, 0.113),
    claim("by the rule", "refuted", -0.2, -0.1),
    claim("no discovery", "undecided", -0.05, -0.01),
    claim("wider", "undecided", -0.01, 0.05),
    claim("elsewhere", "reproduced", 0.1, 0.2),
    claim("open", "cannot be judged", 0.02, 0.04),
    claim("added", "reproduced", 0.1, 0.2),
]
EXPECTED = {
    "by the rule": "rule",
    "no discovery": "discoveries",
    "wider": "interval",
    "elsewhere": "effect",
    "open": "unclear",
    "added": "new",
    "|x| is gone": "gone",
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    old, new = tmp_path / "old.md", tmp_path / "new.json"
    old.write_text(PAGE, encoding="utf-8")
    results = {"experiments": [{"experiment": "ogasched/fig-2", "claims": CLAIMS}]}
    new.write_text(json.dumps(results), encoding="utf-8")
    return old, new


def test_every_change_has_its_reason(files: tuple[Path, Path]) -> None:
    found = changed_verdicts(*files)
    assert {one.says: one.reason for one in found} == EXPECTED
    assert set(EXPECTED.values()) == set(REASONS)
    assert (found[0].effect_before, found[0].before, found[0].after) == (-0.174, "not reproduced", "refuted")
    assert changed_verdicts(files[0], files[0]) == changed_verdicts(files[1], files[1]) == []


def test_experiments_that_were_not_run_again_did_not_change(files: tuple[Path, Path]) -> None:
    old, new = files
    old.write_text(PAGE + PAGE.replace("ogasched/fig-2", "ogasched/fig-5"), encoding="utf-8")
    assert {one.says: one.reason for one in changed_verdicts(old, new)} == EXPECTED


def test_what_a_page_adds_to_a_claim_is_no_other_claim(files: tuple[Path, Path]) -> None:
    old, new = files
    old.write_text(PAGE.replace("| open |", "| open (the paper names no unit) |"), encoding="utf-8")
    assert {one.says: one.reason for one in changed_verdicts(old, new)} == EXPECTED


def test_the_script_prints_and_writes_them(files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    old, new = files
    docs = old.with_name("changes.md")
    words = [str(old), str(new)]
    assert main([*words, "--docs", str(docs)]) == 0
    text = docs.read_text(encoding="utf-8")
    assert text == render_changes(changed_verdicts(old, new))
    assert "| ogasched/fig-2 | by the rule | not reproduced (−17.4 %) | refuted (−15.0 %) | rule |" in text
    assert "\\|x\\| is gone" in text
    assert main(words) == 0
    assert "7 verdicts changed." in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([str(docs), str(new)])
    assert "expected results.json" in capsys.readouterr().err


def test_the_removed_command_names_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["reproduce", "changes", "old.md", "new.json"]) == 2
    assert "python -m scripts.verdicts OLD NEW" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "text"), [("a.json", "[]"), ("a.json", "{"), ("a.md", "# nothing"), ("a.md", None)])
def test_other_files_are_refused(tmp_path: Path, name: str, text: str | None) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput):
        changed_verdicts(path, path)
