"""What the status of a pod says about its task."""

from __future__ import annotations

from typing import Any

import pytest

from berth.live.engines.kubernetes.record import RANK, ROLE
from berth.live.engines.kubernetes.status import SeenPod, seen


def failed(status: dict[str, Any]) -> SeenPod:
    metadata = {"uid": "u", "name": "p", "annotations": {ROLE: "worker", RANK: "0"}}
    return seen({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": "Failed", **status}})


def ended(code: int, reason: str) -> dict[str, Any]:
    return {"containerStatuses": [{"state": {"terminated": {"exitCode": code, "reason": reason}}}]}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (ended(3, "Error"), ("exit code 3 of worker-0 on n1", "job")),
        (ended(137, "OOMKilled"), ("exit code 137 of worker-0 on n1 (OOMKilled)", "job")),
        (ended(137, "ContainerStatusUnknown"), ("n1 lost worker-0 (ContainerStatusUnknown)", "server")),
        (ended(255, "Unknown"), ("n1 lost worker-0 (Unknown)", "server")),
        ({"reason": "Evicted", "message": "no disk"}, ("Evicted on n1: no disk", "server")),
        ({"reason": "DeadlineExceeded"}, ("it ran longer than activeDeadlineSeconds on n1", "job")),
    ],
)
def test_whose_fault_a_failure_is(status: dict[str, Any], expected: tuple[str, str]) -> None:
    assert failed(status).failure() == expected
