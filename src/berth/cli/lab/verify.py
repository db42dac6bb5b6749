"""`berth verify`: published results of others, computed again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from berth.cli.answers import ResultOption, ResultOutput, answered, terminal
from berth.cli.common import QuietOption

__all__ = ["verify_command"]


def complete_check(incomplete: str) -> list[str]:
    from berth.lab.verify import CHECKS

    return [name for name in CHECKS if name.startswith(incomplete)]


def verify_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="fgd, hpcopt, rlscheduler or rlscheduler-networks. Default: all.",
            autocompletion=complete_check,
        ),
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option("--traces", metavar="DIR", help="Directory of the real traces. Default: BERTH_TRACES."),
    ] = None,
    docs: Annotated[Path | None, typer.Option("--docs", help="Also write the results as a Markdown page.")] = None,
    output: ResultOption = ResultOutput.table,
    quiet: QuietOption = False,
) -> None:
    """Compute published results of others again.

    The table has the published numbers beside berth's. rlscheduler-networks needs a clone of
    DIR-LAB/deep-batch-scheduler in the directory of traces; unless it is named, it is left out
    without one.

    Exit code: 0 everything computed, whatever the verdicts; 2 bad input, such as a missing trace.
    """
    from berth.lab.show.tables import as_table
    from berth.lab.verify import CHECKS, render_verified, verify

    def show(where: str, done: int, total: int) -> None:
        if not quiet:
            typer.echo(f"berth: {where}: {done} of {total}", err=True)

    found = verify(names or (), traces, show)
    if docs is not None:
        said = shlex.join(["berth", "verify", *(names or ()), "--docs", str(docs)])
        docs.write_text(render_verified(found, said), encoding="utf-8")
    if answered([{"result": name, **line.as_dict()} for name, lines in found.items() for line in lines], output):
        return
    console = terminal(output)
    for name, lines in found.items():
        console.print(f"{CHECKS[name].title} ({name})", style="bold", highlight=False)
        rows = [
            [
                line.where,
                f"{line.what}, {line.note}" if line.note else line.what,
                "" if line.theirs is None else f"{line.theirs:,.{line.digits}f}",
                f"{line.ours:,.{line.digits}f}",
                line.verdict,
            ]
            for line in lines
        ]
        console.print(as_table(["where", "what", "published", "berth", "verdict"], rows, 2))
        console.print()
