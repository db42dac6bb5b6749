"""`berth reproduce`: the figures and tables of the papers, and whether their claims hold."""

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
    finish,
    print_json,
)

__all__ = ["reproduce_command"]


def complete_experiment(incomplete: str) -> list[str]:
    from berth.lab.reproduce.experiments import PAPERS, experiment_names

    return [name for name in ("list", "all", *PAPERS, *experiment_names()) if name.startswith(incomplete)]


def reproduce_command(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="list, all, a paper (ogasched), an experiment (ogasched/table-3), or a file of your own.",
            autocompletion=complete_experiment,
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Small settings and few seeds: seconds each.")] = False,
    out: Annotated[
        Path, typer.Option("--out", help="Where cells, report and tables go; the same command goes on there.")
    ] = Path("berth-reproduce"),
    traces: Annotated[
        Path | None,
        typer.Option("--traces", metavar="DIR", help="Folder of real traces that experiments name; else BERTH_TRACES."),
    ] = None,
    docs: Annotated[Path | None, typer.Option("--docs", help="Also write the results as a Markdown page.")] = None,
    workers: WorkersOption = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Run experiments of the papers and say which claims hold; stop it at any time, the same command goes on.

    Exit code: 0 everything done, whatever the verdicts; 1 some cells failed; 2 bad input.
    """
    from berth.lab.reproduce.experiments import chosen

    if names[0] == "list":
        wanted = chosen(names[1:] or ["all"])
        if output is Output.json:
            keys = ("name", "paper", "figure", "title", "what", "data", "minutes")
            print_json([{key: getattr(experiment, key) for key in keys} for experiment in wanted])
            return
        from rich.console import Console

        from berth.lab.reproduce.report import print_experiments

        print_experiments(wanted, Console(highlight=False))
        return
    from berth.lab.reproduce.report import print_reproduced, render_markdown
    from berth.lab.reproduce.run import reproduce

    with cell_progress(quiet) as show:
        found = reproduce(names, quick=quick, out=out, workers=workers, progress=show, traces=traces)
    if docs is not None:
        options = [*(["--quick"] if quick else []), *(["--traces", "DIR"] if traces is not None else [])]
        said = shlex.join(["berth", "reproduce", *names, *options, "--docs", str(docs)])
        docs.write_text(render_markdown(found, said), encoding="utf-8")
    finish(found, output, print_reproduced, f"\nReport: {(out / 'report.html').resolve()}", found.failed)
