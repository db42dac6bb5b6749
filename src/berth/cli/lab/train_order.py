"""`berth train-order`: train the order of a batch queue on windows of a log."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.answers import Output, OutputOption, answered
from berth.cli.common import QuietOption, progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["train_order_command"]


def train_order_command(
    file: Annotated[Path, typer.Argument(help="A trace: its main table, plain or gzip.")],
    processors: Annotated[float, typer.Option("--processors", help="Train on one pool of this many processors.")],
    backfill: Annotated[
        list[str] | None,
        typer.Option("--backfill", help="Train for this backfilling: none, easy, any or shadow (repeat)."),
    ] = None,
    pick: Annotated[
        str,
        typer.Option("--pick", help="Keep the first job first until it starts (committed), or find it again (again)."),
    ] = "committed",
    held_out: Annotated[
        list[int] | None,
        typer.Option("--held-out", min=0, help="Keep the window at this job (from 0) out of training (repeat)."),
    ] = None,
    held_out_jobs: Annotated[
        int, typer.Option("--held-out-jobs", min=1, help="Length in jobs of windows held out.")
    ] = 1024,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Train this many steps.")] = 40,
    windows: Annotated[int, typer.Option("--windows", min=1, help="Play this many windows in a step.")] = 24,
    window_jobs: Annotated[int, typer.Option("--window-jobs", min=1, help="Length of a window in jobs.")] = 512,
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Try this many pairs of perturbed orders a step.")] = 8,
    hidden: Annotated[int, typer.Option("--hidden", min=0, help="Number of hidden units; 0: the score is linear.")] = 0,
    slowdown_bound: Annotated[
        float, typer.Option("--slowdown-bound", help="Threshold of bounded slowdowns in seconds.")
    ] = 10.0,
    size: Annotated[
        str | None,
        typer.Option("--size", help="Size of a job in an SWF log: requested (default), allocated, or larger."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed for windows, weights and noise.")] = 0,
    format: Annotated[str | None, typer.Option("--format", help="Format of the trace, if not recognised.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Directory for the order.")] = Path("berth-order"),
    output: OutputOption = Output.table,
    quiet: QuietOption = False,
) -> None:
    """Train the order of a batch queue on windows of a log.

    The order is for the policy learned-order. It learns a low mean bounded slowdown.
    """
    from berth.errors import InvalidInput
    from berth.families.placement.policies.priority import PICKS
    from berth.families.placement.training.orders import OrderPlan
    from berth.lab.replay import ReplaySetting
    from berth.lab.train_order import train_order_on

    if pick not in PICKS:
        raise InvalidInput(f"one of {', '.join(PICKS)}", value=pick, key="pick")
    modes = tuple(dict.fromkeys(backfill or ("none",)))
    plan = OrderPlan(
        processors,
        modes,
        committed=pick == "committed",
        steps=steps,
        windows=windows,
        window_jobs=window_jobs,
        pairs=pairs,
        hidden=hidden,
        validation_jobs=held_out_jobs,
        bound=slowdown_bound,
        seed=seed,
    )
    with progress(quiet, partial(_steps, steps), "steps") as show:
        found = train_order_on(
            file,
            plan,
            out,
            setting=ReplaySetting(processors=processors, size=size, seed=seed),
            held_out=held_out or (),
            held_out_jobs=held_out_jobs,
            format=format,
            progress=show,
        )
    policy = f"learned-order:file={out / 'order.json'},backfill={modes[0]},pick={pick}"
    rows = [
        {"backfill": mode, "mean_bounded_slowdown": ours, "shortest_first": theirs, "policy": policy}
        for mode, ours, theirs in zip(modes, found.validation, found.shortest, strict=True)
    ]
    if answered(rows, output):
        return
    for row in rows:
        typer.echo(
            f"backfill={row['backfill']}: mean bounded slowdown {row['mean_bounded_slowdown']:.2f} in validation, "
            f"{row['shortest_first']:.2f} for the shortest job first"
        )
    more = ["--size", size] if size else []
    words = ["berth", "replay", str(file), "--processors", f"{processors:g}", *more, "-p", policy, "-p", "sjf"]
    typer.echo(f"Use it: {shlex.join(words)}")


def _steps(steps: int, bar: Bar) -> Callable[[int, float], None]:
    """Show how far a training is: the bar, or a line at every tenth of it."""
    task, console = bar.add_task("compiling, where this was not done before", total=steps), bar.console

    def show(step: int, best: float) -> None:
        label = f"best {best:.3f} of the shortest job first" if best < float("inf") else "not validated yet"
        bar.update(task, completed=step, description=label)
        if not console.is_terminal and step % max(steps // 10, 1) == 0:
            console.print(f"berth: step {step} of {steps}: {label}")

    return show
