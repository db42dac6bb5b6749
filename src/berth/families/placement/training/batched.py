"""Play thousands of placement runs side by side in torch, for a GPU: the same decisions as
`families.placement.kernels.learned_run`.

Every run has its own clock. In one round each makes one small move: go to its next event, try its next task on all
servers, or give a freed server to the best waiting task.

Axes: B runs, N tasks, R servers, K resources, C networks, W weights, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from berth.errors import MissingExtra, UnsupportedProblem
from berth.families.placement.kernels.greedy import ROOM
from berth.families.placement.kernels.network import STEEP
from berth.families.placement.policies.network import Network
from berth.families.placement.training.episodes import Episode

try:
    import torch
except ImportError as error:
    raise MissingExtra("training with torch", "train") from error

__all__ = ["BatchedRuns"]

NEXT, ASK, REFILL, OVER = 0, 1, 2, 3
FUTURE, WAITING, RUNNING, GONE = 0, 1, 2, 3
LOOK_UP = 64  # rounds between checks whether all runs are over: a check stalls the GPU
RECORDED = 16  # rounds of a recorded launch
FEW = 4096  # runs up to which launches take longer than their work: more of them evaluate networks only where needed
STATE = (
    *("state", "tried", "rank", "end", "server", "free", "running", "on_until", "now", "beta", "price", "gain"),
    *("mode", "focus", "launches", "turn", "batches", "first"),
)


class BatchedRuns:
    """Runs of one cluster under many networks at once."""

    def __init__(self, episodes: Sequence[Episode], device: str = "cpu") -> None:
        first = episodes[0].problem
        for episode in episodes:
            same = all(
                np.array_equal(getattr(episode.problem, name), getattr(first, name))
                for name in ("speed", "launch", "rate", "weight")
            )
            if not same or not np.array_equal(episode.problem.instance.capacity, first.instance.capacity):
                raise UnsupportedProblem("runs side by side need the same servers")
        self.device, self.idle = torch.device(device), first.idle
        self.capacity = self._tensor(first.instance.capacity)
        self.speed, self.launch, self.rate, self.weight = (
            self._tensor(part) for part in (first.speed, first.launch, first.rate, first.weight)
        )
        size = max(len(episode.tasks) for episode in episodes)
        self.plain = self._tensor([episode.plain for episode in episodes])
        self.arrival = self._padded([episode.tasks.arrival for episode in episodes], size, np.inf)
        self.work, self.value, self.decay, self.deadline = (
            self._padded([getattr(episode.tasks, name) for episode in episodes], size, 1.0)
            for name in ("work", "value", "decay", "deadline")
        )
        self.demand = torch.stack(
            [self._padded([e.tasks.demand[:, k] for e in episodes], size, 0.0) for k in range(len(self.weight))], dim=2
        )
        self.heavy = self.demand @ self.weight

    def _tensor(self, values: Any) -> torch.Tensor:
        return torch.as_tensor(np.array(values, dtype=np.float64), device=self.device)

    def _padded(self, rows: Sequence[Any], size: int, fill: float) -> torch.Tensor:
        whole = np.full((len(rows), size), fill)
        for line, row in zip(whole, rows, strict=True):
            line[: len(row)] = row
        return self._tensor(whole)

    def gains(self, networks: Sequence[Network]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Gain of each network in each run relative to plain greedy, (C, runs)."""
        runs = _Runs(self, networks)
        with torch.no_grad():
            several = _recorded(runs) if self.device.type == "cuda" and runs.size <= FEW else runs.several
            while not runs.over():
                for _ in range(LOOK_UP // RECORDED):
                    several()
        earned: np.ndarray[Any, np.dtype[np.float64]] = (
            runs.gain.reshape(len(networks), -1).div(self.plain).cpu().numpy()
        )
        return earned


def _recorded(runs: _Runs) -> Callable[[], None]:
    """Rounds as one launch of a CUDA graph: a round is many small kernels, each shorter than its launch."""
    runs.whole = True
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # loads the kernels
        runs.several()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    kept = {name: getattr(runs, name) for name in STATE}
    with torch.cuda.graph(graph):
        runs.several()
        for name, place in kept.items():
            place.copy_(getattr(runs, name))
    for name, place in kept.items():
        setattr(runs, name, place)
    return graph.replay


class _Runs:
    """State of all runs: run b is episode b mod E under network b div E."""

    whole = False
    """Whether networks are evaluated in all runs, not only where a batch has arrived: then no shape varies."""

    def __init__(self, source: BatchedRuns, networks: Sequence[Network]) -> None:
        self.s = source
        episodes, tasks = source.arrival.shape
        count, servers, device = len(networks), len(source.speed), source.device
        self.size = count * episodes
        (self.arrival, self.work, self.value, self.decay, self.deadline, self.heavy, self.demand) = (
            part.repeat(count, *(1 for _ in part.shape[1:]))
            for part in (
                source.arrival,
                source.work,
                source.value,
                source.decay,
                source.deadline,
                source.heavy,
                source.demand,
            )
        )
        self.looks = networks[0].looks
        self.parts = _weights(networks, device)
        bounds = networks[0].net()
        self.seen = source._tensor([bounds.low, bounds.high])
        self.network = torch.arange(count, device=device).repeat_interleave(episodes)

        def zeros(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        size = self.size
        self.row = torch.arange(size, device=device)
        self.state = zeros(size, tasks, dtype=torch.int64)
        self.tried = zeros(size, tasks, dtype=torch.bool)
        self.rank = zeros(size, tasks)
        self.end = torch.full((size, tasks), torch.inf, dtype=torch.float64, device=device)
        self.server = zeros(size, tasks, dtype=torch.int64)
        self.free = source.capacity.repeat(size, 1, 1)
        self.running = zeros(size, servers, dtype=torch.int64)
        self.on_until = torch.full((size, servers), -torch.inf, dtype=torch.float64, device=device)
        self.now, self.beta, self.price, self.gain = zeros(size), zeros(size), zeros(size), zeros(size)
        self.mode, self.focus = zeros(size, dtype=torch.int64), zeros(size, dtype=torch.int64)
        self.launches, self.turn = zeros(size, dtype=torch.int64), zeros(size, dtype=torch.int64)
        self.batches, self.first = zeros(size), zeros(size)
        self.room = ROOM * (1.0 + source.capacity)

    def over(self) -> bool:
        """Whether every run has ended."""
        return bool((self.mode == OVER).all().item())

    def several(self) -> None:
        """Make some rounds."""
        for _ in range(RECORDED):
            self.round()

    def round(self) -> None:
        """Make one small move of every run."""
        self._go_on(self.mode == NEXT)
        self._ask(self.mode == ASK)
        self._refill(self.mode == REFILL)

    # ------------------------------------------------------------------ events

    def _go_on(self, who: torch.Tensor) -> None:
        """Go to the next event: tasks end, a batch arrives."""
        coming = torch.where(self.state == FUTURE, self.arrival, torch.inf).amin(dim=1)
        now = torch.minimum(coming, self.end.amin(dim=1))
        over = who & torch.isinf(now)
        self.mode = torch.where(over, OVER, self.mode)
        who = who & ~over
        self.now = torch.where(who, now, self.now)
        ended = who[:, None] & (self.end == self.now[:, None])
        count = ended.sum(dim=1)
        gone = torch.zeros_like(self.running).scatter_add_(1, self.server, ended.long())
        back = torch.zeros_like(self.free)
        where = self.server[..., None].expand(-1, -1, back.shape[2])
        back.scatter_add_(1, where, torch.where(ended[..., None], self.demand, 0.0))
        self.running = self.running - gone
        empty = (gone > 0) & (self.running == 0)
        self.free = torch.where(empty[..., None], self.s.capacity, self.free + back)
        self.on_until = torch.where(empty, self.now[:, None] + self.s.idle, self.on_until)
        self.end = torch.where(ended, torch.inf, self.end)
        freed = torch.where(ended, self.server, -1).amax(dim=1)
        new = who[:, None] & (self.state == FUTURE) & (self.arrival == self.now[:, None])
        self.state = torch.where(ended, GONE, torch.where(new, WAITING, self.state))
        late = who[:, None] & (self.state == WAITING) & (self.deadline <= self.now[:, None])
        self.state = torch.where(late, GONE, self.state)
        some = new.any(dim=1)
        alone = who & ~some & (count == 1)
        self.mode = torch.where(who, torch.where(alone, REFILL, ASK), self.mode)
        self.focus = torch.where(alone, freed, self.focus)
        self.launches, self.turn = torch.where(who, 0, self.launches), torch.where(who, 0, self.turn)
        self.tried = self.tried & ~who[:, None]
        self._renew(some)

    def _renew(self, who: torch.Tensor) -> None:
        """Evaluate the networks of runs in which a batch has arrived."""
        rows = self.row if self.whole else who.nonzero()[:, 0]
        if not len(rows):
            return
        s, now, changed = self.s, self.now[rows], who[rows]

        def keep(old: torch.Tensor, new: torch.Tensor) -> None:
            shown = changed if new.dim() == 1 else changed[:, None]
            old[rows] = torch.where(shown, new, old[rows])

        keep(self.first, torch.where(self.batches[rows] == 0, now, self.first[rows]))
        keep(self.batches, self.batches[rows] + 1.0)
        here = self.state[rows] == WAITING
        met = self.arrival[rows] <= now[:, None]
        many = met.sum(dim=1).double()
        heavy, work, value = self.heavy[rows], self.work[rows], self.value[rows]
        means = [torch.where(met, part, 0.0).sum(dim=1) / many for part in (value, work, heavy)]
        mean_value, mean_work, mean_heavy = (part.clamp(min=1e-9) for part in means)
        offered = torch.where(met, heavy * work, 0.0).sum(dim=1)
        full = (s.capacity @ s.weight) * s.speed
        total, swiftest = full.sum().clamp(min=1e-9), s.speed.amax()
        left = ((self.free[rows] @ s.weight) * s.speed).sum(dim=1)
        on = torch.where(now[:, None] <= self.on_until[rows], full, 0.0).sum(dim=1)
        pending = torch.where(here, heavy * work, 0.0).sum(dim=1)
        size = here.sum(dim=1).double()
        fresh = (here & (self.arrival[rows] == now[:, None])).sum(dim=1).double()
        each = (means[2] * means[1]).clamp(min=1e-9)
        holds = (total / s.speed.sum() / mean_heavy).clamp(min=1.0)
        period = torch.where(
            self.batches[rows] > 1, (now - self.first[rows]) / (self.batches[rows] - 1.0), means[1] / swiftest
        )
        cluster = torch.stack(
            [
                left / total,
                on / total,
                _log(1.0 + pending / each) - _log(1.0 + total / each),
                fresh / size.clamp(min=1.0),
                _log(s.launch.mean() / (holds * means[0]).clamp(min=1e-9) * 10.0),
                _log(offered / (period.clamp(min=1e-9) * self.batches[rows] * total)),
            ],
            dim=1,
        )
        cluster = torch.maximum(torch.minimum(cluster, self.seen[1]), self.seen[0])
        time = work / swiftest
        best = self._worth(rows, now[:, None] + time) - s.rate.mean() * heavy * time
        safe = value.clamp(min=1e-9)
        features = torch.stack(
            [
                _log(value / mean_value[:, None]),
                _log(work / mean_work[:, None]),
                _log(heavy / mean_heavy[:, None]),
                (self.decay[rows] * time / safe).clamp(max=STEEP),
                _log((self.deadline[rows] - now[:, None]) / time.clamp(min=1e-9)),
                best.clamp(min=0.0) / safe,
                ((now[:, None] - self.arrival[rows]) / time.clamp(min=1e-9)).clamp(max=STEEP),
            ],
            dim=2,
        )
        features = torch.where(here[..., None], features, 0.0)
        ranks, heads = self._infer(self.network[rows], features, here, cluster)
        unit = means[0] / (means[2] * means[1] / swiftest).clamp(min=1e-9)
        keep(self.rank, ranks)
        keep(self.beta, heads[:, 0])
        keep(self.price, heads[:, 1] * unit)

    def _infer(
        self, which: torch.Tensor, features: torch.Tensor, here: torch.Tensor, cluster: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        w = {name: part[which] for name, part in self.parts.items()}
        soft = torch.nn.functional.softsign
        seen = torch.einsum("bhg,bg->bh", w["cluster"], cluster) + w["offset"]
        hidden = soft(torch.einsum("bhf,bnf->bnh", w["task"], features) + seen[:, None])
        hidden = torch.where(here[..., None], hidden, 0.0)
        pooled = hidden.sum(dim=1) / here.sum(dim=1, keepdim=True).clamp(min=1)
        ones = torch.ones_like(pooled[:, :1])
        heads = torch.einsum("bph,bh->bp", w["heads"], torch.cat([pooled, cluster, ones], dim=1))
        others = pooled[:, None]
        if self.looks:
            asks = torch.einsum("bah,bnh->bna", w["query"], hidden)
            looks = torch.einsum("bah,bnh->bna", w["key"], hidden)
            match = torch.clamp(asks @ looks.transpose(1, 2) / float(np.sqrt(self.looks)), -30.0, 30.0)
            match = match.masked_fill(~here[:, None], -torch.inf)
            others = torch.softmax(match, dim=2) @ hidden
        inside = torch.einsum("bhj,bnj->bnh", w["own"], hidden) + torch.einsum("bhj,bnj->bnh", w["others"], others)
        second = soft(inside + w["offset2"][:, None])
        ranks = torch.einsum("bf,bnf->bn", w["direct"], features) + torch.einsum("bh,bnh->bn", w["out"], second)
        return ranks, torch.exp(torch.clamp(heads, -2.0 * STEEP, STEEP))

    # ------------------------------------------------------------------ placing

    def _worth(self, rows: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        gain = (self.value[rows] - self.decay[rows] * (end - self.arrival[rows])).clamp(min=0.0)
        return torch.where(end > self.deadline[rows], 0.0, gain)

    def _ask(self, who: torch.Tensor) -> None:
        """Try the next task in order on all servers; if none is left to try, end the pass."""
        open_tasks = (self.state == WAITING) & ~self.tried
        has = who & open_tasks.any(dim=1)
        task = torch.where(open_tasks, self.rank, -torch.inf).argmax(dim=1)
        pick = (self.row, task)
        self.tried[pick] = self.tried[pick] | has
        s, now = self.s, self.now[:, None]
        time = self.work[pick][:, None] / s.speed
        end = now + time
        gain = (self.value[pick][:, None] - self.decay[pick][:, None] * (end - self.arrival[pick][:, None])).clamp(
            min=0.0
        )
        gain = torch.where(end > self.deadline[pick][:, None], 0.0, gain)
        score = gain - (s.rate + self.price[:, None]) * self.heavy[pick][:, None] * time
        off = ~(now <= self.on_until)
        score = score - torch.where(off, self.beta[:, None] * s.launch, 0.0)
        fits = (self.demand[pick][:, None] <= self.free + self.room).all(dim=2)
        score = torch.where(fits, score, -torch.inf)
        best = score.amax(dim=1)
        left = torch.floor(self.free[..., 0] + self.room[:, 0])
        left = torch.where(score == best[:, None], left, torch.inf)
        server = left.argmin(dim=1)
        placed = has & (best > 0.0)
        launched = placed & off[self.row, server]
        self._start(placed, task, server, launched)
        self.launches = self.launches + launched
        self.focus = torch.where(launched, server, self.focus)
        done = who & ~has
        again = done & (self.turn == 0) & (self.launches > 1)
        refill = done & (self.turn == 0) & (self.launches == 1)
        self.turn = torch.where(again, 1, self.turn)
        self.tried = self.tried & ~again[:, None]
        after = torch.where(again, ASK, torch.where(refill, REFILL, NEXT))
        self.mode = torch.where(done, after, self.mode)

    def _refill(self, who: torch.Tensor) -> None:
        """Give the free capacity of the current server to the best waiting task; if none fits, go on."""
        s, server = self.s, self.focus
        time = self.work / s.speed[server][:, None]
        end = self.now[:, None] + time
        score = self._worth(self.row, end) - (s.rate[server] + self.price)[:, None] * self.heavy * time
        free = (self.free[self.row, server] + self.room[server])[:, None]
        good = (self.state == WAITING) & (score > 0.0) & (self.demand <= free).all(dim=2)
        has = who & good.any(dim=1)
        task = torch.where(good, self.rank, -torch.inf).argmax(dim=1)
        self._start(has, task, server, torch.zeros_like(has))
        self.mode = torch.where(who & ~has, NEXT, self.mode)

    def _start(self, who: torch.Tensor, task: torch.Tensor, server: torch.Tensor, launched: torch.Tensor) -> None:
        s, pick, place = self.s, (self.row, task), (self.row, server)
        time = self.work[pick] / s.speed[server]
        end = self.now + time
        gain = (self.value[pick] - self.decay[pick] * (end - self.arrival[pick])).clamp(min=0.0)
        gain = torch.where(end > self.deadline[pick], 0.0, gain) - s.rate[server] * self.heavy[pick] * time
        gain = gain - torch.where(launched, s.launch[server], 0.0)
        self.gain = self.gain + torch.where(who, gain, 0.0)
        self.state[pick] = torch.where(who, RUNNING, self.state[pick])
        self.server[pick] = torch.where(who, server, self.server[pick])
        self.end[pick] = torch.where(who, end, self.end[pick])
        self.running[place] = self.running[place] + who.long()
        self.free[place] = self.free[place] - torch.where(who[:, None], self.demand[pick], 0.0)
        self.on_until[place] = torch.where(who, torch.inf, self.on_until[place])


def _log(x: torch.Tensor) -> torch.Tensor:
    return torch.log(x.clamp(min=1e-9)).clamp(-STEEP, STEEP)


def _weights(networks: Sequence[Network], device: torch.device) -> dict[str, torch.Tensor]:
    """The weights of all networks, array by array, (C, …)."""
    lines = torch.as_tensor(np.stack([network.weights for network in networks]), device=device)
    parts, at = {}, 0
    for name, shape in networks[0].shapes().items():
        size = int(np.prod(shape))
        parts[name] = lines[:, at : at + size].reshape(len(networks), *shape)
        at += size
    return parts
