"""Verdicts that changed between two runs, each with its reason.

`python -m scripts.verdicts OLD NEW [--docs PAGE]` prints the changes as a Markdown table, or writes them to a page.
Both runs are files that `berth reproduce` wrote: `results.json`, or the documentation page (`--docs`). A page has
rounded effects, and pages of earlier versions have other verdicts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.errors import BerthError, InvalidInput
from berth.lab.reproduce.results import Verdict, verdict_of
from berth.lab.show.words import percent
from berth.statistics import Estimate

__all__ = ["REASONS", "Change", "changed_verdicts", "render_changes"]

REASONS = {
    "new": "the claim was not in the earlier run",
    "gone": "the claim is not in the later run",
    "unclear": "one of the runs does not judge the claim, because the paper leaves something open",
    "rule": "the rule changed: it gives the earlier effect the later verdict",
    "discoveries": "the interval is on one side of zero, but is no discovery among all claims of the run",
    "interval": "the intervals of both runs overlap, and the verdict depends on where exactly they end",
    "effect": "the effect is another one: the intervals of both runs do not overlap",
}
"""Why a verdict changed; the first that applies."""

SIDES = {"more": "more", "less": "less", "the same": "same"}
_NAME = re.compile(r"`berth reproduce ([^`]+)`")
_EFFECT = re.compile(r"([+-]?[\d.]+) %(?: ± ([\d.]+))?")


@dataclass(frozen=True)
class _Judged:
    """A claim of a file: the paper's number or side, the effect as printed, and the verdict."""

    says: str
    value: float | None
    direction: str | None
    effect: Estimate | None
    verdict: str


@dataclass(frozen=True)
class Change:
    """A claim with another verdict than before; None where a run does not have it. Effects are fractions."""

    experiment: str
    says: str
    before: str | None
    after: str | None
    effect_before: float | None
    effect_after: float | None
    reason: str


def changed_verdicts(old: str | os.PathLike[str], new: str | os.PathLike[str]) -> list[Change]:
    """Every claim whose verdict differs between two files that `berth reproduce` wrote, in the order of the later.

    Experiments that are only in the earlier file are left out: the later run may be a part.
    """
    before, after = _read(Path(old)), _read(Path(new))
    found: list[Change] = []
    for name, claims in after.items():
        left = list(before.get(name, ()))
        for claim in claims:
            earlier = next((one for one in left if _same(one.says, claim.says)), None)
            if earlier is not None:
                left.remove(earlier)
            if earlier is None or earlier.verdict != claim.verdict:
                found.append(_change(name, earlier, claim))
        found += [_change(name, earlier, None) for earlier in left]
    return found


def _same(one: str, other: str) -> bool:
    """Whether two texts are the same claim; a page adds in parentheses what the paper leaves open."""
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith(f"{short} (")


def _change(name: str, before: _Judged | None, after: _Judged | None) -> Change:
    either = after or before
    return Change(
        name,
        "" if either is None else either.says,
        None if before is None else before.verdict,
        None if after is None else after.verdict,
        before.effect.mean if before is not None and before.effect is not None else None,
        after.effect.mean if after is not None and after.effect is not None else None,
        _reason(before, after),
    )


def _reason(before: _Judged | None, after: _Judged | None) -> str:
    if before is None or after is None:
        return "new" if before is None else "gone"
    if Verdict.unclear.value in (before.verdict, after.verdict):
        return "unclear"
    one, other = before.effect, after.effect
    if verdict_of(one, after.value, after.direction).value == after.verdict:
        return "rule"
    if one is None or other is None or None in (one.low, one.high, other.low, other.high):
        return "effect"
    if after.verdict == Verdict.undecided.value and not other.low <= 0.0 <= other.high:  # type: ignore[operator]
        return "discoveries"
    overlap = one.low <= other.high and other.low <= one.high  # type: ignore[operator]
    return "interval" if overlap else "effect"


def _read(path: Path) -> dict[str, list[_Judged]]:
    """The claims of a file by experiment."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput("a file that berth reproduce wrote", found=str(error), file=path) from error
    try:
        found = _of_results(json.loads(text)) if path.suffix == ".json" else dict(_of_page(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput("results.json, or a page that --docs wrote", found=str(error), file=path) from error
    if not any(found.values()):
        raise InvalidInput("results.json, or a page that --docs wrote", found="no claims", file=path)
    return found


def _of_results(results: Mapping[str, Any]) -> dict[str, list[_Judged]]:
    return {one["experiment"]: [_of_claim(claim) for claim in one["claims"]] for one in results["experiments"]}


def _of_claim(claim: Mapping[str, Any]) -> _Judged:
    paper, effect = claim["paper"], claim["printed"]
    value, direction = (None, paper) if isinstance(paper, str) else (float(paper), None)
    return _Judged(claim["says"], value, direction, effect and Estimate(**effect), claim["verdict"])


def _of_page(text: str) -> Iterator[tuple[str, list[_Judged]]]:
    for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        name = _NAME.search(part)
        rows = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in part.splitlines() if line.startswith("| ")]
        if name is not None and rows:
            yield name[1], [_of_row(row) for row in rows[1:]]


def _of_row(row: Sequence[str]) -> _Judged:
    says, paper, printed, _, _, verdict, _ = row
    told = None if paper in SIDES else _effect(paper)
    value = None if told is None else told.mean
    return _Judged(says.replace("\\|", "|"), value, SIDES.get(paper), _effect(printed), verdict)


def _effect(text: str) -> Estimate | None:
    """An effect as a page prints it, such as −17.4 % ± 1.8."""
    found = _EFFECT.search(text.replace("−", "-"))
    if found is None:
        return None
    mean = float(found[1])
    if found[2] is None:
        return Estimate(mean / 100, None, None, 0)
    half = float(found[2])
    return Estimate(mean / 100, round(mean - half, 1) / 100, round(mean + half, 1) / 100, 0)


def render_changes(changes: Sequence[Change]) -> str:
    """A Markdown table of all changes, and the meaning of each reason."""
    lines = ["| experiment | claim | before | after | reason |", "|---|---|---|---|---|"]
    for one in changes:
        told = [
            "–" if verdict is None else f"{verdict} ({percent(effect, sign=True)})"
            for verdict, effect in ((one.before, one.effect_before), (one.after, one.effect_after))
        ]
        cells = [one.experiment, one.says, *told, one.reason]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    used = [name for name in REASONS if any(one.reason == name for one in changes)]
    lines += [""] + [f"* **{name}** ({sum(one.reason == name for one in changes)}): {REASONS[name]}." for name in used]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", help="results.json, or a page that berth reproduce --docs wrote")
    parser.add_argument("new", help="the same of the later run")
    parser.add_argument("--docs", type=Path, help="write the table to this file")
    given = parser.parse_args(arguments)
    try:
        found = changed_verdicts(given.old, given.new)
    except BerthError as error:
        parser.error(str(error))
    if given.docs is None:
        print(render_changes(found))
    else:
        given.docs.write_text(render_changes(found), encoding="utf-8")
    print(f"{len(found)} verdicts changed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
