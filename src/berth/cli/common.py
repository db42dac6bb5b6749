"""Options, completion and progress that commands share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.answers import answered, terminal
from berth.live.client import DEFAULT_URL

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

    from berth.lab.run.runner import Progress
    from berth.traces.formats import Reading
    from berth.traces.trace import Trace

debugging = False
"""Whether the command line says --debug."""

__all__ = [
    "PlaceArgument",
    "QueueOption",
    "QuietOption",
    "TeamOption",
    "TypeOption",
    "UrlOption",
    "WorkersOption",
    "cell_progress",
    "complete_live_policy",
    "complete_policy",
    "complete_scenario",
    "file_to_write",
    "finish",
    "progress",
    "told_when_stopped",
    "write_any",
]


QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]
WorkersOption = Annotated[
    int | None, typer.Option("--workers", min=1, help="Use this many processes. Default: one a core.")
]
PlaceArgument = Annotated[Path | None, typer.Argument(metavar="OUT", hidden=True)]
"""An earlier form of `--out`."""
UrlOption = Annotated[
    str | None, typer.Option("--url", envvar="BERTH_URL", help=f"Address of the service. Default: {DEFAULT_URL}.")
]
TypeOption = Annotated[str | None, typer.Option("--type", help="Type of job; berth learns speeds by type.")]
QueueOption = Annotated[str | None, typer.Option("--queue", "-q", help="Name of the queue.")]
TeamOption = Annotated[str | None, typer.Option("--team", help="Team whose share the job counts against.")]
PROGRESS_SECONDS = 30.0
"""Seconds between two lines of progress where standard error is no terminal."""


def complete_scenario(incomplete: str) -> list[tuple[str, str]]:
    from berth.scenario.catalog import scenario_names

    return [(name, title) for name, title in scenario_names().items() if name.startswith(incomplete)]


def complete_policy(incomplete: str) -> list[str]:
    from berth.registry import policy_names

    return [name for name in sorted(policy_names()) if name.startswith(incomplete)]


def complete_live_policy(incomplete: str) -> list[str]:
    from berth.live.core import LIVE

    return [*(name for name in LIVE if name.startswith(incomplete)), *complete_policy(incomplete)]


def file_to_write(out: Path | None, place: Path | None) -> Path:
    """The file of `--out`, which may also stand alone at the end of the line."""
    if (out is None) == (place is None):
        raise typer.BadParameter("expected one file to write: --out FILE")
    return out or place or Path()


def write_any(trace: Reading | Trace, to: Path, overwrite: bool) -> list[Path]:
    """Write a trace in the format of the file's name; say on stderr what that format cannot hold."""
    from berth.errors import InvalidInput
    from berth.traces.formats import generic, swf_write

    if to.name.lower().endswith(swf_write.SUFFIXES):
        files, notes = swf_write.write_swf(trace, to, overwrite=overwrite)
        for note in notes:
            typer.echo(f"berth: left out or changed: {note}", err=True)
        return files
    known = (*generic.SUFFIXES, *swf_write.SUFFIXES)
    if not to.name.lower().endswith(known):
        raise InvalidInput(f"a name that ends in one of {', '.join(known)}", value=to.name)
    return generic.write_trace(trace, to, overwrite=overwrite)


@contextmanager
def told_when_stopped() -> Iterator[None]:
    """Print what is kept and how to continue after Ctrl-C; typer alone would end without a message."""
    try:
        yield
    except KeyboardInterrupt as stop:
        typer.echo(f"berth: {str(stop) or 'stopped'}", err=True)
        raise typer.Exit(130) from None


@contextmanager
def progress(quiet: bool, reporter: Callable[[Bar], Any], unit: str, speed: bool = False) -> Iterator[Any]:
    """Show progress on stderr: a bar on a terminal, else a line every 30 s.

    Gives `reporter(bar)`, which a command calls as it advances; None if `quiet`.
    """
    with told_when_stopped():
        if quiet:
            yield None
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True, highlight=False)
        pace = [TextColumn(unit + "  {task.fields[speed]}")] if speed else []
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), *pace)
        left = TimeRemainingColumn(compact=speed)
        hidden = not console.is_terminal
        with Progress(*columns, left, console=console, transient=True, disable=hidden, expand=True) as bar:
            if hidden:
                with _lines(bar, unit):
                    yield reporter(bar)
            else:
                yield reporter(bar)


@contextmanager
def _lines(bar: Bar, unit: str) -> Iterator[None]:
    """Print how far the latest task is, every 30 s; from a thread, because one step may take minutes."""
    began, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        while not ended.wait(PROGRESS_SECONDS):
            task = bar.tasks[-1] if bar.tasks else None
            done = (
                "working"
                if task is None or task.total is None
                else f"{task.completed:,.0f} of {task.total:,.0f} {unit}"
            )
            note = f" ({task.description})" if task is not None and task.description != unit else ""
            typer.echo(f"berth: {done} after {time.monotonic() - began:.0f} s{note}", err=True)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def cell_progress(quiet: bool) -> Iterator[Any]:
    """Show how far a comparison is, with a line at either end where stderr is no terminal."""
    last: list[Progress] = []
    begun: list[tuple[float, int]] = []

    def reporter(bar: Bar) -> Callable[[Progress], None]:
        task = bar.add_task("starting", total=None, speed="")

        def show(now: Progress) -> None:
            if not last and not bar.console.is_terminal:
                bar.console.print(f"berth: {now.total} cells, {now.reused} of them already there")
            last[:] = [now]
            if not begun and now.slots:  # the time to compile does not count
                begun.append((time.monotonic(), now.slots))
            seconds = time.monotonic() - begun[0][0] if begun else 0.0
            speed = f"{(now.slots - begun[0][1]) / seconds:,.0f} slots/s" if seconds > 1 else ""
            label = now.note if len(now.note) < 40 else now.note[:39] + "…"
            bar.update(task, completed=now.done, total=now.total, description=label, speed=speed)

        return show

    with progress(quiet, reporter, "cells", speed=True) as show:
        yield show
    if last:
        from rich.console import Console

        again = f", {last[0].reused} reused" if last[0].reused else ""
        Console(stderr=True, highlight=False).print(f"berth: {last[0].done} cells done{again}", style="dim")


def finish(
    found: Any,
    output: str,
    rows: Callable[[], Iterable[Mapping[str, Any]]],
    show: Callable[[Any, Console], None],
    where: str,
    failed: Mapping[str, str],
) -> None:
    """Print the result and where its files are, list the cells that failed, and exit with 1 if there are any.

    CSV has `rows()`.
    """
    if not answered(found.as_dict(), output, rows() if output == "csv" else None):
        show(found, terminal(output))
        if where:
            typer.echo(where, err=output == "latex")
    for cell, error in failed.items():
        typer.echo(f"berth: failed: {cell}: {error}", err=True)
    if failed:
        raise typer.Exit(1)
