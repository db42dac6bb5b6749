"""Tables for papers: what the terminal shows, as LaTeX."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["LatexConsole", "as_latex", "in_latex"]

WIDTH = 200
"""Characters of a line that tables may use: with all their columns."""
SPECIAL = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "µ": r"$\mu$",
    "<": r"$<$",
    ">": r"$>$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "²": r"\textsuperscript{2}",
    "·": r"$\cdot$",
    "…": r"\ldots{}",
}


def in_latex(text: str) -> str:
    """A text with LaTeX's special characters escaped.

    >>> in_latex("a_b: −1.5 ± 0.2 %")
    'a\\\\_b: $-$1.5 $\\\\pm$ 0.2 \\\\%'
    """
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def as_latex(table: Table) -> str:
    """A table as a `tabular` with the rules of booktabs; its title becomes a comment."""
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    heads = [in_latex(_plain(column.header)) for column in table.columns]
    places = "".join("r" if column.justify == "right" else "l" for column in table.columns)
    lines = [f"% {_plain(table.title)}"] if table.title else []
    lines += [f"\\begin{{tabular}}{{{places}}}", r"\toprule", " & ".join(heads) + r" \\", r"\midrule"]
    lines += [" & ".join(in_latex(cell.strip()) for cell in row) + r" \\" for row in zip(*columns, strict=True)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _plain(cell: Any) -> str:
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain


class LatexConsole(Console):
    """A console that prints tables as LaTeX, and everything else as comments."""

    def __init__(self) -> None:
        super().__init__(width=WIDTH, color_system=None, highlight=False)

    def print(self, *objects: Any, **_: Any) -> None:
        """Print a table as LaTeX; other objects as lines of a comment."""
        lines: list[str] = [] if objects else [""]
        for one in objects:
            if isinstance(one, Table):
                lines.append(as_latex(one))
            else:
                lines += [f"% {line}" for line in _plain(one).splitlines()]
        self.file.write("".join(f"{line}\n" for line in lines))
