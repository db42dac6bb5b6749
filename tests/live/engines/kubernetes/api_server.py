"""A small server that speaks the list API of Kubernetes: pages, tokens, client certificates, refusals."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class ApiServer:
    """Objects by kind; requests without the token answer 401, lists of `forbidden` kinds 403, and others by page."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)
    token: str = ""
    forbidden: tuple[str, ...] = ()
    page: int = 2
    expire: int = 0
    """How many continued lists answer 410, that they have expired."""
    broken: int = 0
    """The status of all answers, if it is not 0."""
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, target: str, authorization: str) -> tuple[int, dict[str, Any]]:
        """Status and body for a request."""
        self.asked.append(target)
        split = urlsplit(target)
        kind, query = split.path.removeprefix("/api/v1/"), parse_qs(split.query)
        if self.broken:
            return self.broken, {"message": "broken"}
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {"message": "Unauthorized"}
        if kind in self.forbidden:
            return 403, {"message": f"{kind} is forbidden"}
        items = {"nodes": self.nodes, "pods": self.pods}[kind]
        first = int(query.get("continue", ["0"])[0])
        if first and self.expire:
            self.expire -= 1
            return 410, {"message": "The provided continue parameter is too old", "reason": "Expired"}
        last = min(first + min(int(query["limit"][0]), self.page), len(items))
        more = {"continue": str(last)} if last < len(items) else {}
        return 200, {"kind": "List", "metadata": more, "items": items[first:last]}


@contextmanager
def serving(server: ApiServer, tls: ssl.SSLContext | None = None) -> Iterator[ApiServer]:
    """The server on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = server.answer(self.path, self.headers.get("Authorization", ""))
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        http.socket = tls.wrap_socket(http.socket, server_side=True)
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def kubeconfig(
    folder: Path, url: str, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None
) -> Path:
    """A kubeconfig file with one context, `here`."""
    path = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": url, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(json.dumps(content))
    return path


def certificates(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, which is its own authority, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
