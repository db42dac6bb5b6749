"""A small client of the Kubernetes API: requests and watches with a token, and the kubeconfig that holds it."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

from berth.errors import InvalidInput, MissingExtra
from berth.live.clusters import ClusterError

__all__ = ["MERGE", "STRATEGIC", "Api", "ApiError", "write_kubeconfig"]

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
"""Content types of patches: lists are replaced, or merged by their keys."""
ANSWER_SECONDS, WATCH_SECONDS = 30.0, 300
SPARE_SECONDS = 15
"""A watch that is this much overdue has lost its connection."""


class ApiError(ClusterError):
    """The API server refused a request, or did not answer: then `status` is 0."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (0, HTTPStatus.TOO_MANY_REQUESTS) or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


def write_kubeconfig(file: Path, server: str, authority: Path, user: str, token: str) -> None:
    """Write a kubeconfig with one cluster and one user; only the file's owner may read it."""
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "berth", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "berth", "context": {"cluster": "berth", "user": user}}],
        "current-context": "berth",
    }
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(told), encoding="utf-8")


class Api:
    """Requests to the API server of a kubeconfig, on a pool of connections; threads may share it."""

    def __init__(self, kubeconfig: Path, connections: int = 16) -> None:
        if importlib.util.find_spec("urllib3") is None:
            raise MissingExtra("a Kubernetes cluster", "kubernetes")
        import urllib3

        cluster, user = _context(kubeconfig)
        address = urlsplit(cluster["server"])
        self._headers = {"Authorization": f"Bearer {user['token']}", "Accept": "application/json"}
        data = cluster.get("certificate-authority-data")
        checks: dict[str, Any] = {
            "cert_reqs": "CERT_NONE" if cluster.get("insecure-skip-tls-verify") else "CERT_REQUIRED"
        }
        if data:
            checks["ca_cert_data"] = base64.b64decode(data).decode()
        elif "certificate-authority" in cluster:
            checks["ca_certs"] = str(kubeconfig.parent / cluster["certificate-authority"])
        self._pool = urllib3.HTTPSConnectionPool(
            address.hostname or "", address.port or 443, maxsize=connections, block=False, retries=False, **checks
        )

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: str = "application/json",
        seconds: float = ANSWER_SECONDS,
        **query: Any,
    ) -> Any:
        """Send a request and return the object of the answer; a text that is no JSON comes back as it is."""
        import urllib3

        target = f"{path}?{urlencode(query)}" if query else path
        try:
            answer = self._pool.urlopen(
                method,
                target,
                body=None if body is None else json.dumps(body).encode(),
                headers={**self._headers, "Content-Type": kind},
                timeout=seconds,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(f"{method} {path}: {error}") from None
        text = answer.data.decode(errors="replace")
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise ApiError(f"{method} {path}: {answer.status} {_message(text)}", answer.status)
        return json.loads(text) if answer.headers.get("Content-Type", "").startswith("application/json") else text

    def watch(self, path: str, version: str, **query: Any) -> Iterator[tuple[str, Any]]:
        """Changes of a list since a version, each as its type and its object, until the server ends the watch."""
        import urllib3

        asked = {"watch": "1", "resourceVersion": version, "timeoutSeconds": WATCH_SECONDS, **query}
        limit = urllib3.Timeout(connect=ANSWER_SECONDS, read=WATCH_SECONDS + SPARE_SECONDS)
        try:
            target = f"{path}?{urlencode(asked)}"
            answer = self._pool.urlopen("GET", target, headers=self._headers, timeout=limit, preload_content=False)
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise ApiError(f"watch {path}: {_message(answer.data.decode(errors='replace'))}", answer.status)
            rest = b""
            for part in answer.stream(1 << 16):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    told = json.loads(line)
                    if told["type"] == "ERROR":
                        raise ApiError(f"watch {path}: {told['object'].get('message')}", told["object"].get("code", 0))
                    yield told["type"], told["object"]
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(f"watch {path}: {error}") from None

    def close(self) -> None:
        """Close all idle connections."""
        self._pool.close()


def _context(file: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The cluster and the user of a kubeconfig's current context."""
    try:
        told = yaml.safe_load(file.read_text(encoding="utf-8"))
        context = _named(told, "context", told["current-context"])
        cluster, user = _named(told, "cluster", context["cluster"]), _named(told, "user", context["user"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, StopIteration):
        raise InvalidInput("a kubeconfig with a current context", file=str(file)) from None
    if "token" not in user:
        raise InvalidInput("a user with a token", found="another kind of user", file=str(file))
    return cluster, user


def _named(told: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    one: Mapping[str, Any] = next(one[kind] for one in told[f"{kind}s"] if one["name"] == name)
    return one


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()[:300]
