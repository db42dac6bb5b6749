"""A client of the Kubernetes API: requests, lists and watches, as JSON.

`connect` uses all credentials that a kubeconfig or a pod may have; the official client reads them and holds the
connections. `connect_with_token` reads a kubeconfig with a token itself, because the official client takes a second to
import. `request` blocks, and may be called by several threads; `ask` does the same in threads of its own, so that many
requests can be under way and nothing else waits for them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.client import responses
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from berth.errors import BerthError, InvalidInput, MissingExtra
from berth.live.client import Code

__all__ = [
    "BOOKMARK",
    "MERGE",
    "STRATEGIC",
    "Api",
    "ApiError",
    "ClusterRefused",
    "ClusterSilent",
    "Stop",
    "WatchExpired",
    "connect",
    "connect_with_token",
]

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
JSON = "application/json"
BOOKMARK = "BOOKMARK"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
"""Content types of patches: lists are replaced, or merged by their keys."""


class ApiError(BerthError):
    """A request to the API server failed; `status` is that of its answer, or 0."""

    status = 0

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in (0, HTTPStatus.TOO_MANY_REQUESTS) or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


class ClusterSilent(ApiError):
    """The API server does not answer."""

    code = Code.unreachable


class ClusterRefused(ApiError):
    """The API server refuses a request, or its answer is not what was asked for."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        denied = status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        self.code = Code.not_allowed if denied else Code.failed
        super().__init__(message)


class WatchExpired(ApiError):
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
    try:
        if file is None and not Path(name.split(os.pathsep)[0]).exists() and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=settings)
            namespace = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read_text().strip()
        else:
            given = {"config_file": file, "context": context, "persist_config": False}
            config.load_kube_config(client_configuration=settings, **given)
            contexts, active = config.list_kube_config_contexts(config_file=file)
            chosen = active if context is None else next(one for one in contexts if one["name"] == context)
            namespace = chosen.get("context", {}).get("namespace") or "default"
        pool = client.ApiClient(settings).rest_client.pool_manager
    except Exception as error:  # a missing or broken file comes in many classes, also those of PyYAML
        found = " ".join(str(error).split()) or type(error).__name__
        expected = "a kubeconfig file, as kubectl uses it"
        raise InvalidInput(expected, found=found, file=name) from None

    def credentials() -> dict[str, str]:
        return {one["key"]: one["value"] for one in settings.auth_settings().values() if one["value"]}

    return Api(str(settings.host), pool, credentials, namespace)


def connect_with_token(kubeconfig: Path) -> Api:
    """The cluster of a kubeconfig whose user has a token."""
    try:
        import urllib3
    except ImportError:
        raise MissingExtra("using a Kubernetes cluster", "kubernetes") from None
    import yaml

    try:
        told = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        context = _named(told, "context", told["current-context"])
        cluster, user = _named(told, "cluster", context["cluster"]), _named(told, "user", context["user"])
        host, headers = cluster["server"].rstrip("/"), {"Authorization": f"Bearer {user['token']}"}
        data, file = cluster.get("certificate-authority-data"), cluster.get("certificate-authority")
        checks: dict[str, Any] = {
            "cert_reqs": "CERT_NONE" if cluster.get("insecure-skip-tls-verify") else "CERT_REQUIRED",
            "ca_cert_data": base64.b64decode(data).decode() if data else None,
            "ca_certs": str(kubeconfig.parent / file) if file and not data else None,
        }
    except Exception:  # of many classes, as above
        raise InvalidInput("a kubeconfig with a current context whose user has a token", file=str(kubeconfig)) from None
    pool = urllib3.PoolManager(maxsize=CONNECTIONS, **checks)
    return Api(host, pool, lambda: headers, context.get("namespace") or "default")


def _named(told: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    one: Mapping[str, Any] = next(one[kind] for one in told[f"{kind}s"] if one["name"] == name)
    return one


class Api:
    """A client of an API server; `namespace` is that of the kubeconfig's context, or of the pod.

    `pool` is a `PoolManager` of urllib3, and `credentials` returns the headers that authenticate.
    """

    def __init__(
        self, host: str, pool: Any, credentials: Callable[[], Mapping[str, str]], namespace: str = "default"
    ) -> None:
        self.host, self.namespace = host, namespace
        self._pool, self._credentials = pool, credentials
        self._headers: Mapping[str, str] = {}
        self._renew = 0.0
        self._threads = ThreadPoolExecutor(PARALLEL, thread_name_prefix="kubernetes")

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with suppress(Exception):
            self._pool.clear()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        *,
        text: bool = False,
        patch: str = MERGE,
        seconds: float = READ,
    ) -> Any:
        """The answer to a request, as JSON or text. Raises `ClusterSilent` or `ClusterRefused`.

        `patch` is the content type of a PATCH; `seconds` is the timeout.
        """
        headers = {"Accept": "*/*" if text else JSON, "Content-Type": patch if method == "PATCH" else JSON}
        answer = self._send(method, path, body, query, headers, seconds)
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            raise self._refused(path, answer.status, answer.data)
        if text:
            return answer.data.decode(errors="replace")
        try:
            return json.loads(answer.data)
        except ValueError:
            raise ClusterRefused(f"{self.host}{path}: the answer is not JSON") from None

    async def ask(self, method: str, path: str, body: object = None, **more: Any) -> Any:
        """`request`, for a coroutine."""
        asking = partial(self.request, method, path, body, **more)
        return await asyncio.get_running_loop().run_in_executor(self._threads, asking)

    def list(
        self, path: str, query: Mapping[str, str] | None = None, keep: Callable[[Any], Any] = lambda one: one
    ) -> tuple[list[Any], str]:
        """What to `keep` of all objects of a path, read in pages, and the version to watch from."""
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
                    raise ClusterRefused(f"{self.host}{path}: the answer is no list of objects in JSON")
                found += map(keep, page.get("items") or ())
                metadata = page.get("metadata") or {}
                if not metadata.get("continue"):
                    return found, str(metadata.get("resourceVersion") or "")
                after = {"continue": metadata["continue"]}
        what = path.rpartition("/")[2]
        raise ClusterRefused(f"{self.host}: the list of {what} expired {AGAIN} times while being read")

    def watch(
        self, path: str, query: Mapping[str, str], version: str, stop: Stop, *, bookmarks: bool = False
    ) -> Iterator[tuple[str, Any]]:
        """Changes from a version on, as pairs of what happened (ADDED, MODIFIED, DELETED) and the object.

        With `bookmarks`, also objects that say no more than a newer version (BOOKMARK).
        It ends when `stop` is set. Raises `WatchExpired` when the version is too old, and `ClusterSilent`.
        """
        from urllib3.exceptions import ReadTimeoutError

        more = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(WATCH)}
        while not stop:
            asked = {**query, **more, "resourceVersion": version}
            answer = self._send("GET", path, None, asked, {"Accept": JSON}, QUIET, preload=False)
            if answer.status == HTTPStatus.GONE:
                raise WatchExpired(f"{self.host}{path}: version {version} is too old")
            if answer.status != HTTPStatus.OK:
                raise self._refused(path, answer.status, answer.read())
            stop.hold(answer)
            try:
                for line in answer:
                    change = json.loads(line)
                    kind, found = change.get("type"), change.get("object") or {}
                    if kind == "ERROR":
                        raise WatchExpired(f"{self.host}{path}: {found.get('message') or found.get('reason')}")
                    version = (found.get("metadata") or {}).get("resourceVersion") or version
                    if bookmarks or kind != BOOKMARK:
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
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        seconds: float,
        *,
        preload: bool = True,
    ) -> Any:
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        if time.monotonic() >= self._renew:  # not for every request: the official client takes as long as a small one
            self._headers, self._renew = self._credentials(), time.monotonic() + RENEW
        try:
            return self._pool.request(
                method,
                f"{self.host}{path}" + (f"?{urlencode(query)}" if query else ""),
                body=None if body is None else json.dumps(body).encode(),
                headers={**headers, **self._headers},
                timeout=Timeout(connect=min(CONNECT, seconds), read=seconds),
                retries=False,
                preload_content=preload,
            )
        except (HTTPError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise ClusterSilent(f"{self.host}: no answer from the API server ({_short(reason)})") from None

    def _refused(self, path: str, status: int, data: bytes) -> ClusterRefused:
        try:
            said = str(json.loads(data).get("message") or "")
        except (ValueError, AttributeError):
            said = ""
        named = f" {responses[status]}" if status in responses else ""
        text = f"{self.host}{path}: {status}{named}{f' ({said})' if said else ''}"
        if status == HTTPStatus.UNAUTHORIZED:
            text = f"{self.host}: the credentials of the kubeconfig are not accepted (401 Unauthorized)"
        if status == HTTPStatus.FORBIDDEN and (match := re.fullmatch(r"/api/v1/(nodes|pods)", path)):
            text = (
                f"{self.host}: not allowed to list {match[1]} in all namespaces (403 Forbidden); the right that is "
                f"missing: {{apiGroups: [''], resources: [{match[1]}], verbs: [list]}} in a ClusterRole"
            )
        return ClusterRefused(text, status)


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


def _short(reason: object) -> str:
    """The words of a connection's error without the addresses of objects."""
    return re.sub(r"^\S.*?[>)]: ", "", str(reason)) or type(reason).__name__
