"""Speed of training networks: simulated runs a second on one CPU core and, with --device cuda, on a GPU.

`python -m benchmarks.training [--device cuda] [--pairs 16 128 1024] [--scenario drl-scarce …] [--attention 4]`: the
runs of a step of evolution strategies, 8 runs of 20 batches under 2 × pairs networks, on one core and on the device.
Times on the device include the transfers. The core plays the first 64 networks; the table says in how many of its runs
the device has the same gain to the last bit.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.families.placement.cuda.runs import CudaRuns
from berth.families.placement.policies.network import Network
from berth.families.placement.training.episodes import Episode, Source, run_network
from berth.random import stream
from berth.scenario import load_scenario

RUNS = 8
SAMPLE = 64
CASES = [("drl-scarce", 0), ("drl-scarce", 4), ("drl-default", 0), ("drl-thousand", 0)]  # scenario, size of keys


def on_core(networks: list[Network], episodes: list[Episode]) -> tuple[np.ndarray, float]:
    """Gains, (networks, episodes), and runs a second."""
    began = time.perf_counter()
    gains = np.array([[run_network(e.problem, e.tasks, network).gain for e in episodes] for network in networks])
    return gains, gains.size / (time.perf_counter() - began)


def on_device(networks: list[Network], episodes: list[Episode], device: str) -> tuple[np.ndarray, float]:
    """Gains, (networks, episodes), and runs a second: the median of three."""
    times = []
    for _ in range(4):  # the first compiles
        began = time.perf_counter()
        gains = CudaRuns([(e.problem, e.tasks) for e in episodes], device).gains(networks)
        times.append(time.perf_counter() - began)
    return gains, gains.size / float(np.median(times[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--scenario", nargs="+", help="default: three scenarios, one of them with attention too")
    parser.add_argument("--attention", type=int, default=0, help="size of keys and queries, with --scenario")
    parser.add_argument("--horizon", type=int, default=20)
    parser.add_argument("--pairs", type=int, nargs="+", default=[16])
    arguments = parser.parse_args()
    cases = CASES if arguments.scenario is None else [(name, arguments.attention) for name in arguments.scenario]
    table = Table("scenario", "servers", "tasks", "runs side by side", "one core, runs/s", title=arguments.device)
    if arguments.device != "cpu":
        for column in (f"{arguments.device}, runs/s", "ratio", "equal gains"):
            table.add_column(column)
    for name, looks in cases:
        episodes = Source([load_scenario(name, {"horizon": arguments.horizon}).build]).some(0, RUNS)
        tasks = float(np.mean([len(episode.tasks) for episode in episodes]))
        fresh, rng = Network.fresh(stream(0, "network"), looks=looks), stream(0, "changes")
        on_core([fresh], episodes)  # compiles
        for pairs in arguments.pairs:
            changes = rng.standard_normal((2 * pairs, fresh.weights.size))
            networks = [fresh.replace(fresh.weights + 0.1 * change) for change in changes]
            expected, plain = on_core(networks[:SAMPLE], episodes)
            row = [f"{name}, attention" if looks else name, f"{len(episodes[0].problem.speed):,}", f"{tasks:,.0f}"]
            row += [f"{len(networks) * len(episodes):,}", f"{plain:,.0f}"]
            if arguments.device != "cpu":
                found, fast = on_device(networks, episodes, arguments.device)
                same = int((found[: len(expected)] == expected).sum())
                row += [f"{fast:,.0f}", f"{fast / plain:.1f}", f"{same:,} of {expected.size:,}"]
            table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
