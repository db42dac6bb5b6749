"""The operator's token of a service's own user: a private file that the command line finds by the service's address.

A service that runs jobs on a real engine creates this token at its first start, so that it serves the user who runs it
and no other user of the machine. The file is in `$XDG_STATE_HOME/berth/tokens` (`~/.local/state/berth/tokens`).
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["is_loopback", "local_token", "token_file"]

LISTENING = "0A"
"""The state of a listening socket in /proc/net/tcp."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a service that listens there.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("::1")
    (True, True, False, True)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_file(url: str) -> Path:
    """The file of the local operator's token for the service at this address.

    >>> token_file("http://127.0.0.1:8642").name, token_file("http://[::1]:80").name, token_file("http://a.b").name
    ('localhost-8642', 'localhost-80', 'a.b-80')
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or host in ("0.0.0.0", "::"):  # a service that listens everywhere is also on loopback
        host = "localhost"
    port = parts.port or (443 if parts.scheme == "https" else 80)
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "berth" / "tokens" / f"{host.replace(':', '_')}-{port}"


def local_token(url: str) -> str | None:
    """The local operator's token for the service at this address; None if this user has none.

    While the service is down, another user could listen on its port and collect the token. So it is only given for a
    port on which this user listens, if the system says who does.
    """
    try:
        secret = token_file(url).read_text(encoding="utf-8").strip()
    except (OSError, RuntimeError, UnicodeDecodeError):  # RuntimeError: the user has no home
        return None
    return secret if secret and _is_ours(urlsplit(url).port or 80) else None


def _is_ours(port: int) -> bool:
    """Whether every process that listens on this port belongs to this user."""
    owners = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in Path(table).read_text(encoding="ascii").splitlines()[1:]]
            owners |= {int(row[7]) for row in rows if row[3] == LISTENING and int(row[1].split(":")[1], 16) == port}
    return not owners or owners == {os.getuid()}
