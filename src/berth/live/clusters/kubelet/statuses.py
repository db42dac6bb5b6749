"""The status of a pod, as the kubelet reports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from berth.live.clusters.kubelet.containers import KILLED, Container
from berth.live.clusters.kubelet.nodes import stamp

__all__ = ["LOST", "phase_of", "pod_status", "running", "terminated", "waiting"]

LOST = "ContainerStatusUnknown"
"""The reason of a container that ended, nobody knows how."""


def waiting(reason: str) -> dict[str, Any]:
    """The state of a container that has not started."""
    return {"waiting": {"reason": reason}}


def running(container: Container) -> dict[str, Any]:
    """The state of a container that runs."""
    return {"running": {"startedAt": stamp(container.began)}}


def terminated(container: Container) -> dict[str, Any]:
    """The state of a container that has ended."""
    known, code = (container.folder / "code").exists(), container.code
    reason = "Completed" if code == 0 else "Error" if known or code != KILLED else LOST
    told = {"exitCode": code, "reason": reason, "startedAt": stamp(container.began)}
    return {"terminated": {**told, "finishedAt": stamp(container.ended)}}


def pod_status(
    pod: Mapping[str, Any],
    phase: str,
    states: Mapping[str, Mapping[str, Any]],
    starts: Mapping[str, int],
    reason: str | None,
) -> dict[str, Any]:
    """The status of a pod, from the states of its containers and how often each was restarted."""
    spec, now = pod["spec"], stamp()
    initial = [_container(one, states, starts) for one in spec.get("initContainers", ())]
    usual = [_container(one, states, starts) for one in spec["containers"]]
    begun = phase != "Pending" or not initial
    ready = phase == "Running" and all("running" in one["state"] for one in usual)
    conditions = {"Initialized": begun, "Ready": ready, "ContainersReady": ready}
    status: dict[str, Any] = {
        "phase": phase,
        "hostIP": "127.0.0.1",
        "podIP": "127.0.0.1",
        "podIPs": [{"ip": "127.0.0.1"}],
        "startTime": pod.get("status", {}).get("startTime") or now,
        "conditions": [
            {"type": name, "status": str(value), "lastTransitionTime": now} for name, value in conditions.items()
        ],
        "containerStatuses": usual,
    }
    if initial:
        status["initContainerStatuses"] = initial
    if reason is not None:
        status["reason"] = reason
    return status


def _container(
    spec: Mapping[str, Any], states: Mapping[str, Mapping[str, Any]], starts: Mapping[str, int]
) -> dict[str, Any]:
    name = spec["name"]
    state = states.get(name, waiting("ContainerCreating"))
    return {
        "name": name,
        "image": spec.get("image", ""),
        "imageID": "",
        "ready": "running" in state,
        "started": "running" in state,
        "restartCount": starts.get(name, 0),
        "state": state,
    }


def phase_of(states: Sequence[Mapping[str, Any]]) -> str:
    """The phase of a pod whose containers have all ended.

    >>> phase_of([{"terminated": {"exitCode": 0}}, {"terminated": {"exitCode": 3}}])
    'Failed'
    """
    return "Succeeded" if all(one.get("terminated", {}).get("exitCode") == 0 for one in states) else "Failed"
