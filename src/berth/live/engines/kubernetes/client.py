"""Read nodes and pods of a live cluster through its API, with read rights alone.

Lists come in pages. The official client is imported late: it takes a second.
"""

from __future__ import annotations

import json
import os
import re
from http import HTTPStatus
from http.client import responses
from pathlib import Path
from typing import Any

from berth.errors import BerthError, InvalidInput, MissingExtra
from berth.live.client import Code
from berth.live.engines.kubernetes.cluster import Cluster, cluster_of

__all__ = ["ClusterRefused", "ClusterSilent", "read_live"]

PAGE = 500
"""Objects of one page."""
CONNECT, READ = 10.0, 120.0
"""Seconds to connect, and to wait for an answer."""
AGAIN = 3
"""How often a list is begun again when its pages have expired."""
OK, EXPIRED = HTTPStatus.OK, HTTPStatus.GONE


class ClusterSilent(BerthError):
    """The API server does not answer."""

    code = Code.unreachable


class ClusterRefused(BerthError):
    """The API server refuses a request."""

    def __init__(self, message: str, code: int = Code.not_allowed) -> None:
        self.code = code
        super().__init__(message)


def read_live(kubeconfig: Path | None = None, context: str | None = None) -> Cluster:
    """Read all nodes and pods of the cluster of a kubeconfig; by default of KUBECONFIG, ~/.kube/config or the pod."""
    client = _client(kubeconfig, context)
    server = client.configuration.host
    try:
        return cluster_of(_listed(client, "nodes"), _listed(client, "pods"), server)
    finally:
        client.close()


def _client(kubeconfig: Path | None, context: str | None) -> Any:
    try:
        from kubernetes import client, config
    except ImportError:
        raise MissingExtra("reading a Kubernetes cluster", "kubernetes") from None
    file = None if kubeconfig is None else str(kubeconfig)
    name = file or os.environ.get("KUBECONFIG") or str(Path(config.KUBE_CONFIG_DEFAULT_LOCATION).expanduser())
    try:
        if file is None and not Path(name.split(os.pathsep)[0]).exists() and "KUBERNETES_SERVICE_HOST" in os.environ:
            settings = client.Configuration()
            config.load_incluster_config(client_configuration=settings)
            return client.ApiClient(settings)
        return config.new_client_from_config(config_file=file, context=context, persist_config=False)
    except Exception as error:  # a missing or broken file comes in many classes, also those of PyYAML
        found = " ".join(str(error).split()) or type(error).__name__
        expected = "a kubeconfig file (--kubeconfig FILE), as kubectl uses it"
        raise InvalidInput(expected, found=found, file=name) from None


def _listed(client: Any, what: str) -> list[Any]:
    """All objects of a kind, page by page."""
    for _ in range(AGAIN):
        found: list[Any] = []
        after = ""
        while True:
            page = _page(client, what, after)
            if page is None:  # the list is too old to be continued
                break
            found += page.get("items") or ()
            after = (page.get("metadata") or {}).get("continue") or ""
            if not after:
                return found
    raise ClusterRefused(f"{client.configuration.host}: the list of {what} expired {AGAIN} times while being read")


def _page(client: Any, what: str, after: str) -> dict[str, Any] | None:
    """A page of a list; None if the pages have expired.

    The request goes out through the client's connections, with its credentials. Its classes for all objects of the API
    would take seconds to import.
    """
    from urllib3 import Timeout
    from urllib3.exceptions import HTTPError

    host, path = client.configuration.host, f"/api/v1/{what}"
    headers = {"Accept": "application/json"}
    headers |= {one["key"]: one["value"] for one in client.configuration.auth_settings().values() if one["value"]}
    query = {"limit": str(PAGE), **({"continue": after} if after else {})}
    wait = Timeout(connect=CONNECT, read=READ)
    send = client.rest_client.pool_manager.request
    try:
        answer = send("GET", host + path, fields=query, headers=headers, timeout=wait, retries=False)
    except HTTPError as error:
        reason = getattr(error, "reason", None) or error
        raise ClusterSilent(f"{host}: no answer from the API server ({_short(reason)})") from None
    if answer.status == EXPIRED and after:
        return None
    if answer.status != OK:
        raise _refused(host, what, answer.status)
    try:
        page = json.loads(answer.data)
    except ValueError:
        page = None
    if not isinstance(page, dict):
        raise ClusterRefused(f"{host}{path}: the answer is no list of objects in JSON", Code.failed)
    return page


def _refused(host: str, what: str, status: int) -> ClusterRefused:
    if status == HTTPStatus.UNAUTHORIZED:
        return ClusterRefused(f"{host}: the credentials of the kubeconfig are not accepted (401 Unauthorized)")
    if status == HTTPStatus.FORBIDDEN:
        rule = f"{{apiGroups: [''], resources: [{what}], verbs: [list]}} in a ClusterRole"
        return ClusterRefused(
            f"{host}: not allowed to list {what} in all namespaces (403 Forbidden); the right that is missing: {rule}"
        )
    named = f" {responses[status]}" if status in responses else ""
    return ClusterRefused(f"{host}/api/v1/{what}: {status}{named}", Code.failed)


def _short(reason: object) -> str:
    """The words of a connection's error without the addresses of objects."""
    return re.sub(r"^\S.*?[>)]: ", "", str(reason)) or type(reason).__name__
