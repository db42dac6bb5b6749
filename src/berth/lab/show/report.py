"""HTML report of a comparison: a single file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import yaml

from berth.lab.run.results import Comparison, Row, spoken
from berth.lab.show.page import chip, inline_svg, page, seeds_in_words, table
from berth.lab.show.plots import TITLES, oracle_looks, palette
from berth.lab.show.words import MISSING, mean_of, needs, number, percent, plus_minus, verdict
from berth.statistics import Estimate

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
    body = [_verdict(comparison), _description(comparison)]
    body += [_section(comparison, information, plots) for information in comparison.information]
    body += [_broken(comparison), _failed(comparison)]
    sections = {information: f"Arrivals {information}" for information in comparison.information}
    sections |= {"broken": "Broken constraints"} if any(row.violations for row in comparison.rows) else {}
    sections |= {"failed": "Failed"} if comparison.failed else {}
    files = {
        "All settings": yaml.safe_dump(_as_run(comparison), sort_keys=False, allow_unicode=True, width=100),
        "Manifest": json.dumps(manifest, indent=2, ensure_ascii=False, default=str),
    }
    return page(title, _facts(comparison, manifest), files, sections, body)


def summary(comparison: Comparison) -> str:
    """The tables with their captions, without a page around them."""
    parts = []
    for information in comparison.information:
        rows = [row for row in comparison.rows if row.information == information]
        parts += [f"<h4>{spoken(information)}</h4>", _rewards(comparison, rows) if rows else ""]
        parts.append(_needs(comparison, information))
    return "\n".join(part for part in (*parts, _verdict(comparison), _failed(comparison)) if part)


def _facts(comparison: Comparison, manifest: Mapping[str, Any]) -> dict[str, str]:
    """What the head of the report says, as HTML."""
    commit, _, changed = str(manifest.get("commit") or "").partition("-")
    commit = f", commit {commit[:12]}{' with changes' if changed else ''}" if commit else ""
    return {
        "Policies": escape(f"{len(comparison.policies)}, baseline {comparison.baseline}"),
        "Slots": number(comparison.settings.get("horizon"), 1),
        "Seeds": seeds_in_words(comparison.seeds),
        "Version": escape(f"berth {comparison.version}{commit}, {comparison.finished[:10]}"),
        "Command": f"<code>{escape(comparison.command)}</code>",
    }


def _verdict(comparison: Comparison) -> str:
    said = [line for line in verdict(comparison) if line not in comparison.remarks]
    cards = {"card verdict": said, "card verdict warn": comparison.remarks}
    return "".join(
        f'<div class="{kind}">{"".join(f"<p>{escape(line)}</p>" for line in lines)}</div>'
        for kind, lines in cards.items()
        if lines
    )


def _as_run(comparison: Comparison) -> dict[str, Any]:
    """The scenario, with the policies, seeds, baseline and oracles of this run."""
    run = {name: getattr(comparison, name) for name in ("policies", "seeds", "baseline", "oracles")}
    return {**comparison.settings, **{key: list(v) if isinstance(v, tuple) else v for key, v in run.items()}}


def _description(comparison: Comparison) -> str:
    text = str(comparison.settings.get("description") or "").strip()
    return "".join(f"<p>{escape(part)}</p>" for part in re.split(r"\n\s*\n", text) if part)


def _cell(value: Estimate | None, digits: int = 4) -> str:
    mean, half = plus_minus(value, digits)
    return f"<td>{mean}" + (f" <small>{half}</small>" if half else "") + "</td>"


def _share(value: Estimate | None, sign: bool = False) -> str:
    if value is None:
        return f"<td>{MISSING}</td>"
    half = "" if value.half is None else f" <small>± {100 * value.half:.1f}</small>"
    return f"<td>{percent(value.mean - 1 if sign else value.mean, sign=sign)}{half}</td>"


def _section(comparison: Comparison, information: str, plots: Mapping[tuple[str, str], str]) -> str:
    rows = [row for row in comparison.rows if row.information == information]
    parts = [f'<h2 id="{information}">{spoken(information)}</h2>']
    parts.append(
        "<p>Every policy here decides before it knows which ports have a job.</p>"
        if information == "hidden"
        else f"<p>{escape(comparison.family.known)}</p>"
    )
    if rows:
        parts += [_rewards(comparison, rows), _details(comparison, rows)]
    parts.append(_needs(comparison, information))
    figures = [
        f"<figure class='card'><h3>{escape(TITLES[name])}</h3>"
        f"<div class='scroll'>{inline_svg(plots[information, name], f'{name}-{information}')}</div>"
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for name, caption in {**CAPTIONS, **comparison.family.captions}.items()
        if (information, name) in plots
    ]
    parts += ["<div class='charts'>", *figures, "</div>"] if figures else []
    return "\n".join(part for part in parts if part)


def _name(comparison: Comparison, row: Row) -> str:
    tags = ' <span class="tag">baseline</span>' if row.policy == comparison.baseline else ""
    tags += ' <span class="tag">breaks constraints</span>' if row.violations else ""
    return f"<td>{chip(palette(comparison)[row.policy])}{escape(row.policy)}{tags}</td>"


def _rewards(comparison: Comparison, rows: Sequence[Row]) -> str:
    """The rewards of one information setting, with paired differences and the oracles."""
    lines, looks = [], oracle_looks(comparison)
    for place, row in enumerate(rows):
        same = row.policy == comparison.baseline
        cells = [
            _name(comparison, row),
            _cell(row.reward),
            f"<td>{MISSING}</td>" if same else _share(row.ratio, sign=True),
            f"<td>{MISSING}</td>" if same else _cell(row.difference, 3),
        ]
        cells += [_share(row.fraction_of_stationary)] if "stationary" in comparison.oracles else []
        cells += [_share(row.fraction_of_oracle)] if "slot" in comparison.oracles else []
        cells += [_share(row.fraction_of_information)] if "information" in comparison.oracles else []
        lines.append(f"<tr{' class=best' if place == 0 else ''}>{''.join(cells)}</tr>")
    for oracle in comparison.oracle_rows:
        label = comparison.family.oracle_words[oracle.oracle].row
        shares = ["<td></td>" for _ in comparison.oracles]
        if oracle.fraction_of_oracle is not None:
            shares[comparison.oracles.index("slot")] = _share(oracle.fraction_of_oracle)
        cells = [f"<td>{chip(looks[oracle.oracle])}{label}</td>", _cell(oracle.reward), *["<td></td>"] * 2, *shares]
        lines.append(f"<tr class='oracle'>{''.join(cells)}</tr>")
    heads = ["policy", "reward a slot", "against the baseline", "difference"]
    heads += [f"of {comparison.family.oracle_words[name].of}" for name in comparison.oracles]
    note = "± is half of the 95 % interval over seeds. " if len(comparison.seeds) > 1 else ""
    return (
        f"<div class='card'>{table(heads, lines)}"
        f"<p><small>{note}Ratios, differences and fractions are taken seed by seed and then averaged.</small></p></div>"
    )


def _details(comparison: Comparison, rows: list[Row]) -> str:
    lines = []
    family = comparison.family
    for row in rows:
        parts = row.gain, getattr(row, family.expense)
        cells = [_name(comparison, row), *(f"<td>{number(mean_of(value))}</td>" for value in parts)]
        for oracle, value, growth in (
            ("stationary", row.regret_stationary, row.regret_stationary_growth),
            ("slot", row.regret, row.regret_growth),
        ):
            if oracle in comparison.regretted:
                cells += [_cell(value), f"<td>{MISSING if growth is None else f'T<sup>{growth:.2f}</sup>'}</td>"]
        if family.logarithmic and "slot" in comparison.regretted:
            fit = row.regret_log_fit
            cells.append(f"<td>{MISSING if fit is None else f'{fit:.3f}'}</td>")
        cells.append(f"<td>{number(row.decide_microseconds, 3)}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    heads = ["policy", "gain", family.expense]
    for name in comparison.regretted:
        heads += [f"regret to {family.oracle_words[name].short}", "grows"]
    fitted = family.logarithmic and "slot" in comparison.regretted
    heads += ["ln T fit, R²"] if fitted else []
    heads.append("µs")
    regrets = (
        ", regrets totals at the end with how they grow with the number of slots T" if comparison.regretted else ""
    )
    also = "R² says how straight regret is against ln T over the second half; " if fitted else ""
    return (
        f"<div class='card'><h3>Gain, {family.expense}{', regret' if comparison.regretted else ''} and time</h3>"
        f"{table(heads, lines)}"
        f"<p><small>Gain and {family.expense} are means a slot{regrets}; {also}µs is the median time that deciding and "
        "learning take in a slot.</small></p></div>"
    )


def _needs(comparison: Comparison, information: str) -> str:
    found = [item for item in comparison.unsupported if item.information in (information, "oracle")]
    if not found:
        return ""
    items = "".join(f"<li>{escape(needs(item))}</li>" for item in found)
    return f"<p>Not in this setting:</p><ul>{items}</ul>"


def _broken(comparison: Comparison) -> str:
    rows = [row for row in comparison.rows if row.violations]
    if not rows:
        return ""
    lines = [
        f"<tr><td>{chip(palette(comparison)[row.policy])}{escape(row.policy)}</td>"
        f"<td>{row.information}</td><td>{row.violations:,}</td><td>{percent(row.violating_slots)}</td>"
        f"{_cell(row.reward)}{_share(row.ratio, sign=True)}"
        f"{_cell(row.claimed)}{_share(row.claimed_ratio, sign=True)}</tr>"
        for row in rows
    ]
    heads = [
        "policy",
        "arrivals",
        "constraints broken",
        "slots with any",
        "earned",
        "earned, against the baseline",
        "claimed",
        "claimed, against the baseline",
    ]
    return (
        '<h2 id="broken">Decisions that broke constraints</h2><div class="card verdict warn"><p><strong>Claimed is not '
        "reward.</strong> A decision that gives a job more than it asked for, or a server more than it has, cannot be "
        "played. It was made feasible first, and that is what was earned. “Claimed” is what would have been counted if "
        f"nobody had checked.</p></div><div class='card'>{table(heads, lines)}</div>"
    )


def _failed(comparison: Comparison) -> str:
    if not comparison.failed:
        return ""
    looks = {**palette(comparison), **oracle_looks(comparison)}
    lines = [
        f"<tr class='wide'><td>{chip(looks[cell.name])}{escape(cell.name)}</td><td>{cell.seed}</td>"
        f"<td>{escape(cell.information or MISSING)}</td><td class='text'>{escape(failure.error)}</td></tr>"
        for cell, failure in comparison.failed.items()
    ]
    heads = ["policy or oracle", "seed", "arrivals", "error"]
    return f"<h2 id='failed'>Failed</h2><div class='card'>{table(heads, lines, ['error'])}</div>"
