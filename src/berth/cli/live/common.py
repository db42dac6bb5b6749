"""Options of several commands for a running service."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.live.client import DEFAULT_URL

__all__ = ["QueueOption", "TeamOption", "TypeOption", "UrlOption"]

UrlOption = Annotated[
    str | None, typer.Option("--url", envvar="BERTH_URL", help=f"Address of the service. Default: {DEFAULT_URL}.")
]
TypeOption = Annotated[str | None, typer.Option("--type", help="Type of job; berth learns speeds by type.")]
QueueOption = Annotated[str | None, typer.Option("--queue", "-q", help="Name of the queue.")]
TeamOption = Annotated[str | None, typer.Option("--team", help="Team whose share the job counts against.")]
