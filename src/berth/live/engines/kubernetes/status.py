"""What the status of a pod says about the task that it runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from berth.errors import InvalidInput
from berth.files.quantities import Amounts
from berth.live.engines.kubernetes.objects import PodObject
from berth.live.engines.kubernetes.pods import PODS, requests_of
from berth.live.engines.kubernetes.record import COUNTED, RANK, ROLE

__all__ = ["SeenPod", "seconds_of", "seen"]

DISRUPTED = ("Evicted", "Preempting", "NodeLost", "Shutdown", "NodeShutdown", "Terminated", "UnexpectedAdmissionError")
"""Reasons of failed pods that are not the fault of what they ran; also those that begin with OutOf."""
UNTRACKED = ("ContainerStatusUnknown", "Unknown")
"""Reasons of containers that kubelet and containerd lost, for example because their node was restarted."""
STUCK = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)


@dataclass(frozen=True)
class SeenPod:
    """A pod, as far as scheduling depends on it."""

    uid: str
    name: str
    namespace: str
    node: str
    phase: str
    deleting: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: tuple[tuple[str, str, str], ...]
    """Kind, name and uid of each owner."""
    requests: Amounts
    spec: Mapping[str, Any] = field(repr=False, compare=False)
    status: Mapping[str, Any] = field(repr=False, compare=False)

    @cached_property
    def excess(self) -> Amounts:
        """What a pod of berth's own holds beyond what berth counts for it, for example for what a webhook added."""
        try:
            told = json.loads(self.annotations[COUNTED])
            counted: Amounts = {str(name): int(milli) for name, milli in told.items()}
        except (KeyError, ValueError, TypeError, AttributeError):  # an older version made it
            counted = self._of_first()
        return {name: more for name, milli in self.requests.items() if (more := milli - counted.get(name, 0)) > 0}

    def _of_first(self) -> Amounts:
        """What its first container asks for, which older versions counted."""
        containers = list(self.spec.get("containers") or ())[:1]
        try:
            asked = requests_of(PodObject.model_validate({"metadata": {}, "spec": {"containers": containers}}).spec)
        except (InvalidInput, ValueError):
            return self.requests
        return {name: milli for name, milli in asked.items() if name != PODS}

    @property
    def ended(self) -> bool:
        """Whether its containers have ended and it holds nothing any more."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def unschedulable(self) -> str:
        """Why kube-scheduler finds no node; empty if it has not looked or has found one."""
        for one in self.status.get("conditions") or ():
            if one.get("type") == "PodScheduled" and one.get("reason") == "Unschedulable":
                return str(one.get("message") or "unschedulable")
        return ""

    @property
    def stuck(self) -> str:
        """Why a container does not start; empty if it does, or may."""
        statuses = (*(self.status.get("initContainerStatuses") or ()), *(self.status.get("containerStatuses") or ()))
        for one in statuses:
            waiting = (one.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in STUCK:
                return f"{waiting['reason']}: {waiting.get('message') or one.get('image') or ''}".rstrip(": ")
        return ""

    @cached_property
    def times(self) -> tuple[float | None, float | None]:
        """When its containers began and ended."""
        ended = [
            state
            for one in self.status.get("containerStatuses") or ()
            if (state := (one.get("state") or {}).get("terminated") or (one.get("state") or {}).get("running"))
        ]
        began = [time for one in ended if (time := _time(one.get("startedAt"))) is not None]
        over = [time for one in ended if (time := _time(one.get("finishedAt"))) is not None]
        return min(began, default=None), max(over, default=None)

    def failure(self) -> tuple[str, Literal["job", "server"]]:
        """Why it failed, and by whose fault."""
        reason, message = str(self.status.get("reason") or ""), str(self.status.get("message") or "")
        disrupted = [one for one in self.status.get("conditions") or () if one.get("type") == "DisruptionTarget"]
        if reason in DISRUPTED or reason.startswith("OutOf") or disrupted:
            if disrupted and not message:
                message = str(disrupted[0].get("message") or "")
            return f"{reason or 'disrupted'} on {self.node}" + (f": {message}" if message else ""), "server"
        if reason == "DeadlineExceeded":
            return f"it ran longer than activeDeadlineSeconds on {self.node}", "job"
        for one in (*(self.status.get("initContainerStatuses") or ()), *(self.status.get("containerStatuses") or ())):
            state = (one.get("state") or {}).get("terminated") or {}
            if state.get("exitCode"):
                word = state.get("reason") or ""
                if word in UNTRACKED:
                    return f"{self.node} lost {self.task} ({word})", "server"
                more = f" ({word})" if word not in ("", "Error") else ""
                return f"exit code {state['exitCode']} of {self.task} on {self.node}{more}", "job"
        return (f"{reason}: {message}" if reason else message or "failed") + f" on {self.node}", "job"

    @property
    def task(self) -> str:
        """What it is called in messages."""
        role = self.annotations.get(ROLE)
        return f"{role}-{self.annotations.get(RANK, '')}" if role else f"pod {self.name}"


def seconds_of(pods: list[SeenPod]) -> float | None:
    """How long a gang ran: from the start of its last task to the end of its last task."""
    began, over = ([time for pod in pods if (time := pod.times[i]) is not None] for i in (0, 1))
    return max(max(over) - max(began), 0.0) if began and over else None


def _time(text: object) -> float | None:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() if text else None
    except ValueError:
        return None


def seen(given: Mapping[str, Any], known: SeenPod | None = None) -> SeenPod:
    """Read a pod. What follows from its spec is computed once while that stays as it is `known`."""
    metadata, spec, status = given["metadata"], given.get("spec") or {}, given.get("status") or {}
    annotations = metadata.get("annotations") or {}
    same = known is not None and known.spec == spec and known.annotations == annotations
    owners = metadata.get("ownerReferences") or ()
    pod = SeenPod(
        metadata["uid"],
        metadata["name"],
        metadata.get("namespace") or "default",
        spec.get("nodeName") or "",
        status.get("phase") or "Pending",
        "deletionTimestamp" in metadata,
        metadata.get("labels") or {},
        annotations,
        tuple((one.get("kind") or "", one.get("name") or "", one.get("uid") or "") for one in owners),
        known.requests if known is not None and same else _requests(given),
        spec,
        status,
    )
    if same and "excess" in vars(known):
        vars(pod)["excess"] = vars(known)["excess"]
    return pod


def _requests(given: Mapping[str, Any]) -> Amounts:
    try:
        return requests_of(PodObject.model_validate(given).spec)
    except (InvalidInput, ValueError):
        return {}
