"""A cell: one policy under one seed and one information setting, or one oracle under one seed.

A cell depends on nothing but itself, so that cells may run in any order, in any process, or have
been run before: its key covers what its numbers depend on (berth's code and the policy's file, the scenario, the seed).
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
from typing import Any, NamedTuple

import numpy as np

from berth.about import HOME
from berth.errors import InvalidInput, UnknownName
from berth.families import FAMILIES
from berth.families.lab import HIDDEN, REVEALED, LabFamily
from berth.model import Floats
from berth.random import stream
from berth.registry import PolicySpec
from berth.scenario import Scenario
from berth.simulation import simulate

__all__ = [
    "HIDDEN",
    "REVEALED",
    "Cell",
    "CellResult",
    "Work",
    "cell_key",
    "check_unchanged",
    "code_hash",
    "run_cell",
    "run_in",
    "source_hash",
    "warm_groups",
    "warm_up",
]

# What is said of a scenario but changes no number of a cell: changing it must not lose finished cells.
NOT_IN_KEY = ("name", "title", "description", "policies", "baseline", "seeds", "oracles", "arrivals_known")


# Folders whose code can change a number of a cell, beside the modules above them.
COUNTED = ("families", "files", "kernels", "lab/run", "scenario", "traces")

# Of those, what no cell runs.
UNUSED = ("families/placement/training", "gym.py", "ray.py", "ray_nodes.py")


@dataclass(frozen=True)
class Cell:
    """`name` is a policy as written, or an oracle of the family (then `information` is None: no difference)."""

    name: str
    seed: int
    information: str | None = None

    @property
    def is_oracle(self) -> bool:
        """Whether this is an oracle's cell."""
        return self.information is None

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}" + ("" if self.is_oracle else f", arrivals {self.information}")


class Work(NamedTuple):
    """A cell of the scenario at this place of a list."""

    place: int
    cell: Cell


@dataclass(frozen=True, eq=False)
class CellResult:
    """What came of a cell.

    `series` holds arrays (T,): for a policy reward, claimed, violations, decide_seconds and the
    measures of its family; for an oracle only reward. `share` is the mean share of each server that
    each port held, (ports, servers), both grouped where there are many. `bound` is an oracle's
    certified upper bound on the total reward.
    """

    series: Mapping[str, Floats]
    share: Floats | None = None
    bound: float = field(default=math.nan)

    @property
    def reward(self) -> Floats:
        """What was earned in each slot, (T,)."""
        return self.series["reward"]

    def mean(self, name: str) -> float:
        """The mean over slots of one series."""
        return float(self.series[name].mean())


@cache
def code_hash(*more: str) -> str:
    """A hash of all of berth that can change a number, networks too, and of `more` folders: edit it, and cells run."""
    unused = [HOME / name for name in UNUSED]
    counted = [path for name in (*COUNTED, *more) for kind in ("*.py", "*.json*") for path in (HOME / name).rglob(kind)]
    files = sorted(
        path for path in [*HOME.glob("*.py"), *counted] if not any(path.is_relative_to(part) for part in unused)
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def check_unchanged(name: str) -> None:
    """Refuse a policy whose file was edited after it was imported: this process has the old class, others the new."""
    if _source(_class(name)) != _digest(_class(name)):
        expected = "a module as it was imported: restart, or importlib.reload it"
        raise InvalidInput(expected, found="a file that was changed since", key=f"policy {name!r}")


def source_hash(name: str) -> str:
    """A hash of the package a policy is written in, when it was first asked for; nothing for berth's own."""
    return _source(_class(name))


def _class(name: str) -> Any:
    return PolicySpec.parse(name).load()


@cache
def _source(cls: Any) -> str:
    """The digest of a policy when it was first asked for."""
    return _digest(cls)


def _digest(cls: Any) -> str:
    """A hash of the package (or the single file) a policy is written in; nothing for berth's own, see `code_hash`."""
    if cls.__module__.partition(".")[0] in ("berth", "__main__"):
        return ""
    file = inspect.getsourcefile(cls)
    if file is None:
        return ""
    path, depth = Path(file), cls.__module__.count(".")
    whole = [path] if depth == 0 else sorted(path.parents[depth - 1].rglob("*.py"))
    return hashlib.sha256(b"".join(part.read_bytes() for part in whole)).hexdigest()


def cell_key(scenario: Scenario, cell: Cell) -> str:
    """The name under which a finished cell is kept: a hash of all that its numbers depend on."""
    settings = {key: value for key, value in scenario.dump().items() if key not in NOT_IN_KEY}
    parts = {
        "berth": code_hash(),
        "scenario": settings,
        "name": cell.name,
        "seed": cell.seed,
        "information": cell.information,
        "source": "" if cell.is_oracle else source_hash(cell.name),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:24]


def run_cell(scenario: Scenario, cell: Cell) -> CellResult:
    """Compute one cell; the same numbers wherever and whenever it runs, but for the time it takes."""
    return run_in(FAMILIES[scenario.family].lab, scenario.build(cell.seed, cell.information == REVEALED), cell)


def run_in(family: LabFamily, world: Any, cell: Cell) -> CellResult:
    """Compute a cell in a world of this family that is already built."""
    if cell.is_oracle:
        if cell.name not in family.oracles:
            raise UnknownName("oracle", cell.name, family.oracles)
        reward, bound = family.oracles[cell.name](world)
        return CellResult({"reward": reward}, bound=bound)
    policy = PolicySpec.parse(cell.name).build(world.problem, stream(cell.seed, "policy", cell.name))
    share = family.share(world.problem)
    result = simulate(world, policy, observers=[share])
    series: dict[str, Floats] = {
        "reward": result.reward,
        "claimed": result.claimed,
        "violations": result.violations.astype(np.float64),
        **result.measures,
        "decide_seconds": result.decide_seconds,
    }
    return CellResult(series, share.mean())


SLOTS = 2
"""Slots of a cell that are run to compile what it needs."""


def warm_groups(scenarios: Sequence[Scenario], works: Iterable[Work]) -> list[list[Work]]:
    """Cells in groups to be compiled apart: by family all that use the solver together, the others by name.

    The solver is by far the largest kernel. To miss that a policy uses it would cost time, nothing
    else, so a look at its module is enough.
    """
    groups: dict[tuple[bool, str, str], list[Work]] = {}
    for work in works:
        family = scenarios[work.place].family
        solver = work.cell.is_oracle or _uses(work.cell.name, FAMILIES[family].lab.solver)
        groups.setdefault((solver, family, "" if solver else work.cell.name), []).append(work)
    return [group for _, group in sorted(groups.items(), key=lambda item: not item[0][0])]  # the longest first


def _uses(policy: str, solver: str | None) -> bool:
    module = sys.modules.get(_class(policy).__module__)
    if solver is None or module is None:
        return False
    return any(str(getattr(value, "__module__", "")).startswith(solver) for value in vars(module).values())


def warm_up(scenarios: Sequence[Scenario], works: Iterable[Work]) -> None:
    """Compile what these cells need: run the first slots of one cell of each kind.

    Compiled kernels go to numba's cache on disk, where other processes find them. Two that need the same kernel at the
    same time would both compile it; so cells are grouped by what they share.
    """
    first = {(work.cell.name, work.cell.information): work for work in works}
    worlds: dict[tuple[int, bool], Any] = {}
    for place, cell in first.values():
        with suppress(Exception):  # whatever is wrong, the cell itself reports it
            scenario, known = scenarios[place], cell.information == REVEALED
            family = FAMILIES[scenario.family].lab
            if (place, known) not in worlds:
                worlds[place, known] = family.shortened(scenario.build(cell.seed, known), SLOTS)
            run_in(family, worlds[place, known], cell)
