"""Cells of comparisons: one policy under one seed and one information setting, or one oracle under one seed.

The key of a cell covers all that its numbers depend on: berth's code and the policy's file, the scenario, the seed.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from berth.about import HOME
from berth.errors import InvalidInput, UnknownName
from berth.families import FAMILIES
from berth.families.lab import HIDDEN, REVEALED, LabFamily
from berth.lab.run.runner import CellKind, Work
from berth.lab.run.store import ResultDirectory
from berth.model import Floats
from berth.random import stream
from berth.registry import PolicySpec
from berth.scenario import Scenario
from berth.simulation import Result, simulate

__all__ = [
    "COMPARED",
    "HIDDEN",
    "REVEALED",
    "Cell",
    "CellResult",
    "ComparedCells",
    "cell_key",
    "check_unchanged",
    "code_hash",
    "result_of",
    "run_cell",
    "run_in",
    "source_hash",
]

# Keys of a scenario that change no number of a cell: changing them must not invalidate finished cells.
NOT_IN_KEY = ("name", "title", "description", "policies", "baseline", "seeds", "oracles", "arrivals_known")


# Folders whose code can change a number of a cell, besides the modules above them.
COUNTED = ("families", "files", "gym", "kernels", "lab/run", "scenario", "traces")

# Parts of those that no cell runs.
UNUSED = ("families/placement/training", "ray.py", "ray_nodes.py")


@dataclass(frozen=True)
class Cell:
    """`name` is a policy as written, or an oracle of the family (then `information` is None, as it does not matter)."""

    name: str
    seed: int
    information: str | None = None

    @property
    def is_oracle(self) -> bool:
        """Whether this is an oracle's cell."""
        return self.information is None

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}" + ("" if self.is_oracle else f", arrivals {self.information}")


@dataclass(frozen=True, eq=False)
class CellResult:
    """Result of a cell.

    `series` holds arrays (T,): for a policy reward, claimed, violations, decide_seconds and the measures of its family;
    for an oracle only reward. `share` is the mean share of each server that each port held, (ports, servers), grouped
    if there are many. `bound` is an oracle's certified upper bound on the total reward.
    """

    series: Mapping[str, Floats]
    share: Floats | None = None
    bound: float = field(default=math.nan)

    @property
    def reward(self) -> Floats:
        """Reward of each slot, (T,)."""
        return self.series["reward"]

    def mean(self, name: str) -> float:
        """Mean of one series over slots."""
        return float(self.series[name].mean())


@cache
def code_hash(*more: str, family: str | None = None) -> str:
    """Hash of the code and networks of berth that can change a number, and of `more` folders.

    With a `family`, only of the code that can change its numbers: families do not import each other.
    """
    others = [name for name in FAMILIES if family is not None and name != family]
    unused = [HOME / name for name in (*UNUSED, *(f"families/{name}" for name in others))]
    counted = [
        path
        for name in (*COUNTED, *more)
        for kind in ("*.py", "*.json*", "*.cu*")
        for path in (HOME / name).rglob(kind)
    ]
    files = sorted(
        path for path in [*HOME.glob("*.py"), *counted] if not any(path.is_relative_to(part) for part in unused)
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def check_unchanged(name: str) -> None:
    """Refuse a policy whose file changed after its import: this process has the old class, others the new."""
    if _source(_class(name)) != _digest(_class(name)):
        expected = "a module as it was imported: restart, or importlib.reload it"
        raise InvalidInput(expected, found="a file that was changed since", key=f"policy {name!r}")


def source_hash(name: str) -> str:
    """Hash of a policy's package, taken at the first call; empty for berth's own."""
    return _source(_class(name))


def _class(name: str) -> Any:
    return PolicySpec.parse(name).load()


@cache
def _source(cls: Any) -> str:
    """Digest of a policy, taken at the first call."""
    return _digest(cls)


def _digest(cls: Any) -> str:
    """Hash of a policy's package (or single file); empty for berth's own, see `code_hash`."""
    if cls.__module__.partition(".")[0] in ("berth", "__main__"):
        return ""
    file = inspect.getsourcefile(cls)
    if file is None:
        return ""
    path, depth = Path(file), cls.__module__.count(".")
    whole = [path] if depth == 0 else sorted(path.parents[depth - 1].rglob("*.py"))
    # the files of a trained agent (`berth.gym.AgentPolicy.files`) count as its code does
    whole += [read for name in getattr(cls, "files", ()) if (read := Path(name)).is_file()]
    return hashlib.sha256(b"".join(part.read_bytes() for part in whole)).hexdigest()


def cell_key(scenario: Scenario, cell: Cell, device: str = "") -> str:
    """Name under which a finished cell is saved: a hash of all that its numbers depend on.

    `device` names a device and precision whose rounding differs from the CPU's.
    """
    settings = {key: value for key, value in scenario.dump().items() if key not in NOT_IN_KEY}
    source = "" if cell.is_oracle else source_hash(cell.name)
    parts = {
        "berth": code_hash() if source else code_hash(family=scenario.family),  # a user's policy may import any code
        "scenario": settings,
        "name": cell.name,
        "seed": cell.seed,
        "information": cell.information,
        "source": source,
        **({"device": device} if device else {}),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:24]


def run_cell(scenario: Scenario, cell: Cell) -> CellResult:
    """Compute one cell; the numbers are deterministic, except for times."""
    return run_in(FAMILIES[scenario.family].lab, scenario.build(cell.seed, cell.information == REVEALED), cell)


def run_in(family: LabFamily, world: Any, cell: Cell) -> CellResult:
    """Compute a cell in an already built world of this family."""
    if cell.is_oracle:
        if cell.name not in family.oracles:
            raise UnknownName("oracle", cell.name, family.oracles)
        reward, bound = family.oracles[cell.name](world)
        return CellResult({"reward": reward}, bound=bound)
    policy = PolicySpec.parse(cell.name).build(world.problem, stream(cell.seed, "policy", cell.name))
    share = family.share(world.problem)
    run = simulate(world, policy, observers=[share])
    return result_of(run, share.mean())


def result_of(run: Result, share: Floats | None = None) -> CellResult:
    """The result of a policy's cell from its run."""
    series: dict[str, Floats] = {
        "reward": run.reward,
        "claimed": run.claimed,
        "violations": run.violations.astype(np.float64),
        **run.measures,
        "decide_seconds": run.decide_seconds,
    }
    return CellResult(series, share)


SLOTS = 2
"""Slots of a cell that are run to compile its kernels."""


@dataclass(frozen=True)
class ComparedCells(CellKind[Scenario, Cell, CellResult]):
    """Cells of comparisons; `device` names a device and precision whose rounding differs from the CPU's."""

    device: str = ""

    def key(self, context: Scenario, cell: Cell) -> str:
        """A hash of the code, the scenario and the cell."""
        return cell_key(context, cell, self.device)

    def compute(self, context: Scenario, cell: Cell) -> CellResult:
        """The numbers of a policy or an oracle in a world of its own."""
        return run_cell(context, cell)

    def slots(self, result: CellResult) -> int:
        """Number of slots simulated."""
        return len(result.reward)

    def save(self, directory: ResultDirectory, key: str, cell: Cell, result: CellResult) -> None:
        """Write the cell as one row of a Parquet file."""
        import polars as pl  # here, because the import is slow

        row: Mapping[str, Any] = {
            "key": [key],
            "name": [cell.name],
            "seed": [cell.seed],
            "information": pl.Series([cell.information], dtype=pl.String),
            "bound": [result.bound],
            "share": [None] if result.share is None else [result.share.ravel()],
            "share_ports": [0 if result.share is None else len(result.share)],
            **{f"slot_{name}": [values] for name, values in result.series.items()},
        }
        directory.write_table(f"cells/{key}.parquet", pl.DataFrame(row))

    def load(self, directory: ResultDirectory, key: str) -> CellResult:
        """Read the cell; raises if the file is that of another key, or its series differ in length."""
        import polars as pl

        row = pl.read_parquet(directory.path / "cells" / f"{key}.parquet").row(0, named=True)
        series = {
            name.removeprefix("slot_"): np.array(values, dtype=np.float64)
            for name, values in row.items()
            if name.startswith("slot_")
        }
        if row["key"] != key or len({len(values) for values in (series["reward"], *series.values())}) != 1:
            raise ValueError("another cell")
        share = np.array(row["share"]).reshape(row["share_ports"], -1) if row["share_ports"] else None
        return CellResult(series, share, float(row["bound"]))

    def groups(self, contexts: Sequence[Scenario], works: Iterable[Work]) -> list[list[Work]]:
        """Group cells by family if they use its solver, the others by name.

        The solver is by far the largest kernel. Missing that a policy uses it only costs time, so a look at its module
        is enough.
        """
        groups: dict[tuple[bool, str, str], list[Work]] = {}
        for work in works:
            family = contexts[work.place].family
            solver = work.cell.is_oracle or _uses(work.cell.name, FAMILIES[family].lab.solver)
            groups.setdefault((solver, family, "" if solver else work.cell.name), []).append(work)
        return [group for _, group in sorted(groups.items(), key=lambda item: not item[0][0])]

    def alike(self, group: Iterable[Work]) -> list[Work]:
        """One cell of each policy and information setting."""
        return list({(work.cell.name, work.cell.information): work for work in group}.values())

    def warm_up(self, contexts: Sequence[Scenario], works: Iterable[Work]) -> None:
        """Run the first slots of these cells."""
        worlds: dict[tuple[int, bool], Any] = {}
        for place, cell in works:
            with suppress(Exception):  # the cell itself reports any error
                scenario, known = contexts[place], cell.information == REVEALED
                family = FAMILIES[scenario.family].lab
                if (place, known) not in worlds:
                    worlds[place, known] = family.shortened(scenario.build(cell.seed, known), SLOTS)
                run_in(family, worlds[place, known], cell)


COMPARED = ComparedCells()


def _uses(policy: str, solver: str | None) -> bool:
    module = sys.modules.get(_class(policy).__module__)
    if solver is None or module is None:
        return False
    return any(str(getattr(value, "__module__", "")).startswith(solver) for value in vars(module).values())
