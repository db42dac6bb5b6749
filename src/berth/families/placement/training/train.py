"""Train a policy: steps, validation, early stopping, checkpoints, and result files.

Runs are numbered. Seeds of training, validation and comparison are disjoint: training starts at a million, validation
at two million, comparisons at 0.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from berth.about import VERSION
from berth.errors import InvalidInput, UnknownName
from berth.families.placement.policies.gang_runs import OBJECTIVES, run_gangs
from berth.families.placement.policies.network import Network
from berth.families.placement.policies.ordered import WAITING
from berth.families.placement.problem import PlacementProblem
from berth.families.placement.scenario.settings import PlacementSettings
from berth.families.placement.training.episodes import Build, Episode, Scope, Source, seen_by
from berth.families.placement.training.evolution import Evolution, RuleSearch, mean_gain, rule_gain
from berth.model import Floats
from berth.random import stream
from berth.scenario import load_scenario

__all__ = ["METHODS", "Trained", "TrainingPlan", "train", "train_on"]

METHODS = ("es", "rule", "ddpg", "ddpg-direct")
REMOVED = ("reinforce", "ppo")
TRAINING, VALIDATION = 1_000_000, 2_000_000
PLAIN = "greedy with a queue"
BETTER = 1e-5  # smallest improvement of the validation gain that counts


class Learner(Protocol):
    """A learner that improves step by step and can be saved and resumed."""

    def step(self, episodes: Sequence[Episode], rng: np.random.Generator, rate: float = 1.0) -> float: ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: Mapping[str, Any], /) -> None: ...


@dataclass(frozen=True)
class TrainingPlan:
    """What to train, on what and how.

    A step plays `runs` of every scenario; `digest` distinguishes scenarios of the same name. Every `every` steps the
    learner is validated on `validation` runs of each; after `patience` validations without progress training stops.
    With an `objective` other than the gain the network learns only the order, and all tasks start.
    """

    scenarios: tuple[str, ...]
    digest: str = ""
    method: str = "es"
    steps: int = 200
    runs: int = 4
    pairs: int = 16
    waiting: str = "queue"
    only_order: bool = False
    hidden: int = 12
    looks: int = 0
    objective: str = "gain"
    seed: int = 0
    validation: int = 16
    every: int = 10
    patience: int = 8

    def __post_init__(self) -> None:
        if self.method in REMOVED:
            raise InvalidInput("es, which replaces the removed policy gradients", value=self.method, key="method")
        if self.method not in METHODS:
            raise UnknownName("method", self.method, METHODS)
        for key in ("steps", "runs", "pairs", "hidden", "validation", "every", "patience"):
            if getattr(self, key) < 1:
                raise InvalidInput("a whole number ≥ 1", value=getattr(self, key), key=key)
        if self.waiting not in WAITING:
            raise UnknownName("waiting", self.waiting, WAITING)
        if self.objective not in OBJECTIVES:
            raise UnknownName("objective", self.objective, OBJECTIVES)
        if self.looks < 0:
            raise InvalidInput("a whole number ≥ 0", value=self.looks, key="looks")


@dataclass(frozen=True)
class Trained:
    """Result of training: the policy as `berth compare --policy` takes it, the best validation gain, the curve."""

    policy: str
    gain: float
    steps: int
    history: tuple[tuple[int, float, float, float], ...]
    """Step, mean training gain since the last row, validation gain, seconds; gains relative to `against`."""
    against: str = PLAIN
    """What gains are relative to; for objectives other than the gain, its cost over the network's."""


def _gang_learner(plan: TrainingPlan, workers: int) -> Learner:
    """A learner for gangs, which begins as the rule, or as the shortest task first."""
    other = plan.objective != "gain"
    if plan.method not in ("es", "rule") or plan.waiting != "queue":
        raise InvalidInput(
            "es or rule, with a queue, for gangs, devices, ports, estimates and objectives beside the gain",
            value=plan.method,
            key="method",
        )
    if plan.method == "rule":
        if other:
            raise InvalidInput("gain, the objective of the rule", value=plan.objective, key="objective")
        return RuleSearch()
    rng = stream(plan.seed, "train", "start")
    network = Network.fresh(rng, plan.hidden, plan.looks, True, (0.0, -1.0, 0.0) if other else None)
    return Evolution(network, plan.pairs, rate=0.06, scope=_scope(plan), workers=workers)


def _scope(plan: TrainingPlan) -> Scope:
    return Scope(plan.waiting, plan.only_order, plan.objective)


def _learner(plan: TrainingPlan, validation: Sequence[Episode], workers: int) -> Learner:
    if validation[0].runs is not None:
        return _gang_learner(plan, workers)
    rng = stream(plan.seed, "train", "start")
    if (plan.waiting != "queue" or plan.only_order) and plan.method != "es":
        raise InvalidInput(
            "es: other methods train networks that say everything, with a queue",
            value=plan.method,
            key="method",
        )
    if plan.method == "rule":
        return RuleSearch()
    if plan.method in ("ddpg", "ddpg-direct"):
        from berth.families.placement.training.ddpg import DDPG

        if len(plan.scenarios) > 1:
            raise InvalidInput("one scenario: as printed, an actor fits one cluster", value=plan.scenarios)
        batches = [np.unique(episode.tasks.arrival, return_counts=True)[1].max(initial=1) for episode in validation]
        return DDPG(validation[0].problem, int(1.5 * max(batches)), plan.method == "ddpg-direct", plan.seed)
    return Evolution(Network.fresh(rng, plan.hidden, plan.looks), plan.pairs, scope=_scope(plan), workers=workers)


def train_on(
    plan: TrainingPlan,
    overrides: Mapping[str, Any],
    out: Path,
    progress: Callable[[int, float, float], None] | None = None,
    workers: int = 1,
) -> Trained:
    """Run the plan on its scenarios, by name or file, each with `overrides`."""
    scenarios = [load_scenario(name, overrides) for name in plan.scenarios]
    for name, scenario in zip(plan.scenarios, scenarios, strict=True):
        if not isinstance(scenario.settings, PlacementSettings):
            raise InvalidInput("a scenario of the placement family", value=name, key="scenario")
    told = json.dumps([scenario.dump() for scenario in scenarios], sort_keys=True, default=str)
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    plan = dataclasses.replace(plan, digest=digest)
    return train(plan, [scenario.build for scenario in scenarios], out, progress, workers)


def train(
    plan: TrainingPlan,
    builds: Sequence[Build],
    out: Path,
    progress: Callable[[int, float, float], None] | None = None,
    workers: int = 1,
) -> Trained:
    """Run the plan; `builds` make the worlds of the plan's scenarios.

    `out` gets `checkpoint.json` during training, and at the end `policy.json` (a network), `curve.png` and
    `history.parquet`. A second call with the same plan resumes from the checkpoint, with the same result as an
    uninterrupted run (except for DDPG, whose replay buffer starts empty). `workers` processes share the runs of `es`,
    which changes no number. `progress` is called with step, training gain and best validation gain.
    """
    out.mkdir(parents=True, exist_ok=True)
    gangs = plan.objective != "gain" or any(_sees_gangs(build(VALIDATION).problem) for build in builds)
    source = Source(builds, gangs, plan.objective)
    validation = source.some(VALIDATION, plan.validation)
    if not validation:
        raise InvalidInput("scenarios in which plain greedy earns something", value=plan.scenarios, key="scenarios")
    learner = _learner(plan, validation, workers)
    course = _Course(plan, learner, validation, out / "checkpoint.json")
    course.take_up()
    course.begin()
    try:
        while not course.over:
            began = time.perf_counter()
            first = TRAINING + course.step * plan.runs
            rng = stream(plan.seed, "train", str(course.step))
            rate = 1.0 if course.step < 0.6 * plan.steps else 1.0 / 3.0
            gain = learner.step(source.some(first, plan.runs), rng, rate)
            course.note(gain, time.perf_counter() - began)
            if progress is not None:
                progress(course.step, gain, course.best)
    finally:
        if isinstance(learner, Evolution):
            learner.close()
    return course.finish(out)


def _sees_gangs(problem: PlacementProblem) -> bool:
    """Whether a network for single tasks does not suffice."""
    return bool(problem.beyond_single) or not problem.exact


def seen_of(network: Network, episodes: Sequence[Episode]) -> Floats:
    """Smallest and largest cluster features (2, G) that the network meets in runs; with gangs, of all its numbers."""
    if network.gangs:
        met = np.array([run_gangs(e.problem, e.tasks, network, runs=e.runs, watched=True).bounds for e in episodes])
        return np.stack([met[:, 0].min(axis=0), met[:, 1].max(axis=0)])
    found = np.array([seen_by(episode.problem, episode.tasks, network) for episode in episodes])
    return np.stack([found[:, 0].min(axis=0), found[:, 1].max(axis=0)])


def _validated(learner: Learner, episodes: Sequence[Episode], plan: TrainingPlan) -> float:
    if isinstance(learner, RuleSearch):
        return rule_gain(learner.numbers, episodes)
    if hasattr(learner, "validated"):
        return float(learner.validated(episodes))
    return mean_gain(learner.network, episodes, _scope(plan))  # type: ignore[attr-defined]


class _Course:
    """State of a training, saved to a file that is replaced atomically."""

    def __init__(self, plan: TrainingPlan, learner: Learner, runs: Sequence[Episode], file: Path) -> None:
        self.plan, self.learner, self._runs, self.file = plan, learner, runs, file
        self.step, self.best, self.stale, self.seconds = 0, -np.inf, 0, 0.0
        self.best_state: dict[str, Any] = learner.state()
        self.history: list[tuple[int, float, float, float]] = []
        self._gains: list[float] = []

    @property
    def over(self) -> bool:
        return self.step >= self.plan.steps or self.stale >= self.plan.patience

    def take_up(self) -> None:
        """Resume from the file, or begin."""
        if not self.file.exists():
            return
        try:
            kept = json.loads(self.file.read_text(encoding="utf-8"))
            plan = kept["plan"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput("a checkpoint of berth train", found=str(error), file=str(self.file)) from error
        mine = json.loads(json.dumps(dataclasses.asdict(self.plan)))
        for key, value in mine.items():
            if plan.get(key) != value:
                raise InvalidInput(
                    f"{plan.get(key)!r}, as in the training begun there (or another folder)",
                    value=value,
                    key=key,
                    file=str(self.file),
                )
        self.step, self.best, self.stale = kept["step"], kept["best"], kept["stale"]
        self.seconds, self.history = kept["seconds"], [tuple(row) for row in kept["history"]]
        self.best_state = kept["best_state"]
        self.learner.restore(kept["state"])

    def begin(self) -> None:
        """Validate the network for gangs before training: it begins as the rule, and must not become worse."""
        network = getattr(self.learner, "network", None)
        if not self.step and isinstance(network, Network) and network.gangs:
            self.best = _validated(self.learner, self._runs, self.plan)

    def note(self, gain: float, seconds: float) -> None:
        """Record one step; validate and save from time to time."""
        self.step += 1
        self.seconds += seconds
        self._gains.append(gain)
        if self.step % self.plan.every and not self.over:
            return
        found = _validated(self.learner, self._runs, self.plan)
        self.history.append((self.step, float(np.mean(self._gains)), found, self.seconds))
        self._gains = []
        if found > self.best + BETTER:
            self.best, self.stale, self.best_state = found, 0, self.learner.state()
        else:
            self.stale += 1
        self._write()

    def _write(self) -> None:
        kept = {
            "berth": VERSION,
            "plan": dataclasses.asdict(self.plan),
            "step": self.step,
            "best": self.best,
            "stale": self.stale,
            "seconds": self.seconds,
            "history": self.history,
            "state": self.learner.state(),
            "best_state": self.best_state,
        }
        part = self.file.with_name(self.file.name + ".part")
        part.write_text(json.dumps(kept), encoding="utf-8")
        part.replace(self.file)

    def finish(self, out: Path) -> Trained:
        """Write the best validated policy, and plot the curve."""
        import polars as pl

        self.learner.restore(self.best_state)
        if isinstance(self.learner, RuleSearch):
            length, beta, price = (round(float(x), 4) for x in self.learner.numbers)
            policy = f"placement-rule:length={length},beta={beta},price={price}"
        elif hasattr(self.learner, "frozen"):
            made = {"berth": VERSION, "plan": dataclasses.asdict(self.plan), "validation_gain": self.best}
            (out / "policy.json").write_text(self.learner.frozen(made).text(), encoding="utf-8")
            name = "drl-direct" if self.plan.method == "ddpg-direct" else "drl-greedy-printed"
            policy = f"{name}:file={out / 'policy.json'}"
        else:
            made = {"berth": VERSION, "plan": dataclasses.asdict(self.plan), "validation_gain": self.best}
            network: Network = self.learner.network  # type: ignore[attr-defined]
            seen = seen_of(network, self._runs)
            Network(network.weights, network.hidden, network.looks, seen, made, network.gangs).save(out / "policy.json")
            policy = f"drl-greedy:file={out / 'policy.json'}"
            if network.gangs:
                policy += ",only_order=true" if self.plan.only_order else ""
            elif self.plan.only_order or self.plan.waiting != "queue":
                policy += f",only_order={str(self.plan.only_order).lower()},waiting={self.plan.waiting}"
        rows = pl.DataFrame(self.history, schema=["step", "training", "validation", "seconds"], orient="row")
        rows.write_parquet(out / "history.parquet")
        against = PLAIN
        if self._runs[0].runs is not None:
            against = "the rule" if self.plan.objective == "gain" else "the shortest task first"
        _draw_curve(self.history, out / "curve.png", against)
        return Trained(policy, self.best, self.step, tuple(self.history), against)


def _draw_curve(history: Sequence[tuple[int, float, float, float]], path: Path, against: str) -> None:
    """Plot gain over another policy, in per cent, against steps: in training and in validation."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    steps = [row[0] for row in history]
    axes.plot(steps, [100.0 * (row[1] - 1.0) for row in history], color="0.6", label="training, all that was tried")
    axes.plot(steps, [100.0 * (row[2] - 1.0) for row in history], marker="o", markersize=3, label="validation")
    axes.axhline(0.0, color="0.8", linewidth=0.8)
    axes.set_xlabel("step")
    axes.set_ylabel(f"gain over {against}, %")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
