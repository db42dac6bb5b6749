"""`berth leaderboard`: every built-in policy on a fixed list of scenarios, and one's own beside them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from berth.cli.common import (
    Output,
    OutputOption,
    QuietOption,
    WorkersOption,
    cell_progress,
    complete_policy,
    print_json,
    told_when_stopped,
)

__all__ = ["leaderboard_command"]


def leaderboard_command(
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="One more policy, such as mymodule:MyPolicy (repeat); then only its family is run.",
            autocompletion=complete_policy,
        ),
    ] = None,
    family: Annotated[
        list[str] | None, typer.Option("--family", help="allocation, selection or placement (repeat).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few slots of everything, to see that it runs.")] = False,
    out: Annotated[
        Path, typer.Option("--out", help="Where cells and tables go; the same command goes on there.")
    ] = Path("berth-leaderboard"),
    docs: Annotated[Path | None, typer.Option("--docs", help="Also write the page to this file.")] = None,
    workers: WorkersOption = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Run every built-in policy on the standard scenarios; stop it at any time, the same command goes on.

    Exit code: 0 everything done, 1 some cells failed, 2 bad input.
    """
    from berth.lab.leaderboard.page import print_leaderboard, render_leaderboard
    from berth.lab.leaderboard.run import leaderboard
    from berth.lab.run.manifest import machine

    with told_when_stopped(), cell_progress(quiet) as show:
        found = leaderboard(policy or (), family or None, quick=quick, out=out, workers=workers, progress=show)
    words = ["berth", "leaderboard", *(word for name in policy or () for word in ("--policy", name))]
    words += [word for name in family or () for word in ("--family", name)]
    words += [*(["--quick"] if quick else []), *(["--docs", str(docs)] if docs else [])]
    page = render_leaderboard(found, shlex.join(words), machine())
    for file in (out / "leaderboard.md", *((docs,) if docs is not None else ())):
        file.write_text(page, encoding="utf-8")
    if output is Output.json:
        print_json(found.as_dict())
    else:
        from rich.console import Console

        print_leaderboard(found, Console(highlight=False))
        typer.echo(f"Page: {(out / 'leaderboard.md').resolve()}")
    for cell, error in found.failed.items():
        typer.echo(f"berth: failed: {cell}: {error}", err=True)
    if found.failed:
        raise typer.Exit(1)
