"""Refuse banned phrases in documents, docstrings and help texts.

`python3 scripts/prose.py` searches the Markdown files and the sources of berth for the phrases of `phrases.txt`. It
ends with status 1 if it finds one. Files listed in `phrases-debt.txt` may still have the phrases named there. The check
prints how many are left, and fails if an entry is no longer needed. `--prune` removes such entries; no option adds one.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PHRASES, DEBT = ROOT / "scripts" / "phrases.txt", ROOT / "scripts" / "phrases-debt.txt"
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", ".github/**/*.md")
SOURCES = ("src/berth/**/*.py",)
CODE = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$|`+[^`]+`+", re.MULTILINE | re.DOTALL)
ARGUMENTS = ("help", "description", "epilog", "short_help")


class Phrase(NamedTuple):
    """A banned phrase: as written in the list, as a pattern, and what to write instead."""

    text: str
    pattern: re.Pattern[str]
    advice: str


class Finding(NamedTuple):
    """A banned phrase in a file."""

    path: str
    line: int
    phrase: Phrase
    words: str


def pattern(*expressions: str) -> re.Pattern[str]:
    """A pattern for any of these expressions, as whole words."""
    return re.compile(r"\b(?:" + "|".join(expressions).replace(" ", r"\s+") + r")\b", re.IGNORECASE)


def read_phrases(text: str) -> list[Phrase]:
    """Phrases of a list; see `phrases.txt` for the format."""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    parts = (line.partition(" -> ") for line in lines)
    return [Phrase(expression, pattern(expression), advice) for expression, _, advice in parts]


def read_debt(text: str) -> set[tuple[str, str]]:
    """(path, phrase) of each entry of a debt list: one `path: phrase` a line."""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return {(path, phrase) for path, _, phrase in (line.partition(": ") for line in lines)}


def without_code(text: str) -> str:
    """The text with code blanked out, so that lines keep their numbers."""
    return CODE.sub(lambda match: re.sub(r"\S", " ", match[0]), text)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """(first line, text) of docstrings, of strings that stand alone, and of help texts in a Python source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr):
            strings: list[ast.expr] = [node.value]
        elif isinstance(node, ast.Call):
            strings = [keyword.value for keyword in node.keywords if keyword.arg in ARGUMENTS]
        else:
            continue
        for string in strings:
            if isinstance(string, ast.Constant) and isinstance(string.value, str):
                yield string.lineno, string.value


def search(path: Path, phrases: list[Phrase], root: Path = ROOT) -> list[Finding]:
    """Banned phrases in a file."""
    text = path.read_text(encoding="utf-8")
    if not pattern(*(phrase.text for phrase in phrases)).search(text):
        return []
    parts = texts(text) if path.suffix == ".py" else [(1, text)]
    name = path.relative_to(root).as_posix()
    return sorted(
        Finding(name, first + prose.count("\n", 0, match.start()), phrase, " ".join(match[0].split()))
        for first, part in parts
        for prose in [without_code(part)]
        for phrase in phrases
        for match in phrase.pattern.finditer(prose)
    )


def files(root: Path = ROOT) -> list[Path]:
    """Every file with prose, each once."""
    return sorted({path for glob in (*PAGES, *SOURCES) for path in root.glob(glob)})


def prune(text: str, unneeded: set[tuple[str, str]]) -> str:
    """A debt list without these entries."""
    lines = [line for line in text.splitlines() if not read_debt(line) & unneeded]
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Refuse banned phrases in documents, docstrings and help texts.")
    parser.add_argument("--prune", action="store_true", help="remove entries of the debt list that are not needed")
    parser.add_argument("--debt", action="store_true", help="print every phrase that the debt list still allows")
    arguments = parser.parse_args()
    phrases = read_phrases(PHRASES.read_text(encoding="utf-8"))
    findings = [finding for path in files() for finding in search(path, phrases)]
    listed = DEBT.read_text(encoding="utf-8") if DEBT.exists() else ""
    debt = read_debt(listed)
    known = [finding for finding in findings if (finding.path, finding.phrase.text) in debt]
    new = [finding for finding in findings if (finding.path, finding.phrase.text) not in debt]
    unneeded = debt - {(finding.path, finding.phrase.text) for finding in known}
    for finding in [*new, *(known if arguments.debt else [])]:
        print(f'{finding.path}:{finding.line}: "{finding.words}": {finding.phrase.advice}')
    if unneeded and arguments.prune:
        DEBT.write_text(prune(listed, unneeded), encoding="utf-8")
        print(f"{DEBT.name}: {len(unneeded)} entries removed")
        unneeded = set()
    for path, phrase in sorted(unneeded):
        print(f'{DEBT.name}: "{path}: {phrase}" is no longer needed: run `python3 scripts/prose.py --prune`')
    if known:
        worst = Counter(finding.path for finding in known).most_common(5)
        shown = ", ".join(f"{path} ({count})" for path, count in worst)
        print(f"debt: {len(known)} phrases in {len({finding.path for finding in known})} files; most in {shown}")
    return 1 if new or unneeded else 0


if __name__ == "__main__":
    sys.exit(main())
