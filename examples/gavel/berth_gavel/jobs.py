"""Measured speeds of training jobs, streams of such jobs, and a simulated cluster on which they run at these speeds."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TextIO

import numpy as np

from berth import InvalidInput
from berth.files.quantities import amounts
from berth.live.simulation import Job, Role, Server, Start, Truth
from berth.model import Floats

__all__ = ["MODEL", "MODELS", "GavelJob", "GavelTruth", "read_jobs", "read_speeds", "servers"]

MODEL, MODELS = "gpu", ("v100", "p100", "k80")
"""The label of a server that says its model of GPU, and the models, in the order in which Gavel fills them."""
Speeds = Mapping[tuple[str, int], Floats]
"""Steps a second (m,) by type and number of GPUs."""


@dataclass(frozen=True)
class GavelJob:
    """A job of a stream, and the seconds until its completion under Gavel's policies, where it was completed."""

    number: int
    arrival: float
    type: str
    gpus: int
    steps: float
    completion: Mapping[str, float]

    @property
    def name(self) -> str:
        return f"j{self.number}"

    def job(self, speeds: Speeds) -> Job:
        """The job that is submitted; its work is how long it takes on a V100, or else on the fastest model."""
        row = speeds[self.type, self.gpus]
        return Job(
            self.name,
            self.type,
            (Role("worker", self.gpus, amounts({"gpu": 1})),),
            work=self.steps / (row[0] if row[0] > 0 else row.max()),
        )


@dataclass(frozen=True)
class GavelTruth(Truth):
    """Jobs run at the measured speed of the slowest model that they have; spreading a job costs nothing."""

    speeds: Speeds = field(default_factory=dict)
    steps: Mapping[str, float] = field(default_factory=dict)

    def seconds(self, job: Job, start: Start, servers: Sequence[Server]) -> float:
        row = self.speeds[job.type, job.roles[0].count]
        return float(self.steps[job.id] / min(row[MODELS.index(server.labels[MODEL])] for server in servers))


def servers(gpus: int = 36, each: int = 36) -> tuple[Server, ...]:
    """Servers of `each` GPUs, as many that there are `gpus` of each model."""
    if gpus % each:
        raise InvalidInput(f"a divisor of {gpus}", value=each, key="each")
    return tuple(
        Server(f"{model}-{i}", amounts({"gpu": each}), {MODEL: model}) for model in MODELS for i in range(gpus // each)
    )


def _type(model: str, batch: str) -> str:
    return f"{model}/{batch}" if batch else model


@cache
def read_speeds(path: str) -> Speeds:
    """The speeds of gangs on as few servers as possible, from a file with the columns of Gavel's table."""
    speeds: dict[tuple[str, int], Floats] = {}
    for row in _rows(Path(path)):
        if row["consolidated"] == "1":
            key = _type(row["model"], row["batch_size"]), int(row["gpus"])
            speeds.setdefault(key, np.zeros(len(MODELS)))[MODELS.index(row["gpu_model"])] = row["steps_per_second"]
    return speeds


def read_jobs(path: Path) -> list[GavelJob]:
    """A stream: columns job, arrival_s, type, gpus, steps, and jct_POLICY_s for each policy that Gavel played."""
    return list(_jobs(path))


def _jobs(path: Path) -> Iterator[GavelJob]:
    for row in _rows(path):
        found = re.fullmatch(r"([^ ]+)(?: \(batch size (\d+)\))?", row["type"])
        if found is None:
            raise InvalidInput("MODEL or MODEL (batch size N)", value=row["type"], key="type", file=str(path))
        ends = {name[4:-2]: float(value) for name, value in row.items() if name.startswith("jct_") and value}
        type_ = _type(found[1], found[2] or "")
        yield GavelJob(int(row["job"]), float(row["arrival_s"]), type_, int(row["gpus"]), float(row["steps"]), ends)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with _opened(path) as file:
        yield from csv.DictReader(file)


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")
