"""Help pages: groups, examples that parse, consistent options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from berth.cli import app, main
from berth.cli.help import GROUPS

EXAMPLE = re.compile(r"berth [^)>|]+")
SHARED = ("--workers", "--quiet", "--url", "--store", "--force", "--format", "--directory")
"""Options that mean the same in every command."""


def walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, (*words, name))


COMMANDS = dict(walk(typer.main.get_command(app)))


def lines(command: Any) -> list[str]:
    return [line.strip() for line in (command.epilog or "").splitlines()[2:]]


def parsed(words: list[str]) -> Any:
    """The innermost command of a command line, which is parsed and not run."""
    command, name, context = COMMANDS[()], "berth", None
    while True:
        context = command.make_context(name, words, parent=context)
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        if not hasattr(command, "commands") or not rest:
            return command
        name, command, words = command.resolve_command(context, rest)


def test_every_command_is_in_one_group() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS[()].commands)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_examples_that_parse(words: tuple[str, ...]) -> None:
    found = lines(COMMANDS[words])
    assert 1 <= len(found) <= 3
    for line in found:
        example = EXAMPLE.search(line)
        assert example is not None, line
        asked = parsed(shlex.split(example[0])[1:])
        assert not words or asked is COMMANDS[words] or asked in COMMANDS[words].commands.values(), line


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_a_terminal(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    described = shown.split("Options:")[1].split("Example")[0]
    assert "..." not in re.sub(r"[A-Z]\]?\.\.\.", "", described), "a summary is cut"
    ends = shown.split("Example")
    assert max(map(len, ends[0].splitlines())) <= 80
    assert all(line in shown for line in lines(COMMANDS[words]))


def test_the_main_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"\n{title}:\n") for title in ("Options", *GROUPS)]
    assert places == sorted(places)
    assert "    berth demo\n" in shown


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_texts_are_sentences(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    assert command.help[0].isupper()
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if not getattr(parameter, "hidden", False) and "--help" not in parameter.opts:
            assert text, (words, parameter.name)
            assert text[0].isupper() or parameter.name == "names", (words, text)
            assert text.endswith((".", "…")), (words, text)


def test_options_have_one_meaning() -> None:
    texts: dict[str, set[str]] = {}
    for words, command in COMMANDS.items():
        for parameter in command.params:
            for option in parameter.opts:
                if option in SHARED and (words, option) != (("train",), "--workers"):
                    texts.setdefault(option, set()).add(parameter.help.split(" (")[0].rstrip("."))
    assert {option: found for option, found in texts.items() if len(found) > 1 and option != "--force"} == {}


def test_tables_have_the_same_forms() -> None:
    for words, command in COMMANDS.items():
        for parameter in command.params:
            if "--output" in parameter.opts:
                assert parameter.opts == ["--output", "-o"]
                wide = words in (("jobs",), ("servers",))
                context = command.make_context("x", [], resilient_parsing=True)
                results = words[0] in {"compare", "demo", "leaderboard", "replay", "reproduce", "sweep", "verify"}
                more = "wide|" if wide else "latex|" if results and len(words) == 1 else ""
                forms = f"table|{more}json|csv|yaml"
                assert forms in parameter.get_help_record(context)[0]


def test_the_plugin_of_kubectl_shows_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/kubectl-berth"])
    assert main(["jobs", "--help"]) == 0
    assert "Usage: kubectl berth jobs" in capsys.readouterr().out
