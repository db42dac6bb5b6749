"""Compare policies on a scenario: common seeds, random numbers and information."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import yaml

from berth.errors import InvalidInput, MissingExtra
from berth.lab.run import results
from berth.lab.run.cells import NOT_IN_KEY
from berth.lab.run.device import run_cells_on_device
from berth.lab.run.plans import Outcome, RunPlan, concluded, plan_comparison, run_plans
from berth.lab.run.processes import leave_if_imported_by_worker, run_cells
from berth.lab.run.runner import Progress, Runner, worker_count
from berth.lab.run.store import ResultDirectory, command_line, now, opened, versions
from berth.scenario import Scenario
from berth.simulation import check_precision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Comparison", "Progress", "compare"]

WRITTEN_DOWN = "scenario.yaml"


class Comparison(results.Comparison):
    """Result of `berth.compare`: numbers (`rows`, `frame()`), a printed table, and plots."""

    def __repr__(self) -> str:
        from berth.lab.show.tables import tables_as_text

        return tables_as_text(self)

    def _repr_html_(self) -> str:
        """Notebook display: the tables of the report with their notes."""
        from berth.lab.show.report import summary

        return summary(self)

    def plot(self, which: str = "differences", arrivals: str | None = None) -> Figure:
        """One plot of the report, such as "differences", "reward" or "regret"; default: of the first setting.

        The figure is not registered with pyplot: a notebook shows it, `figure.savefig(file)` writes it.
        """
        from berth.lab.show.plots import picture

        return picture(self, which, arrivals or self.information[0])

    figure = plot

    def to_pandas(self) -> Any:
        """`frame()` as a pandas DataFrame, with missing numbers as NaN; needs pandas but not pyarrow."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("to_pandas", "pandas") from None
        return pandas.DataFrame({column.name: column.to_numpy() for column in self.frame()})


def compare(
    scenario: str | os.PathLike[str] | Mapping[str, Any] | Scenario,
    policies: Sequence[str | type[Any]] | None = None,
    seeds: int | Sequence[int] | None = None,
    baseline: str | type[Any] | None = None,
    arrivals: str | None = None,
    oracles: Sequence[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
    device: str = "cpu",
    precision: str = "float64",
) -> Comparison:
    """Run every policy under every seed, in one information setting or in both, and compare.

    `scenario` is a name, a file, the contents of a file, or a `Scenario`; it supplies every argument left out here. A
    policy is a name, "module:Class", or the class itself; a class defined in a notebook or in the running script is
    compared in this process alone, and its results cannot be saved to `out`. `seeds` is a number N, for seeds 0 … N−1,
    or a list of seeds. `arrivals` is "hidden", "revealed" or "both", and `oracles` may hold "stationary" and "slot"; in
    the selection family arrivals are always "revealed" and oracles are "slot" and "information", a learner that knows
    the distribution of the gains. `workers` is the number of processes, by default one per core; the numbers do not
    depend on it. `device="cuda"` runs the policies that have kernels for a GPU there, in float64 or float32, all seeds
    of a policy side by side; the others and the oracles run on the CPU.

    With `out`, each finished cell is saved there at once and reused by a later call, and the report is written there.
    A directory with results of another scenario, or with finished results that this call would drop, is refused. A
    cell that fails is listed in `failed` and does not affect the others. A policy that cannot serve a setting is listed
    in `unsupported`; this is an error only for a policy named in the call that can serve none of the settings.
    """
    leave_if_imported_by_worker()
    check_precision(device, precision)
    began, started = time.perf_counter(), now()
    plan = plan_comparison(scenario, policies, seeds, baseline, arrivals, oracles, overrides)
    processes = _processes(plan, workers, out)
    with opened(out) as directory:
        facts: dict[str, Any] = {**plan.facts(), "started": started, "versions": versions()}
        gpu = {} if device == "cpu" else {"device": device, "precision": precision}
        name = _repeatable(scenario, plan.scenario, directory)
        facts["command"] = command_line(name, facts, overrides, out, gpu)
        if directory is not None:
            _refuse_others(directory, facts)
            directory.create(facts)
            if isinstance(scenario, Scenario | Mapping):
                text = yaml.safe_dump(plan.scenario.dump(), sort_keys=False, allow_unicode=True)
                directory.write_text(WRITTEN_DOWN, text)
        found: list[Outcome] = []
        runner: Runner = partial(run_cells, workers=processes)
        if gpu:
            runner = partial(run_cells_on_device, device=device, precision=precision, others=runner)
        run_plans([plan], directory, runner, progress, lambda _, done: found.append(done), " ".join(gpu.values()))
        where = None if out is None else os.fspath(out)
        comparison = Comparison(**vars(concluded(plan, found[0], facts, time.perf_counter() - began, where)))
        if directory is not None:
            if progress is not None:
                total = len(comparison.records) + len(found[0].failed)
                progress(Progress(total, total, comparison.reused, 0, "writing the report"))
            _write(directory, comparison, {**facts, "oracles": comparison.oracles})
        return comparison


def _processes(plan: RunPlan, workers: int | None, out: str | os.PathLike[str] | None) -> int:
    """Number of processes; other processes cannot import a class defined in this one."""
    here = [name for name in plan.policies if name.startswith("__main__:")]
    if not here:
        return worker_count(workers)
    given = [f"workers={workers}"] if workers not in (None, 1) else [f"out={os.fspath(out)}"] if out is not None else []
    if given:
        expected = "a class in a module, as mymodule:MyPolicy; this one is known to this process alone"
        raise InvalidInput(expected, found=given[0], key=f"policy {here[0]!r}")
    return 1


def _refuse_others(directory: ResultDirectory, facts: Mapping[str, Any]) -> None:
    """Refuse a directory with results of another scenario, or with finished results that this run would drop."""
    before = directory.manifest()
    if before is None or not before.get("settings"):
        return
    ours, theirs = json.loads(json.dumps(facts["settings"])), before["settings"]
    other = [key for key in (*ours, *theirs) if key not in NOT_IN_KEY and ours.get(key) != theirs.get(key)]
    if other:
        found = f"{str(directory.path)!r}, which has those of {theirs.get('name')!r} (other {other[0]})"
        raise InvalidInput("a new directory, or one with results of this scenario", found=found, key="out")
    dropped = [
        f"{what} {', '.join(map(str, gone))}"
        for key, what in (("policies", "policy"), ("seeds", "seed"), ("information", "arrivals"), ("oracles", "oracle"))
        if (gone := [item for item in before.get(key) or () if item not in facts[key]])
    ]
    if dropped and before.get("finished"):
        expected = "another directory, or a run that includes the results there (finished cells are not repeated)"
        raise InvalidInput(expected, found=f"{str(directory.path)!r}, which also has {dropped[0]}", key="out")


def _write(directory: ResultDirectory, comparison: Comparison, facts: Mapping[str, Any]) -> None:
    from berth.lab.show.plots import save_plots
    from berth.lab.show.report import render_report

    if comparison.rows:
        directory.write_table("summary.parquet", comparison.frame())
        directory.write_table("slots.parquet", comparison.slots_frame())
    done = directory.described(facts, comparison.finished, comparison.reused, len(comparison.failed))
    drawn = save_plots(comparison, directory)
    directory.write_text("report.html", render_report(comparison, drawn, done))
    directory.write_json("manifest.json", done)  # last: marks a complete directory


def _repeatable(given: Any, scenario: Scenario, directory: ResultDirectory | None) -> str:
    """Name of the scenario for a command line; one built in a program is written to the result directory."""
    if not isinstance(given, Scenario | Mapping):
        return str(os.fspath(given))
    if directory is None:
        return scenario.name
    return str(directory.path / WRITTEN_DOWN)
