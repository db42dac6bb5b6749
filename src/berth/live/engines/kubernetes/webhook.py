"""The admission webhook that holds pods for berth: it adds the scheduling gate `berth.io/place`.

A pod is held if it has the label `berth.io/place: "true"`, or if its namespace is opted in and it has not the value
"false". Pods are held only while the service answers; and the API server creates pods without asking when the webhook
does not answer (`failurePolicy: Ignore`). So berth's absence stops nothing.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from berth.errors import InvalidInput
from berth.live.engines.kubernetes.companion import GATE
from berth.live.engines.kubernetes.record import RECORD

__all__ = ["PATH", "Health", "gated", "review", "serve"]

PATH = "/kubernetes/mutate"
LARGEST = 8 * 2**20
FRESH, ASK = 1.0, 1.0
"""Seconds for which an answer of the service counts, and within which it must answer."""


def gated(pod: dict[str, Any], all_pods: bool) -> list[dict[str, Any]]:
    """The changes (a JSON patch) that hold a pod; none if it is not meant for berth, is held, or has its node.

    >>> gated({"metadata": {"labels": {GATE: "true"}}, "spec": {}}, all_pods=False)
    [{'op': 'add', 'path': '/spec/schedulingGates', 'value': [{'name': 'berth.io/place'}]}]
    """
    spec, wish = pod.get("spec") or {}, ((pod.get("metadata") or {}).get("labels") or {}).get(GATE)
    gates = spec.get("schedulingGates") or []
    if wish == "false" or (wish != "true" and not all_pods) or spec.get("nodeName"):
        return []
    if any(one.get("name") == GATE for one in gates) or RECORD in ((pod.get("metadata") or {}).get("labels") or {}):
        return []  # it is held already, or berth made it
    return [{"op": "add", "path": "/spec/schedulingGates", "value": [*gates, {"name": GATE}]}]


def review(asked: dict[str, Any], all_pods: bool, healthy: bool) -> dict[str, Any]:
    """The answer to an AdmissionReview: the pod is always admitted."""
    request = asked.get("request") or {}
    answer: dict[str, Any] = {"uid": request.get("uid", ""), "allowed": True}
    changes = gated(request.get("object") or {}, all_pods) if healthy else []
    if changes:
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(changes).encode()).decode()}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}


class Health:
    """Whether the service is ready, asked at most once a second."""

    def __init__(self, url: str) -> None:
        self._url, self._lock = f"{url.rstrip('/')}/readyz", threading.Lock()
        self._asked, self._healthy = -FRESH, False

    def __bool__(self) -> bool:
        with self._lock:
            if time.monotonic() - self._asked >= FRESH:
                try:
                    with urlopen(self._url, timeout=ASK) as answer:
                        self._healthy = answer.status < 300
                except (URLError, OSError, ValueError):
                    self._healthy = False
                self._asked = time.monotonic()
            return self._healthy


def serve(port: int, certificate: Path, key: Path, health: Health, all_pods: bool) -> ThreadingHTTPServer:
    """A server of the webhook; the caller runs it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10.0

        def do_POST(self) -> None:
            try:
                length = int(self.headers.get("Content-Length") or 0)
                asked = json.loads(self.rfile.read(length)) if 0 <= length <= LARGEST else None
            except ValueError:
                asked = None
            if not isinstance(asked, dict) or self.path.partition("?")[0] != PATH:
                self.send_error(400)
                return
            body = json.dumps(review(asked, all_pods, bool(health))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not logged."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput("a certificate and its key, as PEM", found=str(error), file=certificate) from None
    server = ThreadingHTTPServer(("", port), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server
