"""Leaderboard: every built-in policy on a fixed list of scenarios, with user policies beside them.

All cells share their workers and one result directory, and finished cells are reused: adding a policy to an existing
board runs only the cells of that policy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from berth.errors import InvalidInput, UnknownName
from berth.families import BUILTIN, FAMILIES
from berth.families.lab import Board, LabFamily
from berth.lab.run.plans import Outcome, Progress, RunPlan, part_of, plan_comparison, run_plans, worker_count
from berth.lab.run.processes import leave_if_imported_by_worker, run_cells
from berth.lab.run.results import OracleRow, Row, Unsupported, spoken
from berth.lab.run.store import now, opened, versions
from berth.lab.show.tables import as_table, fitted
from berth.lab.show.words import MISSING, needs, number, percent, plus_minus
from berth.registry import PolicySpec, written
from berth.scenario import load_scenario
from berth.statistics import Estimate

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "BOARDS",
    "Leaderboard",
    "Standing",
    "leaderboard",
    "policies_of",
    "print_leaderboard",
    "render_leaderboard",
]

KIND = "berth leaderboard"
BROKEN = "†"
YOURS = "←"
"""Marks a policy that is not built in."""


SEEDS, QUICK_SEEDS = 6, 2

BOARDS: Mapping[str, tuple[Board, ...]] = {name: family.lab.boards for name, family in FAMILIES.items()}
"""All scenarios by family; sized to take less than ten minutes on two cores."""


UNRANKED = ("learned-order",)
"""Policies that are trained for the log of one cluster: no scenario of the leaderboard is one."""


def policies_of(family: str) -> list[str]:
    """Built-in policies of a family, without aliases and those that are not ranked.

    >>> "hswf" in policies_of("selection"), "hauf" in policies_of("selection")
    (False, True)
    """
    policies = FAMILIES[family].policies
    first = {target: name for name, target in reversed(policies.items())}
    return [name for name, target in policies.items() if first[target] == name and name not in UNRANKED]


@dataclass(frozen=True, eq=False)
class Standing:
    """Result of one scenario: rows by information setting and policy, the best reward first."""

    board: Board
    title: str
    family: LabFamily
    horizon: int
    baseline: str
    information: tuple[str, ...]
    rows: tuple[Row, ...]
    oracles: tuple[OracleRow, ...]
    unsupported: tuple[Unsupported, ...]
    failed: Mapping[str, str]

    def shown(self, information: str) -> list[Row]:
        """Rows of one information setting."""
        return [row for row in self.rows if row.information == information]

    def share(self, row: Row) -> float | None:
        """Share of the oracle's reward that a policy earns, or of the best policy's if there is no oracle."""
        if row.fraction_of_oracle is not None:
            return row.fraction_of_oracle.mean
        best = self.shown(row.information)[0].reward
        return None if row.reward is None or best is None or best.mean <= 0 else row.reward.mean / best.mean

    def as_dict(self) -> dict[str, Any]:
        """The standing as a dictionary, for JSON."""
        return {
            "family": self.family.name,
            "scenario": self.board.scenario,
            "horizon": self.horizon,
            "baseline": self.baseline,
            "summary": [{**row.as_dict(self.family.left_out), "share": self.share(row)} for row in self.rows],
            "oracles": [row.as_dict() for row in self.oracles],
            "unsupported": [vars(item) for item in self.unsupported],
            "failed": dict(self.failed),
        }


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """Result of `leaderboard`."""

    standings: tuple[Standing, ...]
    seeds: tuple[int, ...]
    quick: bool
    reused: int
    seconds: float
    facts: Mapping[str, Any]

    @property
    def failed(self) -> dict[str, str]:
        """Cells that failed, by scenario and cell."""
        return {f"{s.board.scenario}, {cell}": error for s in self.standings for cell, error in s.failed.items()}

    def frame(self) -> pl.DataFrame:
        """A row for each scenario, information setting and policy; `share` is of the oracle, or of the best."""
        import polars as pl

        rows = [
            {
                "family": standing.family.name,
                "scenario": standing.board.scenario,
                "slots": standing.horizon,
                "baseline": standing.baseline,
                "share": standing.share(row),
                **row.flat(),
            }
            for standing in self.standings
            for row in standing.rows
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def as_dict(self) -> dict[str, Any]:
        """The leaderboard as a dictionary, for JSON."""
        return {
            "quick": self.quick,
            "seeds": list(self.seeds),
            "standings": [standing.as_dict() for standing in self.standings],
            "cells_reused": self.reused,
            "seconds": round(self.seconds, 3),
        }


def leaderboard(
    policies: Sequence[str | type[Any]] = (),
    families: Sequence[str] | None = None,
    *,
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Leaderboard:
    """Run every built-in policy, and the given `policies`, on the scenarios of their families.

    `families` defaults to those of `policies`, or to all. With `out`, every finished cell is saved there at once, and
    the tables are written there.
    """
    leave_if_imported_by_worker()
    began = time.perf_counter()
    own = _own(policies)
    wanted = list(BOARDS) if families is None and not own else list(own) if families is None else list(families)
    for name in wanted:
        if name not in BOARDS:
            raise UnknownName("family", name, BOARDS)
    boards = [(family, board) for family in BOARDS if family in wanted for board in BOARDS[family]]
    seeds = QUICK_SEEDS if quick else SEEDS
    plans = [_plan(family, board, own.get(family, []), seeds, quick) for family, board in boards]
    with opened(out, KIND) as directory:
        facts: dict[str, Any] = {
            "quick": quick,
            "seeds": list(plans[0].seeds),
            "boards": [{**plan.facts(), "scenario": b.scenario} for plan, (_, b) in zip(plans, boards, strict=True)],
            "versions": versions(),
            "started": now(),
        }
        if directory is not None:
            directory.create(facts)
        standings: dict[int, Standing] = {}
        reused = 0

        def finished(place: int, outcome: Outcome) -> None:
            nonlocal reused
            standings[place] = _standing(boards[place][1], plans[place], outcome)
            reused += outcome.reused

        # in separate processes: a policy that crashes its process must not end the others
        runner = partial(run_cells, workers=worker_count(workers), apart=True)
        run_plans(plans, directory, runner, progress, finished)
        ordered = tuple(standings[place] for place in range(len(plans)))
        found = Leaderboard(ordered, plans[0].seeds, quick, reused, time.perf_counter() - began, facts)
        if directory is not None:
            directory.write_table("leaderboard.parquet", found.frame())
            directory.write_json("leaderboard.json", found.as_dict())
            done = directory.described(facts, now(), reused, len(found.failed))
            directory.write_json("manifest.json", done)  # last: marks a complete directory
        return found


def _own(policies: Sequence[str | type[Any]]) -> dict[str, list[str]]:
    """User policies by family; each class must declare its family."""
    found: dict[str, list[str]] = {}
    for policy in policies:
        spec = PolicySpec.parse(written(policy))
        if spec.name.startswith("__main__:"):
            raise InvalidInput("a class in a module, as mymodule:MyPolicy", value=spec.name, key="policy")
        family = getattr(spec.load(), "family", None)
        if family not in FAMILIES:
            expected = f"a class that says its family: family = {' or '.join(map(repr, FAMILIES))}"
            raise InvalidInput(expected, found=f"family = {family!r}", key=f"policy {str(spec)!r}")
        found.setdefault(family, []).append(str(spec))
    return found


def _plan(family: str, board: Board, own: Sequence[str], seeds: int, quick: bool) -> RunPlan:
    changes = {
        # as if the scenario named them: a policy that cannot serve it is listed and stops nothing
        "policies": list(dict.fromkeys([*policies_of(family), *own])),
        "baseline": FAMILIES[family].lab.baseline,
        "horizon": board.quick if quick else board.slots,
    }
    arrivals = "both" if len(FAMILIES[family].lab.information) > 1 else None
    return plan_comparison(board.scenario, None, seeds, None, arrivals, ["slot"] if board.oracle else [], changes)


def _standing(board: Board, plan: RunPlan, outcome: Outcome) -> Standing:
    comparison = part_of(plan, outcome)
    return Standing(
        board,
        load_scenario(board.scenario).title or board.scenario,  # without its overrides
        comparison.family,
        plan.slots,
        plan.baseline,
        plan.information,
        comparison.rows,
        comparison.oracle_rows,
        comparison.unsupported,
        {str(cell): failure.error for cell, failure in comparison.failed.items()},
    )


# --- the page, and the table in the terminal


def render_leaderboard(found: Leaderboard, command: str, machine: str) -> str:
    """Render the page: a share table for each family, then every scenario with all numbers."""
    version = found.facts["versions"].get("berth", "")
    lines = [
        "# Leaderboard",
        "",
        f"Written by `{command}`, berth {version}. Every built-in policy, with default settings, on the same "
        f"scenarios, under seeds {found.seeds[0]} to {found.seeds[-1]} and with common random numbers. Some horizons "
        "are shorter than those of the scenarios, so that the whole board takes less than ten minutes on two cores. "
        "`berth leaderboard --policy mymodule:MyPolicy` adds a policy of your own.",
        "",
        "± is half of the 95 % interval over seeds. *Difference* is the reward per slot minus the baseline's under "
        "the same seed; if its interval contains 0, these seeds do not distinguish the two. *µs* is the median time of "
        f"a decision with its learning step on one machine ({machine}), with all cores busy: it differs between "
        "machines. All other numbers are reproducible.",
        "",
    ]
    lines += ["This is the quick version: a few slots, to check that everything runs.", ""] if found.quick else []
    for family in dict.fromkeys(standing.family.name for standing in found.standings):
        mine = [standing for standing in found.standings if standing.family.name == family]
        lines += [f"## {family.capitalize()}", "", f"Baseline: `{mine[0].baseline}`.", ""]
        lines += [_sentence(mine), ""]
        for information in mine[0].information:
            lines += [f"{spoken(information)}:", ""] if len(mine[0].information) > 1 else []
            lines += [*_markdown(*_glance(mine, information)), ""]
        for standing in mine:
            lines += _section(standing)
    return "\n".join(lines).rstrip() + "\n"


def print_leaderboard(found: Leaderboard, console: Console) -> None:
    """Print, for each family, the share of the oracle's or best reward that each policy earns."""
    for family in dict.fromkeys(standing.family.name for standing in found.standings):
        mine = [standing for standing in found.standings if standing.family.name == family]
        for information in mine[0].information:
            heads, rows = _glance(mine, information)
            setting = f": {spoken(information).lower()}" if len(mine[0].information) > 1 else ""
            title = f"{family.capitalize()}{setting}"
            plain = [[cell.replace("`", "").replace("**", "") for cell in row] for row in rows]
            table = partial(as_table, heads, plain, title=title)
            console.print(fitted(console, lambda narrow, table=table: table(stack=12 if narrow else 0)))  # type: ignore[misc]
            console.print()
        console.print(Text(_sentence(mine).replace("`", ""), style="dim"))
        console.print()


def _sentence(standings: Sequence[Standing]) -> str:
    with_oracle = any(standing.oracles for standing in standings)
    of_best = [f"`{standing.board.scenario}`" for standing in standings if not standing.oracles]
    said = "Share of the oracle's reward that each policy earns" if with_oracle else "Share of the best reward"
    if with_oracle and of_best:
        said += f" (in {' and '.join(of_best)}, of the best policy's)"
    order = "policies that serve most scenarios first, then the best on average"
    own = any(_is_own(row.policy) for standing in standings for row in standing.rows)
    yours = f" {YOURS}: your own policy." if own else ""
    return f"{said}: {order}. {MISSING}: the policy cannot serve the scenario, or failed.{yours}"


def _is_own(policy: str) -> bool:
    return PolicySpec.parse(policy).name not in BUILTIN


def _named(policy: str) -> str:
    """A policy in a table of the page; one that is not built in is marked."""
    return f"**`{policy}`** {YOURS}" if _is_own(policy) else f"`{policy}`"


def _glance(standings: Sequence[Standing], information: str) -> tuple[list[str], list[list[str]]]:
    """Table of policies by scenario: share of the oracle's reward, or of the best policy's."""
    shares: dict[str, dict[int, float]] = {}
    for place, standing in enumerate(standings):
        for row in standing.shown(information):
            share = standing.share(row)
            shares.setdefault(row.policy, {}).update({} if share is None else {place: share})

    def standing_of(policy: str) -> tuple[int, float]:
        # policies that serve more scenarios come first: an average over easy scenarios alone would mislead
        found = shares[policy]
        return -len(found), -sum(found.values()) / max(len(found), 1)

    rows = [
        [_named(policy), *(percent(shares[policy].get(place)) for place in range(len(standings)))]
        for policy in sorted(shares, key=standing_of)
    ]
    return ["policy", *(standing.board.scenario for standing in standings)], rows


def _section(standing: Standing) -> list[str]:
    lines = [
        f"### {standing.board.scenario}",
        "",
        f"{standing.title.rstrip('.')}. Played: {standing.horizon} slots.",
        "",
    ]
    for information in standing.information:
        if len(standing.information) > 1:
            lines += [f"{spoken(information)}:", ""]
        rows = standing.shown(information)
        lines += _markdown(*_numbers(standing, rows)) if rows else ["No policy finished."]
        lines.append("")
        reasons = [needs(item) for item in standing.unsupported if item.information in (information, "oracle")]
        lines += [f"Not here: {'; '.join(reasons)}.", ""] if reasons else []
    if any(row.violations for row in standing.rows):
        lines += [f"{BROKEN} Some decisions broke constraints; the simulator repaired them before it played them.", ""]
    if standing.failed:
        lines += ["Failed:", "", *(f"* {cell}: {error}" for cell, error in standing.failed.items()), ""]
    return lines


def _numbers(standing: Standing, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    heads = ["policy", "reward a slot", "of the oracle" if standing.oracles else "of the best", "difference", "µs"]
    cells = []
    for row in rows:
        same = row.policy == standing.baseline
        cells.append(
            [
                _named(row.policy) + (f" {BROKEN}" if row.violations else ""),
                _estimate(row.reward),
                percent(standing.share(row)),
                "baseline" if same else _estimate(row.difference),
                number(row.decide_microseconds, 3),
            ]
        )
    for oracle in standing.oracles:
        words = standing.family.oracle_words[oracle.oracle]
        cells.append([words.row, _estimate(oracle.reward), "", "", ""])
    return heads, cells


def _estimate(value: Estimate | None) -> str:
    return " ".join(plus_minus(value)).strip()


def _markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Markdown table; the first column is text, the others are numbers."""
    marks = ["---", *("---:" for _ in heads[1:])]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in (heads, marks, *rows)]
