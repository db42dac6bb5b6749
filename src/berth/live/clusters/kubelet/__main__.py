"""Run the kubelet: `python -m berth.live.clusters.kubelet --kubeconfig FILE --hollow 1000`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from berth.errors import BerthError
from berth.live.clusters.kubelet.logs import serve_logs
from berth.live.clusters.kubelet.nodes import Nodes
from berth.live.clusters.kubelet.pods import Pods
from berth.live.kubernetes_api import connect_with_token

MOST_BEATS = 50
"""Heartbeats per second of all nodes together, where no interval is given."""


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m berth.live.clusters.kubelet", description="Stand for nodes.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="Kubeconfig of a user with a token.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--nodes", type=Path, help="JSON list of nodes: name, cpus, memory in GiB, gpus, labels, taints."
    )
    which.add_argument("--hollow", type=int, help="Register this many nodes whose pods run nothing.")
    parser.add_argument("--idle", action="store_true", help="Pods of --nodes run nothing either.")
    parser.add_argument("--prefix", default="hollow-", help="Beginning of the names of hollow nodes.")
    parser.add_argument("--cpus", type=int, default=4, help="Processors of a hollow node.")
    parser.add_argument("--memory", type=int, default=16, help="Memory of a hollow node, in GiB.")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of a hollow node.")
    parser.add_argument("--directory", type=Path, help="Files of pods. Default: a temporary directory.")
    parser.add_argument("--lost", type=Path, help="Directory with a file for each lost node: `dead` or `partition`.")
    parser.add_argument("--port", type=int, default=0, help="Port of the logs. Default: logs are not served.")
    parser.add_argument("--certificate", type=Path, help="Certificate for the logs.")
    parser.add_argument("--key", type=Path, help="Key of the certificate.")
    parser.add_argument("--heartbeat", type=float, help="Seconds between heartbeats of a node.")
    return parser.parse_args()


async def stand(told: argparse.Namespace, directory: Path) -> None:
    """Stand for the nodes until the process ends."""
    specs = (
        json.loads(told.nodes.read_text(encoding="utf-8"))
        if told.hollow is None
        else [
            {"name": f"{told.prefix}{i + 1}", "cpus": told.cpus, "memory": told.memory, "gpus": told.gpus}
            for i in range(told.hollow)
        ]
    )
    beat = told.heartbeat or max(2.0, len(specs) / MOST_BEATS)
    api = connect_with_token(told.kubeconfig)
    nodes = Nodes(api, specs, told.port, beat, told.lost, directory / "lost.json")
    more = connect_with_token(told.kubeconfig)  # so that heartbeats do not queue behind requests about pods
    pods = Pods(more, nodes, directory / "pods", hollow=told.idle or told.hollow is not None)
    if told.port:
        serve_logs(told.port, told.certificate, told.key, pods.log)
    async with asyncio.TaskGroup() as group:
        for forever in (nodes.look(), nodes.register(), nodes.beat(), nodes.watch(), pods.watch()):
            group.create_task(forever)


def main() -> None:
    """Read the options and run."""
    told = options()
    try:
        if told.directory is None:
            with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
                asyncio.run(stand(told, Path(folder)))
        else:
            told.directory.mkdir(parents=True, exist_ok=True)
            asyncio.run(stand(told, told.directory))
    except KeyboardInterrupt:
        pass
    except BerthError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
