"""Experiments and their verdicts in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from berth.lab.reproduce.experiments import Experiment
from berth.lab.reproduce.report import counted, found_effect, paper_says
from berth.lab.reproduce.results import ExperimentResult, Reproduced
from berth.lab.reproduce.verdicts import Verdict
from berth.lab.show.words import MISSING

__all__ = ["print_experiments", "print_reproduced"]

WIDE = 120
"""From this many characters a line on, the table also has what the algorithm would show if nobody checked."""
STYLES = {Verdict.reproduced: "green", Verdict.direction: "yellow", Verdict.failed: "red"}


def print_experiments(experiments: Sequence[Experiment], console: Console) -> None:
    """What can be reproduced: name, number in the paper, title, and how long it takes on two cores."""
    table = Table(box=None, pad_edge=False)
    for head in ("experiment", "in the paper", "title"):
        table.add_column(head, overflow="fold")
    table.add_column("minutes", justify="right")
    for e in experiments:
        table.add_row(Text(e.name), Text(e.figure), Text(e.title), f"{e.minutes:g}")
    table.add_row(Text("all"), "", Text(f"{len(experiments)} experiments"), f"{sum(e.minutes for e in experiments):g}")
    console.print(table)


def _state(verdict: Verdict | None) -> Text:
    return Text(MISSING) if verdict is None else Text(verdict.value, style=STYLES[verdict])


def print_reproduced(found: Reproduced, console: Console) -> None:
    """A table for each experiment, then how many claims hold."""
    for result in found.experiments:
        _print(result, console)
    claims = [claim.verdict for result in found.experiments for claim in result.claims]
    console.print(Text(f"{len(claims)} claims: {counted(claims)}.", style="bold"))
    console.print(Text("± is half of the 95 % interval over seeds. The rule is in the report.", style="dim"))
    if found.quick:
        console.print(Text("Quick version: verdicts are about small settings, not the papers'.", style="dim"))


def _print(result: ExperimentResult, console: Console) -> None:
    e = result.experiment
    console.print(Text.assemble((f"{e.figure}: {e.title}", "bold"), f"  {e.name}  ", _state(result.verdict)))
    table = Table(box=None, pad_edge=False)
    table.add_column("claim", overflow="fold", min_width=22)
    unchecked = console.width >= WIDE and any(claim.claimed is not None for claim in result.claims)
    for head in ("paper", "as printed", *(("unchecked",) if unchecked else ()), "berth's best", "verdict"):
        table.add_column(head, justify="right", no_wrap=True)
    for claim in result.claims:
        cells = [Text(paper_says(claim.claim)), Text(found_effect(claim.printed))]
        cells += [Text(found_effect(claim.claimed), style="dim")] if unchecked else []
        table.add_row(Text(claim.claim.says), *cells, Text(found_effect(claim.best)), _state(claim.verdict))
    if result.claims:
        console.print(table)
    if result.traces:
        console.print(Text(f"data: {result.data}", style="dim"))
    for text in result.not_run:
        console.print(Text(f"not run: {text}", style="yellow"))
    for claims, why in ((result.without_data, "without that data"), (result.left_out, "not in the quick version")):
        if claims:
            console.print(Text(f"{why}, not judged: {len(claims)} claims", style="dim"))
    console.print()
