"""Run cells on a GPU: the seeds of a policy side by side, in this process.

Oracles, and cells whose policy has no kernels for a GPU, run on the CPU beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from berth.errors import InvalidInput, MissingExtra, UnsupportedProblem
from berth.lab.run.cells import REVEALED, CellResult, ComparedCells, result_of
from berth.lab.run.runner import Done, Runner, Work, failure_of
from berth.random import stream
from berth.registry import PolicySpec
from berth.scenario import Scenario
from berth.simulation import runs_on_device

__all__ = ["run_cells_on_device"]

CHANNELS = 20_000_000
"""Most channels of the problems that run side by side."""


def run_cells_on_device(
    scenarios: Sequence[Scenario],
    works: Sequence[Work],
    done: Done,
    *,
    device: str,
    precision: str,
    others: Runner,
    kind: ComparedCells,
) -> None:
    """Compute every cell and pass each to `done`; `others` computes the cells that do not run on the GPU."""
    left = [work for work in works if work.cell.is_oracle]
    for part, worlds in _parts(scenarios, [work for work in works if not work.cell.is_oracle]):
        for name in dict.fromkeys(work.cell.name for work in part):
            cells = [work for work in part if work.cell.name == name]
            there = [worlds[work.cell.seed] for work in cells]
            _attempt(cells, done, left, partial(_runs, cells, there, device, precision))
    if left:
        others(scenarios, left, done, kind=kind)


def _attempt(cells: Sequence[Work], done: Done, left: list[Work], compute: Callable[[], list[CellResult]]) -> None:
    """Pass on the results of these cells, or their failure; cells that a GPU cannot serve are `left`."""
    try:
        results = compute()
    except UnsupportedProblem:
        left.extend(cells)
    except (MissingExtra, InvalidInput):
        raise
    except Exception as error:  # a failure of these cells; the others go on
        for work in cells:
            done(work, failure_of(error))
    else:
        for work, result in zip(cells, results, strict=True):
            done(work, result)


def _parts(scenarios: Sequence[Scenario], works: Sequence[Work]) -> Iterator[tuple[list[Work], dict[int, Any]]]:
    """Cells of one scenario and setting with their worlds by seed, as many at once as fit."""
    for place, information in dict.fromkeys((work.place, work.cell.information) for work in works):
        group = [work for work in works if (work.place, work.cell.information) == (place, information)]
        worlds: dict[int, Any] = {}
        for seed in dict.fromkeys(work.cell.seed for work in group):
            world = scenarios[place].build(seed, information == REVEALED)
            if worlds and sum(_channels(one) for one in (*worlds.values(), world)) > CHANNELS:
                yield [work for work in group if work.cell.seed in worlds], worlds
                worlds = {}
            worlds[seed] = world
        yield [work for work in group if work.cell.seed in worlds], worlds


def _channels(world: Any) -> int:
    return len(world.problem.instance.channel_port)


def _runs(part: Sequence[Work], worlds: Sequence[Any], device: str, precision: str) -> list[CellResult]:
    play = runs_on_device(worlds[0])
    policies = [
        PolicySpec.parse(work.cell.name).build(world.problem, stream(work.cell.seed, "policy", work.cell.name))
        for work, world in zip(part, worlds, strict=True)
    ]
    return [result_of(run) for run in play(worlds, policies, device, precision)]
