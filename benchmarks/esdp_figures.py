"""Every regret figure that ESDP is to reach, measured: `python -m benchmarks.esdp_figures`.

Prints one table: what, the goal, what was measured over how many seeds, reached or not. Nothing is tuned to the goals:
seeds are 0 … N−1, scenarios are those that come with berth, policies have their defaults but where the row says
otherwise. `--markdown FILE` writes the table as a documentation page.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.table import Figure, arguments_of, command, markdown, row, run, said, show

REVEALED = "revealed"


@dataclass(frozen=True)
class Work:
    """One scenario: the policies that are to reach the goals, the others to show beside them, the goals by measure."""

    title: str
    scenario: str
    policies: tuple[str, ...]
    goals: dict[str, float]
    others: tuple[str, ...] = ("esdp-printed", "hauf")
    least: int = 300
    """Slots of a quick look: no fewer than what the scenario is about takes to happen."""


WORKS = (
    Work("papers' defaults, c = 2, T = 2000", "esdp-default", ("escb", "escb-v"), {"fraction": 0.96, "regret": 90.0}),
    Work("the same, T = 8000", "esdp-t8000", ("escb", "escb-v"), {"regret": 120.0, "growth": 0.35, "fit": 0.99}),
    Work("c = 8, T = 2000", "esdp-c8", ("escb", "escb-v"), {"fraction": 0.985}),
    Work("rare arrivals, ρ = .1", "esdp-rare-arrivals", ("escb", "escb-v"), {"fraction": 0.89}),
    Work("one dead port", "esdp-dead-port", ("escb", "escb-v"), {"fraction": 0.92}),
    Work(
        "abrupt drift, 30 % of the channels every 1000 slots, γ = .998",
        "esdp-drift",
        ("escb:discount=0.998", "escb-v:discount=0.998"),
        {"fraction": 0.935},
        ("escb", "escb-v", "hauf"),
        1500,
    ),
)


def figures(work: Work, seeds: int, quick: bool) -> Iterator[Figure]:
    """One comparison, a line for each goal of its policy and for what the others reach."""
    policies = (*work.policies, *work.others)
    overrides: dict[str, Any] = {"horizon": work.least} if quick else {}
    result = run(work.scenario, seeds, REVEALED, policies, overrides)
    line = command(work.scenario, seeds, REVEALED, policies, overrides)
    title = f"{work.title} (cut to {work.least} slots)" if quick else work.title
    for policy in policies:
        found = row(result, REVEALED, policy)
        fraction, regret = found.fraction_of_oracle, found.regret
        growth, fit = found.regret_growth, found.regret_log_fit
        goals = work.goals if policy in work.policies else {"fraction": None, "regret": None}
        lines: dict[str, tuple[str, str, bool]] = {}
        for measure, goal in goals.items():
            limit = goal or 0.0
            if measure == "fraction":
                reached = fraction is not None and fraction.mean >= limit
                lines[measure] = f"≥ {100 * limit:g} % of the oracle", f"{said(fraction)} of the oracle", reached
            elif measure == "regret":
                reached = regret is not None and regret.mean <= limit
                lines[measure] = f"regret ≤ {limit:g}", f"regret {_short(regret)}", reached
            elif measure == "growth":
                shown = "–" if growth is None else f"d ln R / d ln t = {growth:.3f}"
                lines[measure] = f"d ln R / d ln t ≤ {limit:g}", shown, growth is not None and growth <= limit
            else:
                shown = "–" if fit is None else f"R² = {fit:.4f}"
                lines[measure] = f"R² against ln t ≥ {limit:g}", shown, fit is not None and fit >= limit
        for measure, (text, shown, reached) in lines.items():
            asked = goals[measure] is not None
            # a run that was cut short says nothing about a goal for the whole of it
            judged = ("yes" if reached else "no") if asked and not quick else "–"
            yield Figure(f"{title}, {policy}", line, text if asked else "–", shown, judged)
    gap = next(oracle.gap for oracle in result.oracle_rows if oracle.oracle == "slot")
    measured = "–" if gap is None else f"{gap:.1e}"
    yield Figure(f"certified gap of the oracle, {title}", line, "–", measured, "–")


def _short(estimate: Any) -> str:
    if estimate is None:
        return "–"
    half = "" if estimate.half is None else f" ± {estimate.half:.1f}"
    return f"{estimate.mean:.1f}{half} ({estimate.seeds} seeds)"


def page(found: list[Figure], arguments: argparse.Namespace) -> str:
    """The table as Markdown."""
    last = [
        "Regret is the expected loss against the oracle that knows the mean gains (pseudo-regret).",
        "R² is that of a linear fit of the mean regret to ln t over the second half of the run.",
    ]
    return markdown("ESDP figures", "benchmarks.esdp_figures", arguments, found, last)


def main() -> None:
    arguments = arguments_of(__doc__, seeds=20)
    parts: list[Callable[[], Iterator[Figure]]] = [
        partial(figures, work, arguments.seeds, arguments.quick) for work in WORKS
    ]
    show("ESDP", parts, arguments, lambda found: page(found, arguments))


if __name__ == "__main__":
    main()
