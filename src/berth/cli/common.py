"""What commands share: options, ways to answer, and a word when they are stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

__all__ = [
    "Output",
    "OutputOption",
    "QuietOption",
    "WorkersOption",
    "complete_policy",
    "complete_scenario",
    "print_json",
    "told_when_stopped",
]


class Output(StrEnum):
    """How a command answers."""

    table = "table"
    json = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to answer; json is for programs.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
WorkersOption = Annotated[int | None, typer.Option("--workers", min=1, help="Processes; by default one a core.")]


def complete_scenario(incomplete: str) -> list[tuple[str, str]]:
    from berth.scenario.catalog import scenario_names

    return [(name, title) for name, title in scenario_names().items() if name.startswith(incomplete)]


def complete_policy(incomplete: str) -> list[str]:
    from berth.registry import policy_names

    return [name for name in sorted(policy_names()) if name.startswith(incomplete)]


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def told_when_stopped() -> Iterator[None]:
    """Ctrl-C says what is kept and how to go on; here, because typer would end without a word."""
    try:
        yield
    except KeyboardInterrupt as stop:
        typer.echo(f"berth: {str(stop) or 'stopped'}", err=True)
        raise typer.Exit(130) from None
