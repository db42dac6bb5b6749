"""Reports of reproduced papers: a self-contained HTML page, a documentation page, and terminal tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from berth.lab.reproduce.experiments import PAPERS, Claim, Experiment, experiment_names
from berth.lab.reproduce.plots import looks_of
from berth.lab.reproduce.results import RULE, ClaimResult, ExperimentResult, Reproduced, Verdict
from berth.lab.show.page import page, rendered
from berth.lab.show.tables import as_table
from berth.lab.show.words import MISSING, percent
from berth.registry import PolicySpec
from berth.statistics import Estimate

__all__ = ["print_experiments", "print_reproduced", "render_markdown", "render_reproduced"]

MARKS = dict(zip(Verdict, "✓≈?✗–", strict=True))
CLASSES = dict(zip(Verdict, ("good", "warn", "quiet", "bad", "quiet"), strict=True))
STYLES = dict(zip(Verdict, ("green", "yellow", "dim", "red", "dim"), strict=True))
WIDE = 120
"""Terminal width from which the table also shows the unchecked effect."""
SIDES = {"more": "more", "less": "less", "same": "the same"}


def paper_says(claim: Claim) -> str:
    """Effect as printed in the paper.

    >>> paper_says(Claim(says="…", over="drf", value=0.1133))
    '+11.3 %'
    """
    return SIDES[claim.direction] if claim.direction is not None else percent(claim.value, sign=True)


def found_effect(value: Estimate | None) -> str:
    """Measured effect with half its confidence interval.

    >>> found_effect(Estimate(0.05, 0.04, 0.06, 8))
    '+5.0 % ± 1.0'
    """
    if value is None:
        return MISSING
    half = "" if value.half is None else f" ± {100 * value.half:.1f}"
    return f"{percent(value.mean, sign=True)}{half}"


def readings_text(result: ClaimResult) -> str:
    """What the paper leaves open, and the range of effects over readings; empty if the claim can be judged."""
    if result.claim.unclear is None:
        return ""
    means = [found.mean for found in (result.printed, *result.readings) if found is not None]
    over = f": {percent(min(means), sign=True)} to {percent(max(means), sign=True)} over {len(means)} readings"
    return f"{result.claim.unclear}{over if len(means) > 1 else ''}"


def left_out_lines(result: ExperimentResult) -> list[str]:
    """What was not run or not judged, and why, one sentence each."""
    lines = [f"Not run: {text}." for text in result.not_run]
    for claims, why in ((result.without_data, "Without that data"), (result.left_out, "Not in the quick version")):
        if claims:
            lines.append(f"{why}, not judged: {'; '.join(claim.says for claim in claims)}.")
    return lines


def counted(verdicts: Sequence[Verdict | None]) -> str:
    """Count the verdicts of each kind that there is.

    >>> counted([Verdict.reproduced, Verdict.refuted, Verdict.refuted])
    '1 reproduced, 2 refuted'
    """
    counts = {verdict: sum(v is verdict for v in verdicts) for verdict in Verdict}
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count) or "none"


def _scope(found: Reproduced) -> str:
    if not found.quick:
        return ""
    return (
        "This is the quick version: small settings and few seeds, to check that everything runs. Its verdicts are "
        "about those settings, not the papers'."
    )


def render_reproduced(found: Reproduced, plots: Mapping[str, Sequence[str]], manifest: Mapping[str, Any]) -> str:
    """Render the HTML page; `plots` are SVG texts by experiment."""
    counts = sorted({result.seeds for result in found.experiments})
    each = "–".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else "0"
    facts = {
        "Experiments": str(len(found.experiments)),
        "Settings": "quick" if found.quick else "the papers'",
        "Seeds": f"{each} an experiment",
    }
    looks, values = looks_of(found), _values(found)
    return page(
        "reproduced.html",
        "The papers, reproduced",
        facts,
        manifest,
        {paper: paper for paper, _, _ in values["papers"]},
        command=str(found.facts["command"]),
        plots=plots,
        # some experiments have a policy that they do not draw
        look_of=lambda text: looks.get(str(PolicySpec.parse(text))),
        kinds=[verdict.value for verdict in Verdict],
        marks=MARKS,
        classes=CLASSES,
        **values,
    )


def render_markdown(found: Reproduced, command: str) -> str:
    """Render the documentation page: every claim with its result."""
    run = {result.experiment.name for result in found.experiments}
    not_run = [name for name in experiment_names() if name not in run]
    return rendered("reproduced.md", command=command, not_run=not_run, **_values(found))


def _values(found: Reproduced) -> dict[str, Any]:
    """What both pages show."""
    by_paper = {paper: [result for result in found.experiments if result.experiment.paper == paper] for paper in PAPERS}
    return {
        "found": found,
        "papers": [(paper, title, by_paper[paper]) for paper, title in PAPERS.items() if by_paper[paper]],
        "verdicts": [claim.verdict for result in found.experiments for claim in result.claims],
        "counted": counted,
        "counted_of": _counts,
        "effect": found_effect,
        "left_out": left_out_lines,
        "paper_says": paper_says,
        "readings": readings_text,
        "rule": RULE,
        "scope": _scope(found),
    }


def _counts(result: ExperimentResult) -> str:
    return counted([claim.verdict for claim in result.claims])


def print_experiments(experiments: Sequence[Experiment], console: Console) -> None:
    """Print the experiments: name, number in the paper, title, and run time on two cores."""
    rows = [[e.name, e.figure, e.title, f"{e.minutes:g}"] for e in experiments]
    rows.append(["all", "", f"{len(experiments)} experiments", f"{sum(e.minutes for e in experiments):g}"])
    console.print(as_table(["experiment", "in the paper", "title", "minutes"], rows, 3))


def _coloured(verdict: Verdict | None) -> Text:
    return Text(MISSING) if verdict is None else Text(verdict.value, style=STYLES[verdict])


def print_reproduced(found: Reproduced, console: Console) -> None:
    """Print a table for each experiment, then the number of claims that hold."""
    for result in found.experiments:
        _print(result, console)
    claims = [claim.verdict for result in found.experiments for claim in result.claims]
    console.print(Text(f"{len(claims)} claims: {counted(claims)}.", style="bold"))
    console.print(Text("± is half of the 95 % interval over seeds. The rule is in the report.", style="dim"))
    if found.quick:
        console.print(Text("Quick version: verdicts are about small settings, not the papers'.", style="dim"))


def _print(result: ExperimentResult, console: Console) -> None:
    e = result.experiment
    console.print(Text.assemble((f"{e.figure}: {e.title}", "bold"), f"  {e.name}  {_counts(result)}"))
    unchecked = console.width >= WIDE and any(claim.claimed is not None for claim in result.claims)
    heads = ["claim", "verdict", "paper", "as printed", *(["unchecked"] if unchecked else []), "berth's best"]
    rows: list[list[str | Text]] = [
        [
            claim.claim.says,
            _coloured(claim.verdict),
            paper_says(claim.claim),
            found_effect(claim.printed),
            *([Text(found_effect(claim.claimed), style="dim")] if unchecked else []),
            found_effect(claim.best),
        ]
        for claim in result.claims
    ]
    if rows:
        console.print(as_table(heads, rows, 2, least=12))
    if result.traces:
        console.print(Text(f"data: {result.data}", style="dim"))
    for text in result.not_run:
        console.print(Text(f"not run: {text}", style="yellow"))
    for claims, why in ((result.without_data, "without that data"), (result.left_out, "not in the quick version")):
        if claims:
            console.print(Text(f"{why}, not judged: {len(claims)} claims", style="dim"))
    console.print()
