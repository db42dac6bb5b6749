"""`berth cluster`, a real cluster of Slurm or Ray on this machine, and `berth slurm`, scripts for an operator."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.live.common import Format, FormatOption, shown

if TYPE_CHECKING:
    from berth.live.clusters.supervisor import Standing

__all__ = ["cluster_app", "slurm_app"]

cluster_app = typer.Typer(help="A real Slurm or Ray cluster on this machine, to try things on.", rich_markup_mode=None)
slurm_app = typer.Typer(help="Scripts for an operator of Slurm; `berth serve --engine slurm`.", rich_markup_mode=None)


class KindName(StrEnum):
    """Whose cluster."""

    slurm = "slurm"
    ray = "ray"


KindArgument = Annotated[KindName, typer.Argument(help="Whose cluster.")]
DirectoryOption = Annotated[
    Path | None, typer.Option("--directory", help="Where it keeps its files; a temporary place of yours by default.")
]


def _directory(kind: KindName, given: Path | None) -> Path:
    from berth.live.clusters.supervisor import cluster_directory

    return given if given is not None else cluster_directory(kind.value)


def _told(found: Standing) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "directory": str(found.directory),
        "supervised": found.supervised,
        "daemons": {name: {"pid": pid, "running": name in found.running} for name, pid in found.daemons.items()},
        "use": list(found.use),
    }


@cluster_app.command("up")
def up_command(
    kind: KindArgument,
    nodes: Annotated[int, typer.Option("--nodes", "-N", min=1, max=512, help="Nodes that it has.")] = 4,
    cpus: Annotated[int, typer.Option("--cpus", min=1, max=4096, help="Processors that each claims to have.")] = 4,
    gpus: Annotated[int, typer.Option("--gpus", min=0, max=64, help="GPUs that each claims to have.")] = 0,
    directory: DirectoryOption = None,
) -> None:
    """Start one; it stays up until `berth cluster down`."""
    from berth.live.clusters.supervisor import up

    typer.echo(f"starting {kind.value} with {nodes} node{'s' if nodes > 1 else ''} …", err=True)
    found = up(kind.value, _directory(kind, directory), {"nodes": nodes, "cpus": cpus, "gpus": gpus})
    typer.echo(f"{kind.value} is up: {len(found.daemons)} daemons, files in {found.directory}")
    typer.echo("\n".join(f"  {line}" for line in found.use))


@cluster_app.command("down")
def down_command(
    kind: KindArgument,
    directory: DirectoryOption = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave its files where they are.")] = False,
) -> None:
    """End it, and everything that it started; nothing else is touched."""
    from berth.live.clusters.supervisor import down

    where = _directory(kind, directory)
    typer.echo(f"{kind.value} is down" if down(where, keep) else f"no cluster was up in {where}")


@cluster_app.command("env")
def env_command(kind: KindArgument, directory: DirectoryOption = None) -> None:
    """Print what a shell needs to use it: eval "$(berth cluster env slurm)"."""
    typer.echo("\n".join(line for line in _up(kind, directory).use if line.startswith("export ")))


def _up(kind: KindName, directory: Path | None) -> Standing:
    from berth.live.clusters.supervisor import standing

    where = _directory(kind, directory)
    found = standing(where)
    if found is None:
        typer.echo(f"no cluster is up in {where}", err=True)
        raise typer.Exit(1)
    return found


@cluster_app.command("status")
def status_command(kind: KindArgument, directory: DirectoryOption = None, output: FormatOption = Format.table) -> None:
    """Say whether it is up, and which of its daemons run; the exit code is 1 where not all of them do."""
    found = _up(kind, directory)
    ended = [name for name in found.daemons if name not in found.running]
    if shown(_told(found), output):
        raise typer.Exit(1 if ended else 0)
    typer.echo(f"{found.kind} in {found.directory}: {len(found.running)} of {len(found.daemons)} daemons run")
    for name in ended:
        typer.echo(f"  {name} has ended")
    if not found.supervised:
        typer.echo(f"  its supervisor was killed; berth cluster down {found.kind} ends what is left")
    typer.echo("\n".join(f"  {line}" for line in found.use))
    if ended:
        raise typer.Exit(1)


@slurm_app.command("hook")
def hook_command(
    directory: Annotated[Path, typer.Argument(help="Where it tells berth: `hooks` of the engine's settings.")],
) -> None:
    """Print a script for PrologSlurmctld and EpilogSlurmctld: it tells berth at once when jobs begin and end."""
    from berth.live.engines.slurm.hooks import hook_script

    print(hook_script(directory), end="")


@slurm_app.command("hold")
def hold_command(
    partition: Annotated[str, typer.Argument(help="Whose jobs berth places: `companion` of the engine's settings.")],
) -> None:
    """Print a job_submit.lua that holds the jobs of a partition until berth releases them."""
    from berth.live.engines.slurm.hooks import hold_script

    print(hold_script(partition), end="")
