"""The paper's training: DDPG with its printed parameters.

Actor and critic have hidden layers of 50 and 30, the replay buffer holds 10 000 batches, minibatches have 64, learning
rates are 1e-4 (actor) and 1e-3 (critic), γ is .9 and τ .002; targets look `AHEAD` batches ahead. The paper does not
describe exploration; here it is Gaussian noise on the actor's output. The reward is eq. 11: all gain so far over all
gain before. It divides by zero in the first batch, which is therefore left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from berth.errors import MissingExtra
from berth.families.placement.policies.ordered import OrderedPolicy
from berth.families.placement.policies.printed import HIDDEN, TASK, Actor, directed, state_of
from berth.families.placement.problem import PlacementDecision, PlacementOutcome, PlacementProblem, PlacementSlot
from berth.families.placement.training.episodes import Episode
from berth.families.placement.world import PlacementWorld
from berth.model import Floats
from berth.simulation import simulate

try:
    import torch
except ImportError as error:
    raise MissingExtra("DDPG", "train") from error

__all__ = ["DDPG"]

REPLAY, LOOK, ACTOR_RATE, CRITIC_RATE, GAMMA, TAU = 10_000, 64, 1e-4, 1e-3, 0.9, 2e-3
AHEAD = 3
NOISE = 0.3


def _network(sizes: Sequence[int], last: bool) -> torch.nn.Sequential:
    parts: list[torch.nn.Module] = []
    for a, b in pairwise(sizes):
        parts += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    return torch.nn.Sequential(*(parts if last else parts[:-1]))


class DDPG:
    """Plays batches with a noisy actor and learns from a replay buffer."""

    def __init__(self, problem: PlacementProblem, most: int, direct: bool = False, seed: int = 0) -> None:
        self.problem, self.most, self.direct = problem, most, direct
        servers, resources = problem.instance.capacity.shape
        self.size = most * (resources + TASK) + servers * resources
        torch.manual_seed(seed)
        self.actor, self.actor_target = (_network((self.size, *HIDDEN, most), True) for _ in range(2))
        self.critic, self.critic_target = (_network((self.size + most, *HIDDEN, 1), False) for _ in range(2))
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.critic_target.load_state_dict(self.critic.state_dict())
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), lr=ACTOR_RATE, fused=True)
        self.critic_adam = torch.optim.Adam(self.critic.parameters(), lr=CRITIC_RATE, fused=True)
        self._follow: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = [
            (list(old.parameters()), list(new.parameters()))
            for old, new in ((self.actor_target, self.actor), (self.critic_target, self.critic))
        ]
        # the replay buffer: state, action, reward, the state some batches later
        self.memory = [torch.zeros(REPLAY, width) for width in (self.size, most, 1, self.size)]
        self.kept = 0

    def step(self, episodes: Sequence[Episode], rng: np.random.Generator, rate: float = 1.0) -> float:
        """Play the runs, learning after every batch; return the noisy actor's gain relative to plain greedy."""
        return float(np.mean([self._play(episode, rng) for episode in episodes]))

    def validated(self, episodes: Sequence[Episode]) -> float:
        """Gain of the actor without noise relative to plain greedy."""
        return float(np.mean([self._play(episode, None) for episode in episodes]))

    def _play(self, episode: Episode, rng: np.random.Generator | None) -> float:
        horizon = round(float(episode.tasks.arrival[-1]) / episode.period) + 1 if len(episode.tasks) else 1
        world = PlacementWorld(episode.problem, episode.tasks, horizon, episode.period)
        return simulate(world, _Player(self, episode.problem, rng)).total / episode.plain

    def learn(self, rng: np.random.Generator) -> None:
        """Take one gradient step from the replay buffer: eq. 14 to 16, then update the targets."""
        if self.kept < LOOK:
            return
        picked = torch.from_numpy(rng.integers(min(self.kept, REPLAY), size=LOOK))
        state, action, reward, later = (part[picked] for part in self.memory)
        with torch.no_grad():
            target = reward + GAMMA**AHEAD * self.critic_target(torch.cat([later, self.actor_target(later)], dim=1))
        loss = ((self.critic(torch.cat([state, action], dim=1)) - target) ** 2).mean()
        self.critic_adam.zero_grad()
        loss.backward()
        self.critic_adam.step()
        hope = -self.critic(torch.cat([state, self.actor(state)], dim=1)).mean()
        self.actor_adam.zero_grad()
        hope.backward()
        self.actor_adam.step()
        with torch.no_grad():
            for old, new in self._follow:
                torch._foreach_lerp_(old, new, TAU)

    def remember(self, state: Floats, action: Floats, reward: float, later: Floats) -> None:
        """Keep a transition; the oldest goes when the buffer is full."""
        for part, value in zip(self.memory, (state, action, [reward], later), strict=True):
            part[self.kept % REPLAY] = torch.as_tensor(value, dtype=torch.float32)
        self.kept += 1

    def frozen(self, made: dict[str, Any]) -> Actor:
        """The actor in its form without torch."""
        layers = [part for part in self.actor if isinstance(part, torch.nn.Linear)]
        arrays = (
            (layer.weight.detach().numpy().astype(np.float64), layer.bias.detach().numpy().astype(np.float64))
            for layer in layers
        )
        return Actor(tuple(arrays), self.most, made)

    def act(self, state: Floats) -> Floats:
        """Output of the actor, (most,)."""
        with torch.no_grad():
            numbers: Floats = self.actor(torch.as_tensor(state, dtype=torch.float32)).numpy().astype(np.float64)
        return numbers

    def state(self) -> dict[str, Any]:
        """Weights for JSON; the replay buffer is not saved."""
        nets = {"actor": self.actor, "critic": self.critic, "actor_target": self.actor_target}
        nets["critic_target"] = self.critic_target
        return {name: {key: value.tolist() for key, value in net.state_dict().items()} for name, net in nets.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved state."""
        for name, kept in state.items():
            getattr(self, name).load_state_dict({key: torch.tensor(value) for key, value in kept.items()})


class _Player(OrderedPolicy):
    """Plays one run with the actor; with noise (from `rng`) it stores transitions and learns."""

    def __init__(self, learner: DDPG, problem: PlacementProblem, rng: np.random.Generator | None) -> None:
        super().__init__(problem, waiting="commit-immediate")
        self.learner, self.rng = learner, rng
        self._steps: list[tuple[Floats, Floats, float]] = []
        self._total, self._before = 0.0, 0.0
        self._now: tuple[Floats, Floats] | None = None

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        if not len(slot.ids):
            return PlacementDecision(np.zeros(0, dtype=np.int64))
        state = state_of(self.problem, slot, self.learner.most)
        drawn = self.learner.act(state)
        if self.rng is not None:
            scale = len(self.problem.speed) if self.learner.direct else 1.0
            drawn = drawn + NOISE * scale * self.rng.standard_normal(self.learner.most)
        self._now = state, np.maximum(drawn, 0.0)
        if self.learner.direct:
            return directed(self.problem, slot, self._now[1])
        return super().decide(slot)

    def rank(self, slot: PlacementSlot) -> Floats:
        ranks = np.full(len(slot.ids), -1.0)
        if self._now is not None:
            size = min(len(ranks), self.learner.most)
            ranks[:size] = self._now[1][:size]
        return ranks

    def observe(self, outcome: PlacementOutcome, /) -> None:
        self._total += outcome.reward
        if self._now is None or self.rng is None:
            return
        if self._before > 0.0:
            self._steps.append((*self._now, self._total / self._before))  # eq. 11
        self._before, self._now = self._total, None
        if len(self._steps) > AHEAD:
            state, action, _ = self._steps[-1 - AHEAD]
            reward = sum(GAMMA**k * self._steps[-1 - AHEAD + k][2] for k in range(AHEAD))
            self.learner.remember(state, action, reward, self._steps[-1][0])
        self.learner.learn(self.rng)
