"""The command line. Thin: a command is one library call.

Only typer is imported here; everything heavier waits inside the command that needs it, so that help
and completion answer at once.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from berth.about import VERSION
from berth.cli import common
from berth.cli.lab import compare, workload
from berth.cli.lab.catalog import policies_command, scenarios_app
from berth.cli.lab.replay import replay_command
from berth.cli.lab.trace import trace_app
from berth.cli.live.jobs import job_app, jobs_command, plan_command, submit_command
from berth.cli.live.local_cluster import cluster_app, slurm_app
from berth.cli.live.rehearse import rehearse_command
from berth.cli.live.serve import serve_command, token_app
from berth.cli.live.servers import decisions_command, learned_command, policy_app, servers_app
from berth.errors import BerthError

__all__ = ["app", "main"]

app = typer.Typer(
    name="berth",
    help="Compare online-learning policies that schedule multi-server jobs. Start with: berth demo",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help needs no rich, whose import is most of the time that help takes
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
app.command("rehearse")(rehearse_command)
app.command("demo")(compare.demo_command)
app.command("compare")(compare.compare_command)
app.command("replay")(replay_command)
app.command("sweep")(compare.sweep_command)
app.command("reproduce")(compare.reproduce_command)
app.command("leaderboard")(compare.leaderboard_command)
app.command("train")(compare.train_command)
app.command("policies")(policies_command)


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and give its exit code: 0, 1 (a cell failed, a row is bad), 2 (bad input), 130 (Ctrl-C)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal or file that cannot show every sign gets '?', no crash
            stream.reconfigure(errors="replace")
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())  # policies of one's own are found beside one's files, as with `python -m berth`
    common.debugging = "--debug" in words  # taken out here, so that it may stand anywhere in the line
    words = [word for word in words if word != "--debug"] or ["--help"]
    # typer keeps its own copy of click; the class of all its usage errors is reached through this one
    usage_error: Any = typer.BadParameter.__mro__[2]
    try:
        code = app(words, standalone_mode=False, prog_name="berth")
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
    typer.echo(f"berth: error: {' '.join(str(error).split())}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
