"""The page on papers: every command runs, in the order of the page, on a small log."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from berth.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "paper.md").read_text(encoding="utf-8")
SMALLER = {
    "--jobs 30000": "--jobs 400",
    "20 --window-jobs 1000": "3 --window-jobs 60",
    "20 --first 1000": "3 --first 60",
    "windows: 20, window_jobs: 1000": "windows: 3, window_jobs: 60",
    "[0.5, 0.6, 0.7, 0.8, 0.9]": "[0.5, 0.9]",
    "--out loads": "--out loads --workers 1",
}
FILE = re.compile(r"cat > (\S+) <<'EOF'\n(.*?)EOF\n", re.DOTALL)


def test_every_command_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "".join(re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
    for long, short in SMALLER.items():
        assert long in text
        text = text.replace(long, short)
    monkeypatch.chdir(tmp_path)
    for file, content in FILE.findall(text):
        Path(file).write_text(content)
    ran: list[tuple[str, str]] = []
    for line in FILE.sub("", text).replace("\\\n", " ").splitlines():
        program, *words = shlex.split(line)
        assert program == "berth"
        words, target = (words[:-2], words[-1]) if words[-2:-1] == [">"] else (words, None)
        assert main(words) == 0, line
        shown = capsys.readouterr().out
        ran.append((words[0], shown))
        if target:
            Path(target).write_text(shown)
    assert [name for name, _ in ran] == ["workload", "trace", "replay", "replay", "replay", "sweep", "replay"]
    assert "Holm's correction for 9 differences" in " ".join(ran[3][1].split())
    assert Path("table.tex").read_text().count(r"\begin{tabular}") == 2
    for made in ("look/report.html", "table/report.html", "loads/report.html", "loads/plots/curves-load.svg"):
        assert Path(made).is_file()
