"""`berth slurm`: what an operator adds to Slurm so that it works well with berth, printed for them to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["slurm_app"]

slurm_app = typer.Typer(help="Scripts for an operator of Slurm; `berth serve --engine slurm`.", rich_markup_mode=None)


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
