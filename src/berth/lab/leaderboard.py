"""Leaderboard: every built-in policy on a fixed list of scenarios, with user policies beside them.

A board is a sweep file of each family, in `berth/data/leaderboards/`. All cells share their workers and one result
directory, and finished cells are reused: adding a policy to an existing board runs only the cells of that policy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from berth.about import HOME
from berth.errors import InvalidInput, UnknownName
from berth.families import BUILTIN, FAMILIES
from berth.families.lab import LabFamily
from berth.lab.run.plans import RunPlan
from berth.lab.run.results import Comparison, OracleRow, Row, Unsupported, spoken
from berth.lab.run.runner import Progress
from berth.lab.run.store import ResultDirectory
from berth.lab.run.sweep import Point, Sweep, SweepFile, load_sweep, sweep
from berth.lab.show.page import rendered
from berth.lab.show.tables import as_table, fitted
from berth.lab.show.words import MISSING, needs, percent
from berth.registry import PolicySpec, written
from berth.scenario import load_scenario

if TYPE_CHECKING:
    import polars as pl

__all__ = ["BOARDS", "Leaderboard", "Standing", "leaderboard", "print_leaderboard", "render_leaderboard"]

KIND = "berth leaderboard"
BROKEN = "†"
YOURS = "←"
"""Marks a policy that is not built in."""
QUICK_SEEDS = 2
QUICK_SLOTS = {"allocation": 10, "selection": 20, "placement": 2}

BOARDS = {name: HOME / "data" / "leaderboards" / f"{name}.yaml" for name in FAMILIES}
"""The sweep file of each family."""


@dataclass(frozen=True, eq=False)
class Standing:
    """Result of one scenario: rows by information setting and policy, the best reward first."""

    scenario: str
    title: str
    family: LabFamily
    horizon: int
    baseline: str
    information: tuple[str, ...]
    rows: tuple[Row, ...]
    oracles: tuple[OracleRow, ...]
    unsupported: tuple[Unsupported, ...]
    failed: Mapping[str, str]

    @classmethod
    def of(cls, point: Point, plan: RunPlan, comparison: Comparison) -> Standing:
        """The standing at a point of the sweep."""
        scenario = str(point.changes["scenario"])
        return cls(
            scenario,
            load_scenario(scenario).title or scenario,  # without its overrides
            comparison.family,
            plan.slots,
            plan.baseline,
            plan.information,
            comparison.rows,
            comparison.oracle_rows,
            comparison.unsupported,
            {str(cell): failure.error for cell, failure in comparison.failed.items()},
        )

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
            "scenario": self.scenario,
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

    @property
    def failed(self) -> dict[str, str]:
        """Cells that failed, by scenario and cell."""
        return {f"{s.scenario}, {cell}": error for s in self.standings for cell, error in s.failed.items()}

    def frame(self) -> pl.DataFrame:
        """A row for each scenario, information setting and policy; `share` is of the oracle, or of the best."""
        import polars as pl

        rows = [
            {
                "family": standing.family.name,
                "scenario": standing.scenario,
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
    own = _own(policies)
    wanted = families if families is not None else own or BOARDS
    for name in wanted:
        if name not in BOARDS:
            raise UnknownName("family", name, BOARDS)
    points = [point for name in BOARDS if name in wanted for point in _points(name, own.get(name, []), quick)]
    standings: dict[int, Standing] = {}
    seeds: list[int] = []

    def note(point: Point, plan: RunPlan, comparison: Comparison) -> None:
        standings[point.number] = Standing.of(point, plan, comparison)
        seeds[:] = plan.seeds

    def concluded(found: Sweep) -> Leaderboard:
        ordered = tuple(standings[place] for place in range(len(points)))
        return Leaderboard(ordered, tuple(seeds), quick, found.reused, found.seconds)

    def report(directory: ResultDirectory, found: Sweep, _: object) -> None:
        board = concluded(found)
        directory.write_table("leaderboard.parquet", board.frame())
        directory.write_json("leaderboard.json", board.as_dict())

    plan = SweepFile.model_validate({"title": "Leaderboard", "points": points})
    return concluded(sweep(plan, out=out, workers=workers, progress=progress, report=report, each=note, kind=KIND))


def _points(family: str, own: Sequence[str], quick: bool) -> list[dict[str, Any]]:
    """The points of a board, each with all that its file says."""
    board = load_sweep(BOARDS[family])
    shared: dict[str, Any] = {
        "policies": [*(board.policies or ()), *own],
        "baseline": board.baseline,
        "oracles": board.oracles,
        "seeds": QUICK_SEEDS if quick else board.seeds,
        **({"arrivals_known": board.arrivals} if board.arrivals else {}),
    }
    return [{**shared, **point, **({"horizon": QUICK_SLOTS[family]} if quick else {})} for point in board.points]


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


# --- the page, and the table in the terminal


def render_leaderboard(found: Leaderboard, command: str, machine: str) -> str:
    """Render the page: a share table for each family, then every scenario with all numbers."""
    families = dict.fromkeys(standing.family.name for standing in found.standings)
    return rendered(
        "leaderboard.md",
        found=found,
        command=command,
        machine=machine,
        families={name: [one for one in found.standings if one.family.name == name] for name in families},
        broken=BROKEN,
        glance=_glance,
        named=_named,
        reasons_of=_reasons,
        sentence=_sentence,
        spoken=spoken,
    )


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
    of_best = [f"`{standing.scenario}`" for standing in standings if not standing.oracles]
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
    return ["policy", *(standing.scenario for standing in standings)], rows


def _reasons(standing: Standing, information: str) -> list[str]:
    return [needs(item) for item in standing.unsupported if item.information in (information, "oracle")]
