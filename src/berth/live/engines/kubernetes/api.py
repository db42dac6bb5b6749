"""Requests to the API server of a cluster, as JSON, with the credentials of a kubeconfig or of the pod.

The official client reads the credentials and holds the connections. It is imported late, because that takes a second;
its classes for all objects of the API would take seconds more. `request` blocks, and may be called by several threads;
`ask` does the same in threads of its own, so that many requests can be under way and nothing else waits for them.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from http.client import responses
from pathlib import Path
from typing import Any

from berth.errors import BerthError, InvalidInput, MissingExtra
from berth.live.client import Code

__all__ = ["Api", "ClusterRefused", "ClusterSilent", "WatchExpired", "connect"]

PAGE = 500
"""Objects of one page of a list."""
CONNECT, READ = 10.0, 120.0
"""Seconds to connect, and to wait for an answer."""
QUIET = 30.0
"""Seconds without news after which a watch is opened again, to notice an API server that hangs."""
WATCH = 300
"""Seconds after which the API server ends a watch."""
AGAIN = 3
"""How often a list is begun again when its pages have expired."""
CONNECTIONS = 24
RENEW = 5.0
"""Seconds after which credentials are read again."""
PARALLEL = 16
"""The most requests of `ask` that are under way at once."""
PATCH = "application/merge-patch+json"


class ClusterSilent(BerthError):
    """The API server does not answer."""

    code = Code.unreachable


class ClusterRefused(BerthError):
    """The API server refuses a request; `status` is that of its answer."""

    def __init__(self, message: str, code: int = Code.not_allowed, status: int = 0) -> None:
        self.code, self.status = code, status
        super().__init__(message)


class WatchExpired(BerthError):
    """A watch cannot go on from where it was: list again."""


def connect(kubeconfig: Path | None = None, context: str | None = None) -> Api:
    """The cluster of a kubeconfig; by default of KUBECONFIG, ~/.kube/config or the pod that this process runs in."""
    try:
        from kubernetes import client, config
    except ImportError:
        raise MissingExtra("using a Kubernetes cluster", "kubernetes") from None
    file = None if kubeconfig is None else str(kubeconfig)
    name = file or os.environ.get("KUBECONFIG") or str(Path(config.KUBE_CONFIG_DEFAULT_LOCATION).expanduser())
    settings = client.Configuration()
    settings.connection_pool_maxsize = CONNECTIONS
    namespace = "default"
    try:
        if file is None and not Path(name.split(os.pathsep)[0]).exists() and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=settings)
            namespace = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read_text().strip()
        else:
            given = {"config_file": file, "context": context, "persist_config": False}
            config.load_kube_config(client_configuration=settings, **given)
            _, active = config.list_kube_config_contexts(config_file=file)
            chosen = active if context is None else _context(config, file, context)
            namespace = chosen.get("context", {}).get("namespace") or namespace
        return Api(client.ApiClient(settings), namespace)
    except Exception as error:  # a missing or broken file comes in many classes, also those of PyYAML
        found = " ".join(str(error).split()) or type(error).__name__
        expected = "a kubeconfig file, as kubectl uses it"
        raise InvalidInput(expected, found=found, file=name) from None


def _context(config: Any, file: str | None, name: str) -> dict[str, Any]:
    contexts, _ = config.list_kube_config_contexts(config_file=file)
    return next((dict(one) for one in contexts if one.get("name") == name), {})


class Api:
    """A client of an API server; `namespace` is that of the kubeconfig's context, or of the pod."""

    def __init__(self, client: Any, namespace: str = "default") -> None:
        self._client, self.namespace = client, namespace
        self.host = str(client.configuration.host)
        self._headers: dict[str, str] = {}
        self._renew = 0.0
        self._threads = ThreadPoolExecutor(PARALLEL, thread_name_prefix="kubernetes")

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with suppress(Exception):
            self._client.rest_client.pool_manager.clear()
        self._client.close()

    def request(
        self, method: str, path: str, body: object = None, query: Mapping[str, str] | None = None, text: bool = False
    ) -> Any:
        """The answer to a request, as JSON or text. Raises `ClusterSilent` or `ClusterRefused`."""
        answer = self._send(method, path, body, query, READ, preload=True)
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            raise self._refused(method, path, answer.status, answer.data)
        if text:
            return answer.data.decode(errors="replace")
        try:
            return json.loads(answer.data)
        except ValueError:
            raise ClusterRefused(f"{self.host}{path}: the answer is not JSON", Code.failed) from None

    async def ask(
        self, method: str, path: str, body: object = None, query: Mapping[str, str] | None = None, text: bool = False
    ) -> Any:
        """`request`, for a coroutine."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self.request, method, path, body, query, text)

    def list(self, path: str, query: Mapping[str, str] | None = None) -> tuple[list[Any], str]:
        """All objects of a path, read in pages, and the version to watch from."""
        for _ in range(AGAIN):
            found: list[Any] = []
            after: dict[str, str] = {}
            while True:
                try:
                    page = self.request("GET", path, query={**(query or {}), "limit": str(PAGE), **after})
                except ClusterRefused as error:
                    if error.status == HTTPStatus.GONE and after:  # the list is too old to be continued
                        break
                    raise
                if not isinstance(page, dict):
                    raise ClusterRefused(f"{self.host}{path}: the answer is no list of objects in JSON", Code.failed)
                found += page.get("items") or ()
                metadata = page.get("metadata") or {}
                if not metadata.get("continue"):
                    return found, str(metadata.get("resourceVersion") or "")
                after = {"continue": metadata["continue"]}
        what = path.rpartition("/")[2]
        raise ClusterRefused(f"{self.host}: the list of {what} expired {AGAIN} times while being read", Code.failed)

    def watch(self, path: str, query: Mapping[str, str], version: str, stop: Stop) -> Iterator[tuple[str, Any]]:
        """Changes from a version on, as pairs of what happened (ADDED, MODIFIED, DELETED) and the object.

        It ends when `stop` is set. Raises `WatchExpired` when the version is too old, and `ClusterSilent`.
        """
        from urllib3.exceptions import ReadTimeoutError

        while not stop:
            more = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH)}
            answer = self._send("GET", path, None, {**query, **more, "resourceVersion": version}, QUIET, preload=False)
            if answer.status == HTTPStatus.GONE:
                raise WatchExpired(f"{self.host}{path}: version {version} is too old")
            if answer.status != HTTPStatus.OK:
                raise self._refused("GET", path, answer.status, answer.read())
            stop.hold(answer)
            try:
                for line in _lines(answer):
                    change = json.loads(line)
                    kind, found = change.get("type"), change.get("object") or {}
                    if kind == "ERROR":
                        raise WatchExpired(f"{self.host}{path}: {found.get('message') or found.get('reason')}")
                    version = (found.get("metadata") or {}).get("resourceVersion") or version
                    if kind != "BOOKMARK":
                        yield kind, found
            except ReadTimeoutError:
                continue  # nothing happened
            except Exception as error:
                if isinstance(error, BerthError):
                    raise
                if not stop:
                    raise ClusterSilent(f"{self.host}: a watch broke off ({_short(error)})") from None
            finally:
                stop.drop(answer)

    def _send(
        self, method: str, path: str, body: object, query: Mapping[str, str] | None, wait: float, *, preload: bool
    ) -> Any:
        from urllib.parse import urlencode

        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        headers = {"Accept": "*/*" if method == "GET" and path.endswith("/log") else "application/json"}
        headers |= self._credentials()
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = PATCH if method == "PATCH" else "application/json"
        url = f"{self.host}{path}" + (f"?{urlencode(query)}" if query else "")
        send = self._client.rest_client.pool_manager.request
        try:
            return send(
                method,
                url,
                body=data,
                headers=headers,
                timeout=Timeout(connect=CONNECT, read=wait),
                retries=False,
                preload_content=preload,
            )
        except (HTTPError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise ClusterSilent(f"{self.host}: no answer from the API server ({_short(reason)})") from None

    def _credentials(self) -> dict[str, str]:
        """The headers that authenticate; the official client renews them, which takes as long as a small request."""
        if time.monotonic() >= self._renew:
            settings = self._client.configuration.auth_settings()
            self._headers = {one["key"]: one["value"] for one in settings.values() if one["value"]}
            self._renew = time.monotonic() + RENEW
        return self._headers

    def _refused(self, method: str, path: str, status: int, data: bytes) -> ClusterRefused:
        if status == HTTPStatus.UNAUTHORIZED:
            return ClusterRefused(
                f"{self.host}: the credentials of the kubeconfig are not accepted (401 Unauthorized)", status=status
            )
        try:
            said = str(json.loads(data).get("message") or "")
        except (ValueError, AttributeError):
            said = ""
        if status == HTTPStatus.FORBIDDEN and (match := re.fullmatch(r"/api/v1/(nodes|pods)", path)):
            rule = f"{{apiGroups: [''], resources: [{match[1]}], verbs: [list]}} in a ClusterRole"
            return ClusterRefused(
                f"{self.host}: not allowed to list {match[1]} in all namespaces (403 Forbidden); "
                f"the right that is missing: {rule}",
                status=status,
            )
        named = f" {responses[status]}" if status in responses else ""
        code = Code.not_allowed if status == HTTPStatus.FORBIDDEN else Code.failed
        return ClusterRefused(f"{self.host}{path}: {status}{named}{f' ({said})' if said else ''}", code, status)


class Stop:
    """Ends the watches of several threads."""

    def __init__(self) -> None:
        self._set = False
        self._held: list[Any] = []

    def __bool__(self) -> bool:
        return self._set

    def hold(self, answer: Any) -> None:
        """Note an answer that a thread reads from."""
        self._held.append(answer)
        if self._set:
            _cut(answer)

    def drop(self, answer: Any) -> None:
        """Forget an answer."""
        with suppress(ValueError):
            self._held.remove(answer)
        with suppress(Exception):
            answer.close()

    def set(self) -> None:
        """End all watches."""
        self._set = True
        for answer in tuple(self._held):
            _cut(answer)


def _cut(answer: Any) -> None:
    """Wake the thread that reads an answer."""
    with suppress(Exception):
        answer.connection.sock.shutdown(socket.SHUT_RDWR)


def _lines(answer: Any) -> Iterator[bytes]:
    rest = b""
    for chunk in answer.stream(1 << 16, decode_content=True):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if line)


def _short(reason: object) -> str:
    """The words of a connection's error without the addresses of objects."""
    return re.sub(r"^\S.*?[>)]: ", "", str(reason)) or type(reason).__name__
