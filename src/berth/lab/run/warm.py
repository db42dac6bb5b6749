"""Compile what cells need before they run, each kernel once.

Compiled kernels go to numba's cache on disk, where other processes find them. Two that need the same
kernel at the same time would both compile it; so cells are grouped by what they share.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from berth.families.allocation.programme import Programme
from berth.lab.run.cells import REVEALED, Cell, Work, run_in
from berth.lab.run.families import FAMILIES
from berth.registry import PolicySpec
from berth.scenario import Scenario

__all__ = ["warm_groups", "warm_up"]

SLOTS = 2


def warm_groups(scenarios: Sequence[Scenario], works: Iterable[Work]) -> list[list[Work]]:
    """Cells in groups to be compiled apart: by family all that use the solver together, the others by name.

    The solver is by far the largest kernel. To miss that a policy uses it would cost time, nothing
    else, so a look at its module is enough.
    """
    groups: dict[tuple[str, str], list[Work]] = {}
    for work in works:
        kind = "the solver" if _uses_solver(work.cell) else work.cell.name
        groups.setdefault((scenarios[work.place].family, kind), []).append(work)
    # the longest first
    return sorted(groups.values(), key=lambda group: not _uses_solver(group[0].cell))


def _uses_solver(cell: Cell) -> bool:
    if cell.is_oracle:
        return True
    module = sys.modules.get(PolicySpec.parse(cell.name).load().__module__)
    return any(value is Programme or _of_solvers(value) for value in vars(module).values()) if module else False


def _of_solvers(value: object) -> bool:
    return str(getattr(value, "__module__", "")).startswith("berth.families.selection.solvers")


def warm_up(scenarios: Sequence[Scenario], works: Iterable[Work]) -> None:
    """Run the first slots of one cell of each kind."""
    first = {(work.cell.name, work.cell.information): work for work in works}
    worlds: dict[tuple[int, bool], Any] = {}
    for place, cell in first.values():
        with suppress(Exception):  # whatever is wrong, the cell itself reports it
            scenario, known = scenarios[place], cell.information == REVEALED
            family = FAMILIES[scenario.family]
            if (place, known) not in worlds:
                worlds[place, known] = family.shortened(scenario.build(cell.seed, known), SLOTS)
            run_in(family, worlds[place, known], cell)
