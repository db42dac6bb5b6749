"""DDPG as the paper prints it, for the paper's 6,500 episodes, on several seeds: what the actor becomes.

`python -m benchmarks.ddpg --out DIR [--method ddpg-direct] [--scenario drl-scarce] [--episodes 6500] [--seeds 3]`
trains as `berth train` does, about 45 minutes a seed on one core; what is stopped goes on with the same command.
Then it plays the actor before training, the best validated one and the last one on the first runs of the scenario,
which training and validation do not use. It prints their gain against literal greedy (each task in the order of
arrival), the largest output, the share of outputs that are 0 in every state, and in how many different orders an actor
puts the places of a batch: with one order, it does not look at the tasks.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.families.placement.training.ddpg import DDPG
from berth.families.placement.training.episodes import Episode, Source
from berth.families.placement.training.train import TrainingPlan, train_on
from berth.families.placement.world import PlacementWorld
from berth.model import Floats
from berth.registry import make_policy
from berth.scenario import load_scenario
from berth.simulation import simulate
from berth.statistics import studentised

EPISODES, RUNS, PATIENCE = 6_500, 4, 100_000
"""Episodes of a training, and of one of its steps; it never stops early."""


class Watched(DDPG):
    """An actor whose outputs are kept."""

    outputs: list[Floats]

    def act(self, state: Floats) -> Floats:
        drawn = super().act(state)
        self.outputs.append(drawn)
        return drawn


def greedy_gain(episode: Episode) -> float:
    """Gain of literal greedy."""
    horizon = round(float(episode.tasks.arrival[-1]) / episode.period) + 1
    world = PlacementWorld(episode.problem, episode.tasks, horizon, episode.period)
    return float(simulate(world, make_policy("greedy", episode.problem)).total)


def told(actor: Watched, episodes: Sequence[Episode], greedy: Sequence[float]) -> list[str]:
    """What an actor gains, and what its outputs are."""
    actor.outputs = []
    gains = [actor.validated([episode]) * episode.plain for episode in episodes]
    found = studentised(np.stack([gains, greedy], axis=1), lambda means: 100 * (means[..., 0] / means[..., 1] - 1))
    outputs = np.array(actor.outputs)
    orders = {tuple(np.argsort(-row, kind="stable")) for row in outputs}
    assert found is not None
    return [
        f"{found.mean:+.2f} % ± {found.half or 0.0:.2f}",
        f"{outputs.max():.3g}",
        f"{(outputs == 0).all(axis=0).mean():.0%}",
        f"{len(orders)} in {len(outputs)} batches",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the trainings, one for each seed")
    parser.add_argument("--scenario", default="drl-scarce")
    parser.add_argument("--method", choices=("ddpg", "ddpg-direct"), default="ddpg")
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--fresh", type=int, default=30, help="runs on which the actors are compared")
    given = parser.parse_args()
    fresh = Source([load_scenario(given.scenario).build]).some(0, given.fresh)
    greedy = [greedy_gain(episode) for episode in fresh]
    steps = -(-given.episodes // RUNS)
    table = Table("seed", "actor", "after episodes", "gain", "largest output", "always 0", "orders", title=given.method)
    for seed in range(given.seeds):
        out = given.out / f"{given.method}-{seed}"
        plan = TrainingPlan(
            (given.scenario,), method=given.method, steps=steps, runs=RUNS, seed=seed, patience=PATIENCE
        )
        trained = train_on(plan, {}, out, partial(_show, seed, steps))
        kept = json.loads((out / "checkpoint.json").read_text(encoding="utf-8"))
        most = len(list(kept["state"]["actor"].values())[-1])
        actor = Watched(fresh[0].problem, most, given.method == "ddpg-direct", seed)
        table.add_row(str(seed), "first", "0", *told(actor, fresh, greedy))
        best = next(step for step, _, validated, _ in trained.history if validated == kept["best"])
        for name, step, state in (("best", best, kept["best_state"]), ("last", trained.steps, kept["state"])):
            actor.restore(state)
            table.add_row(str(seed), name, f"{RUNS * step:,}", *told(actor, fresh, greedy))
    Console().print(table)


def _show(seed: int, steps: int, step: int, gain: float, best: float) -> None:
    if step % max(steps // 10, 1) == 0:
        print(f"seed {seed}: step {step} of {steps}, {100 * (gain - 1):+.2f} % in training", flush=True)


if __name__ == "__main__":
    main()
