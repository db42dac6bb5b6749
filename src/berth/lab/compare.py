"""Compare policies on a scenario: the same seeds, the same luck and the same information for all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from berth.errors import InvalidInput, UnknownName, UnsupportedProblem
from berth.lab.cells import Cell, Record, cell_key
from berth.lab.families import FAMILIES, REVEALED, LabFamily
from berth.lab.manifest import command_line, manifest, now, versions
from berth.lab.pool import Failure, leave_if_imported_by_worker, run_cells
from berth.lab.results import Comparison, Unsupported
from berth.lab.store import ResultDirectory
from berth.random import stream
from berth.registry import PolicySpec
from berth.scenario import Scenario, load_scenario

__all__ = ["Interrupted", "Progress", "compare"]

WRITTEN_DOWN = "scenario.yaml"


@dataclass(frozen=True)
class Progress:
    """How far a comparison is: cells done (with those `reused`) of `total`, slots simulated, and what just happened."""

    done: int
    total: int
    reused: int
    slots: int
    note: str


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a comparison: `done` of `total` cells are finished, and kept where there is an `out`."""

    def __init__(self, done: int, total: int, out: str | None) -> None:
        self.done, self.total, self.out = done, total, out
        kept = f"{done} of {total} cells are kept in {out}; the same command continues" if out else "nothing was kept"
        super().__init__(f"stopped; {kept}")


def compare(
    scenario: str | os.PathLike[str] | Mapping[str, Any] | Scenario,
    policies: Sequence[str] | None = None,
    seeds: int | Sequence[int] | None = None,
    baseline: str | None = None,
    arrivals: str | None = None,
    oracles: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Comparison:
    """Run every policy under every seed, in one information setting or in both, and compare.

    `scenario` is a name, a file, what a file would hold, or a `Scenario`; what is not given here is
    taken from it. `seeds` is a number N, for seeds 0 … N−1, or the seeds themselves. `arrivals` is
    "hidden", "revealed" or "both", and `oracles` may hold "stationary" and "slot"; in the selection family arrivals are
    always "revealed" and "slot" is the one oracle. `workers` is the number of processes, by default one a core; the
    numbers do not depend on it.

    With `out`, each finished cell is kept there at once and found again by a later call, and the
    report is written there. A cell that fails is listed in `failed` and spoils no other. A policy that
    cannot serve a setting is listed in `unsupported`; it is an error only when it was asked for by
    name and can serve none of the settings.
    """
    leave_if_imported_by_worker()
    began, started = time.perf_counter(), now()
    chosen = _scenario(scenario, overrides)
    family = FAMILIES[chosen.family]
    names = _policies(policies if policies is not None else chosen.policies)
    base = str(PolicySpec.parse(baseline if baseline is not None else chosen.baseline or names[0]))
    if base not in names:
        names.append(base)
    _of_family(names, family)
    settings = _information(arrivals if arrivals is not None else chosen.arrivals_known, family)
    luck = _seeds(seeds if seeds is not None else chosen.seeds)
    best = _oracles(oracles if oracles is not None else chosen.oracles, family)
    processes = _workers(workers)
    directory = None if out is None else ResultDirectory(out)

    worlds = {information: chosen.build(luck[0], information == REVEALED) for information in settings}
    # Policies asked for by name are tried at once, to refuse early; others tell when their cells run, because
    # to build a policy may take compiling, which is better done by several workers.
    unsupported = [] if policies is None else _unsupported(worlds, names)
    refused: set[tuple[str | None, str]] = {(item.information, item.policy) for item in unsupported}
    # The oracles first: they take longest, and the pool should not end with them.
    cells = [Cell(name, seed) for seed in luck for name in best]
    cells += [Cell(p, seed, i) for seed in luck for i in settings for p in names if (i, p) not in refused]

    records: dict[Cell, Record] = {}
    failed: dict[Cell, Failure] = {}
    keys: dict[Cell, str] = {}
    slots = 0

    def tell(note: str) -> None:
        if progress is not None:
            progress(Progress(len(records) + len(failed), len(cells), reused, slots, note))

    if directory is not None:
        keys = {cell: cell_key(chosen, cell) for cell in cells}
        loaded = ((cell, directory.load(key, len(next(iter(worlds.values()))))) for cell, key in keys.items())
        records.update((cell, record) for cell, record in loaded if record is not None)
    reused = len(records)
    if reused and policies is None:
        # Continued: what has finished cells serves its setting, the rest may have refused before. Trying it here
        # spares a finished comparison the start of workers.
        serving = {(cell.information, cell.name) for cell in records}
        rest = [(i, name) for i in settings for name in names if (i, name) not in serving]
        unsupported = [item for i, name in rest if (item := _refused(worlds[i], i, name)) is not None]
        refused = {(item.information, item.policy) for item in unsupported}
        cells = [cell for cell in cells if (cell.information, cell.name) not in refused]
    facts: dict[str, Any] = {
        "settings": chosen.dump(),
        "policies": tuple(names),
        "baseline": base,
        "seeds": tuple(luck),
        "information": tuple(settings),
        "oracles": tuple(best),
        "started": started,
        "versions": versions(),
    }
    facts["command"] = command_line(_repeatable(scenario, chosen, directory), facts, overrides, out)
    if directory is not None:
        directory.create(manifest(facts))
        if isinstance(scenario, Scenario | Mapping):
            text = yaml.safe_dump(chosen.dump(), sort_keys=False, allow_unicode=True)
            directory.write_text(WRITTEN_DOWN, text)

    def done(cell: Cell, outcome: Record | Failure) -> None:
        nonlocal slots
        if isinstance(outcome, Failure):
            failed[cell] = outcome
        else:
            if directory is not None:
                directory.save(keys[cell], cell, outcome)
            records[cell] = outcome
            slots += len(outcome.reward)
        tell(str(cell))

    missing = [cell for cell in cells if cell not in records]
    try:
        if missing:
            tell("compiling")
            run_cells(chosen, missing, processes, done)
    except KeyboardInterrupt as stop:
        raise Interrupted(len(records), len(cells), None if out is None else os.fspath(out)) from stop
    # Whoever could not serve a setting (an oracle: the world of one seed) is listed, not failed.
    for cell, failure in failed.items():
        where = cell.information or "oracle"
        if failure.unsupported and (where, cell.name) not in refused:
            refused.add((where, cell.name))
            unsupported.append(Unsupported(where, cell.name, failure.error))
    failed = {cell: failure for cell, failure in failed.items() if not failure.unsupported}
    facts["oracles"] = tuple(name for name in best if ("oracle", name) not in refused)
    graph = next(iter(worlds.values())).problem.instance
    comparison = Comparison(
        **facts,
        ports=len(graph.ports),
        servers=len(graph.cluster.servers),
        records={cell: records[cell] for cell in cells if cell in records},  # whatever order they finished in
        failed={cell: failed[cell] for cell in cells if cell in failed},
        unsupported=tuple(unsupported),
        reused=reused,
        seconds=time.perf_counter() - began,
        finished=now(),
        out=None if out is None else os.fspath(out),
    )
    if directory is not None:
        tell("writing the report")
        _write(directory, comparison, facts)
    return comparison


def _write(directory: ResultDirectory, comparison: Comparison, facts: Mapping[str, Any]) -> None:
    from berth.lab.plots import save_plots
    from berth.lab.report import render_report

    if comparison.rows:
        directory.write("summary.parquet", comparison.summary_frame().write_parquet)
        directory.write("slots.parquet", comparison.slots_frame().write_parquet)
    done = manifest(facts, comparison.finished, comparison.reused, len(comparison.failed))
    drawn = save_plots(comparison, directory)
    directory.write_text("report.html", render_report(comparison, drawn, done))
    directory.write_json("manifest.json", done)  # last: only now is everything there


def _scenario(given: Any, overrides: Mapping[str, Any] | None) -> Scenario:
    if isinstance(given, Scenario):
        return load_scenario(given.dump(), overrides) if overrides else given
    return load_scenario(given if isinstance(given, Mapping) else os.fspath(given), overrides)


def _repeatable(given: Any, scenario: Scenario, directory: ResultDirectory | None) -> str:
    """What a command line calls the scenario; one made in a program is written down in the result directory."""
    if not isinstance(given, Scenario | Mapping):
        return str(os.fspath(given))
    if directory is None:
        return scenario.name
    return str(directory.path / WRITTEN_DOWN)


def _policies(texts: Iterable[str]) -> list[str]:
    """The policies as berth writes them, each once."""
    names = list(dict.fromkeys(str(PolicySpec.parse(text)) for text in texts))
    if not names:
        raise InvalidInput("at least one policy", key="policies")
    return names


def _of_family(names: Iterable[str], family: LabFamily) -> None:
    """Refuse policies that say they are of another family."""
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


def _workers(workers: int | None) -> int:
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers < 1:
        raise InvalidInput("at least 1", value=workers, key="workers")
    return workers


def _refused(world: Any, information: str, name: str) -> Unsupported | None:
    """Whether this policy refuses this setting, and why."""
    try:
        PolicySpec.parse(name).build(world.problem, stream(0, "policy", name))
    except UnsupportedProblem as error:
        return Unsupported(information, name, str(error))
    except InvalidInput as error:  # a setting's value: say so before any work is done
        raise error.at(key=f"policy {name!r}") from None
    except Exception:  # any other error is the cell's, which reports it
        return None
    return None


def _unsupported(worlds: Mapping[str, Any], names: Sequence[str]) -> list[Unsupported]:
    """Policies that refuse a setting; raises where one refuses them all."""
    found: list[Unsupported] = []
    for name in names:
        tried = [_refused(world, information, name) for information, world in worlds.items()]
        refusals = [item for item in tried if item is not None]
        if len(refusals) == len(worlds):
            raise UnsupportedProblem(f"{name} cannot serve this comparison: {refusals[0].reason}")
        found.extend(refusals)
    return found
