"""Templates of all reports, and what they use: HTML reports are one file each, without network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from berth.about import HOME, VERSION
from berth.lab.show.canvas import GRID, INK
from berth.lab.show.words import MISSING, in_words, mean_of, number, percent, plus_minus

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["environment", "inline_svg", "markdown_row", "marked", "page", "rendered", "seeds_in_words"]

TEMPLATES = Path(__file__).with_name("templates")
DASHBOARD = HOME / "live" / "service" / "dashboard" / "style.css"
"""Colours and type of the dashboard, which reports have too."""


@cache
def environment() -> Environment:
    """The templates, and the functions that they use."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup

    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (Path(__file__).with_name(f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    found.globals.update(
        style=Markup(DASHBOARD.read_text(encoding="utf-8") + style),
        script=Markup(script),
        inline_svg=lambda svg, prefix: Markup(inline_svg(svg, prefix)),
        marked=lambda text: Markup(marked(text)),
        in_words=in_words,
        missing=MISSING,
        mean_of=mean_of,
        number=number,
        percent=percent,
        plus_minus=plus_minus,
        row=markdown_row,
        version=VERSION,
    )
    return found


def rendered(template: str, **values: Any) -> str:
    """The text of a template with these values; in HTML, texts are escaped."""
    return environment().get_template(template).render(values).strip() + "\n"


def page(
    template: str,
    title: str,
    facts: Mapping[str, str],
    manifest: Mapping[str, Any],
    sections: Mapping[str, str],
    *,
    command: str = "",
    files: Mapping[str, str] | None = None,
    **values: Any,
) -> str:
    """A whole report. Its head has `facts`, the version, the `command`, and `files` (texts by name, folded away).

    `sections` holds the headings that the bar at the top links to, by their ids.
    """
    return rendered(
        template,
        title=title,
        facts={**facts, "Version": _version(manifest)},
        files={**(files or {}), "Manifest": json.dumps(manifest, indent=2, ensure_ascii=False, default=str)},
        sections=sections,
        command=command,
        **values,
    )


def _version(manifest: Mapping[str, Any]) -> str:
    """The version and commit that wrote a manifest, and when."""
    commit, _, changed = str(manifest.get("commit") or "").partition("-")
    told = f", commit {commit[:12]}{' with changes' if changed else ''}" if commit else ""
    version = manifest.get("versions", {}).get("berth", VERSION)
    return f"berth {version}{told}, {str(manifest.get('finished') or '')[:10]}"


def markdown_row(cells: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


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
