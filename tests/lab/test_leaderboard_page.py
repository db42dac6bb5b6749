"""The leaderboard in the documentation is that of the scenarios and policies there are."""

from __future__ import annotations

import re
from pathlib import Path

from berth.families import FAMILIES
from berth.lab.leaderboard import BOARDS, policies_of

ROOT = Path(__file__).parents[2]


def test_the_page_of_the_documentation_is_of_this_list() -> None:
    page = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    assert "quick version" not in page
    assert re.findall(r"^### (\S+)$", page, re.MULTILINE) == [b.scenario for found in BOARDS.values() for b in found]
    for family, found in BOARDS.items():
        assert f"## {family.capitalize()}\n\nBaseline: `{FAMILIES[family].lab.baseline}`." in page
        section = page.split(f"## {family.capitalize()}\n")[1].split("\n## ")[0]
        for board in found:
            part = section.split(f"### {board.scenario}\n")[1].split("\n### ")[0]
            assert f"Played: {board.slots} slots." in part
            refused = " ".join(line.replace("Not here: ", "; ") for line in part.splitlines() if "Not here: " in line)
            for policy in policies_of(family):
                assert f"| `{policy}`" in part or f"; {policy}" in refused, (board.scenario, policy)
