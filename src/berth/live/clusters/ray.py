"""A real Ray cluster on this machine: a head that computes nothing, and nodes on loopback addresses of their own.

All daemons are children of the process that made it, and die with it. Its main thread must start them: a child dies
with the thread that started it.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from berth.about import HOME
from berth.errors import InvalidInput, MissingExtra
from berth.live.clusters import MARK, NODE, ClusterError, end, marked

__all__ = ["LocalRay", "RayNode", "example_nodes"]

TRIES = 3
"""How often the start of the head, or of a node, is tried."""
LONGEST = 50
"""The most characters of the directory: it has sockets, whose paths must be short."""
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}
"""A node that hangs is dead after some seconds; Ray's default is more than half a minute."""
ON_DEMAND = {"prestart_worker_first_driver": False}
"""Processes start with their first task; by default a node that is first used starts one for each of its processors."""


@dataclass(frozen=True)
class RayNode:
    """A node to start; its name is also a label."""

    name: str
    cpus: int = 4
    gpus: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def example_nodes(count: int) -> list[RayNode]:
    """This many nodes, called n1, n2, …; half of them have the class fast.

    >>> [(node.name, node.labels["class"]) for node in example_nodes(2)]
    [('n1', 'fast'), ('n2', 'slow')]
    """
    return [
        RayNode(f"n{i}", labels={"class": "fast" if i <= (count + 1) // 2 else "slow"}) for i in range(1, count + 1)
    ]


class LocalRay:
    """A cluster, below `directory`; `nodes` are nodes, or their number.

    A `watchful` cluster sees within seconds that a node hangs, others as late as Ray does by default.
    """

    def __init__(self, directory: Path, nodes: int | Sequence[RayNode] = 4, *, watchful: bool = True) -> None:
        self.directory = directory.absolute()
        self._nodes = {node.name: node for node in (example_nodes(nodes) if isinstance(nodes, int) else nodes)}
        self._network = f"127.{random.SystemRandom().randint(1, 254)}.{random.SystemRandom().randint(1, 254)}"
        self._settings = ON_DEMAND | (HEALTH if watchful else {})
        self._cluster: Any = None
        self._running: dict[str, Any] = {}
        self._seen: dict[int, str] = {}
        """Processes that may outlive their node, and when they began: Ray's own lose their mark when renamed."""
        if len(str(self.directory)) > LONGEST:
            raise InvalidInput(f"a directory with a path of at most {LONGEST} characters", value=str(self.directory))
        if importlib.util.find_spec("ray") is None:
            raise MissingExtra("a Ray cluster", "ray")

    @property
    def address(self) -> str:
        """The address for Ray programs."""
        if self._cluster is None:
            raise ClusterError("the cluster was not started")
        return str(self._cluster.address)

    def start(self) -> None:
        """Start the head, then one node after another."""
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._patiently("head", self._start_head)
            for name in self._nodes:
                self.start_node(name)
        except BaseException:
            self.stop()
            raise

    def start_node(self, name: str) -> None:
        """Start or restart a node."""
        if name not in self._nodes:
            raise InvalidInput(f"one of {', '.join(self._nodes)}", value=name, key="node")
        if (before := self._running.pop(name, None)) is not None:
            end(marked(self.directory, name), signal.SIGKILL)
            self._cluster.remove_node(before, allow_graceful=False)
        self._patiently(name, lambda: self._add_node(name))

    def _patiently(self, name: str, start: Callable[[], None]) -> None:
        """Start a part of the cluster; Ray allows half a minute, which may be too little on a busy machine."""
        for left in reversed(range(TRIES)):
            try:
                with self._environment(name):
                    return start()
            except Exception:  # Ray raises plain exceptions
                end(marked(self.directory, name), signal.SIGKILL)
                if not left:
                    raise

    def _start_head(self) -> None:
        from ray.cluster_utils import Cluster

        head = {
            "num_cpus": 0,
            "node_ip_address": self._ip(0),
            "include_dashboard": False,
            "no_monitor": True,  # nobody adds nodes
            "_system_config": self._settings,
        }
        self._cluster = Cluster(initialize_head=True, head_node_args=head)

    def _add_node(self, name: str) -> None:
        node = self._nodes[name]
        self._running[name] = self._cluster.add_node(
            num_cpus=node.cpus,
            num_gpus=node.gpus,
            resources=dict(node.resources),
            labels={"name": name, **node.labels},
            node_ip_address=self._ip(1 + list(self._nodes).index(name)),
        )

    def stop(self) -> None:
        """End what this object started, and nothing else."""
        for name in self._running:
            self.wake(name)
        self._look()
        if self._cluster is not None:
            self._cluster.shutdown()
        self._cluster, self._running = None, {}
        left = {process for process, birth in self._seen.items() if birth and _birth(process) == birth}
        end(left | marked(self.directory), signal.SIGKILL)
        self._seen.clear()

    def _look(self) -> None:
        self._seen |= {process: _birth(process) for process in marked(self.directory)}

    def daemons(self) -> dict[str, int]:
        """The processes of the head, and the one of each node."""
        if self._cluster is None:
            return {}
        head = {} if self._cluster.head_node is None else self._cluster.head_node.all_processes
        found = {f"head-{kind.replace('_', '-')}": infos[0].process.pid for kind, infos in head.items()}
        return found | {name: _raylet(node) for name, node in self._running.items()}

    def how_to_use(self) -> list[str]:
        """Commands to use it."""
        return [
            f"export RAY_ADDRESS={self.address}",
            "berth serve --engine ray",
            "berth submit --tasks 2 --resources cpu=1 -- hostname",
        ]

    def kill(self, name: str) -> None:
        """Kill a node, as a power cut would; its tasks notice and end too."""
        self._look()
        os.kill(_raylet(self._running[name]), signal.SIGKILL)

    def kill_head(self) -> None:
        """Kill the head, and with it the cluster, which keeps no state."""
        self._look()
        for infos in self._cluster.head_node.all_processes.values():
            for info in infos:
                with suppress(ProcessLookupError):
                    os.kill(info.process.pid, signal.SIGKILL)

    def hang(self, name: str) -> None:
        """Suspend a node and its descendants, like a machine that swaps itself to death."""
        self._signal(name, signal.SIGSTOP)

    def wake(self, name: str) -> None:
        """Resume a node that hangs."""
        self._signal(name, signal.SIGCONT)

    def _signal(self, name: str, number: signal.Signals) -> None:
        for process in marked(self.directory, name):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def _ip(self, number: int) -> str:
        return f"{self._network}.{10 + number}"

    @contextmanager
    def _environment(self, node: str) -> Iterator[None]:
        """Put Ray's files into the directory, mark its processes, and let them import berth."""
        here = str(HOME.parent)
        given = {
            MARK: str(self.directory),
            NODE: node,
            "RAY_TMPDIR": str(self.directory),
            "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH")))),
        }
        before = {name: os.environ.get(name) for name in given}
        os.environ.update(given)
        (self.directory / "ray").mkdir(exist_ok=True)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def _birth(process: int) -> str:
    """When a process began, in the kernel's format; empty if it does not exist."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""
