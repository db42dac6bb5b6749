"""What commands share: options, ways to answer, and a word when they are stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

    from berth.lab.run.plans import Progress

debugging = False
"""Whether the command line says --debug."""

__all__ = [
    "Output",
    "OutputOption",
    "QuietOption",
    "WorkersOption",
    "cell_progress",
    "complete_live_policy",
    "complete_policy",
    "complete_scenario",
    "finish",
    "print_json",
    "progress",
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


def complete_live_policy(incomplete: str) -> list[str]:
    from berth.live.core import LIVE

    return [*(name for name in LIVE if name.startswith(incomplete)), *complete_policy(incomplete)]


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


@contextmanager
def progress(quiet: bool, reporter: Callable[[Bar], Any], unit: str = "") -> Iterator[Any]:
    """A progress bar on stderr, drawn on a terminal only; `reporter(bar)` is what a command calls, None if `quiet`."""
    with told_when_stopped():
        if quiet:
            yield None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True, highlight=False)
        speed = [TextColumn(unit + "  {task.fields[speed]}")] if unit else []
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), *speed)
        left = TimeRemainingColumn(compact=bool(unit))
        hidden = not console.is_terminal
        with Progress(*columns, left, console=console, transient=True, disable=hidden, expand=True) as bar:
            yield reporter(bar)


@contextmanager
def cell_progress(quiet: bool) -> Iterator[Any]:
    """Shows how far a comparison is, on stderr: a bar on a terminal, else a line at either end."""
    last: list[Progress] = []
    begun: list[tuple[float, int]] = []

    def reporter(bar: Bar) -> Callable[[Progress], None]:
        task = bar.add_task("starting", total=None, speed="")

        def show(now: Progress) -> None:
            if not last and not bar.console.is_terminal:
                bar.console.print(f"berth: {now.total} cells, {now.reused} of them already there")
            last[:] = [now]
            if not begun and now.slots:  # compiling comes first and is not to count
                begun.append((time.monotonic(), now.slots))
            seconds = time.monotonic() - begun[0][0] if begun else 0.0
            speed = f"{(now.slots - begun[0][1]) / seconds:,.0f} slots/s" if seconds > 1 else ""
            label = now.note if len(now.note) < 40 else now.note[:39] + "…"
            bar.update(task, completed=now.done, total=now.total, description=label, speed=speed)

        return show

    with progress(quiet, reporter, "cells") as show:
        yield show
    if last:
        from rich.console import Console

        again = f", {last[0].reused} reused" if last[0].reused else ""
        Console(stderr=True, highlight=False).print(f"berth: {last[0].done} cells done{again}", style="dim")


def finish(
    found: Any, output: Output, show: Callable[[Any, Console], None], where: str, failed: Mapping[str, str]
) -> None:
    """Print the result and where its files are, list the cells that failed, and exit with 1 if there are any."""
    if output is Output.json:
        print_json(found.as_dict())
    else:
        from rich.console import Console

        show(found, Console(highlight=False))
        if where:
            typer.echo(where)
    for cell, error in failed.items():
        typer.echo(f"berth: failed: {cell}: {error}", err=True)
    if failed:
        raise typer.Exit(1)
