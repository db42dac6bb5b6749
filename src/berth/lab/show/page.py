"""What HTML pages share: the look, the frame of a page, and plots inside it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from berth.lab.show.canvas import GRID, INK

__all__ = ["inline_svg", "page"]

STYLE = """
:root { color-scheme: light dark; --ink: #1f2933; --soft: #5f6b7a; --line: #d9dee5; --page: #fbfbfc; --card: #ffffff;
  --accent: #0b67a3; --warn: #9a3412; --warn-card: #fff7ed; --best: #eef6fc; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #a3adba; --line: #3a4350; --page: #14181e;
  --card: #1b2129; --accent: #6bb6ea; --warn: #fdba74; --warn-card: #2b2018; --best: #1d2b38; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 64rem; margin: 0 auto; padding: 2.2rem 1.1rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.8rem 0 .3rem; }
p { margin: .5rem 0; max-width: 46rem; } .soft, figcaption, small { color: var(--soft); }
.verdict { background: var(--card); border: 1px solid var(--line); border-left: 4px solid var(--accent);
  border-radius: 6px; padding: .7rem 1.1rem; margin: 1.2rem 0; }
.warn { background: var(--warn-card); border-left-color: var(--warn); } .warn strong { color: var(--warn); }
.scroll { overflow-x: auto; -webkit-overflow-scrolling: touch; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .88rem; margin: .6rem 0; }
th, td { padding: .38rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--soft); font-size: .8rem; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--page); }
td:first-child { font-weight: 600; } tr.best td { background: var(--best); } tr.oracle td { color: var(--soft);
  font-weight: 400; } td small { margin-left: .3em; font-weight: 400; }
td.text { text-align: left; white-space: normal; }
tr.wide td.text { min-width: 16rem; } .tag { font-size: .72rem; font-weight: 500; color: var(--soft);
  border: 1px solid var(--line); border-radius: 9px; padding: .05rem .45rem; margin-left: .4rem; }
figure { margin: .2rem 0 1.8rem; } figure svg { display: block; width: 100%; min-width: 34rem; height: auto; }
figcaption { font-size: .85rem; max-width: 46rem; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem; overflow-x: auto;
  font: .82rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
details { margin: .8rem 0; } summary { cursor: pointer; color: var(--accent); }
@media (max-width: 40rem) { .tag { display: block; width: fit-content; margin: .1rem 0 0; }
  th, td { padding: .34rem .5rem; } main { padding-top: 1.2rem; } h1 { font-size: 1.4rem; } body { font-size: 15px; } }
@media print { figure, tr { break-inside: avoid; } }
"""


def page(title: str, body: Iterable[str]) -> str:
    """A whole page of these parts, in berth's look."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} · berth</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def inline_svg(svg: str, prefix: str) -> str:
    """An SVG to stand in a page: without XML head and page-wide names, its ink and grid as the page has them."""
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
    return svg.replace(INK, "var(--ink)").replace(GRID, "var(--line)")
