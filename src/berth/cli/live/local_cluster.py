"""`berth cluster`: a Slurm, Ray or Kubernetes cluster on this machine.

`berth slurm`: scripts for operators of Slurm.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.answers import Output, OutputOption, answered
from berth.cli.help import examples

if TYPE_CHECKING:
    from berth.live.clusters.supervisor import Standing

__all__ = ["cluster_app", "slurm_app"]

cluster_app = typer.Typer(
    help="Run a real Slurm, Ray or Kubernetes on this machine.",
    epilog=examples("berth cluster up slurm", "berth cluster down slurm"),
    rich_markup_mode=None,
)
slurm_app = typer.Typer(
    help="Print scripts for operators of Slurm.",
    epilog=examples("berth slurm hook /var/spool/berth > berth-hook"),
    rich_markup_mode=None,
)


class KindName(StrEnum):
    """The kind of a cluster."""

    slurm = "slurm"
    ray = "ray"
    kubernetes = "kubernetes"


KindArgument = Annotated[KindName, typer.Argument(help="Kind of cluster.")]
DirectoryOption = Annotated[
    Path | None,
    typer.Option("--directory", help="Directory of the cluster's files. Default: a temporary one of the user."),
]


def _directory(kind: KindName, given: Path | None) -> Path:
    from berth.live.clusters.supervisor import cluster_directory

    return given if given is not None else cluster_directory(kind.value)


def _told(cluster: Standing) -> dict[str, Any]:
    return {
        "kind": cluster.kind,
        "directory": str(cluster.directory),
        "supervised": cluster.supervised,
        "daemons": {name: {"pid": pid, "running": name in cluster.running} for name, pid in cluster.daemons.items()},
        "use": list(cluster.use),
    }


@cluster_app.command("up", epilog=examples("berth cluster up slurm --nodes 8 --gpus 2", "berth cluster up ray"))
def up_command(
    kind: KindArgument,
    nodes: Annotated[int, typer.Option("--nodes", "-N", min=1, max=512, help="Start this many nodes.")] = 4,
    cpus: Annotated[int, typer.Option("--cpus", min=1, max=4096, help="Processors that each node reports.")] = 4,
    gpus: Annotated[int, typer.Option("--gpus", min=0, max=64, help="GPUs that each node reports.")] = 0,
    directory: DirectoryOption = None,
) -> None:
    """Start a cluster; it runs until `berth cluster down`."""
    from berth.live.clusters.supervisor import up

    typer.echo(f"starting {kind.value} with {nodes} node{'s' if nodes > 1 else ''} …", err=True)
    cluster = up(kind.value, _directory(kind, directory), {"nodes": nodes, "cpus": cpus, "gpus": gpus})
    typer.echo(f"{kind.value} is up: {len(cluster.daemons)} daemons, files in {cluster.directory}")
    typer.echo("\n".join(f"  {line}" for line in cluster.use))


@cluster_app.command("down", epilog=examples("berth cluster down slurm"))
def down_command(
    kind: KindArgument,
    directory: DirectoryOption = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the files of the cluster.")] = False,
) -> None:
    """Stop a cluster and all processes that it started."""
    from berth.live.clusters.supervisor import down

    where = _directory(kind, directory)
    typer.echo(f"{kind.value} is down" if down(where, keep) else f"no cluster was up in {where}")


@cluster_app.command("env", epilog=examples('eval "$(berth cluster env slurm)"'))
def env_command(kind: KindArgument, directory: DirectoryOption = None) -> None:
    """Print environment variables that a shell needs."""
    typer.echo("\n".join(line for line in _up(kind, directory).use if line.startswith("export ")))


def _up(kind: KindName, directory: Path | None) -> Standing:
    from berth.live.clusters.supervisor import standing

    where = _directory(kind, directory)
    cluster = standing(where)
    if cluster is None:
        typer.echo(f"no cluster is up in {where}", err=True)
        raise typer.Exit(1)
    return cluster


@cluster_app.command("status", epilog=examples("berth cluster status slurm", "berth cluster status ray -o json"))
def status_command(kind: KindArgument, directory: DirectoryOption = None, output: OutputOption = Output.table) -> None:
    """Print whether a cluster and its daemons run.

    Exit code: 0 all daemons run; 1 not all of them do, or no cluster is up.
    """
    cluster = _up(kind, directory)
    ended = [name for name in cluster.daemons if name not in cluster.running]
    told = _told(cluster)
    if answered(told, output, [{"daemon": name, **one} for name, one in told["daemons"].items()]):
        raise typer.Exit(1 if ended else 0)
    typer.echo(f"{cluster.kind} in {cluster.directory}: {len(cluster.running)} of {len(cluster.daemons)} daemons run")
    for name in ended:
        typer.echo(f"  {name} has ended")
    if not cluster.supervised:
        typer.echo(f"  its supervisor was killed; berth cluster down {cluster.kind} ends what is left")
    typer.echo("\n".join(f"  {line}" for line in cluster.use))
    if ended:
        raise typer.Exit(1)


@slurm_app.command("hook", epilog=examples("berth slurm hook /var/spool/berth > berth-hook"))
def hook_command(
    directory: Annotated[
        Path, typer.Argument(help="Directory of the hook's messages: `hooks` of the engine's settings.")
    ],
) -> None:
    """Print a script for PrologSlurmctld and EpilogSlurmctld.

    The script tells berth at once when jobs begin and end.
    """
    from berth.live.engines.slurm.hooks import hook_script

    print(hook_script(directory), end="")


@slurm_app.command("hold", epilog=examples("berth slurm hold batch > job_submit.lua"))
def hold_command(
    partition: Annotated[
        str, typer.Argument(help="Partition whose jobs berth places: `companion` of the engine's settings.")
    ],
) -> None:
    """Print a job_submit.lua that holds jobs until berth releases them."""
    from berth.live.engines.slurm.hooks import hold_script

    print(hold_script(partition), end="")
