"""Freeze results, or hold berth against the frozen ones: `python -m tests.frozen [--check] [PART or LOG …]`."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.frozen.journals import journals, write_journals
from tests.frozen.plans import rehearsals, reproduced
from tests.frozen.schedules import public_schedules, schedules
from tests.frozen.stores import stores
from tests.frozen.tables import Case, differences, read_table, row_of, write_table

__all__ = ["PARTS", "main"]

PARTS: Mapping[str, Callable[[], Iterator[Case]]] = {
    "schedules": schedules,
    "journals": journals,
    "rehearsals": rehearsals,
    "verdicts": reproduced,
    "stores": stores,
    "public": public_schedules,
}
"""Parts of what is frozen, each with a table; `public` is there where the folder of traces is."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PART or LOG", help="only these; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a result differs")
    parser.add_argument("--policy", help="only this policy")
    parser.add_argument("--show", action="store_true", help="print the lines behind the hashes, to compare versions")
    parser.add_argument("--journals", action="store_true", help="play the journals anew before")
    asked = parser.parse_args(arguments)
    if asked.journals:
        write_journals()
    wrong = 0
    for part, cases in PARTS.items():
        whole = not asked.names or part in asked.names
        for log, some in itertools.groupby(cases(), key=lambda case: case.key.log):
            chosen = [case for case in some if asked.policy in (None, case.key.policy)]
            if chosen and (whole or log in asked.names):
                wrong += _done(part, log, chosen, asked.check, asked.show)
    return int(wrong > 0)


def _done(part: str, log: str, cases: Sequence[Case], check: bool, show: bool) -> int:
    """Compute the cases of a log; print the differences, or write them to the table at once."""
    began, frozen = time.process_time(), read_table(part)
    found = {}
    for case in cases:
        outcome = case.compute()
        found[case.key] = row_of(outcome)
        if show:
            print(*(f"{case.key}\t{line}" for line in outcome.lines), sep="\n")
    compared = found if check else {key: row for key, row in found.items() if key in frozen}
    told = list(differences(frozen, compared.items()))
    print(*told, sep="\n", end="\n" if told else "")
    if not check and not show:
        policies = {case.key.policy for case in cases}
        kept = {key: row for key, row in read_table(part).items() if key.log != log or key.policy not in policies}
        write_table(part, {**kept, **found})
    seconds = time.process_time() - began
    print(f"{part} {log}: {len(cases)} results, {len(told)} differ, {seconds:.1f} s", file=sys.stderr, flush=True)
    return len(told)


if __name__ == "__main__":
    sys.exit(main())
