"""The command line: each command is one library call.

Only typer is imported here. Commands import everything heavier when they run, so help and completion are fast.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer

from berth.about import VERSION
from berth.cli import common
from berth.cli.help import GroupedCommands, examples
from berth.cli.lab import compare, workload
from berth.cli.lab.catalog import policies_command, scenarios_app
from berth.cli.lab.replay import replay_command
from berth.cli.lab.trace import trace_app
from berth.cli.lab.verify import verify_command
from berth.cli.live.jobs import job_app, jobs_command
from berth.cli.live.kubernetes import explain_app, kubernetes_app
from berth.cli.live.local_cluster import cluster_app, slurm_app
from berth.cli.live.rehearse import rehearse_command
from berth.cli.live.serve import serve_command, token_app
from berth.cli.live.servers import decisions_command, learned_command, policy_app, servers_app
from berth.cli.live.submitting import plan_command, submit_command
from berth.errors import BerthError

__all__ = ["app", "command_line", "main"]

SUMMARY = """Schedule jobs that need several servers at once, with policies that learn.

The lab compares policies in simulation. The scheduler runs them, on a simulated cluster, Slurm, Ray
or Kubernetes.
"""

app = typer.Typer(
    name="berth",
    cls=GroupedCommands,
    help=SUMMARY,
    epilog=examples(
        "berth demo",
        "berth compare small --policy ogasched --policy fairness",
        "berth serve --policy completion",
    ),
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help needs no rich, whose import is most of the time that help takes
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
    "demo": (compare.demo_command, ("berth demo", "berth demo --out my-demo --workers 2")),
    "compare": (
        compare.compare_command,
        (
            "berth compare small --policy ogasched --policy fairness --seeds 4",
            "berth compare small --policy drf --set horizon=500 -o csv",
        ),
    ),
    "sweep": (
        compare.sweep_command,
        ("berth sweep sweep.yaml --out results", "berth sweep sweep.yaml --out results --on ray"),
    ),
    "leaderboard": (
        compare.leaderboard_command,
        ("berth leaderboard --quick", "berth leaderboard --policy my_policies:MyPolicy --out results"),
    ),
    "reproduce": (
        compare.reproduce_command,
        ("berth reproduce list", "berth reproduce ogasched/table-3 --quick"),
    ),
    "verify": (verify_command, ("berth verify", "berth verify rlscheduler --traces traces")),
    "train": (
        compare.train_command,
        ("berth train drl-small --out my-policy", "berth train drl-small drl-scarce --steps 100 --workers 2"),
    ),
    "policies": (policies_command, ("berth policies", "berth policies -o json")),
    "replay": (
        replay_command,
        (
            "berth replay jobs.swf.gz --policy fcfs --policy easy",
            "berth replay jobs.csv --load 0.9 --first 10000 --out results",
        ),
    ),
    "serve": (
        serve_command,
        ("berth serve", "berth serve --engine slurm --policy completion --store /var/lib/berth/berth.db"),
    ),
    "submit": (
        submit_command,
        ("berth submit --tasks 4 --resources cpu=2,gpu=1 -- python train.py", "berth submit -f job.yaml"),
    ),
    "jobs": (jobs_command, ("berth jobs --phase waiting --user ann", "berth jobs --all -o csv")),
    "plan": (
        plan_command,
        (
            "berth plan --tasks 4 --resources cpu=2,gpu=1 --estimate 2h",
            "berth plan -f job.yaml",
            "berth plan -f job.yaml --kubeconfig ~/.kube/config",
        ),
    ),
    "learned": (learned_command, ("berth learned --type train/resnet50",)),
    "decisions": (decisions_command, ("berth decisions --limit 5",)),
    "rehearse": (
        rehearse_command,
        ("berth rehearse rehearsal.yaml --seeds 4 --out results", "berth rehearse rehearsal.yaml --service"),
    ),
}
"""Commands without subcommands, with examples."""
SUBCOMMANDS = {
    "scenarios": scenarios_app,
    "trace": trace_app,
    "workload": workload.app,
    "job": job_app,
    "explain": explain_app,
    "kubernetes": kubernetes_app,
    "servers": servers_app,
    "policy": policy_app,
    "token": token_app,
    "cluster": cluster_app,
    "slurm": slurm_app,
}
for name, (command, lines) in COMMANDS.items():
    # what follows the command of a job belongs to it, as with srun
    settings = {"allow_interspersed_args": False} if name == "submit" else None
    app.command(name, epilog=examples(*lines), context_settings=settings)(command)
for name, commands in SUBCOMMANDS.items():
    app.add_typer(commands, name=name)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"berth {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print a traceback on errors. It may stand anywhere in the line.")
    ] = False,
) -> None:
    pass


@cache
def command_line() -> Any:
    """All commands, as click has them: typer would make them again, a tenth of a second, at every call of `app`."""
    return typer.main.get_command(app)


def _announce_compiling() -> None:
    """Write to stderr when kernels are compiled, with or without a terminal."""
    handler, logger = logging.StreamHandler(), logging.getLogger("berth.kernels")
    handler.setFormatter(logging.Formatter("berth: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and give its exit code: 0, 1 (a cell failed, a row is bad), 2 (bad input), 130 (Ctrl-C)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        _announce_compiling()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal or file that cannot show every sign gets '?', no crash
            stream.reconfigure(errors="replace")
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())  # policies of one's own are found beside one's files, as with `python -m berth`
    common.debugging = "--debug" in words  # taken out here, so that it may stand anywhere in the line
    words = [word for word in words if word != "--debug"] or ["--help"]
    # typer keeps its own copy of click; the class of all its usage errors is reached through this one
    usage_error: Any = typer.BadParameter.__mro__[2]
    plugin = os.path.basename(sys.argv[0]) == "kubectl-berth"  # kubectl runs it as `kubectl berth`
    try:
        code = command_line()(words, standalone_mode=False, prog_name="kubectl berth" if plugin else "berth")
        return code if isinstance(code, int) else 0
    except BerthError as error:
        if common.debugging:
            raise
        return _complain(error, getattr(error, "code", 2))
    except usage_error as error:
        if common.debugging:
            raise
        return _complain(error.format_message().replace("Value error, ", ""))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # whoever read us has left; there is nobody to tell
        return 141


def _complain(error: object, code: int = 2) -> int:
    # several mistakes of one file are a line each
    lines = str(error).splitlines() if getattr(error, "others", ()) else [str(error)]
    for line in lines:
        typer.echo(f"berth: error: {' '.join(line.split())}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
