"""The leaderboard: every built-in policy on a fixed list of scenarios, and one's own beside them.

All cells share their workers and one result directory; what is done is never done again, so a policy of one's own costs
only its own cells where the board was made before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from berth.errors import InvalidInput, UnknownName
from berth.families import FAMILIES
from berth.families.lab import Board, LabFamily
from berth.lab.run.compare import Interrupted
from berth.lab.run.manifest import manifest, now, versions
from berth.lab.run.plans import Outcome, Progress, RunPlan, Stopped, part_of, plan_comparison, run_plans, worker_count
from berth.lab.run.processes import leave_if_imported_by_worker, run_cells
from berth.lab.run.results import OracleRow, Row, Unsupported
from berth.lab.run.store import opened
from berth.registry import PolicySpec, written
from berth.scenario import load_scenario

if TYPE_CHECKING:
    import polars as pl

__all__ = ["BOARDS", "Leaderboard", "Standing", "leaderboard", "policies_of"]

KIND = "berth leaderboard"


SEEDS, QUICK_SEEDS = 6, 2

BOARDS: Mapping[str, tuple[Board, ...]] = {name: family.lab.boards for name, family in FAMILIES.items()}
"""The whole list, by family; numbers are chosen so that all of it takes less than ten minutes on two cores."""


def policies_of(family: str) -> list[str]:
    """The built-in policies of a family; of several names for the same one only the first.

    >>> "hswf" in policies_of("selection"), "hauf" in policies_of("selection")
    (False, True)
    """
    policies = FAMILIES[family].policies
    first = {target: name for name, target in reversed(policies.items())}
    return [name for name, target in policies.items() if first[target] == name]


@dataclass(frozen=True, eq=False)
class Standing:
    """What came of one scenario: rows by information setting and policy, the best reward first."""

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
        """The rows of one setting."""
        return [row for row in self.rows if row.information == information]

    def share(self, row: Row) -> float | None:
        """The part of the oracle's reward, or where there is no oracle of the best policy's, that a policy earns."""
        if row.fraction_of_oracle is not None:
            return row.fraction_of_oracle.mean
        best = self.shown(row.information)[0].reward
        return None if row.reward is None or best is None or best.mean <= 0 else row.reward.mean / best.mean

    def as_dict(self) -> dict[str, Any]:
        """The standing for JSON."""
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
    """Everything that came of `leaderboard`."""

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
        """All of it as JSON takes it."""
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
    """Run every built-in policy, and `policies` beside them, on the scenarios of their families.

    `families` are those of `policies` unless they are named, and all where neither is. With `out`, every finished cell
    is kept there at once, and the tables are written there.
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
            directory.create({**manifest(facts), "kind": KIND})
        standings: dict[int, Standing] = {}
        reused = 0

        def finished(place: int, outcome: Outcome) -> None:
            nonlocal reused
            standings[place] = _standing(boards[place][1], plans[place], outcome)
            reused += outcome.reused

        # in processes of their own: a policy that kills its process must not end the others
        runner = partial(run_cells, workers=worker_count(workers), apart=True)
        try:
            run_plans(plans, directory, runner, progress, finished)
        except Stopped as stop:
            raise Interrupted(stop.done, stop.total, None if out is None else os.fspath(out)) from stop
        ordered = tuple(standings[place] for place in range(len(plans)))
        found = Leaderboard(ordered, plans[0].seeds, quick, reused, time.perf_counter() - began, facts)
        if directory is not None:
            directory.write("leaderboard.parquet", found.frame().write_parquet)
            directory.write_json("leaderboard.json", found.as_dict())
            done = manifest(facts, now(), reused, len(found.failed))
            directory.write_json("manifest.json", {**done, "kind": KIND})  # last: only now is everything there
        return found


def _own(policies: Sequence[str | type[Any]]) -> dict[str, list[str]]:
    """Policies of one's own by family; each must say which it is of."""
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
        # as if the scenario named them: one that cannot serve it is listed there and stops nothing
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
        load_scenario(board.scenario).title or board.scenario,  # without what is changed in it
        comparison.family,
        plan.slots,
        plan.baseline,
        plan.information,
        comparison.rows,
        comparison.oracle_rows,
        comparison.unsupported,
        {str(cell): failure.error for cell, failure in comparison.failed.items()},
    )
