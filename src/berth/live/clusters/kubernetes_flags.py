"""Flags of the daemons of a local Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["daemon_flags"]

MISSED_BEATS = 4
"""How many heartbeats must be missing until a node is not ready."""
EVICTION_SECONDS = 10
"""How long pods stay on a node that is not ready."""
REQUESTS_PER_SECOND = 500
"""Most requests per second of a controller; by default a thousand nodes would take minutes to become ready."""


def daemon_flags(name: str, folder: Path, kubeconfig: Path, ports: Mapping[str, int], beat: float) -> list[str]:
    """Flags of a daemon whose files lie in a folder; `beat` is the interval of heartbeats in seconds."""
    etcd, key = f"http://127.0.0.1:{ports['etcd']}", folder / "tls.key"
    options: dict[str, Any]
    if name == "etcd":
        peer = f"http://127.0.0.1:{ports['peer']}"
        options = {
            "name": "berth",
            "data-dir": folder / "etcd",
            "listen-client-urls": etcd,
            "advertise-client-urls": etcd,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"berth={peer}",
            "logger": "zap",
        }
    elif name == "kube-apiserver":
        options = {
            "etcd-servers": etcd,
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": ports[name],
            "tls-cert-file": folder / "tls.crt",
            "tls-private-key-file": key,
            "token-auth-file": folder / "tokens.csv",
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": folder / "tls.crt",
            "service-account-signing-key-file": key,
            "service-cluster-ip-range": "10.0.0.0/24",
            "endpoint-reconciler-type": "none",
            "kubelet-preferred-address-types": "InternalIP",
            "default-not-ready-toleration-seconds": EVICTION_SECONDS,
            "default-unreachable-toleration-seconds": EVICTION_SECONDS,
        }
    elif name == "kubelet":
        options = {
            "kubeconfig": kubeconfig,
            "directory": folder / "kubelet",
            "nodes": folder / "nodes.json",
            "lost": folder / "lost",
            "port": ports[name],
            "certificate": folder / "tls.crt",
            "key": key,
            "heartbeat": beat,
        }
    else:
        options = {
            "kubeconfig": kubeconfig,
            "leader-elect": "false",
            "port": 0,
            "secure-port": 0,
            "kube-api-qps": REQUESTS_PER_SECOND,
            "kube-api-burst": 2 * REQUESTS_PER_SECOND,
        }
        if name == "kube-controller-manager":
            options |= {
                "service-account-private-key-file": key,
                "root-ca-file": folder / "tls.crt",
                "node-monitor-period": "1s",
                "node-monitor-grace-period": f"{MISSED_BEATS * beat:.0f}s",
                "pod-eviction-timeout": f"{EVICTION_SECONDS}s",
            }
    return [f"--{flag}={value}" for flag, value in options.items()]
