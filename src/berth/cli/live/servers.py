"""`berth servers`, `berth policy`, `berth learned`, `berth decisions`: a running service and what it learned."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from berth.cli.common import complete_live_policy
from berth.cli.live.common import Format, FormatOption, UrlOption, shown, table
from berth.live.client import Client, path

__all__ = ["decisions_command", "learned_command", "policy_app", "servers_app"]

PREPARE_SECONDS = 660.0
"""How long a command waits for the service to prepare a policy or to play a history."""
PATIENCE = 3.0
"""Seconds after which it says so."""

servers_app = typer.Typer(help="The servers of a running service.", rich_markup_mode=None, invoke_without_command=True)
policy_app = typer.Typer(help="Who decides in a running service.", rich_markup_mode=None, invoke_without_command=True)


def _amounts(given: dict[str, str]) -> str:
    return ",".join(f"{name}={amount}" for name, amount in given.items())


@servers_app.callback()
def servers(context: typer.Context, url: UrlOption = None, output: FormatOption = Format.table) -> None:
    """List servers, what is free of each, and what others than berth's jobs have taken of it."""
    if context.invoked_subcommand:
        return
    found = Client(url).get(path("servers"))
    if shown(found, output):
        return
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
    more = ("labels", "speed", "kept_for") if output is Format.wide else ()
    why = ("closed",) if more or any(server["closed"] for server in found) else ()
    taken = ("taken",) if any(server["taken"] for server in found) else ()
    table(rows, ("name", "state", "free", *taken, "capacity", *more, *why))


@servers_app.command("drain")
def drain(server: str, url: UrlOption = None) -> None:
    """Start nothing new on a server; what runs there goes on."""
    typer.echo(f"{server} {Client(url).ask('POST', path('servers', server, 'drain'))['state']}")


@servers_app.command("resume")
def resume(server: str, url: UrlOption = None) -> None:
    """Use a drained server again."""
    typer.echo(f"{server} {Client(url).ask('POST', path('servers', server, 'resume'))['state']}")


@policy_app.callback()
def policy(context: typer.Context, url: UrlOption = None, output: FormatOption = Format.table) -> None:
    """Who decides now, and how often it was refused."""
    if context.invoked_subcommand:
        return
    found = Client(url).get(path("policy"))
    if not shown(found, output):
        refused = ", ".join(f"{count} {kind}" for kind, count in found["refusals"].items()) or "none"
        typer.echo(f"policy    {found['policy']}\nfallback  {found['fallback']}\nrefused   {refused}")
        if found.get("preparing"):
            typer.echo(f"preparing {found['preparing']}")


@policy_app.command("switch")
def switch(
    name: Annotated[str, typer.Argument(autocompletion=complete_live_policy)],
    reason: Annotated[str, typer.Option("--reason", help="Kept in the journal.")] = "",
    url: UrlOption = None,
) -> None:
    """Let another policy decide from now on."""
    with _told_while_preparing(name):
        found = Client(url, PREPARE_SECONDS).ask("PUT", path("policy"), {"policy": name, "reason": reason})
    typer.echo(f"policy    {found['policy']}")


@contextmanager
def _told_while_preparing(policy: str) -> Iterator[None]:
    """Say what is waited for where a policy is not ready soon: the service tries it first, and may have to compile."""
    words = f"berth: the service prepares {policy}, which may take a minute or two"
    timer = threading.Timer(PATIENCE, typer.echo, [words], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@policy_app.command("shadow")
def shadow(
    name: Annotated[str | None, typer.Argument(autocompletion=complete_live_policy)] = None,
    off: Annotated[bool, typer.Option("--off", help="Try no candidate any more.")] = False,
    url: UrlOption = None,
    output: FormatOption = Format.table,
) -> None:
    """Try a candidate that sees everything and decides nothing; without a name, how it does so far."""
    if off:
        found = Client(url).ask("DELETE", path("shadow"))
    elif name is None:
        found = Client(url).get(path("shadow"))
    else:
        with _told_while_preparing(name):
            found = Client(url, PREPARE_SECONDS).ask("PUT", path("shadow"), {"policy": name})
    if not shown(found, output):
        typer.echo(found["text"])


@policy_app.command("what-if")
def what_if(
    name: Annotated[str, typer.Argument(autocompletion=complete_live_policy)],
    hours: Annotated[float, typer.Option("--hours", help="How far back.")] = 24.0,
    url: UrlOption = None,
    output: FormatOption = Format.table,
) -> None:
    """Play the last hours again with another policy, and say what would have been different."""
    found = Client(url, PREPARE_SECONDS).ask("POST", path("what-if"), {"policy": name, "hours": hours})
    if not shown(found, output):
        typer.echo(found["text"])


def learned_command(
    type: Annotated[str | None, typer.Option("--type", help="Of this type of job alone.")] = None,
    url: UrlOption = None,
    output: FormatOption = Format.table,
) -> None:
    """How fast jobs of each type are expected to be on each server, how sure that is, and from which level it comes.

    Servers of a class on which a type never ran have one line together.
    """
    found = Client(url).get(path("learned"), type=type)
    if shown(found, output):
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
    table(rows, ("type", "server", "runs", "cut", "speed", "95%", "level", "class"))


def decisions_command(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many, the latest.")] = 20,
    url: UrlOption = None,
    output: FormatOption = Format.table,
) -> None:
    """The latest decisions: who decided, how long it took, what was started, and what was refused."""
    found = Client(url).get(path("decisions"), limit=limit)
    if shown(found, output):
        return
    rows = [
        {
            "number": str(decision["number"]),
            "time": decision["time"] or "",
            "by": decision["by"],
            "ms": f"{1000 * decision['seconds']:.1f}",
            "waiting": str(decision["waiting"]),
            "started": " ".join(start["job"] for start in decision["starts"][:5])
            + (f" and {len(decision['starts']) - 5} more" if len(decision["starts"]) > 5 else ""),
            "refused": decision["refused"] or "",
        }
        for decision in found
    ]
    table(rows, ("number", "time", "by", "ms", "waiting", "started", "refused"))
