"""A real Ray cluster on one machine, for tests: a head that computes nothing, and nodes with one processor each.

Run as a program, it starts one, writes its address and the process of each node as a line of JSON, and ends it as soon
as its standard input ends: so nothing stays behind, whatever becomes of the test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_SECONDS = 120


@dataclass(frozen=True)
class RayCluster:
    """Where it is, and the process of each node."""

    address: str
    nodes: tuple[int, ...]

    @contextmanager
    def hung_node(self, number: int) -> Iterator[None]:
        """A node and all its workers stop where they are and say nothing, as when a machine swaps itself to death."""
        raylet = self.nodes[number]
        every = [raylet, *children(raylet)]
        for process in every:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in every:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)

    def kill_node(self, number: int) -> None:
        """End a node without a word, as a power cut would."""
        os.kill(self.nodes[number], signal.SIGKILL)


def children(parent: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    mine = [int(pid) for file in Path(f"/proc/{parent}/task").glob("*/children") for pid in file.read_text().split()]
    return [*mine, *(grandchild for child in mine for grandchild in children(child))]


@contextmanager
def ray_cluster(nodes: int) -> Iterator[RayCluster]:
    """Start a cluster, and end it."""
    command = [sys.executable, "-m", "tests.lab.ray_cluster", str(nodes)]
    running = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with running:
        if running.stdout is None or running.stdin is None:
            raise RuntimeError("no pipes to the cluster")
        try:
            found = json.loads(running.stdout.readline())
            yield RayCluster(found["address"], tuple(found["nodes"]))
        finally:
            running.stdin.close()
            running.wait(timeout=START_SECONDS)


def main() -> None:
    # a short path: sockets lie in it, whose names have little room
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        serve(folder, int(sys.argv[1]))


def serve(folder: str, nodes: int) -> None:
    from ray.cluster_utils import Cluster

    # addresses of their own: on 127.0.0.1 all nodes would be one
    head = {"num_cpus": 0, "include_dashboard": False, "node_ip_address": "127.0.0.20", "temp_dir": folder}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        started = [cluster.add_node(num_cpus=1, node_ip_address=f"127.0.0.{21 + number}") for number in range(nodes)]
        processes = [node.all_processes["raylet"][0].process.pid for node in started]
        print(json.dumps({"address": cluster.address, "nodes": processes}), flush=True)
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
