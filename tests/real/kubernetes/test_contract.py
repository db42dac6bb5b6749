"""The engine for Kubernetes keeps the promises of an engine, on a real control plane."""

from __future__ import annotations

from pathlib import Path

from berth.live.clusters.kubernetes import LocalKubernetes
from tests.real.contract import checked
from tests.real.kubernetes.site import KubernetesSite


def test_every_promise_is_kept(kubernetes_cluster: LocalKubernetes, tmp_path: Path) -> None:
    results = checked(KubernetesSite(kubernetes_cluster, tmp_path))
    assert [str(result) for result in results.values() if not result.passed] == []
