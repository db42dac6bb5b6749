"""Commands that run comparisons: `demo`, `compare`, `sweep`, `leaderboard`, `reproduce`; and `train`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli import common
from berth.cli.common import (
    Output,
    OutputOption,
    QuietOption,
    WorkersOption,
    cell_progress,
    complete_policy,
    complete_scenario,
    finish,
    print_json,
    progress,
)

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
    """Do policies see who has a job before they decide?"""

    hidden = "hidden"
    revealed = "revealed"
    both = "both"


def demo_command(
    out: Annotated[Path, typer.Option("--out", help="Where results and report go.")] = Path("berth-demo"),
    workers: WorkersOption = None,
    quiet: QuietOption = False,
) -> None:
    """Compare all policies on a small cluster, and write a report to look at."""
    from berth.lab.compare import compare
    from berth.lab.show.tables import print_comparison

    with cell_progress(quiet) as show:
        comparison = compare("demo", out=out, workers=workers, progress=show)
    where = (
        f"\nReport: {(out / 'report.html').resolve()}\nNext:   berth compare small --policy ogasched --policy fairness"
    )
    where += " --set arrivals.probability=0.3"
    finish(comparison, Output.table, print_comparison, where, _failures(comparison))


def compare_command(
    scenario: Annotated[
        str, typer.Argument(help="Name of a scenario, or a scenario file.", autocompletion=complete_scenario)
    ],
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="A policy, such as ogasched or ogasched:step=0.5 (repeat). Default: those of the scenario.",
            autocompletion=complete_policy,
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="How many seeds: 0, 1, … N−1.")] = None,
    seed: Annotated[
        list[int] | None, typer.Option("--seed", min=0, help="One seed (repeat), instead of --seeds.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="The policy that others are compared with.", autocompletion=complete_policy),
    ] = None,
    arrivals: Annotated[
        Arrivals | None, typer.Option("--arrivals", help="Do policies see who has a job before they decide?")
    ] = None,
    oracle: Annotated[
        list[str] | None,
        typer.Option("--oracle", help="stationary, slot or information (repeat), or none. Default: the scenario's."),
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: horizon=500 (repeat).")
    ] = None,
    workers: WorkersOption = None,
    output: OutputOption = Output.table,
    out: Annotated[Path | None, typer.Option("--out", help="Directory for results and report.")] = None,
    quiet: QuietOption = False,
) -> None:
    """Compare policies on a scenario, paired by seed, with the same information for all."""
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
        )
    where = "" if out is None else f"\nReport: {(out / 'report.html').resolve()}"
    finish(comparison, output, print_comparison, where, _failures(comparison))


def _failures(comparison: Comparison) -> dict[str, str]:
    return {
        str(cell): failure.error + (f"\n{failure.traceback}" if common.debugging and failure.traceback else "")
        for cell, failure in comparison.failed.items()
    }


def sweep_command(
    file: Annotated[Path, typer.Argument(help="The sweep file (YAML): a scenario, and what is changed in it.")],
    out: Annotated[Path, typer.Option("--out", help="Where cells and tables go; the same command goes on there.")],
    on: Annotated[str, typer.Option("--on", help="local: processes of this machine; ray: a Ray cluster.")] = "local",
    address: Annotated[
        str | None,
        typer.Option("--address", help="Of the Ray cluster, as 10.0.0.1:6379; without, one is started."),
    ] = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="How many seeds, instead of the file's.")] = None,
    workers: WorkersOption = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Run a sweep; stop it at any time, the same command goes on.

    Exit code: 0 everything done, 1 some cells failed, 2 bad input.
    """
    from berth.lab.run.sweep import sweep
    from berth.lab.show.tables import print_sweep

    with cell_progress(quiet) as show:
        result = sweep(file, out=out, workers=workers, on=on, address=address, seeds=seeds, progress=show)
    failed = {f"point {n}, {cell}": error for n, found in result.failed.items() for cell, error in found.items()}
    finish(result, output, print_sweep, f"\nTable: {(out / 'summary.parquet').resolve()}", failed)


def leaderboard_command(
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-p",
            help="One more policy, such as mymodule:MyPolicy (repeat); then only its family is run.",
            autocompletion=complete_policy,
        ),
    ] = None,
    family: Annotated[
        list[str] | None, typer.Option("--family", help="allocation, selection or placement (repeat).")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few slots of everything, to see that it runs.")] = False,
    out: Annotated[
        Path, typer.Option("--out", help="Where cells and tables go; the same command goes on there.")
    ] = Path("berth-leaderboard"),
    docs: Annotated[Path | None, typer.Option("--docs", help="Also write the page to this file.")] = None,
    workers: WorkersOption = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Run every built-in policy on the standard scenarios; stop it at any time, the same command goes on.

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
    finish(found, output, print_leaderboard, f"Page: {(out / 'leaderboard.md').resolve()}", found.failed)


def complete_experiment(incomplete: str) -> list[str]:
    from berth.lab.reproduce.experiments import PAPERS, experiment_names

    return [name for name in ("list", "all", *PAPERS, *experiment_names()) if name.startswith(incomplete)]


def reproduce_command(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help="list, all, a paper (ogasched), an experiment (ogasched/table-3), or a file of your own.",
            autocompletion=complete_experiment,
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Small settings and few seeds: seconds each.")] = False,
    out: Annotated[
        Path, typer.Option("--out", help="Where cells, report and tables go; the same command goes on there.")
    ] = Path("berth-reproduce"),
    traces: Annotated[
        Path | None,
        typer.Option("--traces", metavar="DIR", help="Folder of real traces that experiments name; else BERTH_TRACES."),
    ] = None,
    docs: Annotated[Path | None, typer.Option("--docs", help="Also write the results as a Markdown page.")] = None,
    workers: WorkersOption = None,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Run experiments of the papers and say which claims hold; stop it at any time, the same command goes on.

    Exit code: 0 everything done, whatever the verdicts; 1 some cells failed; 2 bad input.
    """
    from berth.lab.reproduce.experiments import chosen

    if names[0] == "list":
        wanted = chosen(names[1:] or ["all"])
        if output is Output.json:
            keys = ("name", "paper", "figure", "title", "what", "data", "minutes")
            print_json([{key: getattr(experiment, key) for key in keys} for experiment in wanted])
            return
        from rich.console import Console

        from berth.lab.reproduce.report import print_experiments

        print_experiments(wanted, Console(highlight=False))
        return
    from berth.lab.reproduce.report import print_reproduced, render_markdown
    from berth.lab.reproduce.run import reproduce

    with cell_progress(quiet) as show:
        found = reproduce(names, quick=quick, out=out, workers=workers, progress=show, traces=traces)
    if docs is not None:
        options = [*(["--quick"] if quick else []), *(["--traces", "DIR"] if traces is not None else [])]
        said = shlex.join(["berth", "reproduce", *names, *options, "--docs", str(docs)])
        docs.write_text(render_markdown(found, said), encoding="utf-8")
    finish(found, output, print_reproduced, f"\nReport: {(out / 'report.html').resolve()}", found.failed)


def train_command(
    scenario: Annotated[
        list[str],
        typer.Argument(help="Scenarios of the placement family, by name or file.", autocompletion=complete_scenario),
    ],
    method: Annotated[
        str,
        typer.Option("--method", help="es, reinforce, ppo, rule (three numbers), ddpg or ddpg-direct (as printed)."),
    ] = "es",
    out: Annotated[Path, typer.Option("--out", help="Where checkpoint, policy and curve go.")] = Path("berth-train"),
    steps: Annotated[int, typer.Option("--steps", min=1, help="The most steps to train.")] = 200,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Runs of each scenario in a step.")] = 4,
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Pairs of changed networks in a step of es.")] = 16,
    waiting: Annotated[
        str,
        typer.Option("--waiting", help="queue, commit-immediate or commit-any: what becomes of tasks without room."),
    ] = "queue",
    only_order: Annotated[
        bool, typer.Option("--only-order", help="Learn only the order: launches count in full, nothing has a price.")
    ] = False,
    hidden: Annotated[int, typer.Option("--hidden", min=1, help="Size of the hidden layers.")] = 12,
    attention: Annotated[int, typer.Option("--attention", min=0, help="Size of keys; 0: none (Deep Sets).")] = 0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of weights and noise.")] = 0,
    patience: Annotated[
        int, typer.Option("--patience", min=1, help="Validations without progress before it ends.")
    ] = 8,
    device: Annotated[
        str, typer.Option("--device", help="cpu or cuda: es plays thousands of runs at once there.")
    ] = "cpu",
    override: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of all scenarios (repeat).")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes that share the runs of es.")] = 1,
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Train a policy for placement on simulated runs; stop it at any time, the same command goes on."""
    from berth.families.placement.training.train import TrainingPlan, train_on
    from berth.scenario import parse_overrides

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
        seed=seed,
        patience=patience,
        device=device,
    )
    with progress(quiet, partial(_steps, steps)) as show:
        try:
            trained = train_on(plan, parse_overrides(override or ()), out, show, workers)
        except KeyboardInterrupt:
            kept = (
                f"{out} keeps what was reached" if (out / "checkpoint.json").exists() else "too early to keep anything"
            )
            raise KeyboardInterrupt(f"stopped; {kept}, the same command goes on") from None
    if output is Output.json:
        print_json({"policy": trained.policy, "validation_gain": trained.gain, "steps": trained.steps})
        return
    gain = 100 * (trained.gain - 1)
    typer.echo(f"{gain:+.2f} % over greedy with a queue in validation, after {trained.steps} steps")
    typer.echo(f"Curve:  {(out / 'curve.png').resolve()}")
    changed = [word for text in override or () for word in ("--set", text)]
    words = ["berth", "compare", scenario[0], *changed, "--policy", trained.policy, "--policy", "greedy:waiting=queue"]
    typer.echo(f"Use it: {shlex.join(words)}")


def _steps(steps: int, bar: Bar) -> Callable[[int, float, float], None]:
    """What shows how far a training is: the bar, or a line now and then."""
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
