"""The leaderboard in the documentation is that of the scenarios and policies there are."""

from __future__ import annotations

import re
from pathlib import Path

from berth.lab.leaderboard import BOARDS
from berth.lab.run.sweep import load_sweep

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_documentation_is_of_this_list() -> None:
    page = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    assert "quick version" not in page
    boards = {family: load_sweep(file) for family, file in BOARDS.items()}
    points = [point for board in boards.values() for point in board.points]
    assert re.findall(r"^### (\S+)$", page, re.MULTILINE) == [point["scenario"] for point in points]
    for family, board in boards.items():
        assert f"## {family.capitalize()}\n\nBaseline: `{board.baseline}`." in page
        section = page.split(f"## {family.capitalize()}\n")[1].split("\n## ")[0]
        for point in board.points:
            part = section.split(f"### {point['scenario']}\n")[1].split("\n### ")[0]
            assert f"Played: {point['horizon']} slots." in part
            refused = " ".join(line.replace("Not here: ", "; ") for line in part.splitlines() if "Not here: " in line)
            for policy in board.policies or ():
                assert f"| `{policy}`" in part or f"; {policy}" in refused, (point["scenario"], policy)
