"""Frame, style and parts that all HTML reports share: one file each, without network."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from berth.about import HOME
from berth.lab.show.canvas import GRID, INK

__all__ = ["chip", "inline_svg", "marked", "page", "seeds_in_words", "table"]

DASHBOARD = HOME / "live" / "service" / "dashboard" / "style.css"
"""Colours and type of the dashboard, which reports have too."""

STYLE, SCRIPT = (Path(__file__).with_name(f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))


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
        + f"\n</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
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
