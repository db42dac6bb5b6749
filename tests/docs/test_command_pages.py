"""Commands in documents: the reference has every command and option, and every command on a page parses."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.test_help import COMMANDS, parsed

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


PAGES = (*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md", DOCS.parent / "CONTRIBUTING.md")
BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?(.*?)\n.*?^\1$", re.MULTILINE | re.DOTALL)
REDIRECTION = re.compile(r" [0-9]?>{1,2}&? ?[^\s;|&)]+")
WORDS = r"(?:'[^']*'|\"[^\"]*\"|[^|;&<>)#\n'\"])*"
CALL = re.compile(rf"(?:^|[|;&(]|\b(?:do|then|until|if|while)\b) *berth +({WORDS})", re.MULTILINE)


def calls(page: Path) -> list[str]:
    """The command lines of berth on a page, without pipes and redirections."""
    text = "\n".join(BLOCK.findall(page.read_text(encoding="utf-8"))).replace("\\\n", " ")
    return [found.strip() for found in CALL.findall(REDIRECTION.sub("", HERE_DOCUMENT.sub(r"\2", text)))]


@pytest.mark.parametrize("page", [page for page in PAGES if calls(page)], ids=lambda page: page.name)
def test_every_command_on_a_page_parses(page: Path) -> None:
    for line in calls(page):
        parsed(shlex.split(line))


def test_calls_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```bash\nberth serve --faster 60 &\nuntil berth servers 2>/dev/null | grep n1; do sleep 1; done\n"
        "cat > f <<'END'\nberth nothing\nEND\nsed s/a/b/ f | berth plan -f - || echo no\n"
        'eval "$(berth cluster env slurm)"\nberth submit -J \'a b\' \\\n  -r cpu=1 -- sh -c "x | y"\n```\n'
        "```text\nberth elsewhere\n```\n"
    )
    submit = "submit -J 'a b'    -r cpu=1 -- sh -c \"x | y\""
    assert calls(page) == ["serve --faster 60", "servers", "plan -f -", "cluster env slurm", submit]
