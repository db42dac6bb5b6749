"""Run experiments and judge the papers' claims.

All cells of all experiments share their workers and one result directory: cells that several experiments share are
computed once, and an interrupted run resumes from the finished cells. `berth.lab.reproduce.results` holds the rule of
the verdict; nothing is judged by hand.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from berth.about import HOME
from berth.errors import InvalidInput
from berth.lab.reproduce.experiments import Experiment, chosen, settings_of
from berth.lab.reproduce.judge import judge
from berth.lab.reproduce.results import RULE, ExperimentResult, Reproduced, kept
from berth.lab.reproduce.traces import find_traces
from berth.lab.run.plans import Outcome, RunPlan, plan_comparison, run_plans
from berth.lab.run.processes import leave_if_imported_by_worker, run_cells
from berth.lab.run.runner import Progress, worker_count
from berth.lab.run.store import ResultDirectory, now, opened, versions
from berth.traces.folder import traces_folder

__all__ = ["reproduce"]

KIND = "berth reproduce"


def reproduce(
    names: Sequence[str] | Sequence[Experiment],
    *,
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    traces: str | os.PathLike[str] | None = None,
) -> Reproduced:
    """Run experiments, given as `all`, a paper, PAPER/ID or a file; `quick` runs versions that take seconds.

    `traces` is the folder with the trace files that experiments name, by default that of BERTH_TRACES. Points whose
    file is missing are skipped, with the claims about them.

    With `out`, every finished cell is saved there at once, and the report, plots and tables are written there.
    """
    leave_if_imported_by_worker()
    began = time.perf_counter()
    texts = [name for name in names if isinstance(name, str)]
    experiments = [*(chosen(texts) if texts else []), *(item for item in names if isinstance(item, Experiment))]
    results = _results(experiments, quick, traces)
    plans, owners = _plans(results)
    with opened(out, KIND) as directory:
        facts: dict[str, Any] = _facts(experiments, results, quick)
        facts["command"] = _command(names, quick, traces, out)
        if directory is not None:
            directory.create(facts)
        firsts = [_firsts(experiment) for experiment in experiments]
        reused = 0

        def finished(number: int, outcome: Outcome) -> None:
            nonlocal reused
            which, place = owners[number]
            result = results[which]
            result.runs[place] = {
                cell: kept(outcome.records[cell], firsts[which]) for cell in outcome.cells if cell in outcome.records
            }
            failures = {c: f for c, f in outcome.failed.items() if not f.unsupported}
            result.failed.update({f"{result.settings[place]}, {cell}": f.error for cell, f in failures.items()})
            reused += outcome.reused

        run_plans(plans, directory, partial(run_cells, workers=worker_count(workers)), progress, finished)
        judge(results)
        where = None if out is None else os.fspath(out)
        found = Reproduced(tuple(results), quick, time.perf_counter() - began, reused, facts, where)
        if directory is not None:
            _write(directory, found)
        return found


def _results(
    experiments: Sequence[Experiment], quick: bool, traces: str | os.PathLike[str] | None
) -> list[ExperimentResult]:
    """Experiments with the points that can be run."""
    points = [settings_of(experiment, quick) for experiment in experiments]
    asked = any(setting.trace for settings in points for setting in settings)
    folder = traces_folder(traces) if asked or traces is not None else None
    results: list[ExperimentResult] = []
    for experiment, settings in zip(experiments, points, strict=True):
        try:
            found = find_traces(settings, folder)
        except InvalidInput as error:
            raise error.at(key=f"experiment {experiment.name}") from None
        results.append(
            ExperimentResult(experiment, quick, found.settings, (), found.absent, found.files, found.missing)
        )
    return results


def _plans(results: Sequence[ExperimentResult]) -> tuple[list[RunPlan], list[tuple[int, int]]]:
    """A plan for each point of each experiment, and the experiment and point of each plan."""
    plans: list[RunPlan] = []
    owners: list[tuple[int, int]] = []
    for which, result in enumerate(results):
        families: list[str] = []
        for place, setting in enumerate(result.settings):
            run = setting.run
            try:
                plan = plan_comparison(
                    setting.scenario, run.policies, run.seeds, run.baseline, run.arrivals, run.oracles, setting.changes
                )
            except InvalidInput as error:
                raise error.at(key=f"experiment {result.experiment.name}, {setting}") from None
            plans.append(plan)
            owners.append((which, place))
            families.append(plan.scenario.family)
        result.families = tuple(families)
    return plans, owners


def _firsts(experiment: Experiment) -> set[tuple[str, int]]:
    """Series needed over the first slots only."""
    return {
        (series, claim.until)
        for claim in experiment.claims
        if claim.until is not None
        for series in (claim.metric, "reward", "claimed")
    }


def _command(
    names: Sequence[str] | Sequence[Experiment],
    quick: bool,
    traces: str | os.PathLike[str] | None,
    out: str | os.PathLike[str] | None,
) -> str:
    """The command that repeats the run."""
    words = ["berth", "reproduce", *(name if isinstance(name, str) else name.name for name in names)]
    words += ["--quick"] if quick else []
    words += ["--traces", os.fspath(traces)] if traces is not None else []
    words += ["--out", os.fspath(out)] if out is not None else []
    return shlex.join(words)


def _facts(experiments: Sequence[Experiment], results: Sequence[ExperimentResult], quick: bool) -> dict[str, Any]:
    folder = HOME / "data" / "workloads"
    return {
        "quick": quick,
        "rule": RULE,
        "experiments": [
            {
                **experiment.model_dump(exclude={"claims", "plots"}, exclude_none=True),
                "sha256": experiment.digest,
                "points": [{"scenario": s.scenario, "changes": dict(s.changes)} for s in result.settings],
            }
            for experiment, result in zip(experiments, results, strict=True)
        ],
        "workloads": {
            path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.json"))
        },
        "traces": {trace: digest for result in results for trace, digest in result.traces.items()},
        "versions": versions(),
        "started": now(),
    }


def _write(directory: ResultDirectory, found: Reproduced) -> None:
    from berth.lab.reproduce.plots import save_plots
    from berth.lab.reproduce.report import render_reproduced

    directory.write_table("results.parquet", found.frame())
    drawn = save_plots(found, directory)
    done = directory.described(found.facts, now(), found.reused, len(found.failed))
    directory.write_json("results.json", found.as_dict())
    directory.write_text("report.html", render_reproduced(found, drawn, done))
    directory.write_json("manifest.json", done)  # last: marks a complete directory
