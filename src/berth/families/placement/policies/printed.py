"""DRL-Greedy as printed, and the paper's direct DRL placement: an actor network over a padded state.

Gaps in the paper are filled as follows. The state is a vector: `most` tasks with demand, work, value, decay and time to
the deadline, zeros if there are fewer, then the free capacity of every server; so an actor fits one cluster. It gives
one number per task. Training is `berth train SCENARIO --method ddpg` (or `ddpg-direct`).

berth ships actors trained on `SHIPPED` scenarios for each of the two policies; `file` takes the scenario's name.
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass, field
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.policies.ordered import OrderedPolicy
from berth.families.placement.problem import (
    REJECT,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
)
from berth.families.placement.usage import earliest_start
from berth.model import Floats

__all__ = ["SHIPPED", "Actor", "DRLDirect", "DRLGreedyPrinted", "actor_named", "state_of"]

FORMAT = "berth printed actor 1"
SHIPPED = ("drl-default", "drl-scarce")
HIDDEN = (50, 30)
TASK = 4  # features of a task besides its demand


def state_of(problem: PlacementProblem, slot: PlacementSlot, most: int) -> Floats:
    """State as in the paper: pending tasks, then free capacities of servers."""
    tasks, size = slot.tasks, min(len(slot.ids), most)
    rows = np.zeros((most, problem.instance.capacity.shape[1] + TASK))
    columns = [tasks.demand, tasks.work[:, None], tasks.value[:, None], tasks.decay[:, None]]
    rows[:size] = np.hstack([*columns, (tasks.deadline - slot.time)[:, None]])[:size]
    return np.concatenate([rows.reshape(-1), slot.free.reshape(-1)])


@dataclass(frozen=True, eq=False)
class Actor:
    """Network of three layers, as arrays (rows out, columns in) and offsets, for `most` tasks."""

    layers: tuple[tuple[Floats, Floats], ...]
    most: int
    made: dict[str, Any] = field(default_factory=dict)

    def __call__(self, state: Floats) -> Floats:
        """One number for each of `most` tasks; never below 0, as printed."""
        x = state
        for weights, offset in self.layers:
            x = np.maximum(weights @ x + offset, 0.0)
        return x

    def text(self) -> str:
        """The actor as JSON: numbers and texts, nothing executable."""
        layers = [{"weights": w.tolist(), "offset": b.tolist()} for w, b in self.layers]
        return json.dumps({"format": FORMAT, "most": self.most, "made": self.made, "layers": layers}) + "\n"

    @classmethod
    def fresh(cls, problem: PlacementProblem, rng: np.random.Generator, most: int = 64) -> Actor:
        """An actor with random weights for this cluster."""
        servers, resources = problem.instance.capacity.shape
        sizes = [most * (resources + TASK) + servers * resources, *HIDDEN, most]
        layers = [(rng.standard_normal((b, a)) / np.sqrt(a), np.zeros(b)) for a, b in pairwise(sizes)]
        return cls(tuple(layers), most)

    @classmethod
    def load(cls, path: Path) -> Actor:
        """Read a file that `text` filled, compressed if it ends in .gz; anything else is refused."""
        try:
            kept = path.read_bytes()
            body = json.loads(gzip.decompress(kept) if path.suffix == ".gz" else kept)
        except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
            raise InvalidInput("an actor in JSON", found=str(error), file=str(path)) from error
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            found = body.get("format") if isinstance(body, dict) else type(body).__name__
            raise InvalidInput(f"format {FORMAT!r}", value=found, key="format", file=str(path))
        try:
            layers = tuple(
                (np.array(layer["weights"], dtype=np.float64), np.array(layer["offset"], dtype=np.float64))
                for layer in body["layers"]
            )
            most = int(body["most"])
            sizes = [(w.shape[1], w.shape[0], len(b)) for w, b in layers]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InvalidInput(
                "layers of weights and offsets", found=str(error), key="layers", file=str(path)
            ) from error
        chained = all(a[1] == b[0] for a, b in pairwise(sizes))
        if not sizes or not chained or any(out != size for _, out, size in sizes) or sizes[-1][1] != most:
            raise InvalidInput("layers that fit each other", value=sizes, key="layers", file=str(path))
        if not all(np.isfinite(w).all() and np.isfinite(b).all() for w, b in layers):
            raise InvalidInput("finite weights", key="layers", file=str(path))
        return cls(layers, most, body.get("made", {}))

    def check(self, problem: PlacementProblem) -> None:
        """Refuse a cluster that it was not made for."""
        servers, resources = problem.instance.capacity.shape
        wanted = self.most * (resources + TASK) + servers * resources
        if self.layers[0][0].shape[1] != wanted:
            raise UnsupportedProblem(
                f"this actor takes {self.layers[0][0].shape[1]} numbers, this cluster has {wanted}: "
                "as printed it fits only the cluster it was trained on"
            )


def actor_named(file: str, method: str) -> Actor:
    """Actor of the file, or the shipped one of the method, `ddpg` or `ddpg-direct`, for this scenario."""
    if file not in SHIPPED:
        return Actor.load(Path(file))
    with resources.as_file(
        resources.files("berth.families.placement.policies") / "networks" / f"{method}-{file}.json.gz"
    ) as path:
        return Actor.load(path)


def _actor(problem: PlacementProblem, file: str, method: str, rng: np.random.Generator) -> Actor:
    """Requested actor; without a file, an untrained one."""
    if not file:
        return Actor.fresh(problem, rng)
    actor = actor_named(file, method)
    actor.check(problem)
    return actor


class DRLGreedyPrinted(OrderedPolicy):
    """The paper's algorithm: the actor's numbers order each batch, then Alg. 3 places it when it arrives.

    Settings: `file`, an actor made by `berth train SCENARIO --method ddpg`, or `drl-default` or `drl-scarce` for a
    shipped one (default: an untrained actor); `waiting` and `forced` as in `greedy`. Tasks beyond the actor's capacity
    come last.
    """

    reference = "Yang & Shen, DRL Enhanced Greedy Optimization for Online Scheduling of Batched Tasks, Alg. 1"

    def __init__(
        self,
        problem: PlacementProblem,
        rng: np.random.Generator,
        *,
        file: str = "",
        waiting: str = "commit-immediate",
        forced: bool = False,
    ) -> None:
        super().__init__(problem, waiting=waiting, forced=forced)
        self.actor = _actor(problem, file, "ddpg", rng)

    def rank(self, slot: PlacementSlot) -> Floats:
        scores = self.actor(state_of(self.problem, slot, self.actor.most))
        ranks = np.full(len(slot.ids), -1.0)
        size = min(len(ranks), self.actor.most)
        ranks[:size] = scores[:size]
        return ranks


class DRLDirect:
    """The paper's DRL baseline: the actor's number for a task, truncated to a whole one, is its server.

    A task without room on that server waits until there is; it is rejected if it can never fit. Settings: `file`, an
    actor made by `berth train SCENARIO --method ddpg-direct`, or `drl-default` or `drl-scarce` for a shipped one;
    default: an untrained actor.
    """

    family = "placement"
    reference = "Yang & Shen, DRL Enhanced Greedy Optimization for Online Scheduling of Batched Tasks, section 7.2, DRL"

    def __init__(self, problem: PlacementProblem, rng: np.random.Generator, *, file: str = "") -> None:
        problem.require_single("drl-direct", exact=True)
        self.problem = problem
        self.actor = _actor(problem, file, "ddpg-direct", rng)

    def decide(self, slot: PlacementSlot, /) -> PlacementDecision:
        scores = self.actor(state_of(self.problem, slot, self.actor.most))
        return directed(self.problem, slot, scores)

    def observe(self, outcome: PlacementOutcome, /) -> None:
        return None  # learns nothing while running


def directed(problem: PlacementProblem, slot: PlacementSlot, scores: Floats) -> PlacementDecision:
    """Place each task on the server that its score names, as soon as that has room."""
    size, servers = len(slot.ids), len(problem.speed)
    chosen, starts = np.full(size, REJECT, dtype=np.int64), np.full(size, slot.time)
    held = slot.berths
    places = {
        r: (held.start[held.server == r], held.end[held.server == r], held.demand[held.server == r])
        for r in np.unique(held.server).tolist()
    }
    capacity = problem.instance.capacity
    for i in range(min(size, len(scores))):
        r = min(int(scores[i]), servers - 1)
        if not slot.up[r]:
            continue
        berths = places.get(r, (np.zeros(0), np.zeros(0), np.zeros((0, capacity.shape[1]))))
        time = slot.tasks.work[i] / problem.speed[r]
        start = earliest_start(slot.time, time, slot.tasks.demand[i], capacity[r], berths)
        if not np.isfinite(start):
            continue
        chosen[i], starts[i] = r, start
        at, until, holds = berths
        demand = np.concatenate([holds, slot.tasks.demand[i : i + 1]])
        places[r] = np.append(at, start), np.append(until, start + time), demand
    return PlacementDecision(chosen, starts)
