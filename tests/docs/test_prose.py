"""The checks of prose and links find what they should, and let legitimate text pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import links, prose

PHRASES = prose.read_phrases(prose.PHRASES.read_text(encoding="utf-8"))


def lines(tmp_path: Path, name: str, text: str) -> list[tuple[int, str]]:
    """(line, words) of the phrases that are found in a file with this text."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return [(finding.line, finding.words.lower()) for finding in prose.search(path, PHRASES, tmp_path)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one\nWhoever asks", [(2, "whoever")]),
        ("a job is so\n  many pieces", [(1, "so many")]),
        ("so many jobs that they wait", []),
        ("0.7 jobs where left out", [(1, "where left out")]),
        ("Forecasts are held to what came.", [(1, "are held to"), (1, "held to what came")]),
        ("they are held together; rows are left out and counted", []),
        ("the event `foretold`", []),
        ("```text\nwhat came of it\n```\nwhat came of it", [(4, "what came of")]),
    ],
)
def test_pages(tmp_path: Path, text: str, words: list[tuple[int, str]]) -> None:
    assert sorted(lines(tmp_path, "page.md", text)) == words


def test_sources(tmp_path: Path) -> None:
    source = (
        '"""Whoever."""\n\ndef run(x=Option(help="so many")):\n    """One.\n\n    Somebody.\n    """\n'
        '    return "whoever"  # whoever\n\nFIELD = 1\n"""Commonest."""\n'
    )
    found = [(1, "whoever"), (3, "so many"), (6, "somebody"), (11, "commonest")]
    assert sorted(lines(tmp_path, "source.py", source)) == found


def test_the_debt_list_shrinks() -> None:
    listed = "# why\na.md: whoever\nb.md: so many\n"
    assert prose.read_debt(listed) == {("a.md", "whoever"), ("b.md", "so many")}
    assert prose.prune(listed, {("a.md", "whoever")}) == "# why\nb.md: so many\n"


def test_links(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "b.md").write_text("# Title\n\n## What it *does*, twice\n\n## Title\n", encoding="utf-8")
    page = tmp_path / "a.md"
    page.write_text(
        "# A\n[here](#a) [b](docs/b.md) [does](docs/b.md#what-it-does-twice) [again](docs/b.md#title_1)\n"
        "[elsewhere](https://host/page) `[code](no.md)`\n[gone](docs/c.md)\n[none](docs/b.md#none) [self](#b)\n",
        encoding="utf-8",
    )
    assert [message.partition(": ")[0] for message in links.broken(page, tmp_path)] == ["a.md:4", "a.md:5", "a.md:5"]
