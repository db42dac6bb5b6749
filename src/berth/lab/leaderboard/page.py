"""The leaderboard as a page of Markdown and in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from berth.lab.leaderboard.run import Leaderboard, Standing
from berth.lab.run.results import Row, spoken
from berth.lab.show.words import MISSING, needs, number, percent, plus_minus
from berth.statistics import Estimate

__all__ = ["print_leaderboard", "render_leaderboard"]

BROKEN = "†"


def render_leaderboard(found: Leaderboard, command: str, machine: str) -> str:
    """The page: for each family who earns which part, then every scenario with all numbers."""
    version = found.facts["versions"].get("berth", "")
    lines = [
        "# Leaderboard",
        "",
        f"Written by `{command}`, berth {version}. Every built-in policy, with its settings as they are by default, on "
        f"the same scenarios, under seeds {found.seeds[0]} to {found.seeds[-1]} and with the same luck. Some horizons "
        "are shorter than those of the scenarios, so that all of it takes less than ten minutes on two cores. "
        "`berth leaderboard --policy mymodule:MyPolicy` puts one of your own beside them.",
        "",
        "± is half of the 95 % interval over seeds. *Difference* is the reward a slot less the baseline's under the "
        "same seed; where its interval contains 0, these seeds do not tell the two apart. *µs* is the median time of a "
        f"decision and of what is learned from it on one machine ({machine}), with all cores at work: other machines "
        "have other times. Everything else is the same wherever the command is run.",
        "",
    ]
    lines += ["This is the quick version: a few slots, to see that everything runs.", ""] if found.quick else []
    for family in dict.fromkeys(standing.family.name for standing in found.standings):
        mine = [standing for standing in found.standings if standing.family.name == family]
        lines += [f"## {family.capitalize()}", "", f"Baseline: `{mine[0].baseline}`.", ""]
        lines += [_sentence(mine), ""]
        for information in mine[0].information:
            lines += [f"{spoken(information)}:", ""] if len(mine[0].information) > 1 else []
            lines += [*_markdown(*_glance(mine, information)), ""]
        for standing in mine:
            lines += _standing(standing)
    return "\n".join(lines).rstrip() + "\n"


def print_leaderboard(found: Leaderboard, console: Console) -> None:
    """For each family, who earns which part of what the oracle, or the best, does."""
    for family in dict.fromkeys(standing.family.name for standing in found.standings):
        mine = [standing for standing in found.standings if standing.family.name == family]
        for information in mine[0].information:
            heads, rows = _glance(mine, information)
            setting = f": {spoken(information).lower()}" if len(mine[0].information) > 1 else ""
            table = Table(title=f"{family.capitalize()}{setting}", title_justify="left", title_style="bold", box=None)
            for place, head in enumerate(heads):
                table.add_column(escape(head), justify="right" if place else "left", overflow="fold", no_wrap=not place)
            for row in rows:
                table.add_row(*(escape(cell.strip("`")) for cell in row))
            console.print(table)
            console.print()


def _sentence(standings: Sequence[Standing]) -> str:
    with_oracle = any(standing.oracles for standing in standings)
    of_best = [f"`{standing.board.scenario}`" for standing in standings if not standing.oracles]
    said = "The part of the oracle's reward that each policy earns" if with_oracle else "The part of the best reward"
    if with_oracle and of_best:
        said += f" (in {' and '.join(of_best)}, of the best policy's)"
    order = "those that serve most scenarios first, then the best on average"
    return f"{said}: {order}. {MISSING}: it cannot serve the scenario, or failed."


def _glance(standings: Sequence[Standing], information: str) -> tuple[list[str], list[list[str]]]:
    """Policies by scenario: the part of the oracle's reward, or of the best one's."""
    shares: dict[str, dict[int, float]] = {}
    for place, standing in enumerate(standings):
        for row in standing.shown(information):
            share = standing.share(row)
            shares.setdefault(row.policy, {}).update({} if share is None else {place: share})

    def standing_of(policy: str) -> tuple[int, float]:
        # those that serve more come first: an average over the easy half of the list is no average
        found = shares[policy]
        return -len(found), -sum(found.values()) / max(len(found), 1)

    rows = [
        [f"`{policy}`", *(percent(shares[policy].get(place)) for place in range(len(standings)))]
        for policy in sorted(shares, key=standing_of)
    ]
    return ["policy", *(standing.board.scenario for standing in standings)], rows


def _standing(standing: Standing) -> list[str]:
    lines = [
        f"### {standing.board.scenario}",
        "",
        f"{standing.title.rstrip('.')}. Played: {standing.horizon} slots.",
        "",
    ]
    for information in standing.information:
        if len(standing.information) > 1:
            lines += [f"{spoken(information)}:", ""]
        rows = standing.shown(information)
        lines += _markdown(*_numbers(standing, rows)) if rows else ["No policy finished."]
        lines.append("")
        reasons = [needs(item) for item in standing.unsupported if item.information in (information, "oracle")]
        lines += [f"Not here: {'; '.join(reasons)}.", ""] if reasons else []
    if any(row.violations for row in standing.rows):
        lines += [f"{BROKEN} Some decisions broke constraints, and were made feasible before they counted.", ""]
    if standing.failed:
        lines += ["Failed:", "", *(f"* {cell}: {error}" for cell, error in standing.failed.items()), ""]
    return lines


def _numbers(standing: Standing, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    heads = ["policy", "reward a slot", "of the oracle" if standing.oracles else "of the best", "difference", "µs"]
    cells = []
    for row in rows:
        same = row.policy == standing.baseline
        cells.append(
            [
                f"`{row.policy}`" + (f" {BROKEN}" if row.violations else ""),
                _estimate(row.reward),
                percent(standing.share(row)),
                "baseline" if same else _estimate(row.difference),
                number(row.decide_microseconds, 3),
            ]
        )
    for oracle in standing.oracles:
        words = standing.family.oracle_words[oracle.oracle]
        cells.append([words.row, _estimate(oracle.reward), "", "", ""])
    return heads, cells


def _estimate(value: Estimate | None) -> str:
    return " ".join(plus_minus(value)).strip()


def _markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table; the first column is text, the others are numbers."""
    marks = ["---", *("---:" for _ in heads[1:])]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in (heads, marks, *rows)]
