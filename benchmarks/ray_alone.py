"""Ray places gangs by itself: `python -m benchmarks.ray_alone ADDRESS FILE`, for `benchmarks.real_clusters`.

FILE has a line of JSON for each gang: when it comes, its tasks, and the command that each of them runs. A gang is a
placement group (PACK: as few nodes as there are), and its tasks begin when Ray has all of it together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


def task(command: list[str], names: dict[str, str]) -> None:
    """One task, on whatever node Ray has put it."""
    import ray

    name = names[ray.get_runtime_context().get_node_id()]
    subprocess.run(command, env={**os.environ, "BERTH_SERVER": name}, check=True)


def run_gang(command: list[str], tasks: int, names: dict[str, str]) -> None:
    """Wait for the whole gang, run it, and give its places back."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = placement_group([{"CPU": 1}] * tasks, strategy="PACK")
    remote: Any = ray.remote(num_cpus=1, max_retries=0)(task)
    places = [PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i) for i in range(tasks)]
    ray.get([remote.options(scheduling_strategy=place).remote(command, names) for place in places])
    remove_placement_group(group)


def main() -> None:
    """Submit each gang when it comes, and wait until all have ended; the time of the first is printed."""
    import ray

    address, file = sys.argv[1:]
    ray.init(address=address, log_to_driver=False)
    names = {node["NodeID"]: str(node["Labels"]["name"]) for node in ray.nodes() if node["Resources"].get("CPU")}
    gangs = [json.loads(line) for line in Path(file).read_text().splitlines()]
    warm: Any = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(task)  # Ray starts a worker at its first task
    ray.get([warm.remote(["sleep", "1"], names) for _ in range(int(ray.cluster_resources()["CPU"]))])
    print(first := time.time(), flush=True)
    threads = []
    for gang in gangs:
        time.sleep(max(first + gang["arrival"] - time.time(), 0.0))
        threads.append(threading.Thread(target=run_gang, args=(gang["command"], gang["tasks"], names)))
        threads[-1].start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
