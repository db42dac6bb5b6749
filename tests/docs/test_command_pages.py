"""The reference of commands is made from the program: every command and option is there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tests.cli.test_help import COMMANDS

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("command_pages", DOCS / "hooks" / "command_pages.py")
assert SPEC is not None
assert SPEC.loader is not None
command_pages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(command_pages)


def test_every_command_and_option_is_there() -> None:
    page = command_pages.on_page_markdown((DOCS / "reference" / "cli.md").read_text(encoding="utf-8"))
    assert "<!--" not in page
    sections = {part.splitlines()[0]: part for part in page.split("\n### ")[1:]}
    assert list(sections) == list(dict.fromkeys(sections))
    assert set(sections) == {" ".join(["berth", *words]) for words in COMMANDS if words}
    for words, command in COMMANDS.items():
        for parameter in command.params if words else ():
            if not getattr(parameter, "hidden", False):
                named = [name for name in parameter.opts if name.startswith("--")]
                assert all(f"{name}" in sections[" ".join(["berth", *words])] for name in named)
