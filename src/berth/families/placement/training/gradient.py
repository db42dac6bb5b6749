"""Policy gradients for the network that orders tasks: REINFORCE, and PPO's clipped steps.

Orders follow the Plackett–Luce model: Gumbel noise on the ranks, then sorted. The launch factor and the price are drawn
around the network's output. Every run is played sixteen times with different noise; the advantage of one is its gain
above their mean, so no value network is needed.

Axes: M tasks shown, E renewals, F numbers of a task, G of the cluster, H hidden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from berth.errors import BerthError, MissingExtra
from berth.families.placement.kernels.learned_run import Tape
from berth.families.placement.kernels.network import STEEP
from berth.families.placement.policies.network import Network
from berth.families.placement.training.episodes import Episode, run_network, tape_of

try:
    import torch
except ImportError as error:
    raise MissingExtra("training by gradients", "train") from error

__all__ = ["PolicyGradient"]

HEAD_WIDTH = 0.1  # standard deviation of drawn launch factors and prices, in logarithms
ROLLOUTS = 16
CLIP = 0.2


class Shown(NamedTuple):
    """Tapes of many runs in one: tasks (E, n, F) padded, their mask (E, n), and the advantage of each renewal (E,)."""

    features: torch.Tensor
    there: torch.Tensor
    cluster: torch.Tensor
    head_noise: torch.Tensor
    credit: torch.Tensor


def _joined(tapes: Sequence[Tape], credits: Sequence[float], device: str) -> Shown:
    """Join the tapes, in the order of placement."""
    sizes = np.concatenate([np.diff(tape.start[: tape.counts[0] + 1]) for tape in tapes])
    cluster = np.concatenate([tape.cluster[: tape.counts[0]] for tape in tapes])
    noise = np.concatenate([tape.head_noise[: tape.counts[0]] for tape in tapes])
    credit = np.concatenate([np.full(tape.counts[0], c) for tape, c in zip(tapes, credits, strict=True)])
    rows = np.concatenate([tape.features[: tape.start[tape.counts[0]]] for tape in tapes])
    there = np.arange(sizes.max())[None] < sizes[:, None]
    features = np.zeros((*there.shape, rows.shape[1]))
    features[there] = rows
    parts = (features, there, cluster, noise, credit)
    return Shown(
        *(torch.as_tensor(p, dtype=torch.bool if p.dtype == bool else torch.float32).to(device) for p in parts)
    )


def _check_device(device: str) -> None:
    """Refuse a device that torch does not know or that is missing."""
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise BerthError(f"unknown device {device!r}: cpu, or cuda for a GPU") from error
    if kind not in ("cpu", "cuda"):
        raise BerthError(f"unknown device {device!r}: cpu, or cuda for a GPU")
    if kind == "cuda" and not torch.cuda.is_available():
        raise BerthError(f"no GPU for device {device!r}; leave it out to train on the CPU")


class PolicyGradient:
    """Plays, then moves the weights towards orders with an advantage over others in the same run."""

    def __init__(
        self,
        network: Network,
        proximal: bool = False,
        rate: float = 0.01,
        rollouts: int = ROLLOUTS,
        device: str = "cpu",
    ) -> None:
        _check_device(device)
        self.network, self.proximal, self.rollouts, self.device = network, proximal, rollouts, device
        self.rate, self.epochs = rate, 4 if proximal else 1
        self._weights = torch.tensor(network.weights, dtype=torch.float32, device=device, requires_grad=True)
        self._adam = torch.optim.Adam([self._weights], lr=rate)

    def step(self, episodes: Sequence[Episode], rng: np.random.Generator, rate: float = 1.0) -> float:
        """Take one step, scaled by `rate`; return the mean gain of all drawn orders."""
        tapes, credits, total = [], [], 0.0
        for episode in episodes:
            drawn = [tape_of(episode.tasks, rng, HEAD_WIDTH) for _ in range(self.rollouts)]
            gains = np.array([run_network(episode.problem, episode.tasks, self.network, t).gain for t in drawn])
            gains /= episode.plain
            total += float(gains.mean()) / len(episodes)
            tapes += drawn
            credits += ((gains - gains.mean()) / (gains.std() + 1e-9)).tolist()
        shown = _joined(tapes, credits, self.device)
        for group in self._adam.param_groups:
            group["lr"] = rate * self.rate
        before = self._likelihood(shown)[0].detach()
        centre = self._likelihood(shown)[1].detach()
        for _ in range(self.epochs):
            self._adam.zero_grad()
            self._loss(shown, before, centre).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_([self._weights], 1.0)
            self._adam.step()
        self.network = self.network.replace(self._weights.detach().cpu().numpy().astype(np.float64))
        return total

    def _loss(self, shown: Shown, before: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
        order, heads = self._likelihood(shown)
        # draws stay fixed; only the network's output for them moves
        strayed = (shown.head_noise + centre - heads) / HEAD_WIDTH
        log_heads = -0.5 * (strayed**2).sum(dim=1)
        if not self.proximal:
            return -(shown.credit * (order + log_heads)).mean()
        old = before - 0.5 * ((shown.head_noise / HEAD_WIDTH) ** 2).sum(dim=1)
        ratio = torch.exp(torch.clamp(order + log_heads - old, -10.0, 10.0))
        kept = torch.clamp(ratio, 1.0 - CLIP, 1.0 + CLIP)
        return -torch.minimum(ratio * shown.credit, kept * shown.credit).mean()

    def _likelihood(self, shown: Shown) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-likelihood of each order (E,), and of launch factor and price (E, 2) before noise."""
        ranks, heads = self.forward(shown.features, shown.there, shown.cluster)
        ranks = ranks.masked_fill(~shown.there, -torch.inf)
        # probability of being next among those that are left
        left = torch.flip(torch.logcumsumexp(torch.flip(ranks, (1,)), dim=1), (1,))
        return torch.where(shown.there, ranks - left, 0.0).sum(dim=1), heads

    def forward(
        self, features: torch.Tensor, there: torch.Tensor, cluster: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Network as in `families.placement.kernels.network.infer`: ranks (E, n), logarithms of the heads (E, 2)."""
        w = self._parts()
        soft = torch.nn.functional.softsign
        hidden = soft(features @ w["task"].T + (cluster @ w["cluster"].T)[:, None] + w["offset"])
        hidden = torch.where(there[..., None], hidden, 0.0)
        pooled = hidden.sum(dim=1) / there.sum(dim=1, keepdim=True)
        heads = torch.cat([pooled, cluster, torch.ones_like(pooled[:, :1])], dim=1) @ w["heads"].T
        others = pooled[:, None]
        if self.network.looks:
            asks, looks = hidden @ w["query"].T, hidden @ w["key"].T
            match = torch.clamp(asks @ looks.transpose(1, 2) / float(np.sqrt(self.network.looks)), -30.0, 30.0)
            match = match.masked_fill(~there[:, None], -torch.inf)
            others = torch.softmax(match, dim=2) @ hidden
        second = soft(hidden @ w["own"].T + others @ w["others"].T + w["offset2"])
        return features @ w["direct"] + second @ w["out"], torch.clamp(heads, -2.0 * STEEP, STEEP)

    def _parts(self) -> dict[str, torch.Tensor]:
        parts, at = {}, 0
        for name, shape in self.network.shapes().items():
            size = int(np.prod(shape))
            parts[name] = self._weights[at : at + size].reshape(shape)
            at += size
        return parts

    def state(self) -> dict[str, Any]:
        """State to resume from, for JSON."""
        moments = self._adam.state.get(self._weights, {})
        kept = {key: value.detach().cpu().tolist() for key, value in moments.items()}
        return {"weights": self._weights.detach().cpu().tolist(), "adam": kept}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a saved state."""
        with torch.no_grad():
            self._weights.copy_(torch.tensor(state["weights"], dtype=torch.float32))
        self.network = self.network.replace(self._weights.detach().cpu().numpy().astype(np.float64))
        if state["adam"]:
            self._adam.state[self._weights] = {
                key: torch.tensor(value, dtype=torch.float32, device="cpu" if key == "step" else self.device)
                for key, value in state["adam"].items()
            }
