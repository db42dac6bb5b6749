"""Streams of training jobs with measured speeds: Gavel's cluster and job mix, Sia's cluster, and jobs of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from berth.files.quantities import MILLI, Amounts
from berth.live.core.jobs import Server
from berth.live.twin.streams import CLASS, Gang, Speeds, server_effects
from berth.random import stream
from berth.traces.throughputs import Throughputs, read_gavel, read_sia

__all__ = ["MeasuredStream", "TrainingTrace", "gavel_stream", "sia_stream"]

SIZES, SHARES = (1, 2, 4, 8), (0.70, 0.10, 0.15, 0.05)
"""Numbers of GPUs, and their shares of Gavel's job mix."""
LONG = 0.2
"""The share of long jobs: 10 ** U(3, 4) minutes on the reference GPU, where others take 10 ** U(1.5, 3)."""


@dataclass(frozen=True)
class MeasuredStream:
    """`jobs` training jobs, `rate` a second, of Gavel's mix: types at random, 1 to 8 GPUs, minutes to days of work.

    `luck` is the spread of the logarithm of a run time, drawn for each gang and model of GPU, and `effect` that of a
    server's own speed. Work is stated in seconds on the reference GPU.
    """

    table: Throughputs
    servers: tuple[Server, ...]
    jobs: int = 1200
    rate: float = 2 / 3600
    luck: float = 0.1
    effect: float = 0.0

    @property
    def mixes(self) -> bool:
        return False

    @property
    def units(self) -> Amounts:
        return {}

    @property
    def demand(self) -> Amounts:
        return {"gpu": MILLI}

    @property
    def speeds(self) -> Speeds:
        return self.table.speed

    def gangs(self, seed: int) -> list[Gang]:
        rng = stream(seed, "measured-speeds")
        models = {server.labels[CLASS] for server in self.servers}
        types = {size: [t for t, gpus in self.table.gpus.items() if gpus == size] for size in SIZES}
        arrival = np.cumsum(rng.exponential(1.0 / self.rate, self.jobs))
        sizes = rng.choice(len(SIZES), self.jobs, p=SHARES)
        gangs = []
        for i in range(self.jobs):
            size = SIZES[sizes[i]]
            type_ = types[size][int(rng.integers(len(types[size])))]
            power = rng.uniform(3.0, 4.0) if rng.random() < LONG else rng.uniform(1.5, 3.0)
            work = 60.0 * 10.0**power
            times = _times(self.table, type_, work, models, self.luck, rng)
            gangs.append(Gang(f"g{i}", type_, size, float(arrival[i] - arrival[0]), work, *times))
        return gangs

    def effects(self, seed: int) -> Mapping[str, float]:
        return server_effects(self.servers, self.effect, seed)


def _times(
    table: Throughputs, type_: str, work: float, models: set[str], spread: float, rng: np.random.Generator
) -> tuple[dict[str, float], dict[str, float]]:
    """Run times of a job on each model of GPU, on one server and on several, with luck of this spread."""
    luck = {model: float(np.exp(spread * rng.standard_normal())) for model in table.models}
    near, far = (
        {model: work / speed * luck[model] for model, speed in table.of(type_, apart).items() if model in models}
        for apart in (False, True)
    )
    return near, far


@dataclass(frozen=True)
class TrainingTrace(MeasuredStream):
    """The jobs of a trace as training jobs with measured speeds: a task is a GPU, a run time that on the reference GPU.

    Traces do not tell what is trained. The seed draws it: any type of the table with as many GPUs, or with the next
    smaller number that the table has.
    """

    trace: tuple[Gang, ...] = ()

    def gangs(self, seed: int) -> list[Gang]:
        rng, gangs = stream(seed, "training-trace"), []
        models = {server.labels[CLASS] for server in self.servers}
        sizes = sorted(set(self.table.gpus.values()))
        types = {size: [t for t, gpus in self.table.gpus.items() if gpus == size] for size in sizes}
        for gang in self.trace:
            there = types[max((size for size in sizes if size <= gang.tasks), default=sizes[0])]
            type_ = there[int(rng.integers(len(there)))]
            near, far = _times(self.table, type_, gang.work, models, self.luck, rng)
            gangs.append(replace(gang, type=type_, seconds=near, spread=far, demand=None))
        return gangs


def _interleaved(counts: Mapping[str, Sequence[int]]) -> tuple[Server, ...]:
    """Servers of several models, one of each in turn, with their numbers of GPUs."""
    most = max(len(gpus) for gpus in counts.values())
    return tuple(
        Server(f"{model}-{i}", {"gpu": gpus[i] * MILLI}, {CLASS: model})
        for i in range(most)
        for model, gpus in counts.items()
        if i < len(gpus)
    )


def gavel_stream(jobs: int = 1200, rate: float = 2 / 3600, luck: float = 0.1, effect: float = 0.0) -> MeasuredStream:
    """Gavel's speeds and job mix on 120 GPUs: five servers of eight K80, P100 and V100 each, in turn.

    >>> stream = gavel_stream(jobs=4)
    >>> [server.name for server in stream.servers[:4]], [gang.type for gang in stream.gangs(0)][:2]
    (['k80-0', 'p100-0', 'v100-0', 'k80-1'], ['Transformer/b256/g1', 'Transformer/b64/g1'])
    """
    return MeasuredStream(
        read_gavel(), _interleaved(dict.fromkeys(("k80", "p100", "v100"), (8,) * 5)), jobs, rate, luck, effect
    )


def sia_stream(
    path: Path, jobs: int = 1200, rate: float = 1 / 3600, luck: float = 0.1, effect: float = 0.0
) -> MeasuredStream:
    """Sia's speeds, read from its table, with Gavel's job mix, on Sia's 64 GPUs of three kinds of machines."""
    servers = _interleaved({"aws": (4,) * 6, "rtx": (8,) * 3, "dgx-ext": (8,) * 2})
    return MeasuredStream(read_sia(path), servers, jobs, rate, luck, effect)
