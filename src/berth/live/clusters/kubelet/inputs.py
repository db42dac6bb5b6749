"""ConfigMaps and Secrets that a pod waits for, and the environment of its containers."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from berth.live.clusters.kubelet.containers import expanded
from berth.live.clusters.kubelet.link import insist
from berth.live.kubernetes_api import Api, ApiError

__all__ = ["Inputs", "Source", "sources", "variables"]

LOOK_SECONDS = 0.2
ADDRESS = "127.0.0.1"


class Source(NamedTuple):
    """A ConfigMap or Secret in the namespace of its pod."""

    kind: str
    name: str


Values = Mapping[Source, Mapping[str, str]]
"""Data of ConfigMaps and Secrets."""


def sources(pod: Mapping[str, Any]) -> dict[Source, bool]:
    """All ConfigMaps and Secrets of a pod, and whether it needs them to start."""
    needs: dict[Source, bool] = {}
    for source, told in _sources(pod["spec"]):
        needs[source] = needs.get(source, False) or not told.get("optional", False)
    return needs


def _sources(spec: Mapping[str, Any]) -> Iterator[tuple[Source, Mapping[str, Any]]]:
    for volume in spec.get("volumes", ()):
        for one in (volume, *volume.get("projected", {}).get("sources", ())):
            if told := one.get("configMap"):
                yield Source("configmaps", told["name"]), told
            if told := one.get("secret"):
                yield Source("secrets", told.get("secretName") or told["name"]), told
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        for one in container.get("envFrom", ()):
            for key, kind in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
                if told := one.get(key):
                    yield Source(kind, told["name"]), told
        for one in container.get("env", ()):
            for key, kind in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
                if told := one.get("valueFrom", {}).get(key):
                    yield Source(kind, told["name"]), told


class Inputs:
    """Reads ConfigMaps and Secrets; pods that wait for the same object ask once."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._asked: dict[tuple[str, Source], asyncio.Task[Mapping[str, str] | None]] = {}

    async def read(self, pod: Mapping[str, Any]) -> tuple[dict[Source, Mapping[str, str]], list[Source]]:
        """The data of a pod's objects, and those that are missing but needed."""
        needs, space = sources(pod), pod["metadata"]["namespace"]
        found = await asyncio.gather(*(self._shared(space, source) for source in needs))
        data = {source: told for source, told in zip(needs, found, strict=True) if told is not None}
        return data, [source for source, needed in needs.items() if needed and source not in data]

    async def _shared(self, space: str, source: Source) -> Mapping[str, str] | None:
        key = (space, source)
        if key not in self._asked:
            self._asked[key] = asyncio.create_task(self._get(space, source))
            self._asked[key].add_done_callback(lambda _: self._asked.pop(key))
        return await asyncio.shield(self._asked[key])

    async def _get(self, space: str, source: Source) -> Mapping[str, str] | None:
        try:
            told = await insist(self._api, "GET", f"/api/v1/namespaces/{space}/{source.kind}/{source.name}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        data: Mapping[str, str] = told.get("data") or {}
        if source.kind == "secrets":
            return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}
        return data


def variables(pod: Mapping[str, Any], container: Mapping[str, Any], data: Values) -> dict[str, str]:
    """The environment of a container; missing optional values are left away."""
    own: dict[str, str] = {}
    for one in container.get("envFrom", ()):
        for key, kind in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
            if told := one.get(key):
                values = data.get(Source(kind, told["name"]), {})
                own |= {one.get("prefix", "") + name: value for name, value in values.items()}
    for one in container.get("env", ()):
        value = _value(pod, one.get("valueFrom"), data) if "valueFrom" in one else expanded(one.get("value", ""), own)
        if value is not None:
            own[one["name"]] = value
    return own


def _value(pod: Mapping[str, Any], told: Mapping[str, Any], data: Values) -> str | None:
    for key, kind in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        if one := told.get(key):
            return data.get(Source(kind, one["name"]), {}).get(one["key"])
    path = told.get("fieldRef", {}).get("fieldPath", "")
    known = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"]["nodeName"],
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
        "status.podIP": ADDRESS,
        "status.hostIP": ADDRESS,
    }
    for kind in ("labels", "annotations"):
        values = pod["metadata"].get(kind, {})
        known |= {f"metadata.{kind}['{name}']": value for name, value in values.items()}
    return known.get(path)
