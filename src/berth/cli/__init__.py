"""The command line. Thin: a command is one library call.

Only typer is imported here; everything heavier waits inside the command that needs it, so that help
and completion answer at once.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.about import VERSION
from berth.cli.common import (
    Output,
    OutputOption,
    QuietOption,
    WorkersOption,
    cell_progress,
    complete_policy,
    complete_scenario,
    print_json,
    told_when_stopped,
)
from berth.cli.lab import workload
from berth.cli.lab.leaderboard import leaderboard_command
from berth.cli.lab.replay import replay_command
from berth.cli.lab.reproduce import reproduce_command
from berth.cli.lab.sweep import sweep_command
from berth.cli.lab.trace import trace_app
from berth.cli.live.jobs import job_app, jobs_command, plan_command, submit_command
from berth.cli.live.local_cluster import cluster_app, slurm_app
from berth.cli.live.serve import serve_command, token_app
from berth.cli.live.servers import decisions_command, learned_command, policy_app, servers_app
from berth.errors import BerthError

if TYPE_CHECKING:
    from berth.lab.run.results import Comparison

__all__ = ["app", "main"]

app = typer.Typer(
    name="berth",
    help="Compare online-learning policies that schedule multi-server jobs. Start with: berth demo",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help needs no rich, whose import is most of the time that help takes
    context_settings={"help_option_names": ["-h", "--help"]},
)
scenarios_app = typer.Typer(help="The scenarios that come with berth.", rich_markup_mode=None)
app.add_typer(scenarios_app, name="scenarios")
app.add_typer(workload.app, name="workload")
app.add_typer(trace_app, name="trace")
app.add_typer(cluster_app, name="cluster")
app.add_typer(slurm_app, name="slurm")
app.command("serve")(serve_command)
app.add_typer(token_app, name="token")
app.command("submit")(submit_command)
app.command("jobs")(jobs_command)
app.add_typer(job_app, name="job")
app.command("plan")(plan_command)
app.add_typer(servers_app, name="servers")
app.add_typer(policy_app, name="policy")
app.command("learned")(learned_command)
app.command("decisions")(decisions_command)


class Arrivals(StrEnum):
    """Do policies see who has a job before they decide?"""

    hidden = "hidden"
    revealed = "revealed"
    both = "both"


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"berth {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error comes from (anywhere in the line).")
    ] = False,
) -> None:
    """Compare online-learning policies that schedule multi-server jobs. Start with: berth demo"""


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Where results and report go.")] = Path("berth-demo"),
    workers: WorkersOption = None,
    quiet: QuietOption = False,
) -> None:
    """Compare all policies on a small cluster, and write a report to look at."""
    from berth.lab.run.compare import compare

    with told_when_stopped(), cell_progress(quiet) as show:
        comparison = compare("demo", out=out, workers=workers, progress=show)
    _print_table(comparison)
    typer.echo("")
    typer.echo(f"Report: {(out / 'report.html').resolve()}")
    typer.echo("Next:   berth compare small --policy ogasched --policy fairness --set arrivals.probability=0.3")
    _exit_with_failures(comparison)


@app.command("compare")
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
        typer.Option("--oracle", help="stationary or slot (repeat), or none. Default: the scenario's."),
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
    from berth.lab.run.compare import compare
    from berth.scenario import parse_overrides

    with told_when_stopped(), cell_progress(quiet) as show:
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
    if output is Output.json:
        print_json(comparison.as_dict())
    else:
        _print_table(comparison)
        if out is not None:
            typer.echo(f"\nReport: {(out / 'report.html').resolve()}")
    _exit_with_failures(comparison)


# of modules of their own; here, because help lists commands in this order
app.command("replay")(replay_command)
app.command("sweep")(sweep_command)
app.command("reproduce")(reproduce_command)
app.command("leaderboard")(leaderboard_command)


@app.command()
def train(
    scenario: Annotated[
        list[str],
        typer.Argument(help="Scenarios of the placement family, by name or file.", autocompletion=complete_scenario),
    ],
    method: Annotated[
        str,
        typer.Option("--method", help="es, reinforce, ppo, rule (three numbers), ddpg or ddpg-direct (as printed)."),
    ] = "es",
    out: Annotated[Path, typer.Option("--out", help="Where checkpoint, policy and curve go.")] = Path("berth-train"),
    steps: Annotated[int, typer.Option("--steps", min=1, help="At most so many steps.")] = 200,
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
    with told_when_stopped(), _training_progress(quiet, steps) as show:
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


@app.command()
def policies(output: OutputOption = Output.table) -> None:
    """List the policies, their settings and where they come from."""
    from berth.lab.show.policies import describe_policies

    found = describe_policies()
    if output is Output.json:
        print_json(found)
        return
    for item in found:
        typer.secho(item["name"], bold=True, nl=False)
        source = "" if item["source"] == "builtin" else f", from {item['source']}"
        typer.echo(f"  ({item['family'] or 'unknown'} family{source})")
        typer.echo(f"    {item['summary']}")
        if item["settings"]:
            typer.echo("    " + ", ".join(f"{key}={value}" for key, value in item["settings"].items()))


@scenarios_app.callback(invoke_without_command=True)
def scenarios(context: typer.Context, output: OutputOption = Output.table) -> None:
    """List the scenarios; `show NAME` prints one, `schema` prints the JSON schema of scenario files."""
    if context.invoked_subcommand is not None:
        return
    from berth.scenario.catalog import scenario_names

    names = scenario_names()
    if output is Output.json:
        print_json([{"name": name, "title": title} for name, title in names.items()])
        return
    width = max(map(len, names), default=0)
    for name, title in names.items():
        typer.echo(f"{name:<{width}}  {title}")


@scenarios_app.command("show")
def show_scenario(
    name: Annotated[str, typer.Argument(help="Name or file.", autocompletion=complete_scenario)],
    full: Annotated[bool, typer.Option("--full", help="Every setting, also those it takes from others.")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Print a scenario as YAML: as it is written, or with --full every setting."""
    from berth.scenario import load_scenario
    from berth.scenario.catalog import named_file

    file = named_file(name)
    scenario = load_scenario(name)
    if output is Output.json:
        print_json(scenario.dump())
    elif full or file is None:
        import yaml

        typer.echo(yaml.safe_dump(scenario.dump(), sort_keys=False, allow_unicode=True, width=100), nl=False)
    else:
        typer.echo(file.read_text(encoding="utf-8"), nl=False)


@scenarios_app.command("schema")
def schema() -> None:
    """Print the JSON schema of scenario files, for editors."""
    from berth.scenario import scenario_schema

    print_json(scenario_schema())


def _print_table(comparison: Comparison) -> None:
    from rich.console import Console

    from berth.lab.show.tables import print_comparison

    print_comparison(comparison, Console(highlight=False))


def _exit_with_failures(comparison: Comparison) -> None:
    for cell, failure in comparison.failed.items():
        typer.echo(f"berth: failed: {cell}: {failure.error}", err=True)
        if _debug and failure.traceback:
            typer.echo(failure.traceback, err=True)
    if comparison.failed:
        raise typer.Exit(1)


@contextmanager
def _training_progress(quiet: bool, steps: int) -> Iterator[Any]:
    """Shows how far a training is, on stderr: a bar on a terminal, else a line now and then."""
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Bar(*columns, console=console, transient=True, disable=not console.is_terminal, expand=True)
    with bar:
        task = bar.add_task("compiling, where this was not done before", total=steps)
        if not console.is_terminal:
            console.print(f"berth: up to {steps} steps; a first start compiles kernels before")

        def show(step: int, gain: float, best: float) -> None:
            validated = f"best validated {100 * (best - 1):+.2f} %" if best > 0 else "not validated yet"
            label = f"{100 * (gain - 1):+.2f} %, {validated}"
            bar.update(task, completed=step, description=label)
            if not console.is_terminal and step % max(steps // 10, 1) == 0:
                console.print(f"berth: step {step} of {steps}: {label}")

        yield show


_debug = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and give its exit code: 0, 1 (a cell failed, a row is bad), 2 (bad input), 130 (Ctrl-C)."""
    global _debug
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal or file that cannot show every sign gets '?', no crash
            stream.reconfigure(errors="replace")
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())  # policies of one's own are found beside one's files, as with `python -m berth`
    _debug = "--debug" in words  # taken out here, so that it may stand anywhere in the line
    words = [word for word in words if word != "--debug"] or ["--help"]
    # typer keeps its own copy of click; the class of all its usage errors is reached through this one
    usage_error: Any = typer.BadParameter.__mro__[2]
    try:
        code = app(words, standalone_mode=False, prog_name="berth")
        return code if isinstance(code, int) else 0
    except BerthError as error:
        if _debug:
            raise
        return _complain(error, getattr(error, "code", 2))
    except usage_error as error:
        if _debug:
            raise
        return _complain(error.format_message().replace("Value error, ", ""))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # whoever read us has left; there is nobody to tell
        return 141


def _complain(error: object, code: int = 2) -> int:
    typer.echo(f"berth: error: {' '.join(str(error).split())}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
