"""Cases of frozen results, and the tables in `tests/data/frozen` that hold their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["DATA", "Case", "Key", "Outcome", "Row", "differences", "read_table", "row_of", "write_table"]

DATA = Path(__file__).parents[1] / "data" / "frozen"
HEADER = "log\tpolicy\tsetting\trows\thash\tsummary"


class Key(NamedTuple):
    """What a result is of: a log (or journal, plan, experiment), a policy and a setting."""

    log: str
    policy: str
    setting: str = ""

    def __str__(self) -> str:
        return " / ".join(part for part in self if part)


class Outcome(NamedTuple):
    """A result: lines of text that hold every number to the last bit, and a few means to read."""

    lines: list[str]
    summary: str = ""


class Row(NamedTuple):
    """A line of a table: the number of lines of a result, their hash, and the means."""

    rows: int
    hash: str
    summary: str


class Case(NamedTuple):
    """A result that can be computed."""

    key: Key
    compute: Callable[[], Outcome]


def row_of(outcome: Outcome) -> Row:
    digest = hashlib.sha256("\n".join(outcome.lines).encode()).hexdigest()[:16]
    return Row(len(outcome.lines), digest, outcome.summary)


def read_table(part: str) -> dict[Key, Row]:
    """The frozen rows of a part; empty if nothing is frozen yet."""
    path = DATA / f"{part}.tsv"
    cells = [line.split("\t") for line in path.read_text().splitlines()[1:]] if path.is_file() else []
    return {Key(log, policy, setting): Row(int(n), found, text) for log, policy, setting, n, found, text in cells}


def write_table(part: str, table: dict[Key, Row]) -> None:
    lines = ("\t".join([*key, *map(str, row)]) for key, row in sorted(table.items()))
    DATA.mkdir(exist_ok=True)
    (DATA / f"{part}.tsv").write_text("\n".join([HEADER, *lines]) + "\n")


def differences(frozen: dict[Key, Row], computed: Iterable[tuple[Key, Row]]) -> Iterator[str]:
    """What differs from the frozen rows, in words. Summaries are for readers and are not compared."""
    for key, row in computed:
        before = frozen.get(key)
        if before is None:
            yield f"{key}: not frozen"
        elif before[:2] != row[:2]:
            told = (f"{one.rows} lines {one.hash} ({one.summary})" for one in (before, row))
            yield f"{key}: frozen {', now '.join(told)}"
