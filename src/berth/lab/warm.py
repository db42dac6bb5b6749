"""Compile what cells need before they run, each kernel once.

Compiled kernels go to numba's cache on disk, where other processes find them. Two that need the same
kernel at the same time would both compile it; so cells are grouped by what they share.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from berth.lab.cells import REVEALED, Cell, run_in
from berth.lab.families import FAMILIES
from berth.problems.programme import Programme
from berth.registry import PolicySpec
from berth.scenario import Scenario

__all__ = ["warm_groups", "warm_up"]

SLOTS = 2


def warm_groups(cells: Iterable[Cell]) -> list[list[Cell]]:
    """Cells in groups to be compiled apart: all that use the solver together, the others by name.

    The solver is by far the largest kernel. To miss that a policy uses it would cost time, nothing
    else, so a look at its module is enough.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault("the solver" if _uses_solver(cell) else cell.name, []).append(cell)
    # the longest first
    return sorted(groups.values(), key=lambda group: not _uses_solver(group[0]))


def _uses_solver(cell: Cell) -> bool:
    if cell.is_oracle:
        return True
    module = sys.modules.get(PolicySpec.parse(cell.name).load().__module__)
    return any(value is Programme or _of_solvers(value) for value in vars(module).values()) if module else False


def _of_solvers(value: object) -> bool:
    return str(getattr(value, "__module__", "")).startswith("berth.solvers")


def warm_up(scenario: Scenario, cells: Iterable[Cell]) -> None:
    """Run the first slots of one cell of each kind."""
    first = {(cell.name, cell.information): cell for cell in cells}
    worlds: dict[bool, Any] = {}
    family = FAMILIES[scenario.family]
    for cell in first.values():
        with suppress(Exception):  # whatever is wrong, the cell itself reports it
            known = cell.information == REVEALED
            if known not in worlds:
                worlds[known] = family.shortened(scenario.build(cell.seed, known), SLOTS)
            run_in(family, worlds[known], cell)
