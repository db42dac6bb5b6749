"""`berth servers`, `berth policy`, `berth learned`, `berth decisions`: a running service and what it learned."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from berth.cli.answers import Output, OutputOption, WideOption, WideOutput, answered, print_table
from berth.cli.common import UrlOption, complete_live_policy
from berth.cli.help import examples
from berth.live.client import Client, path

__all__ = ["decisions_command", "learned_command", "policy_app", "servers_app"]

PREPARE_SECONDS = 660.0
"""How long a command waits for the service to prepare a policy or to replay a history."""
PATIENCE = 3.0
"""Seconds after which the command says so."""

servers_app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
policy_app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)

ServerArgument = Annotated[str, typer.Argument(help="Name of a server.")]
PolicyArgument = Annotated[str, typer.Argument(help="Name of a policy.", autocompletion=complete_live_policy)]


def _amounts(given: dict[str, str]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in given.items())


@servers_app.callback(epilog=examples("berth servers -o wide", "berth servers drain gpu-3"))
def servers(context: typer.Context, url: UrlOption = None, output: WideOption = WideOutput.table) -> None:
    """List, drain or resume servers.

    The table has what is free on each server, and what is taken by other jobs than those of berth.
    """
    if context.invoked_subcommand:
        return
    found = Client(url).get(path("servers"))
    rows = [
        {
            **{key: str(value or "") for key, value in server.items()},
            "capacity": _amounts(server["capacity"]),
            "free": _amounts(server["free"]),
            "taken": _amounts(server["taken"]),
            "labels": _amounts(server["labels"]),
        }
        for server in found
    ]
    if answered(found, output, rows):
        return
    more = ("labels", "speed", "kept_for") if output is WideOutput.wide else ()
    why = ("closed",) if more or any(server["closed"] for server in found) else ()
    taken = ("taken",) if any(server["taken"] for server in found) else ()
    print_table(rows, ("name", "state", "free", *taken, "capacity", *more, *why))


@servers_app.command("drain", epilog=examples("berth servers drain gpu-3"))
def drain(server: ServerArgument, url: UrlOption = None) -> None:
    """Start no new jobs on a server; running jobs continue."""
    typer.echo(f"{server} {Client(url).ask('POST', path('servers', server, 'drain'))['state']}")


@servers_app.command("resume", epilog=examples("berth servers resume gpu-3"))
def resume(server: ServerArgument, url: UrlOption = None) -> None:
    """Use a drained server again."""
    typer.echo(f"{server} {Client(url).ask('POST', path('servers', server, 'resume'))['state']}")


@policy_app.callback(epilog=examples("berth policy", "berth policy switch completion"))
def policy(context: typer.Context, url: UrlOption = None, output: OutputOption = Output.table) -> None:
    """Show or switch the policy, or try another one.

    Without a command, it prints the policy, also in its wrappers, the fallback and how often decisions were refused.
    """
    if context.invoked_subcommand:
        return
    found = Client(url).get(path("policy"))
    if not answered(found, output):
        refused = ", ".join(f"{count} {kind}" for kind, count in found["refusals"].items()) or "none"
        typer.echo(f"policy    {found['policy']}")
        if "wrapped" in found:  # an older service does not say so
            typer.echo(f"wrapped   {found['wrapped']}")
        typer.echo(f"fallback  {found['fallback']}\nrefused   {refused}")
        if found.get("preparing"):
            typer.echo(f"preparing {found['preparing']}")


@policy_app.command("switch", epilog=examples('berth policy switch completion --reason "shadow was faster"'))
def switch(
    name: PolicyArgument,
    reason: Annotated[str, typer.Option("--reason", help="Keep this reason in the journal.")] = "",
    url: UrlOption = None,
) -> None:
    """Let another policy decide from now on."""
    with _told_while_preparing(name):
        found = Client(url, PREPARE_SECONDS).ask("PUT", path("policy"), {"policy": name, "reason": reason})
    typer.echo(f"policy    {found['policy']}")


@contextmanager
def _told_while_preparing(policy: str) -> Iterator[None]:
    """Print what the command waits for: the service tries a policy first, and may have to compile it."""
    words = f"berth: the service prepares {policy}, which may take a minute or two"
    timer = threading.Timer(PATIENCE, typer.echo, [words], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@policy_app.command("shadow", epilog=examples("berth policy shadow completion", "berth policy shadow --off"))
def shadow(
    name: Annotated[str | None, typer.Argument(help="Name of a policy.", autocompletion=complete_live_policy)] = None,
    off: Annotated[bool, typer.Option("--off", help="Stop the candidate.")] = False,
    url: UrlOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Run a candidate policy beside the one that decides.

    The candidate sees everything and starts nothing. Without a name, it prints how the candidate does so far.
    """
    if off:
        found = Client(url).ask("DELETE", path("shadow"))
    elif name is None:
        found = Client(url).get(path("shadow"))
    else:
        with _told_while_preparing(name):
            found = Client(url, PREPARE_SECONDS).ask("PUT", path("shadow"), {"policy": name})
    if not answered(found, output):
        typer.echo(found["text"])


@policy_app.command("what-if", epilog=examples("berth policy what-if in-order-best-fit --hours 48"))
def what_if(
    name: PolicyArgument,
    hours: Annotated[float, typer.Option("--hours", help="Replay this many hours.")] = 24.0,
    url: UrlOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Replay the last hours with another policy and compare."""
    found = Client(url, PREPARE_SECONDS).ask("POST", path("what-if"), {"policy": name, "hours": hours})
    if not answered(found, output):
        typer.echo(found["text"])


def learned_command(
    type: Annotated[str | None, typer.Option("--type", help="Print only this type of job.")] = None,
    url: UrlOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Print the learned speeds of job types on servers.

    Each line has a speed, its 95 % interval and the level that it comes from. Servers of a class on which a type never
    ran share a line.
    """
    found = Client(url).get(path("learned"), type=type)
    if answered(found, output):
        return
    if not found:
        typer.echo(f"nothing yet: no job{f' of type {type}' if type else ''} has finished")
        return

    rows = []
    for line in found:
        numbers = {"speed": f"{line['speed']:.3f}", "95%": f"{line['low']:.3f} to {line['high']:.3f}"}
        others = f" and {line['servers'] - 1} more" if line["servers"] > 1 else ""
        said = {**{key: str(value) for key, value in line.items()}, **numbers, "class": line["group"]}
        rows.append({**said, "server": line["server"] + others})
    print_table(rows, ("type", "server", "runs", "cut", "speed", "95%", "level", "class"))


def decisions_command(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="List at most this many decisions.")] = 20,
    url: UrlOption = None,
    output: OutputOption = Output.table,
) -> None:
    """List the latest decisions.

    Each line has the policy, the time it took, the jobs that started and the reason of a refusal.
    """
    found = Client(url).get(path("decisions"), limit=limit)
    if answered(found, output):
        return
    rows = [
        {
            "number": str(decision["number"]),
            "time": decision["time"] or "",
            "by": decision["by"],
            "ms": f"{1000 * decision['seconds']:.1f}",
            "waiting": str(decision["waiting"]),
            "started": _some([start["job"] for start in decision["starts"]]),
            "interrupted": _some(decision.get("interrupts", [])),  # an older service does not say so
            "refused": decision["refused"] or "",
        }
        for decision in found
    ]
    more = ("interrupted",) if any(row["interrupted"] for row in rows) else ()
    print_table(rows, ("number", "time", "by", "ms", "waiting", "started", *more, "refused"))


def _some(jobs: list[str]) -> str:
    """The first jobs, and how many there are besides."""
    return " ".join(jobs[:5]) + (f" and {len(jobs) - 5} more" if len(jobs) > 5 else "")
