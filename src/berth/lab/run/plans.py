"""Plan and run comparisons; several may share their workers.

A plan is one comparison: its scenario, policies, seeds and cells. Plans run together, cell by cell in any order, and
each is passed on as soon as its last cell is done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from berth.errors import InvalidInput, UnknownName, UnsupportedProblem
from berth.families import FAMILIES
from berth.families.lab import REVEALED, LabFamily
from berth.lab.run.cells import Cell, CellResult, ComparedCells, check_unchanged
from berth.lab.run.results import Comparison, Unsupported
from berth.lab.run.runner import CellRun, Failure, Progress, Runner, Work
from berth.lab.run.store import ResultDirectory, now
from berth.random import stream
from berth.registry import PolicySpec, in_family, written
from berth.scenario import Scenario, load_scenario

__all__ = ["Outcome", "RunPlan", "concluded", "part_of", "plan_comparison", "run_plans"]


@dataclass(frozen=True, eq=False)
class RunPlan:
    """A comparison to run.

    `asked` says that the caller named the policies; policies of the scenario may refuse to serve it. `slots`, `ports`
    (names) and `servers` (their number) are those of its first world, and `remarks` are about it.
    """

    scenario: Scenario
    policies: tuple[str, ...]
    baseline: str
    information: tuple[str, ...]
    seeds: tuple[int, ...]
    oracles: tuple[str, ...]
    asked: bool
    unsupported: tuple[Unsupported, ...]
    slots: int
    ports: tuple[str, ...]
    servers: int
    remarks: tuple[str, ...] = ()

    @property
    def cells(self) -> list[Cell]:
        """All cells, oracles first: they take longest, and the pool should not end with them."""
        refused = {(item.information, item.policy) for item in self.unsupported}
        cells = [Cell(name, seed) for seed in self.seeds for name in self.oracles]
        return cells + [
            Cell(policy, seed, i)
            for seed in self.seeds
            for i in self.information
            for policy in self.policies
            if (i, policy) not in refused
        ]

    def facts(self) -> dict[str, Any]:
        """Entries of the manifest."""
        return {
            "settings": self.scenario.dump(),
            "policies": self.policies,
            "baseline": self.baseline,
            "seeds": self.seeds,
            "information": self.information,
            "oracles": self.oracles,
        }

    def refusals(self, serving: Iterable[Cell]) -> list[Unsupported]:
        """Policies that refuse a setting, among those without a finished cell in it."""
        known = {(cell.information, cell.name) for cell in serving}
        rest = [(i, name) for i in self.information for name in self.policies if (i, name) not in known]
        worlds = {i: self.scenario.build(self.seeds[0], i == REVEALED) for i in dict.fromkeys(i for i, _ in rest)}
        return [item for i, name in rest if (item := _refused(worlds[i], i, name)) is not None]


@dataclass
class Outcome:
    """Results of a plan's cells; `reused` of them come from an earlier run."""

    cells: list[Cell]
    records: dict[Cell, CellResult] = field(default_factory=dict)
    failed: dict[Cell, Failure] = field(default_factory=dict)
    unsupported: list[Unsupported] = field(default_factory=list)
    reused: int = 0

    @property
    def left(self) -> int:
        """Number of cells still to run."""
        return len(self.cells) - len(self.records) - len(self.failed)


def plan_comparison(
    scenario: str | os.PathLike[str] | Mapping[str, Any] | Scenario,
    policies: Sequence[str | type[Any]] | None = None,
    seeds: int | Sequence[int] | None = None,
    baseline: str | type[Any] | None = None,
    arrivals: str | None = None,
    oracles: Sequence[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> RunPlan:
    """Build and check a comparison as `berth.compare` describes it, without running it."""
    chosen = _scenario(scenario, overrides)
    family = FAMILIES[chosen.family].lab
    try:
        names = _policies(policies if policies is not None else chosen.policies)
        (base,) = _policies([baseline if baseline is not None else chosen.baseline or names[0]])
    except UnknownName as error:
        raise in_family(error, chosen.family) from None
    if base not in names:
        names.append(base)
    _of_family(names, family)
    settings = _information(arrivals if arrivals is not None else chosen.arrivals_known, family)
    luck = _seeds(seeds if seeds is not None else chosen.seeds)
    best = _oracles(oracles if oracles is not None else chosen.oracles, family)
    worlds = {information: chosen.build(luck[0], information == REVEALED) for information in settings}
    # Policies named by the caller are tried at once, to refuse early; others are tried when their cells run, because
    # building a policy may compile kernels, which several workers do faster.
    unsupported = [] if policies is None else _unsupported(worlds, names)
    first = next(iter(worlds.values()))
    graph = first.problem.instance
    return RunPlan(
        chosen,
        tuple(names),
        base,
        tuple(settings),
        tuple(luck),
        tuple(best),
        policies is not None,
        tuple(unsupported),
        len(first),
        tuple(port.name for port in graph.ports),
        len(graph.cluster.servers),
        tuple(family.remarks(first.problem)),
    )


def run_plans(
    plans: Sequence[RunPlan],
    directory: ResultDirectory | None,
    runner: Runner,
    progress: Callable[[Progress], None] | None,
    finished: Callable[[int, Outcome], None],
    device: str = "",
) -> None:
    """Compute all cells of all plans, except those in `directory`; pass on each plan when it is complete.

    Finished cells are saved in `directory` at once. The outcome of a plan is released after it is passed on. A cell
    that several plans share is computed once. `device` names a device and precision other than the CPU's.
    """
    outcomes: dict[int, Outcome] = {}

    def complete(place: int) -> None:
        if not outcomes[place].left:
            finished(place, outcomes.pop(place))

    def take(work: Work, result: CellResult | Failure) -> None:
        outcome = outcomes[work.place]
        if isinstance(result, Failure):
            outcome.failed[work.cell] = result
        else:
            outcome.records[work.cell] = result
        complete(work.place)

    cells = CellRun(ComparedCells(device), [plan.scenario for plan in plans], directory, progress, take)
    for name in dict.fromkeys(name for plan in plans for name in plan.policies):
        check_unchanged(name)
    for place, plan in enumerate(plans):
        outcome = outcomes[place] = Outcome(plan.cells, unsupported=list(plan.unsupported))
        for cell in outcome.cells:
            if (record := cells.reuse(Work(place, cell))) is not None:
                outcome.records[cell] = record
        outcome.reused = len(outcome.records)
        if outcome.reused and not plan.asked:
            # Resumed: a policy with finished cells serves its setting, the rest may have refused before. Trying them
            # here spares a finished comparison the start of workers.
            outcome.unsupported = plan.refusals(outcome.records)
            refused = {(item.information, item.policy) for item in outcome.unsupported}
            outcome.cells = [cell for cell in outcome.cells if (cell.information, cell.name) not in refused]
        for cell in outcome.cells:
            if cell not in outcome.records:
                cells.add(Work(place, cell))
        complete(place)  # at once: the finished cells of a long sweep would not fit into memory
    cells.run(runner)


def concluded(plan: RunPlan, outcome: Outcome, facts: Mapping[str, Any], seconds: float, out: str | None) -> Comparison:
    """Comparison of a complete plan; policies that could not serve a setting are listed, not failed."""
    unsupported = list(outcome.unsupported)
    refused = {(item.information, item.policy) for item in unsupported}
    for cell in outcome.cells:  # in a fixed order, not that of failure
        failure = outcome.failed.get(cell)
        where = cell.information or "oracle"
        if failure is not None and failure.unsupported and (where, cell.name) not in refused:
            refused.add((where, cell.name))
            unsupported.append(Unsupported(where, cell.name, failure.error))
    failed = {cell: failure for cell, failure in outcome.failed.items() if not failure.unsupported}
    shown = {**facts, "oracles": tuple(name for name in plan.oracles if ("oracle", name) not in refused)}
    return Comparison(
        **shown,
        ports=plan.ports,
        servers=plan.servers,
        remarks=plan.remarks,
        # in a fixed order, not that of completion
        records={cell: outcome.records[cell] for cell in outcome.cells if cell in outcome.records},
        failed={cell: failed[cell] for cell in outcome.cells if cell in failed},
        unsupported=tuple(unsupported),
        reused=outcome.reused,
        seconds=seconds,
        finished=now(),
        out=out,
    )


def part_of(plan: RunPlan, outcome: Outcome) -> Comparison:
    """Comparison of a plan that is one of many; times and commands are recorded for all of them together."""
    return concluded(plan, outcome, {**plan.facts(), "versions": {}, "started": "", "command": ""}, 0.0, None)


def _scenario(given: Any, overrides: Mapping[str, Any] | None) -> Scenario:
    if isinstance(given, Scenario):
        return load_scenario(given.dump(), overrides) if overrides else given
    return load_scenario(given if isinstance(given, Mapping) else os.fspath(given), overrides)


def _policies(given: Iterable[str | type[Any]]) -> list[str]:
    """Canonical spelling of the policies, without duplicates."""
    names = list(dict.fromkeys(str(PolicySpec.parse(written(policy))) for policy in given))
    if not names:
        raise InvalidInput("at least one policy", key="policies")
    return names


def _of_family(names: Iterable[str], family: LabFamily) -> None:
    """Refuse policies that declare another family."""
    for name in names:
        theirs = getattr(PolicySpec.parse(name).load(), "family", family.name)
        if theirs != family.name:
            raise InvalidInput(
                f"one of the {family.name} family, which this scenario is of (`berth policies` lists them)",
                found=f"a policy of the {theirs} family",
                key=f"policy {name!r}",
            )


def _information(arrivals: str, family: LabFamily) -> list[str]:
    settings = family.information
    if arrivals == "both" and len(settings) > 1:
        return list(settings)
    if arrivals not in settings:
        only = f"{settings[0]}: in the {family.name} family policies always see who has a job"
        raise InvalidInput(
            f"{', '.join(settings)} or both" if len(settings) > 1 else only, value=arrivals, key="arrivals"
        )
    return [arrivals]


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    luck = list(range(seeds)) if isinstance(seeds, int) else list(dict.fromkeys(seeds))
    if not luck:
        raise InvalidInput("at least one seed", value=seeds, key="seeds")
    for seed in luck:
        if seed < 0:
            raise InvalidInput("a seed ≥ 0", value=seed, key="seeds")
    return luck


def _oracles(names: Sequence[str], family: LabFamily) -> list[str]:
    for name in names:
        if name not in family.oracles:
            raise UnknownName("oracle", name, family.oracles)
    return [name for name in family.oracles if name in names]


def _refused(world: Any, information: str, name: str) -> Unsupported | None:
    """Reason why this policy refuses this setting, or None."""
    try:
        PolicySpec.parse(name).build(world.problem, stream(0, "policy", name))
    except UnsupportedProblem as error:
        return Unsupported(information, name, str(error))
    except InvalidInput as error:  # wrong value of a setting: report it before any work is done
        raise error.at(key=f"policy {name!r}") from None
    except Exception:  # the cell reports any other error
        return None
    return None


def _unsupported(worlds: Mapping[str, Any], names: Sequence[str]) -> list[Unsupported]:
    """Policies that refuse a setting; raises if one refuses them all."""
    found: list[Unsupported] = []
    for name in names:
        tried = [_refused(world, information, name) for information, world in worlds.items()]
        refusals = [item for item in tried if item is not None]
        if len(refusals) == len(worlds):
            raise UnsupportedProblem(f"{name} cannot serve this comparison: {refusals[0].reason}")
        found.extend(refusals)
    return found
