"""`berth serve` and `berth token`: run the scheduler, and manage its tokens."""

from __future__ import annotations

import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from berth.cli.answers import Output, OutputOption, answered, print_table
from berth.cli.common import complete_live_policy
from berth.cli.help import examples

__all__ = ["serve_command", "token_app"]

token_app = typer.Typer(
    help="Create, rotate, list or revoke tokens of a service.",
    epilog=examples("berth token create ann", "berth token list"),
    rich_markup_mode=None,
)

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", envvar="BERTH_STORE", help="SQLite file or postgresql://… of the service. Default: berth.db."
    ),
]

ExpiresOption = Annotated[
    str | None, typer.Option("--expires", help="Let the token expire after this long, such as 90d. Default: never.")
]


NameArgument = Annotated[str, typer.Argument(help="Name of a token.")]


class LogFormat(StrEnum):
    """The form of log lines."""

    text = "text"
    json = "json"


class TokenRole(StrEnum):
    """What a token allows; each includes the ones before."""

    metrics = "metrics"
    read = "read"
    submit = "submit"
    operate = "operate"


def serve_command(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen at. Default: 127.0.0.1.")] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Port to listen at; 0 takes a free one. Default: 8642."),
    ] = None,
    store: StoreOption = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            envvar="BERTH_ENGINE",
            help="Run jobs on simulated (the default), simulated:FILE, slurm, slurm:FILE, ray, ray:ADDRESS, "
            "kubernetes or kubernetes:FILE.",
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-p",
            help="Policy that decides. Default: that of the last start.",
            autocompletion=complete_live_policy,
        ),
    ] = None,
    faster: Annotated[
        float | None, typer.Option("--faster", help="Run a simulated cluster this many times faster than real time.")
    ] = None,
    learn_by: Annotated[
        str | None, typer.Option("--learn-by", help="Learn servers with the same value of this label as one.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", envvar="BERTH_CONFIG", help="YAML file of settings; options override it.")
    ] = None,
    open_: Annotated[
        bool | None,
        typer.Option("--open", help="Let every local user operate a service with a real engine while it has no token."),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="Form of log lines.")] = LogFormat.text,
) -> None:
    """Run the scheduler, with its API and dashboard.

    Without options it runs a simulated cluster and keeps its state in berth.db. Accepted jobs are durable: stop or kill
    the service at any time, and the same command resumes.
    """
    from berth.live.service.serving import read_config, serve

    options = {
        "host": host,
        "port": port,
        "store": store,
        "engine": engine,
        "policy": policy,
        "faster": faster,
        "learn_by": learn_by,
        "open": open_,
    }
    settings = read_config(config, options)

    def ready(url: str) -> None:
        typer.echo(f"berth: serving at {url} (API: {url}/v1/docs), stop with Ctrl-C", err=True)

    serve(settings, settings, log_format=log_format.value, ready=ready)


@token_app.command(
    "create", epilog=examples("berth token create ann", "berth token create ops --role operate --expires 90d")
)
def create(
    name: Annotated[str, typer.Argument(help="Name of the token.")],
    role: Annotated[
        TokenRole, typer.Option("--role", help="Role; each includes the ones before it.")
    ] = TokenRole.submit,
    user: Annotated[
        str | None,
        typer.Option("--user", "-u", help="User of the jobs that it submits. Default: the name of the token."),
    ] = None,
    expires: ExpiresOption = None,
    store: StoreOption = None,
) -> None:
    """Create a token and print its secret.

    The secret is printed once; the store keeps only a digest.
    """
    from berth.live.core.jobs import check_id
    from berth.live.service.database import is_new
    from berth.live.service.store import Store, Token
    from berth.live.service.tokens import digest, new_secret

    check_id(name, "NAME")
    owner = check_id(user or name, "--user")
    secret, now = new_secret(), time.time()
    lifetime = _seconds(expires, "--expires")
    ends = None if lifetime is None else now + lifetime
    where = store or "berth.db"
    if is_new(where):
        typer.echo(f"berth: {where} is a new store; a service that uses another one will not know this token", err=True)
    opened = Store(where)
    try:
        opened.add_token(Token(name, digest(secret), role.value, owner, now, expires=ends))
    finally:
        opened.close()
    typer.echo(secret)


@token_app.command("rotate", epilog=examples("berth token rotate ann --grace 1h"))
def rotate(
    name: NameArgument,
    grace: Annotated[
        str | None,
        typer.Option("--grace", help="Keep the old secret valid for this long, such as 1h. Default: not at all."),
    ] = None,
    expires: ExpiresOption = None,
    store: StoreOption = None,
) -> None:
    """Replace the secret of a token and print the new one.

    The old secret ends at once, or after --grace. A token that expires gets its lifetime again. A token that has
    expired can be rotated; a revoked one cannot.
    """
    from berth.errors import InvalidInput
    from berth.live.service.store import Store
    from berth.live.service.tokens import digest, new_secret

    secret, now = new_secret(), time.time()
    lifetime, kept = _seconds(expires, "--expires"), _seconds(grace, "--grace")
    opened = Store(_there(store))
    try:
        token = next((token for token in opened.tokens() if token.name == name and token.revoked is None), None)
        if token is None:
            raise InvalidInput("the name of a token that is not revoked", value=name, key="NAME")
        lifetime = token.lifetime if lifetime is None else lifetime
        changed = replace(
            token,
            hash=digest(secret),
            rotated=now,
            expires=None if lifetime is None else now + lifetime,
            previous=token.hash,
            previous_until=now + (kept or 0.0),
        )
        opened.replace_token(changed)
    finally:
        opened.close()
    typer.echo(secret)


def _seconds(text: str | None, option: str) -> float | None:
    from berth.files.quantities import parse_duration

    return None if text is None else parse_duration(text, option)


def _there(store: str | None) -> str:
    """The address of a store that is there; one that is not would only be made."""
    from berth.errors import InvalidInput
    from berth.live.service.database import is_new

    where = store or "berth.db"
    if is_new(where):
        raise InvalidInput("a store that is there", value=where, key="--store")
    return where


@token_app.command("list", epilog=examples("berth token list", "berth token list -o json"))
def list_tokens(store: StoreOption = None, output: OutputOption = Output.table) -> None:
    """List tokens.

    Each line has role and user, and when the token was created, expires, was rotated and was revoked.
    """
    from berth.live.service.store import Store
    from berth.live.service.views import iso

    opened = Store(_there(store))
    try:
        rows = [
            {
                "name": token.name,
                "role": token.role,
                "user": token.user,
                "created": iso(token.created) or "",
                "expires": iso(token.expires) or "never",
                "rotated": iso(token.rotated) or "never",
                "revoked": iso(token.revoked) or "",
            }
            for token in opened.tokens()
        ]
    finally:
        opened.close()
    if not answered(rows, output):
        print_table(rows, ("name", "role", "user", "created", "expires", "rotated", "revoked"))


@token_app.command("revoke", epilog=examples("berth token revoke ann"))
def revoke(name: NameArgument, store: StoreOption = None) -> None:
    """Revoke a token; a running service refuses it within seconds."""
    from berth.errors import InvalidInput
    from berth.live.service.store import Store

    opened = Store(_there(store))
    try:
        if not opened.revoke_token(name, time.time()):
            raise InvalidInput("the name of a token that is not revoked", value=name, key="NAME")
    finally:
        opened.close()
    typer.echo(f"revoked {name}")
