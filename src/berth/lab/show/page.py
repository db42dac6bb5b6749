"""Frame, style and parts that all HTML reports share: one file each, without network."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from berth.about import HOME
from berth.lab.show.canvas import GRID, INK

__all__ = ["chip", "inline_svg", "marked", "page", "seeds_in_words", "table"]

DASHBOARD = HOME / "live" / "service" / "dashboard" / "style.css"
"""Colours and type of the dashboard, which reports have too."""

STYLE = """
h1 { margin-bottom: .6rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
h3 { font-size: .95rem; margin: 0 0 .55rem; color: var(--ink); }
h2, h3 { scroll-margin-top: 4rem; } p { max-width: 56rem; } .card > :last-child { margin-bottom: 0; }
dl { margin-bottom: .6rem; } dd code { overflow-wrap: anywhere; }
.verdict { border-left: 4px solid var(--accent); } .verdict.warn { border-left-color: var(--warn); color: inherit; }
.warn strong { color: var(--warn); } small, figcaption { color: var(--quiet); font-size: .85rem; }
table { margin-bottom: .4rem; } th, td, th:last-child, td:last-child { text-align: right; padding: .35rem .6rem; }
th { vertical-align: bottom; white-space: normal; } td small { margin-left: .3em; font-size: .9em; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--card); }
td:first-child { font-weight: 600; } tr.best td { background: var(--fill); }
tr.oracle td { color: var(--quiet); font-weight: 400; }
th.text, td.text { text-align: left; white-space: normal; } td.text:first-child { font-weight: 400; }
tr.wide td.text { min-width: min(22rem, 18vw); } sup { line-height: 1; }
th button { all: unset; cursor: pointer; } th button:hover { color: var(--ink); }
th[aria-sort] button::after { content: " ↓"; } th[aria-sort="ascending"] button::after { content: " ↑"; }
.chip { display: inline-block; width: 26px; height: 8px; margin-right: .5rem; vertical-align: middle; }
.tag { font-size: .8em; font-weight: 500; color: var(--quiet); border: 1px solid var(--line); border-radius: 9px;
  padding: .05rem .45rem; margin-left: .4rem; }
.good, .warn, .bad, .quiet { white-space: nowrap; } .quiet { color: var(--quiet); } div.warn { white-space: normal; }
nav a { white-space: nowrap; } .charts { display: block; columns: 30rem; column-gap: .8rem; }
.charts > .card { break-inside: avoid; margin: 0 0 .8rem; }
figure { margin: 0; } figure svg { min-width: 28rem; } figcaption { margin-top: .4rem; }
pre { overflow-x: auto; margin: .4rem 0; font: .8rem/1.5 ui-monospace, Menlo, Consolas, monospace; }
details { margin: .3rem 0; } summary { cursor: pointer; color: var(--accent); }
@media (max-width: 600px) { .tag { display: block; width: fit-content; margin: .1rem 0 0; }
  dl { column-gap: .8rem; } tr.wide td.text { min-width: 9.5rem; } figure svg { min-width: 0; } }
@media print {
  :root { color-scheme: light; print-color-adjust: exact; } body { background: none; font-size: 10pt; }
  header { padding: 0; } header, th:first-child, td:first-child { position: static; }
  nav, details, th button::after { display: none; } main { max-width: none; padding: 0; }
  .scroll { overflow: visible; } .card { border: 0; padding: 0; } .charts { columns: auto; }
  table { font-size: 7.5pt; } th, td, th:last-child, td:last-child { padding: .2rem .35rem; }
  th { font-size: 7pt; white-space: normal; } figure svg { min-width: 0; } figure, tr, .verdict { break-inside: avoid; }
  h1, h2, h3, h2 + p { break-after: avoid; } tr.wide td.text { min-width: 0; }
}
"""

SCRIPT = """
const value = cell => {
  const text = cell.textContent.trim().replaceAll("−", "-").replaceAll(",", "");
  const number = /^T?([+-]?\\d[\\d.]*(?:e[+-]?\\d+)?)(?![\\w-])/.exec(text);
  return number ? Number(number[1]) : text === "–" ? "" : text;
};
const sort = (table, head, place) => {
  const body = table.tBodies[0];
  const rows = [...body.rows].map(row => [row, value(row.cells[place])]);
  const numbers = rows.some(([, key]) => typeof key === "number");
  const turned = {ascending: "descending", descending: "ascending"}[head.ariaSort];
  const next = turned || (numbers ? "descending" : "ascending");
  const sign = next === "ascending" ? 1 : -1;
  rows.sort(([, a], [, b]) => a === "" || b === "" ? (a === "") - (b === "")
    : sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))));
  for (const other of table.tHead.rows[0].cells) other.ariaSort = other === head ? next : null;
  body.append(...rows.map(([row]) => row));
};
for (const table of document.querySelectorAll("table")) [...table.tHead.rows[0].cells].forEach((head, place) => {
  const button = document.createElement("button");
  button.append(...head.childNodes);
  button.onclick = () => sort(table, head, place);
  head.append(button);
});
"""
"""Sort a table by a column when its head is pressed; cells without a value stay last."""


def page(
    title: str,
    facts: Mapping[str, str],
    files: Mapping[str, str],
    sections: Mapping[str, str],
    body: Iterable[str],
) -> str:
    """A whole report. Its head has `facts` (HTML by name) and `files` (texts by name, folded away).

    `sections` holds the headings that the bar at the top links to, by their ids.
    """
    links = "".join(f'<a href="#{name}">{escape(words)}</a>' for name, words in sections.items())
    told = "".join(f"<dt>{escape(name)}</dt><dd>{words}</dd>" for name, words in facts.items())
    folded = "".join(
        f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>" for name, text in files.items()
    )
    style = DASHBOARD.read_text(encoding="utf-8") + STYLE
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · berth</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f'<header><span class="brand">berth</span><nav>{links}</nav></header>\n<main>\n'
        f'<h1>{escape(title)}</h1>\n<div class="card"><dl>{told}</dl>{folded}</div>\n'
        + "\n".join(part for part in body if part)
        + f"\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def table(heads: Iterable[str], lines: Iterable[str], texts: Collection[str] = ()) -> str:
    """A table of these heads and rows, both HTML; columns with a head in `texts` hold text, set from the left."""
    top = "".join(f"<th{' class=text' if head in texts else ''}>{head}</th>" for head in heads)
    return f"<div class='scroll'><table><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"


def chip(look: Mapping[str, Any]) -> str:
    """A piece of a line as the plots draw it, to stand before a policy's name."""
    dashes = look["linestyle"]
    gaps = "" if dashes == "-" else f' stroke-dasharray="{" ".join(f"{1.7 * length:g}" for length in dashes[1])}"'
    return (
        '<svg class="chip" width="26" height="8" aria-hidden="true">'
        f'<line x2="26" y1="4" y2="4" stroke="{look["color"]}" stroke-width="3"{gaps}/></svg>'
    )


def seeds_in_words(seeds: Sequence[int]) -> str:
    """Seeds, long ranges by their ends.

    >>> seeds_in_words([0, 1]), seeds_in_words(range(40)), seeds_in_words([7])
    ('0, 1', '0 to 39', '7 (one seed: no intervals)')
    """
    if len(seeds) == 1:
        return f"{seeds[0]} (one seed: no intervals)"
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def marked(text: str) -> str:
    """HTML of a text with **bold** and `code`.

    >>> marked("**a** < `b`")
    '<strong>a</strong> &lt; <code>b</code>'
    """
    bold = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escape(text))
    return re.sub(r"`(.+?)`", r"<code>\1</code>", bold)


def inline_svg(svg: str, prefix: str) -> str:
    """An SVG to stand in a page: without XML head and page-wide names; ink, grid and font as the page has them."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    seen: set[str] = set()

    def named(found: re.Match[str]) -> str:
        # two equal shapes get the same name from matplotlib; either one will do for a reference to it
        again = found[1] in seen
        seen.add(found[1])
        return "" if again else f' id="{prefix}-{found[1]}"'

    svg = re.sub(r'\sid="([^"]*)"', named, svg)
    svg = re.sub(r'(xlink:href="|url\()#', rf"\1#{prefix}-", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans'")
    return svg.replace(INK, "var(--ink)").replace(GRID, "var(--line)")
