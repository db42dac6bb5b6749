"""The kubelet's https server: it hands out logs of containers, for `kubectl logs`."""

from __future__ import annotations

import ssl
import threading
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

__all__ = ["serve_logs"]

Find = Callable[[str, str, str, bool], Path | None]
"""The log of a container: namespace, pod, container, and whether of the start before the last."""


def serve_logs(port: int, certificate: Path, key: Path, find: Find) -> ThreadingHTTPServer:
    """Serve logs on a port of the loopback address, from a thread."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address = urlsplit(self.path)
            words, query = address.path.strip("/").split("/"), parse_qs(address.query)
            if len(words) != 4 or words[0] != "containerLogs":
                return self._answer(HTTPStatus.NOT_FOUND, b"only /containerLogs is served\n")
            file = find(words[1], words[2], words[3], query.get("previous") == ["true"])
            if file is None:
                return self._answer(HTTPStatus.NOT_FOUND, b"there is no such container\n")
            lines = int(query["tailLines"][0]) if "tailLines" in query else None
            text = _tail(file, lines)
            return self._answer(HTTPStatus.OK, text[: int(query["limitBytes"][0])] if "limitBytes" in query else text)

        def _answer(self, status: HTTPStatus, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _tail(file: Path, lines: int | None) -> bytes:
    try:
        with file.open("rb") as log:
            return b"".join(deque(log, lines))
    except FileNotFoundError:  # a container that runs nothing
        return b""
