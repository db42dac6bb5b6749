"""One run of the twin: a scheduler, a stream and a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from berth.errors import BerthError, InvalidInput
from berth.files.quantities import MILLI
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Start, Submitted
from berth.live.core.jobs import Job, Server
from berth.live.core.queues import Queues
from berth.live.engines.simulated.cluster import Latency, SimulatedCluster, Truth
from berth.live.simulation import play
from berth.live.twin.knowledge import PARTS, PartDispatcher, tell
from berth.live.twin.plain import PLAIN, OneClassDispatcher, PlainDispatcher
from berth.live.twin.served import ServedQueues, in_log_units
from berth.live.twin.streams import CLASS, Gang, Stream, job_of
from berth.model import Floats, Ints, Resource

if TYPE_CHECKING:
    import polars as pl

__all__ = ["PATIENCE", "Run", "Runner", "run"]

MODES = "told", "alone", *PARTS
PATIENCE = 1e9
"""Seconds until the dispatcher keeps servers for a job: longer than any run."""


@dataclass(frozen=True)
class Runner:
    """A plain scheduler, or berth with a policy, which learns by the label `by` where one is given.

    `mode` is `told` (it knows the true speeds), `unpooled` (it learns each type on each class apart), `unlearned` (it
    learns no speeds), `eager` (no job waits for faster servers), `unmixed` (no gang takes servers of several speeds),
    `alone` (jobs start wherever the policy places them: no waiting for faster servers, nothing learned), or nothing.
    """

    policy: str
    by: str | None = None
    mode: str = ""

    @classmethod
    def parse(cls, text: str) -> Runner:
        """Read `POLICY`, `POLICY by LABEL`, and either with a mode behind it.

        >>> Runner.parse("escb-v by class told")
        Runner(policy='escb-v', by='class', mode='told')
        """
        words, _, mode = text.rpartition(" ")
        if mode not in MODES:
            words, mode = text, ""
        policy, _, by = words.partition(" by ")
        return cls(policy, by or None, mode)

    @property
    def plain(self) -> bool:
        """Whether it stands for a scheduler without berth."""
        return self.policy in PLAIN

    def __str__(self) -> str:
        return self.policy + (f" by {self.by}" if self.by else "") + (f" {self.mode}" if self.mode else "")


@dataclass(frozen=True)
class StreamTruth(Truth):
    """Run times of the gangs of a stream: set by the slowest server of each."""

    gangs: Mapping[str, Gang] = field(default_factory=dict)
    effects: Mapping[str, float] = field(default_factory=dict)

    def seconds(self, job: Job, start: Start, servers: Sequence[Server]) -> float:
        gang, several = self.gangs[job.id], len({server.name for server in servers})
        return max(gang.takes(s.labels[CLASS], several) / self.effects.get(s.name, 1.0) for s in servers)


@dataclass(frozen=True, eq=False)
class Run:
    """Of each gang, in the order of arrival: seconds since the first arrival, its tasks, and its number of servers."""

    seed: int
    runner: str
    arrival: Floats
    began: Floats
    ended: Floats
    tasks: Ints
    servers: Ints
    refused: int = 0
    """Decisions of the policy that the dispatcher refused."""
    wrapped: str = ""
    """The policy in its wrappers."""

    @property
    def turnaround(self) -> Floats:
        """Seconds from arrival to end."""
        return self.ended - self.arrival

    @property
    def wait(self) -> Floats:
        """Seconds from arrival to start."""
        return self.began - self.arrival

    def frame(self) -> pl.DataFrame:
        """A row for each gang."""
        import polars as pl

        columns = ("arrival", "began", "ended", "tasks", "servers")
        same = {"runner": self.runner, "refused": self.refused, "wrapped": self.wrapped}
        return pl.DataFrame({name: getattr(self, name) for name in columns}).with_columns(
            seed=pl.lit(self.seed, pl.Int64), **{name: pl.lit(value) for name, value in same.items()}
        )

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Run:
        """The run that `frame` was made of."""
        columns = {name: frame[name].to_numpy() for name in ("arrival", "began", "ended", "tasks", "servers")}
        wrapped = frame["wrapped"][0] if "wrapped" in frame.columns else ""  # earlier versions did not write it
        return cls(frame["seed"][0], frame["runner"][0], **columns, refused=frame["refused"][0], wrapped=wrapped)


def run(
    stream: Stream,
    runner: Runner,
    seed: int,
    latency: Latency | None = None,
    plain_latency: Latency | None = None,
    patience: float = PATIENCE,
    served: ServedQueues | None = None,
) -> Run:
    """Play the stream of a seed with a scheduler; `plain_latency` is that of plain schedulers.

    With berth, servers are kept for a job that has waited for `patience` seconds, and jobs wait in the queues that are
    `served`; a plain scheduler has one queue.
    """
    gangs = stream.gangs(seed)
    truth = StreamTruth(gangs={gang.name: gang for gang in gangs}, effects=stream.effects(seed))
    cluster = SimulatedCluster(stream.servers, truth, plain_latency if runner.plain else latency)
    settings: dict[str, Any] = {"without": runner.mode} if runner.mode in PARTS else {}
    kind: type[Dispatcher] = PartDispatcher if settings else Dispatcher
    if runner.plain or runner.mode == "alone":
        kind = PlainDispatcher if stream.mixes else OneClassDispatcher
    mine = None if runner.plain else served
    queues = Queues(aging=0.0, patience=PATIENCE if runner.plain else patience)
    if mine is not None:
        _refuse(mine, gangs)
        names = sorted({name for server in stream.servers for name in server.capacity})
        units = {name: stream.units.get(name, MILLI) for name in names}
        queues = in_log_units(mine.queues, [Resource(name) for name in names], units)
    dispatcher = kind(runner.policy, seed=seed, queues=queues, learn_by=runner.by, units=stream.units, **settings)
    if runner.mode == "told":
        tell(dispatcher, stream, seed)
    played = play(dispatcher, cluster, [Submitted(gang.arrival, job_of(gang, stream, mine)) for gang in gangs])
    if waiting := [gang.name for gang in gangs if gang.name not in played.ended]:
        raise BerthError(f"{len(waiting)} of {len(gangs)} jobs never end with {runner}, seed {seed}: {waiting[0]}, …")
    ended = [played.ended[gang.name] for gang in gangs]
    return Run(
        seed,
        str(runner),
        np.array([gang.arrival for gang in gangs]),
        np.array([record.started for record in ended], dtype=np.float64),
        np.array([record.ended for record in ended], dtype=np.float64) - cluster.latency.report,
        np.array([gang.tasks for gang in gangs]),
        np.array([len({place.server for place in record.places}) for record in ended]),
        sum(dispatcher.refusals.values()),
        dispatcher.wrapped,
    )


def _refuse(served: ServedQueues, gangs: Sequence[Gang]) -> None:
    """Refuse a stream with a job that the service would not take."""
    for gang in gangs:
        if (why := served.refusal(gang.user, gang.group, gang.kind)) is not None:
            raise InvalidInput("queues that take every job", found=f"job {gang.name}: {why}", key="queues")
