"""A real Kubernetes control plane as a site for `check_engine`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from berth.live.clusters.kubernetes import LocalKubernetes, missing_programs
from berth.live.engines import Engine
from berth.live.engines.kubernetes.engine import KubernetesEngine
from berth.live.engines.kubernetes.record import ATTEMPT, JOB
from berth.live.engines.kubernetes.settings import KubernetesSettings
from tests.real.contract import WitnessedSite

needs_kubernetes = pytest.mark.skipif(
    bool(missing_programs()), reason="Kubernetes is not installed (python3 scripts/kubernetes.py install)"
)


class KubernetesSite(WitnessedSite):
    """Jobs on a cluster that the test starts and stops."""

    short = 0.5

    def __init__(self, cluster: LocalKubernetes, folder: Path) -> None:
        super().__init__(folder)
        self._cluster = cluster

    async def engine(self) -> Engine:
        settings = KubernetesSettings(kubeconfig=self._cluster.kubeconfig, image="none", lost_seconds=10.0)
        return KubernetesEngine(settings)

    async def lose(self, server: str) -> None:
        await asyncio.to_thread(self._cluster.lose, server)

    async def restore(self, server: str) -> None:
        await asyncio.to_thread(self._cluster.restore, server)

    async def restart(self) -> None:
        for name in ("kube-apiserver", "etcd"):
            await asyncio.to_thread(self._cluster.kill, name)
        for name in ("etcd", "kube-apiserver"):
            await asyncio.to_thread(self._cluster.start_daemon, name)

    async def cancel_behind(self, job: str, attempt: int) -> None:
        def delete() -> None:
            for pod in self._cluster.api.request("GET", "/api/v1/namespaces/default/pods")["items"]:
                notes = pod["metadata"].get("annotations") or {}
                if (notes.get(JOB), notes.get(ATTEMPT)) == (job, str(attempt)):
                    self._cluster.api.request("DELETE", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")

        await asyncio.to_thread(delete)
