"""How fast networks are trained: runs a second of evolution strategies, on the CPU and, with --device cuda, on a GPU.

`python -m benchmarks.training [--device cuda] [--scenario drl-scarce] [--pairs 16 128 512]`: one step of training on
runs of about 400 tasks, on the CPU (one process) and on the device, the same networks and runs side by side.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.families.placement.policies.network import Network
from berth.families.placement.training.episodes import Source
from berth.families.placement.training.evolution import mean_gain
from berth.random import stream
from berth.scenario import load_scenario

RUNS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--scenario", default="drl-scarce")
    parser.add_argument("--horizon", type=int, default=20)
    parser.add_argument("--pairs", type=int, nargs="+", default=[16])
    arguments = parser.parse_args()
    scenario = load_scenario(arguments.scenario, {"horizon": arguments.horizon})
    episodes = Source([scenario.build]).some(0, RUNS)
    tasks = float(np.mean([len(episode.tasks) for episode in episodes]))
    fresh, rng = Network.fresh(stream(0, "network")), stream(0, "changes")
    mean_gain(fresh, episodes)  # compiles
    table = Table("networks × runs", "CPU runs/s", f"{arguments.device} runs/s", "ratio", "largest difference")
    for pairs in arguments.pairs:
        changed = [
            fresh.replace(fresh.weights + 0.1 * rng.standard_normal(fresh.weights.size)) for _ in range(2 * pairs)
        ]
        sample = changed[: min(len(changed), 64)]
        began = time.perf_counter()
        expected = np.array([mean_gain(network, episodes) for network in sample])
        plain = len(sample) * RUNS / (time.perf_counter() - began)
        speed, difference, ratio = "–", "–", "–"
        if arguments.device != "cpu":
            from berth.families.placement.training.batched import BatchedRuns

            BatchedRuns(episodes, arguments.device).gains(changed)
            began = time.perf_counter()
            found = BatchedRuns(episodes, arguments.device).gains(changed).mean(axis=1)
            fast = len(changed) * RUNS / (time.perf_counter() - began)
            speed, ratio = f"{fast:,.0f}", f"{fast / plain:.1f}"
            difference = f"{np.abs(found[: len(sample)] - expected).max():.1e}"
        table.add_row(f"{len(changed)} × {RUNS}", f"{plain:,.0f}", speed, ratio, difference)
    table.title = f"{arguments.scenario}, {tasks:.0f} tasks a run"
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
