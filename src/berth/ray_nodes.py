"""Nodes of a Ray cluster that are alive and responsive.

A machine that hangs stays part of its cluster for minutes, and work sent there waits. So every node is probed from time
to time; a node that does not answer in time gets no more work until it answers again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from berth.errors import BerthError, InvalidInput

__all__ = ["Nodes", "host_and_port", "on_node"]

EVERY = 5.0
"""Seconds between an answer of a node and the next probe."""

PATIENCE = 30.0
"""Timeout of a probe in seconds: the node may have to start a process first."""

NOBODY = 300.0
"""Seconds after which a cluster without any answering node is given up."""


def host_and_port(address: str) -> tuple[str, int] | None:
    """Host and port of a cluster; None if Ray is to find it (`auto`).

    >>> host_and_port("10.0.0.1:6379")
    ('10.0.0.1', 6379)
    """
    if address == "auto":
        return None
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 65536 and "/" not in host):
        raise InvalidInput("the address of a Ray cluster, such as 10.0.0.1:6379", value=address, key="address")
    return host.strip("[]"), int(port)


def on_node(node: str) -> Any:
    """Scheduling strategy that pins work to this node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def _pulse() -> bool:
    return True


@dataclass
class _Node:
    processors: int
    question: Any
    asked: float
    answers: bool = True


class Nodes:
    """The nodes of the cluster that this process is connected to."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._pulse = ray.remote(num_cpus=0, max_retries=0)(_pulse)
        self._known: dict[str, _Node] = {}
        self._last = time.monotonic()
        self.look()

    @property
    def serving(self) -> dict[str, int]:
        """Processors of each node that answers."""
        return {name: node.processors for name, node in self._known.items() if node.answers}

    def look(self) -> None:
        """Update which nodes exist and answer; raises if none has answered for a long time."""
        now = time.monotonic()
        there = {
            node["NodeID"]: int(node["Resources"]["CPU"])
            for node in self._ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        }
        self._known = {name: node for name, node in self._known.items() if name in there}
        for name, processors in there.items():
            if name not in self._known:
                self._known[name] = _Node(processors, self._ask(name), now)
            self._listen(name, self._known[name], now)
        if self.serving:
            self._last = now
        elif now - self._last > NOBODY:
            raise BerthError(f"no node of the Ray cluster has answered for {NOBODY:g} s; finished cells are kept")

    def _ask(self, name: str) -> Any:
        return self._pulse.options(scheduling_strategy=on_node(name)).remote()

    def _listen(self, name: str, node: _Node, now: float) -> None:
        if node.question is None:
            if now - node.asked > EVERY:
                node.question, node.asked = self._ask(name), now
            return
        answered, _ = self._ray.wait([node.question], timeout=0)
        if not answered:
            node.answers = node.answers and now - node.asked < PATIENCE
            return
        try:
            node.answers = self._ray.get(node.question)
        except self._ray.exceptions.RayError:  # the node is gone or its process was killed: probe again
            node.answers = False
        node.question, node.asked = None, now
