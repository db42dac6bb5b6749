"""Reports of reproduced papers: a self-contained HTML page, a documentation page, and terminal tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rich.console import Console
from rich.text import Text

from berth.lab.reproduce.experiments import PAPERS, Claim, Experiment, experiment_names
from berth.lab.reproduce.plots import looks_of
from berth.lab.reproduce.results import RULE, ClaimResult, ExperimentResult, Reproduced, Verdict
from berth.lab.show.page import chip, inline_svg, marked, page, table
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


def _state(verdict: Verdict | None) -> str:
    if verdict is None:
        return MISSING
    return f'<span class="{CLASSES[verdict]}">{MARKS[verdict]} {verdict.value}</span>'


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
    claims = [claim.verdict for result in found.experiments for claim in result.claims]
    body = [
        f'<div class="card verdict"><p><strong>Claims: {counted(claims)}.</strong></p>'
        f"<details><summary>The rule</summary><p>{marked(RULE)}</p></details></div>",
        f'<div class="card verdict warn"><p>{escape(_scope(found))}</p></div>' if found.quick else "",
        _overview(found),
    ]
    looks, sections = looks_of(found), {}
    for paper, title in PAPERS.items():
        mine = [result for result in found.experiments if result.experiment.paper == paper]
        if mine:
            sections[paper] = paper
            body.append(f'<h2 id="{paper}">{escape(title)}</h2>')
            body += [_experiment(result, plots.get(result.experiment.name, ()), looks) for result in mine]
    files = {"Manifest": json.dumps(manifest, indent=2, ensure_ascii=False, default=str)}
    return page("The papers, reproduced", _facts(found, manifest), files, sections, body)


def _facts(found: Reproduced, manifest: Mapping[str, Any]) -> dict[str, str]:
    """What the head of the report says, as HTML."""
    counts = sorted({result.seeds for result in found.experiments})
    each = "–".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else "0"
    version = f"berth {found.facts['versions'].get('berth', '')}, {str(manifest.get('finished', ''))[:10]}"
    return {
        "Experiments": str(len(found.experiments)),
        "Settings": "quick" if found.quick else "the papers'",
        "Seeds": f"{each} an experiment",
        "Version": escape(version),
        "Command": f"<code>{escape(str(found.facts['command']))}</code>",
    }


def _overview(found: Reproduced) -> str:
    lines = []
    for result in found.experiments:
        e = result.experiment
        counts = "".join(f"<td>{count or ''}</td>" for count in result.verdicts.values())
        lines.append(
            f'<tr><td><a href="#{_anchor(e.name)}">{escape(e.name)}</a></td><td class="text">{escape(e.figure)}</td>'
            f'<td class="text">{escape(e.title)}</td>{counts}</tr>'
        )
    heads = ["experiment", "in the paper", "what", *(verdict.value for verdict in Verdict)]
    return f"<div class='card'>{table(heads, lines, heads[1:3])}</div>"


def _anchor(name: str) -> str:
    return name.replace("/", "-")


def _policy(text: str, looks: Mapping[str, Mapping[str, Any]]) -> str:
    """A policy's name behind its line in the plots; some experiments have a policy that they do not draw."""
    look = looks.get(str(PolicySpec.parse(text)))
    return f"{chip(look) if look else ''}{escape(text)}"


def _experiment(result: ExperimentResult, svgs: Sequence[str], looks: Mapping[str, Mapping[str, Any]]) -> str:
    e = result.experiment
    unchecked = any(claim.claimed is not None for claim in result.claims)
    lines = [_claim(claim, unchecked) for claim in result.claims]
    # the verdict beside its claim: in a narrow window the last columns are out of sight
    heads = ["claim", "verdict", "with berth's best", "the paper says", "as printed"]
    heads += [*(["as printed, unchecked"] if unchecked else []), "berth's best"]
    note = (
        "<p><small>Unchecked: the effect of the algorithm if infeasible decisions counted as they are. What it "
        "really earned is under “as printed”.</small></p>"
        if unchecked
        else ""
    )
    left = "".join(f"<p><small>{escape(line)}</small></p>" for line in left_out_lines(result))
    failed = "".join(f"<li>{escape(cell)}: {escape(error)}</li>" for cell, error in result.failed.items())
    stem = _anchor(e.name)
    figures = "".join(
        f"<figure class='card'><div class='scroll'>{inline_svg(svg, f'{stem}-{n}')}</div></figure>"
        for n, svg in enumerate(svgs)
    )
    return (
        f'<div class="card"><h3 id="{stem}">{escape(e.figure)}: {escape(e.title)}</h3>'
        f"<p><strong>{_counts(result)}</strong></p>"
        f"<p>{escape(e.what)}</p>"
        f"<p><small>{escape(e.name)} · data: {escape(result.data)} · {len(result.settings)} points, "
        f"{result.seeds} seeds · as printed: {_policy(e.printed, looks)} · "
        f"berth's best: {_policy(e.best, looks)}</small></p>"
        f"{table(heads, lines) if lines else ''}{note}{left}"
        + (f"<p>Failed:</p><ul>{failed}</ul>" if failed else "")
        + f"</div><div class='charts'>{figures}</div>"
    )


def _counts(result: ExperimentResult) -> str:
    return counted([claim.verdict for claim in result.claims])


def _claim(result: ClaimResult, unchecked: bool) -> str:
    cells = [_state(result.verdict), _state(result.best_verdict), paper_says(result.claim)]
    cells += [found_effect(result.printed), *([found_effect(result.claimed)] if unchecked else [])]
    cells.append(found_effect(result.best))
    return (
        f'<tr class="wide"><td class="text">{escape(result.claim.says)}{_note(result)}</td>'
        + "".join(f"<td>{cell}</td>" for cell in cells)
        + "</tr>"
    )


def _note(result: ClaimResult) -> str:
    return f"<br><small>{escape(text)}</small>" if (text := readings_text(result)) else ""


def render_markdown(found: Reproduced, command: str) -> str:
    """Render the documentation page: every claim with its result."""
    claims = [claim.verdict for result in found.experiments for claim in result.claims]
    version = found.facts["versions"].get("berth", "")
    lines = [
        "# The papers, reproduced",
        "",
        f"Written by `{command}`, berth {version}. {len(found.experiments)} experiments, {len(claims)} claims: "
        f"{counted(claims)}.",
        "",
        RULE,
        "",
        "± is half of the 95 % interval over seeds. “Unchecked” is the effect of the algorithm if infeasible decisions "
        "counted as they are.",
        "",
    ]
    lines += [_scope(found), ""] if found.quick else []
    for paper, title in PAPERS.items():
        mine = [result for result in found.experiments if result.experiment.paper == paper]
        if not mine:
            continue
        lines += [f"## {title}", ""]
        for result in mine:
            lines += _markdown(result)
    run = {result.experiment.name for result in found.experiments}
    missing = [name for name in experiment_names() if name not in run]
    lines += [f"Not run for this page: {', '.join(missing)}."] if missing else []
    return "\n".join(lines).rstrip() + "\n"


def _markdown(result: ExperimentResult) -> list[str]:
    e = result.experiment
    lines = [
        f"### {e.figure}: {e.title}",
        "",
        f"**{_counts(result)}** · `berth reproduce {e.name}` · data: {result.data} · {result.seeds} seeds",
        "",
        e.what,
        "",
        f"As printed: `{e.printed}`; berth's best: `{e.best}`, unless a claim says otherwise.",
        "",
    ]
    if result.claims:
        lines += [
            "| claim | the paper says | as printed | unchecked | berth's best | verdict | with berth's best |",
            "|---|---|---|---|---|---|---|",
        ]
    for claim in result.claims:
        best = MISSING if claim.best_verdict is None else claim.best_verdict.value
        says = " ".join(filter(None, (claim.claim.says, (text := readings_text(claim)) and f"({text})")))
        cells = [says, paper_says(claim.claim), found_effect(claim.printed), found_effect(claim.claimed)]
        cells += [found_effect(claim.best), claim.verdict.value, best]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    left = left_out_lines(result)
    lines += [""] if result.claims else []
    return [*lines, *([" ".join(left), ""] if left else [])]


# --- in the terminal


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
