"""Commands that run comparisons: `demo`, `compare`, `sweep`, `leaderboard`, `reproduce`; and `train`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli import common
from berth.cli.answers import Output, OutputOption, ResultOption, ResultOutput, answered, terminal
from berth.cli.common import (
    QuietOption,
    WorkersOption,
    cell_progress,
    complete_policy,
    complete_scenario,
    finish,
    progress,
)
from berth.errors import InvalidInput

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from berth.lab.compare import Comparison

__all__ = [
    "compare_command",
    "demo_command",
    "leaderboard_command",
    "reproduce_command",
    "sweep_command",
    "train_command",
]


class Arrivals(StrEnum):
    """Whether policies see which ports have a job before they decide."""

    hidden = "hidden"
    revealed = "revealed"
    both = "both"


def demo_command(
    out: Annotated[Path, typer.Option("--out", help="Directory for results and report.")] = Path("berth-demo"),
    workers: WorkersOption = None,
    output: ResultOption = ResultOutput.table,
    quiet: QuietOption = False,
) -> None:
    """Compare policies on a small cluster and write a report."""
    from berth.lab.compare import compare
    from berth.lab.show.tables import print_comparison

    with cell_progress(quiet) as show:
        comparison = compare("demo", out=out, workers=workers, progress=show)
    where = (
        f"\nReport: {(out / 'report.html').resolve()}\nNext:   berth compare small --policy ogasched --policy fairness"
    )
    where += " --set arrivals.probability=0.3"
    finish(comparison, output, partial(_summary, comparison), print_comparison, where, _failures(comparison))


def compare_command(
    scenario: Annotated[
        str, typer.Argument(help="Name of a scenario, or a scenario file.", autocompletion=complete_scenario)
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="Run this policy, such as ogasched or ogasched:step=0.5 (repeat). Default: those of the scenario.",
            autocompletion=complete_policy,
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Run seeds 0 to N-1.")] = None,
    seed: Annotated[
        list[int] | None, typer.Option("--seed", min=0, help="Run this seed (repeat), instead of --seeds.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="Compare the other policies with this one.", autocompletion=complete_policy),
    ] = None,
    arrivals: Annotated[
        Arrivals | None,
        typer.Option("--arrivals", help="Hide arrivals from policies until they decide, or reveal them."),
    ] = None,
    oracle: Annotated[
        list[str] | None,
        typer.Option(
            "--oracle",
            help="Add an oracle: stationary, slot or information (repeat), or none. Default: those of the scenario.",
        ),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as horizon=500 (repeat)."),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="Run on cpu or cuda (allocation only): all seeds of a policy side by side.")
    ] = "cpu",
    precision: Annotated[str, typer.Option("--precision", help="Compute on cuda in float64 or float32.")] = "float64",
    workers: WorkersOption = None,
    output: ResultOption = ResultOutput.table,
    out: Annotated[Path | None, typer.Option("--out", help="Directory for results and report.")] = None,
    quiet: QuietOption = False,
) -> None:
    """Compare policies on a scenario.

    Policies are paired by seed and get the same information.
    """
    if seeds is not None and seed:
        raise typer.BadParameter("give --seeds or --seed, not both")
    from berth.lab.compare import compare
    from berth.lab.show.tables import print_comparison
    from berth.scenario import parse_overrides

    with cell_progress(quiet) as show:
        comparison = compare(
            scenario,
            policies=policy or None,
            seeds=seed or seeds,
            baseline=baseline,
            arrivals=arrivals.value if arrivals else None,
            oracles=None if not oracle else [] if oracle == ["none"] else oracle,
            out=out,
            workers=workers,
            overrides=parse_overrides(override or ()),
            progress=show,
            device=device,
            precision=precision,
        )
    where = "" if out is None else f"\nReport: {(out / 'report.html').resolve()}"
    finish(comparison, output, partial(_summary, comparison), print_comparison, where, _failures(comparison))


def _failures(comparison: Comparison) -> dict[str, str]:
    return {
        what: failure.error + (f"\n{failure.traceback}" if common.debugging and failure.traceback else "")
        for what, failure in comparison.failures.items()
    }


def _summary(comparison: Comparison) -> list[dict[str, Any]]:
    """The rows of its CSV."""
    return [row.flat(comparison.family.left_out) for row in comparison.rows]


def sweep_command(
    file: Annotated[Path, typer.Argument(help="A sweep file (YAML): a scenario or a trace, and the settings to vary.")],
    out: Annotated[
        Path, typer.Option("--out", help="Directory for cells, tables and report; finished cells are not repeated.")
    ],
    on: Annotated[
        str, typer.Option("--on", help="Run on processes of this machine (local) or on a Ray cluster (ray).")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option("--address", help="Address of the Ray cluster, such as 10.0.0.1:6379. Default: start one."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Run seeds 0 to N-1 instead of those of the file.")
    ] = None,
    workers: WorkersOption = None,
    output: ResultOption = ResultOutput.table,
    quiet: QuietOption = False,
) -> None:
    """Compare policies over many settings of a scenario or replay.

    Stop it at any time; the same command resumes.

    Exit code: 0 everything done, 1 some cells failed, 2 bad input.
    """
    from berth.lab.run.sweep import Sweep
    from berth.lab.sweep import sweep

    with cell_progress(quiet) as show:
        result = sweep(file, out=out, workers=workers, on=on, address=address, seeds=seeds, progress=show)
    where = f"\nReport: {(out / 'report.html').resolve()}\nTable: {(out / 'summary.parquet').resolve()}"
    if isinstance(result, Sweep):
        from berth.lab.show.tables import print_sweep

        failed = {f"point {n}, {cell}": error for n, found in result.failed.items() for cell, error in found.items()}
        finish(result, output, lambda: result.frame().to_dicts(), print_sweep, where, failed)
        return
    from berth.lab.replay.sweep import print_replay_sweep

    finish(result, output, lambda: result.frame().to_dicts(), print_replay_sweep, where, result.failed)


def leaderboard_command(
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="Add a policy, such as my_policies:MyPolicy, and run its family only (repeat).",
            autocompletion=complete_policy,
        ),
    ] = None,
    family: Annotated[
        list[str] | None, typer.Option("--family", help="Run this family: allocation, selection or placement (repeat).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run a few slots of each scenario, as a test.")] = False,
    out: Annotated[
        Path, typer.Option("--out", help="Directory for cells and tables; finished cells are not repeated.")
    ] = Path("berth-leaderboard"),
    docs: Annotated[Path | None, typer.Option("--docs", help="Also write the results as a Markdown page.")] = None,
    workers: WorkersOption = None,
    output: ResultOption = ResultOutput.table,
    quiet: QuietOption = False,
) -> None:
    """Rank all policies on the standard scenarios.

    Stop it at any time; the same command resumes.

    Exit code: 0 everything done, 1 some cells failed, 2 bad input.
    """
    from berth.lab.leaderboard import leaderboard, print_leaderboard, render_leaderboard
    from berth.lab.run.store import machine

    with cell_progress(quiet) as show:
        found = leaderboard(policy or (), family or None, quick=quick, out=out, workers=workers, progress=show)
    words = ["berth", "leaderboard", *(word for name in policy or () for word in ("--policy", name))]
    words += [word for name in family or () for word in ("--family", name)]
    words += [*(["--quick"] if quick else []), *(["--docs", str(docs)] if docs else [])]
    page = render_leaderboard(found, shlex.join(words), machine())
    for file in (out / "leaderboard.md", *((docs,) if docs is not None else ())):
        file.write_text(page, encoding="utf-8")
    where = f"Page: {(out / 'leaderboard.md').resolve()}"
    finish(found, output, lambda: found.frame().to_dicts(), print_leaderboard, where, found.failed)


def complete_experiment(incomplete: str) -> list[str]:
    from berth.lab.reproduce.experiments import PAPERS, experiment_names

    return [name for name in ("list", "all", *PAPERS, *experiment_names()) if name.startswith(incomplete)]


def reproduce_command(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME",
            help="list, all, a paper (ogasched), an experiment (ogasched/table-3), or an experiment file.",
            autocompletion=complete_experiment,
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Run small settings and few seeds, in seconds each.")] = False,
    out: Annotated[
        Path, typer.Option("--out", help="Directory for cells, report and tables; finished cells are not repeated.")
    ] = Path("berth-reproduce"),
    traces: Annotated[
        Path | None,
        typer.Option("--traces", metavar="DIR", help="Directory of the real traces. Default: BERTH_TRACES."),
    ] = None,
    docs: Annotated[Path | None, typer.Option("--docs", help="Also write the results as a Markdown page.")] = None,
    workers: WorkersOption = None,
    output: ResultOption = ResultOutput.table,
    quiet: QuietOption = False,
) -> None:
    """Run the experiments of the papers and check their claims.

    Stop it at any time; the same command resumes.

    Exit code: 0 everything done, whatever the verdicts; 1 some cells failed; 2 bad input.
    """
    from berth.lab.reproduce.experiments import chosen

    if names[0] == "list":
        wanted = chosen(names[1:] or ["all"])
        keys = ("name", "paper", "figure", "title", "what", "data", "minutes")
        if not answered([{key: getattr(experiment, key) for key in keys} for experiment in wanted], output):
            from berth.lab.reproduce.report import print_experiments

            print_experiments(wanted, terminal(output))
        return
    if names[0] == "changes":
        expected = "an experiment; in a clone, python -m scripts.verdicts OLD NEW compares the verdicts of two runs"
        raise InvalidInput(expected, value="changes", key="NAME")
    from berth.lab.reproduce.report import print_reproduced, render_markdown
    from berth.lab.reproduce.run import reproduce

    with cell_progress(quiet) as show:
        found = reproduce(names, quick=quick, out=out, workers=workers, progress=show, traces=traces)
    if docs is not None:
        options = [*(["--quick"] if quick else []), *(["--traces", "DIR"] if traces is not None else [])]
        said = shlex.join(["berth", "reproduce", *names, *options, "--docs", str(docs)])
        docs.write_text(render_markdown(found, said), encoding="utf-8")
    where = f"\nReport: {(out / 'report.html').resolve()}"
    finish(found, output, partial(_claims, found.as_dict()), print_reproduced, where, found.failed)


def _claims(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the CSV of a reproduction: a row for each claim."""
    return [{"experiment": one["experiment"], **claim} for one in found["experiments"] for claim in one["claims"]]


def train_command(
    scenario: Annotated[
        list[str] | None,
        typer.Argument(help="Names or files of scenarios of the placement family.", autocompletion=complete_scenario),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option("--from", metavar="URL", help="Train on the finished jobs and the servers of a running service."),
    ] = None,
    method: Annotated[
        str,
        typer.Option("--method", help="Train with es, rule (three numbers), ddpg or ddpg-direct (as printed)."),
    ] = "es",
    out: Annotated[Path, typer.Option("--out", help="Directory for checkpoint, policy and curve.")] = Path(
        "berth-train"
    ),
    steps: Annotated[int, typer.Option("--steps", min=1, help="Train at most this many steps.")] = 200,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Simulate each scenario this often in a step.")] = 4,
    pairs: Annotated[
        int, typer.Option("--pairs", min=1, help="Try this many pairs of perturbed networks in a step of es.")
    ] = 16,
    waiting: Annotated[
        str,
        typer.Option("--waiting", help="Treat tasks that do not fit as queue, commit-immediate or commit-any."),
    ] = "queue",
    only_order: Annotated[
        bool, typer.Option("--only-order", help="Learn only the order of tasks: count launches in full, ignore prices.")
    ] = False,
    hidden: Annotated[int, typer.Option("--hidden", min=1, help="Size of the hidden layers.")] = 12,
    attention: Annotated[
        int, typer.Option("--attention", min=0, help="Size of attention keys; 0 uses Deep Sets instead.")
    ] = 0,
    objective: Annotated[
        str,
        typer.Option("--objective", help="Train for the gain, or for a low mean slowdown, wait or completion."),
    ] = "gain",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed for weights and noise.")] = 0,
    patience: Annotated[
        int, typer.Option("--patience", min=1, help="Stop after this many validations without progress.")
    ] = 8,
    device: Annotated[str, typer.Option("--device", hidden=True)] = "cpu",
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a setting of all scenarios, such as horizon=500 (repeat)."
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Use this many processes for the runs of es.")] = 1,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Train a policy for placement on simulated runs.

    Stop it at any time; the same command resumes.
    """
    from berth.families.placement.training.train import TrainingPlan, train_on
    from berth.scenario import parse_overrides

    if device != "cpu":
        raise InvalidInput("cpu, the only device; --workers N trains in N processes", value=device, key="--device")
    scenario = list(scenario or ())
    if service is not None:
        from berth.live.history import write_history

        scenario.append(str(write_history(service, out)))
    if not scenario:
        raise InvalidInput("a scenario, or --from URL", found="neither", key="scenario")
    plan = TrainingPlan(
        tuple(scenario),
        method=method,
        steps=steps,
        runs=runs,
        pairs=pairs,
        waiting=waiting,
        only_order=only_order,
        hidden=hidden,
        looks=attention,
        objective=objective,
        seed=seed,
        patience=patience,
    )
    with progress(quiet, partial(_steps, steps), "steps") as show:
        try:
            trained = train_on(plan, parse_overrides(override or ()), out, show, workers)
        except KeyboardInterrupt:
            kept = (
                f"{out} keeps what was reached" if (out / "checkpoint.json").exists() else "too early to keep anything"
            )
            raise KeyboardInterrupt(f"stopped; {kept}, the same command goes on") from None
    if answered({"policy": trained.policy, "validation_gain": trained.gain, "steps": trained.steps}, output):
        return
    gain = 100 * (trained.gain - 1)
    typer.echo(f"{gain:+.2f} % over {trained.against} in validation, after {trained.steps} steps")
    typer.echo(f"Curve:  {(out / 'curve.png').resolve()}")
    changed = [word for text in override or () for word in ("--set", text)]
    words = ["berth", "compare", scenario[0], *changed, "--policy", trained.policy, "--policy", "greedy:waiting=queue"]
    typer.echo(f"Use it: {shlex.join(words)}")


def _steps(steps: int, bar: Bar) -> Callable[[int, float, float], None]:
    """Show how far a training is: the bar, or a line at every tenth of it."""
    task, console = bar.add_task("compiling, where this was not done before", total=steps), bar.console
    if not console.is_terminal:
        console.print(f"berth: up to {steps} steps; a first start compiles kernels before")

    def show(step: int, gain: float, best: float) -> None:
        validated = f"best validated {100 * (best - 1):+.2f} %" if best > 0 else "not validated yet"
        label = f"{100 * (gain - 1):+.2f} %, {validated}"
        bar.update(task, completed=step, description=label)
        if not console.is_terminal and step % max(steps // 10, 1) == 0:
            console.print(f"berth: step {step} of {steps}: {label}")

    return show
