"""Events on pods, as `kubectl describe pod` shows them: why a pod waits for berth, and where berth placed it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from berth.live.engines.kubernetes.status import SeenPod
from berth.live.kubernetes_api import Api, ClusterRefused

__all__ = ["IGNORED", "PLACED", "WAITS", "write_events"]

WAITS, PLACED, IGNORED = "BerthWaiting", "BerthPlaced", "BerthIgnored"
LONGEST = 1000
"""The most characters of a message; Kubernetes takes 1024."""
MANY = 16
"""The most pods of a group that get an event."""


def event(pod: SeenPod, reason: str, text: str) -> dict[str, Any]:
    """An event; there is one for each pod and reason, which later texts replace."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    mark = hashlib.sha256(f"{pod.uid} {reason}".encode()).hexdigest()[:16]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.name[:200]}.{mark}", "namespace": pod.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "reason": reason,
        "message": text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…",
        "type": "Normal",
        "source": {"component": "berth"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


async def write_events(api: Api, pods: Iterable[SeenPod], reason: str, text: str) -> None:
    """Write an event for each of these pods, or change the one that is there."""
    for pod in list(pods)[:MANY]:
        made = event(pod, reason, text)
        path = f"/api/v1/namespaces/{pod.namespace}/events"
        try:
            await api.ask("POST", path, made)
        except ClusterRefused as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            change = {"message": made["message"], "lastTimestamp": made["lastTimestamp"]}
            await api.ask("PATCH", f"{path}/{made['metadata']['name']}", change)
