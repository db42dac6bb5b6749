"""The address of the service, an option of all commands for a running service."""

from __future__ import annotations

from typing import Annotated

import typer

from berth.live.client import DEFAULT_URL

__all__ = ["UrlOption"]

UrlOption = Annotated[
    str | None, typer.Option("--url", envvar="BERTH_URL", help=f"Address of the service. Default: {DEFAULT_URL}.")
]
