"""Speed of training networks: simulated runs a second on one core.

`python -m benchmarks.training [--scenario drl-scarce …] [--attention 4]`: 8 runs of 20 batches under 64 networks near
one start, as in a step of evolution strategies.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.families.placement.policies.network import Network
from berth.families.placement.training.episodes import Episode, Source, run_network
from berth.random import stream
from berth.scenario import load_scenario

RUNS = 8
NETWORKS = 64
CASES = [("drl-scarce", 0), ("drl-scarce", 4), ("drl-default", 0), ("drl-thousand", 0)]  # scenario, size of keys


def runs_a_second(networks: list[Network], episodes: list[Episode]) -> float:
    began = time.process_time()
    for network in networks:
        for episode in episodes:
            run_network(episode.problem, episode.tasks, network)
    return len(networks) * len(episodes) / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scenario", nargs="+", help="default: three scenarios, one of them with attention too")
    parser.add_argument("--attention", type=int, default=0, help="size of keys and queries, with --scenario")
    parser.add_argument("--horizon", type=int, default=20)
    arguments = parser.parse_args()
    cases = CASES if arguments.scenario is None else [(name, arguments.attention) for name in arguments.scenario]
    table = Table("scenario", "servers", "tasks", "runs/s")
    for name, looks in cases:
        episodes = Source([load_scenario(name, {"horizon": arguments.horizon}).build]).some(0, RUNS)
        tasks = float(np.mean([len(episode.tasks) for episode in episodes]))
        fresh, rng = Network.fresh(stream(0, "network"), looks=looks), stream(0, "changes")
        runs_a_second([fresh], episodes)  # compiles
        changes = rng.standard_normal((NETWORKS, fresh.weights.size))
        speed = runs_a_second([fresh.replace(fresh.weights + 0.1 * change) for change in changes], episodes)
        label = f"{name}, attention" if looks else name
        table.add_row(label, f"{len(episodes[0].problem.speed):,}", f"{tasks:,.0f}", f"{speed:,.0f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
