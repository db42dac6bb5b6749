"""HTML report of a comparison: a single file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from berth.lab.run.results import Comparison, spoken
from berth.lab.show.page import page, rendered, seeds_in_words
from berth.lab.show.plots import TITLES, oracle_looks, palette
from berth.lab.show.words import needs, number, verdict

__all__ = ["render_report", "summary"]

CAPTIONS = {
    "differences": "Each dot is a seed: what the policy earned a slot less what the baseline earned in the same world, "
    "under the same luck. Diamonds are means, lines 95 % intervals; a line that crosses zero tells nothing apart.",
    "average-reward": "Reward over the slots so far, divided by their number; mean over seeds. "
    "The first tenth of the run may leave the picture.",
    "ratio": "Cumulative reward divided by the baseline's, seed by seed; bands are 95 % intervals over seeds.",
    "cumulative-reward": "Reward summed over the slots so far; mean over seeds.",
    "regret": "What the oracle earned more, summed over the slots so far. Regret to y* can be negative: y* is one "
    "fixed decision for the whole run. Bands are 95 % intervals over seeds.",
    "gain-overhead": "Gain minus overhead is the reward.",
    "allocation": "The mean share of each server that each port holds, for the first seed; "
    "a column that sums to 1 is a server in full use.",
}


def render_report(comparison: Comparison, plots: Mapping[tuple[str, str], str], manifest: Mapping[str, Any]) -> str:
    """The page; `plots` are SVG texts by setting and name, as `save_plots` gives them."""
    title = str(comparison.settings.get("title") or comparison.settings.get("name") or "Comparison")
    sections = {information: f"Arrivals {information}" for information in comparison.information}
    sections |= {"broken": "Broken constraints"} if any(row.violations for row in comparison.rows) else {}
    sections |= {"failed": "Failed"} if comparison.failed else {}
    captions = {**CAPTIONS, **comparison.family.captions}
    text = str(comparison.settings.get("description") or "").strip()
    return page(
        "comparison.html",
        title,
        {
            "Policies": f"{len(comparison.policies)}, baseline {comparison.baseline}",
            "Slots": number(comparison.settings.get("horizon"), 1),
            "Seeds": seeds_in_words(comparison.seeds),
        },
        manifest,
        sections,
        command=comparison.command,
        files={"All settings": yaml.safe_dump(_as_run(comparison), sort_keys=False, allow_unicode=True, width=100)},
        description=[part for part in re.split(r"\n\s*\n", text) if part],
        titles=TITLES,
        figures={
            information: [
                (name, caption, plots[information, name])
                for name, caption in captions.items()
                if (information, name) in plots
            ]
            for information in comparison.information
        },
        **_tables(comparison),
    )


def summary(comparison: Comparison) -> str:
    """The tables with their captions, without a page around them."""
    return rendered("summary.html", **_tables(comparison))


def _as_run(comparison: Comparison) -> dict[str, Any]:
    """The scenario, with the policies, seeds, baseline and oracles of this run."""
    run = {name: getattr(comparison, name) for name in ("policies", "seeds", "baseline", "oracles")}
    return {**comparison.settings, **{key: list(v) if isinstance(v, tuple) else v for key, v in run.items()}}


def _tables(comparison: Comparison) -> dict[str, Any]:
    """What the tables of a comparison show."""
    words = comparison.family.oracle_words
    regrets = [[f"regret to {words[name].short}", "grows"] for name in comparison.regretted]
    return {
        "comparison": comparison,
        "looks": {**palette(comparison), **oracle_looks(comparison)},
        "rows_of": {i: [row for row in comparison.rows if row.information == i] for i in comparison.information},
        "unsupported": {
            i: [needs(item) for item in comparison.unsupported if item.information in (i, "oracle")]
            for i in comparison.information
        },
        "said": [line for line in verdict(comparison) if line not in comparison.remarks],
        "of_oracles": [f"of {words[name].of}" for name in comparison.oracles],
        "regret_heads": [head for heads in regrets for head in heads],
        "spoken": spoken,
    }
