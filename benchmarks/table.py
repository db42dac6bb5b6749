"""Tables of goals: what was to be reached, what was measured, reached or not. Shared by the programs that make them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from berth import __version__
from berth.lab.compare import compare
from berth.lab.run.results import Comparison, Row
from berth.statistics import Estimate

__all__ = ["Figure", "arguments_of", "at_least", "command", "markdown", "row", "run", "said", "show"]


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    work: str
    command: str
    goal: str
    measured: str
    reached: str


def said(estimate: Estimate | None, change: bool = False) -> str:
    """An estimate as people read it."""
    if estimate is None:
        return "–"
    shift, scale = (1.0, 100.0) if change else (0.0, 1.0)
    mean, half = scale * (estimate.mean - shift), None if estimate.half is None else scale * estimate.half
    text = f"{mean:+.1f} %" if change else f"{mean:.4f}"
    width = "" if half is None else f" ± {half:.1f}" if change else f" ± {half:.4f}"
    return f"{text}{width} ({estimate.seeds} seeds)"


def at_least(found: Estimate | None, goal: float) -> str:
    """Whether the mean reaches the goal, and whether its interval leaves no doubt."""
    if found is None or found.mean < goal:
        return "no"
    return "yes" if found.low is None or found.low >= goal else "yes, its interval reaches below"


def row(result: Comparison, information: str, policy: str) -> Row:
    """The row of this policy in this setting."""
    return next(r for r in result.rows if r.information == information and r.policy == policy)


def run(scenario: str, seeds: int, arrivals: str, policies: Sequence[str], overrides: dict[str, Any]) -> Comparison:
    """A comparison, and nothing that failed."""
    result = compare(scenario, list(policies), seeds=seeds, arrivals=arrivals, overrides=overrides)
    if result.failed:
        raise SystemExit(f"{scenario}: {next(iter(result.failed.values())).error}")
    return result


def command(
    scenario: str, seeds: int, arrivals: str, policies: Sequence[str], overrides: Mapping[str, Any] | None = None
) -> str:
    """The command line that prints the same numbers."""
    chosen = " ".join(f"--policy {p}" for p in policies)
    changed = "".join(f" --set {key}={value}" for key, value in (overrides or {}).items())
    return f"berth compare {scenario} --seeds {seeds} --arrivals {arrivals} {chosen}{changed}"


def arguments_of(description: str | None, seeds: int) -> argparse.Namespace:
    """The options that every such program takes."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0] if description else None)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--quick", action="store_true", help="few slots and cases, for a look")
    parser.add_argument("--markdown", type=Path, help="write the table as a documentation page")
    return parser.parse_args()


def show(
    title: str,
    parts: Iterable[Callable[[], Iterator[Figure]]],
    arguments: argparse.Namespace,
    page: Callable[[list[Figure]], str],
) -> None:
    """Measure part by part, telling each figure as it comes; then the table, and the page where one is asked for."""
    console = Console()
    figures: list[Figure] = []
    for part in parts:
        for figure in part():
            figures.append(figure)
            console.print(f"{figure.work}: {figure.measured}", highlight=False)
    table = Table("work", "goal", "measured", "reached", title=f"{title}, berth {__version__}")
    for figure in figures:
        table.add_row(figure.work, figure.goal, figure.measured, figure.reached)
    console.print(table)
    if arguments.markdown:
        arguments.markdown.write_text(page(figures), encoding="utf-8")


def markdown(
    title: str, program: str, arguments: argparse.Namespace, figures: Sequence[Figure], last: Sequence[str]
) -> str:
    """The table as a Markdown page; one of a quick look says that it is one."""
    quick = " --quick" if arguments.quick else ""
    lines = [
        f"# {title}",
        "",
        *(["**A quick look: the runs are shortened, so the goals do not apply.**", ""] * bool(quick)),
        "Goals and measured values. ± is half of the 95 % interval over seeds. Written by",
        f"`python -m {program} --seeds {arguments.seeds}{quick} --markdown {arguments.markdown}`,",
        f"berth {__version__}, seeds 0 to {arguments.seeds - 1}.",
        "",
        "| work | goal | measured | reached |",
        "|---|---|---|---|",
    ]
    lines += [f"| {f.work} | {f.goal} | {f.measured} | {f.reached} |" for f in figures]
    lines += ["", "Commands that print the same numbers:", "", "```text"]
    lines += list(dict.fromkeys(f.command for f in figures if f.command))
    lines += ["```", "", *last, ""]
    return "\n".join(lines)
