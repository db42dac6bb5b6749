"""The reference of commands, made from the program: `<!-- commands of package.module:app -->` becomes sections."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

MARK = re.compile(r"^<!-- commands of ([\w.]+):(\w+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put sections in place of each mark; MkDocs calls this for every page."""
    return MARK.sub(lambda found: sections(getattr(importlib.import_module(found[1]), found[2])), markdown)


def sections(app: Any) -> str:
    """A section for each group of commands, with a subsection for each command."""
    import typer

    from berth.cli.help import GROUPS

    root = typer.main.get_command(app)
    parts = ["## Options of all commands", *_command(root, root.make_context("berth", [], resilient_parsing=True))]
    for title, names in GROUPS.items():
        parts.append(f"## {title}")
        for name in names:
            parts += _tree(root.commands[name], f"berth {name}")
    return "\n\n".join(parts)


def _tree(command: Any, name: str) -> Iterator[str]:
    yield f"### {name}"
    yield from _command(command, command.make_context(name, [], resilient_parsing=True))
    for inner, one in getattr(command, "commands", {}).items():
        yield from _tree(one, f"{name} {inner}")


def _command(command: Any, context: Any) -> Iterator[str]:
    """What the help page of a command has: text, usage, arguments and options, examples."""
    paragraphs = re.split(r"\n\s*\n", command.help or "")
    yield from (" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip())
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield f"```text\n{usage}\n```"
    records = [one.get_help_record(context) for one in command.params if not getattr(one, "hidden", False)]
    rows = [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in filter(None, records)]
    if rows:
        yield "\n".join(["| argument or option | meaning |", "|---|---|", *rows])
    examples = [line.strip() for line in (command.epilog or "").splitlines()[2:]]
    if examples:
        yield "\n".join(["```text", *examples, "```"])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
