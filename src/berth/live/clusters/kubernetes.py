"""A real Kubernetes control plane on this machine: etcd, API server, controllers, scheduler and a kubelet.

The kubelet is `berth.live.clusters.kubelet`, which stands for all nodes and runs containers as processes of this
machine. Nodes may claim more processors than the machine has. Images are not used.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from berth.about import HOME
from berth.errors import InvalidInput
from berth.live.clusters import MARK, ClusterError, end, free_ports, marked, stopped
from berth.live.clusters.kubernetes_flags import daemon_flags
from berth.live.kubernetes_api import Api, ApiError, connect_with_token

__all__ = ["DAEMONS", "KubernetesNode", "LocalKubernetes", "missing_programs", "programs_folder"]

DAEMONS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
PROGRAMS = (*DAEMONS[:-1], "openssl")
VERSION = "1.20.2"
START_SECONDS, ANSWER_SECONDS = 120.0, 30.0
AWAY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Taints of nodes that are not ready."""
ADMIN = "admin"
USERS: Mapping[str, Sequence[str]] = {"berth": (), "reader": (), "nobody": ()}
"""Users without rights, for tests of roles, and their groups."""
BEATS_PER_SECOND = 50
"""Most heartbeats per second of all nodes together."""
BEAT_SECONDS = 2.0
"""Shortest interval of a node's heartbeats."""


@dataclass(frozen=True)
class KubernetesNode:
    """A node to register: memory in GiB, taints as `key=value:effect`."""

    name: str
    cpus: int = 4
    memory: int = 16
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[str] = ()


def missing_programs() -> list[str]:
    """Programs of the control plane that are not installed here."""
    return [name for name in PROGRAMS if _program(name) is None]


def programs_folder() -> Path:
    """The folder of the programs that were built for berth: BERTH_KUBERNETES, or one in the cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("BERTH_KUBERNETES") or Path(cache, "berth", f"kubernetes-{VERSION}"))


def _program(name: str) -> str | None:
    """Where a program is: in that folder, or in the PATH."""
    return shutil.which(name, path=os.pathsep.join((str(programs_folder()), os.environ.get("PATH", os.defpath))))


class LocalKubernetes:
    """A cluster in a directory, with these nodes, or this many equal ones.

    `users` are users with tokens but without rights, and their groups. `kubeconfig` is that of the administrator.
    Pods on `hollow` nodes run nothing, for the seconds of their annotation `berth.io/seconds` or until deleted.
    """

    def __init__(
        self,
        directory: Path,
        nodes: Sequence[KubernetesNode] | int = 8,
        users: Mapping[str, Sequence[str]] = USERS,
        *,
        hollow: bool = False,
    ) -> None:
        many = isinstance(nodes, int)
        self.nodes = [KubernetesNode(f"n{i + 1}") for i in range(nodes)] if isinstance(nodes, int) else list(nodes)
        if not 1 <= len(self.nodes) <= 5000:
            raise InvalidInput("1 to 5000 nodes", value=nodes if many else len(self.nodes), key="nodes")
        self.directory = directory.resolve()
        self.kubeconfig = self.directory / f"{ADMIN}.kubeconfig"
        self._hollow = hollow
        self._users = {ADMIN: ("system:masters",), **users}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        """The API, with the rights of the administrator."""
        if self._api is None:
            self._api = connect_with_token(self.kubeconfig)
        return self._api

    def user(self, name: str, groups: Sequence[str] = ()) -> Path:
        """The kubeconfig of a user; the API server learns of a new one, or of other groups, only at its start."""
        known = self._users.get(name)
        if known is None or (groups and tuple(known) != tuple(groups)):
            if "kube-apiserver" in self.daemons():
                raise ClusterError(f"the API server does not know {name!r} with these groups; name users before start")
            self._users[name] = tuple(groups)
        return self.directory / f"{name}.kubeconfig"

    def start(self) -> None:
        """Start all daemons, and wait until every node is ready; the state of an earlier start stays."""
        if missing := missing_programs():
            raise ClusterError(
                f"{', '.join(missing)} not found: python3 scripts/kubernetes.py install builds Kubernetes"
            )
        self._write()
        try:
            for name in DAEMONS[:2]:
                self._begin(name)
            self._begin("kubelet")
            self._wait(self._answers, "the API server does not answer")
            for name in DAEMONS[2:4]:
                self._begin(name)
            self._wait(lambda: self.ready() == {node.name for node in self.nodes}, "the nodes do not become ready")
            self._wait(self._accounts, "there is no service account")
        except BaseException:
            self.stop()
            raise

    def _write(self) -> None:
        """Write all files; ports, tokens and certificates of an earlier start stay."""
        folder = self.directory
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        shutil.rmtree(folder / "lost", ignore_errors=True)
        (folder / "lost").mkdir()
        ports = folder / "ports.json"
        if not ports.exists():
            names = ("etcd", "peer", "kube-apiserver", "kubelet")
            ports.write_text(json.dumps(dict(zip(names, free_ports(len(names)), strict=True))), encoding="utf-8")
        self._ports = json.loads(ports.read_text(encoding="utf-8"))
        if not (folder / "tls.crt").exists():
            _certificate(folder)
        tokens = folder / "tokens.csv"
        tokens.touch(mode=0o600)
        known = {line.split(",")[1]: line.split(",")[0] for line in tokens.read_text(encoding="utf-8").splitlines()}
        lines = []
        for name, groups in self._users.items():
            token = known.get(name) or secrets.token_hex(16)
            lines.append(f'{token},{name},{name},"{",".join(groups)}"\n')
            server = f"https://127.0.0.1:{self._ports['kube-apiserver']}"
            _write_kubeconfig(folder / f"{name}.kubeconfig", server, folder / "tls.crt", name, token)
        tokens.write_text("".join(lines), encoding="utf-8")
        nodes = json.dumps([asdict(node) for node in self.nodes])
        (folder / "nodes.json").write_text(nodes, encoding="utf-8")

    def _command(self, name: str) -> list[str]:
        beat = max(BEAT_SECONDS, len(self.nodes) / BEATS_PER_SECOND)
        flags = daemon_flags(name, self.directory, self.kubeconfig, self._ports, beat)
        python = [sys.executable, "-m", "berth.live.clusters.kubelet", *(["--idle"] if self._hollow else [])]
        return [*(python if name == "kubelet" else [_program(name) or name]), *flags]

    def _begin(self, name: str) -> None:
        """Start a daemon that does not run."""
        if name not in DAEMONS:
            raise InvalidInput(f"one of {', '.join(DAEMONS)}", value=name, key="daemon")
        if name in self.daemons():
            return
        own = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        own |= {
            MARK: str(self.directory),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(HOME.parent), os.environ.get("PYTHONPATH")))),
        }
        with (self.directory / f"{name}.out").open("ab") as output:
            self._running[name] = subprocess.Popen(
                self._command(name),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=own,
                cwd=self.directory,
            )

    def start_daemon(self, name: str) -> None:
        """Start a daemon that was killed, and wait until the API server answers if it is needed for that."""
        self._begin(name)
        if {"etcd", "kube-apiserver"} <= set(self.daemons()):
            self._wait(self._answers, "the API server does not answer")

    def kill(self, name: str) -> None:
        """Kill a daemon, and nothing else: without the kubelet, containers go on."""
        if name not in DAEMONS:
            raise InvalidInput(f"one of {', '.join(DAEMONS)}", value=name, key="daemon")
        daemon = self._running.pop(name, None)
        if daemon is not None:
            daemon.kill()
            daemon.wait()

    def lose(self, node: str, processes: bool = True) -> None:
        """Lose a node: it sends no heartbeats, and nothing else; its processes die, or go on after a mere partition."""
        self._lost(node).write_text("dead" if processes else "partition", encoding="utf-8")
        self._acknowledged(node, True)
        if processes:
            end(stopped(self.directory, node), signal.SIGKILL)

    def restore(self, node: str) -> None:
        """Bring a lost node back; the kubelet reports what became of its pods."""
        self._lost(node).unlink(missing_ok=True)
        self._acknowledged(node, False)

    def _lost(self, node: str) -> Path:
        if all(one.name != node for one in self.nodes):
            raise InvalidInput("a node of this cluster", value=node, key="node")
        return self.directory / "lost" / node

    def _acknowledged(self, node: str, lost: bool) -> None:
        file = self.directory / "kubelet" / "lost.json"
        if "kubelet" in self.daemons():
            self._wait(lambda: (node in _read(file, [])) == lost, f"the kubelet does not notice the state of {node}")

    def ready(self) -> set[str]:
        """Names of the nodes that are ready."""
        nodes = (self._get("/api/v1/nodes", query={"resourceVersion": "0"}) or {"items": ()})["items"]
        ready = {"type": "Ready", "status": "True"}
        return {
            node["metadata"]["name"]
            for node in nodes
            if any(ready.items() <= one.items() for one in node["status"].get("conditions", ()))
            and not any(taint["key"] in AWAY for taint in node["spec"].get("taints", ()))
        }

    def _answers(self) -> bool:
        return bool(self._get("/readyz", text=True) == "ok")

    def _accounts(self) -> bool:
        """Whether pods can be created: they need the service account of their namespace."""
        account = self._get("/api/v1/namespaces/default/serviceaccounts/default") or {}
        return bool(account.get("secrets"))

    def _get(self, path: str, **more: Any) -> Any:
        """The answer of the API server, or None."""
        try:
            return self.api.request("GET", path, seconds=ANSWER_SECONDS, **more)
        except ApiError:
            return None

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        end_by = time.monotonic() + START_SECONDS
        while not ready():
            dead = [name for name, daemon in self._running.items() if daemon.poll() is not None]
            if dead or time.monotonic() > end_by:
                said = (self.directory / f"{dead[0]}.out").read_text(errors="replace")[-500:] if dead else ""
                raise ClusterError(f"{dead[0]} ended: {said.strip()}" if dead else f"{what} ({self.directory})")
            time.sleep(0.05)

    def daemons(self) -> dict[str, int]:
        """The process of each running daemon."""
        return {name: daemon.pid for name, daemon in self._running.items() if daemon.poll() is None}

    def how_to_use(self) -> list[str]:
        """Commands to use it."""
        return [f"export KUBECONFIG={self.kubeconfig}", "kubectl get nodes", "berth serve --engine kubernetes"]

    def stop(self) -> None:
        """End all daemons, and everything that runs on the nodes."""
        if (kubelet := self._running.get("kubelet")) is not None:
            kubelet.kill()  # it starts no more containers
            kubelet.wait()
        end(marked(self.directory), signal.SIGKILL)
        for daemon in self._running.values():
            daemon.wait()
        self._running.clear()
        if self._api is not None:
            self._api.close()
            self._api = None


def _read(file: Path, default: Any) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return default


def _write_kubeconfig(file: Path, server: str, authority: Path, user: str, token: str) -> None:
    """Write a kubeconfig with one cluster and one user; only the file's owner may read it."""
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "berth", "cluster": {"server": server, "certificate-authority": str(authority)}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "berth", "context": {"cluster": "berth", "user": user}}],
        "current-context": "berth",
    }
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(told), encoding="utf-8")


def _certificate(folder: Path) -> None:
    """Make the key and the certificate of the API server, the kubelet and the service accounts."""
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", *files]
    command += ["-days", "3650", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    command += ["-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ClusterError(f"openssl makes no certificate: {done.stderr.strip()[-300:]}")
