"""Rehearsal files: a cluster, a stream, schedulers and latencies as people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr

from berth.errors import BerthError, InvalidInput
from berth.files.quantities import MILLI, UNITS, amounts, format_amounts
from berth.files.wording import Amounts, Mistake, Part, by, checked, first_of, said
from berth.files.yaml_tree import Tree, read_file
from berth.live.core.drivers import make_driver
from berth.live.core.jobs import Server, check_type
from berth.live.core.specs import Duration
from berth.live.engines.simulated.cluster import Latency
from berth.live.engines.simulated.engine import ServerEntry, doubled
from berth.live.twin.measured import TrainingTrace, gavel_stream, sia_stream
from berth.live.twin.plain import PLAIN
from berth.live.twin.rehearse import Rehearsal
from berth.live.twin.runs import PATIENCE, Runner
from berth.live.twin.streams import CLASS, ClassStream, Gang, Stream
from berth.live.twin.traces import OTHERS, TraceStream, fine_units, in_units, trace_gangs
from berth.traces.folder import trace_beside
from berth.traces.throughputs import read_gavel

__all__ = ["RehearsalFile", "read_rehearsal"]

Seed = Annotated[int, Field(ge=0, lt=2**63)]
Spread = Annotated[float, Field(ge=0, le=3)]
Jobs = Annotated[int, Field(ge=1, le=1_000_000)]
Types = Annotated[dict[str, dict[str, Annotated[float, Field(gt=0)]]], Field(min_length=1)]
GPUS = "k80", "p100", "v100"
"""Models of GPUs of Gavel's table."""
RATE = re.compile(r"([0-9.]+)\s*/\s*(s|m|h|d)", re.ASCII)


def _rate(value: object) -> object:
    match = RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[1].count(".") > 1 or not float(match[1]) > 0:
        raise InvalidInput("a rate > 0 with its unit, such as 1.05/s, 40/m or 3/h", value=value)
    return float(match[1]) / UNITS[match[2]]


class LatencyEntry(Part):
    """Seconds of an engine."""

    start: Annotated[Duration, Field(description="from a decision to the start of the job")] = 0.0
    report: Annotated[Duration, Field(description="from the end of a job to the report of it")] = 0.0

    def latency(self) -> Latency:
        return Latency(self.start or 0.0, self.report or 0.0)


class StreamEntry(Part):
    """A stream that is drawn."""

    types: Types = Field(description="speeds by type of job and class; a job cannot run on a class that is missing")
    jobs: Jobs = 110
    rate: Annotated[float, by(_rate, str)] = Field(description="arrivals, such as 1.05/s or 3/h (Poisson)")
    work: Annotated[Duration, Field(description="mean work of a job: its run time at speed 1")]
    tasks: Annotated[list[Annotated[int, Field(ge=1, le=100_000)]], Field(min_length=1)] = Field(
        [1, 2, 3, 4], description="sizes of gangs, each as likely as the others"
    )
    resources: Amounts = Field({"cpu": 1}, description="what a task takes of its server")
    luck: Spread = Field(0.15, description="spread of the logarithm of run times")
    server_spread: Spread = Field(0.0, description="spread of the logarithm of servers' own speeds")


class MeasuredEntry(Part):
    """Training jobs with measured speeds and Gavel's job mix, on the cluster that belongs to the table."""

    table: str = Field("gavel", description="`gavel`, or the file of Sia's table")
    jobs: Jobs = 1200
    rate: Annotated[float, by(_rate, str)] = Field(description="arrivals, such as 2/h (Poisson)")
    luck: Spread = Field(0.1, description="spread of the logarithm of run times")
    server_spread: Spread = Field(0.0, description="spread of the logarithm of servers' own speeds")


class TraceEntry(Part):
    """Jobs of a trace: arrivals, sizes, requests and run times are the trace's, which count as work at speed 1."""

    file: str = Field(
        description="the trace, in any format that berth reads; a relative path starts here, else at BERTH_TRACES"
    )
    types: Types | None = Field(
        None, description=f"speeds by kind of job and class; `{OTHERS}` is for all kinds that are not named"
    )
    measured: Annotated[Literal["gavel"] | None, said("gavel")] = Field(
        None,
        description="`gavel` instead of types: tasks are GPUs, and each job is one of Gavel's training jobs, drawn by "
        "the seed; the classes are k80, p100 and v100",
    )
    jobs: Jobs | None = Field(None, description="only this many, the first of the trace")
    luck: Spread = Field(0.1, description="spread of the logarithm of run times")
    server_spread: Spread = Field(0.0, description="spread of the logarithm of servers' own speeds")


class RehearsalFile(Part):
    """What a rehearsal file says: one of `stream`, `measured` and `trace`, and who is to schedule it."""

    servers: Annotated[list[ServerEntry], Field(min_length=1)] | None = Field(None, description="as in a cluster file")
    class_label: str = Field(CLASS, description="the label of a server that tells its class")
    stream: StreamEntry | None = None
    measured: MeasuredEntry | None = None
    trace: TraceEntry | None = None
    policies: Annotated[list[str], Field(min_length=1)] = Field(
        description=f"`POLICY` or `POLICY by LABEL`, or a plain scheduler: {', '.join(PLAIN)}"
    )
    plain: str = Field("slurm", description="the scheduler that the others are compared with")
    told: str | None = Field(None, description="the policy that is told the speeds; default: the last of `policies`")
    latency: LatencyEntry = Field(default_factory=LatencyEntry, description="of the engine under berth")
    plain_latency: LatencyEntry = Field(default_factory=LatencyEntry, description="of a plain scheduler")
    patience: Annotated[
        Duration, Field(description="berth keeps servers for a job that waits longer; default: never")
    ] = None
    seeds: Annotated[
        Annotated[int, Field(ge=1)] | Annotated[list[Seed], Field(min_length=1)],
        said("how many seeds, or a list of seeds ≥ 0"),
    ] = Field(60, description="a number N for seeds 0 … N−1, or a list of seeds")
    _folder: Path = PrivateAttr(Path())

    def there(self) -> tuple[Server, ...]:
        """The servers, with their classes as label `CLASS`."""
        return tuple(
            Server(s.name, s.capacity, {**s.labels, CLASS: s.labels.get(self.class_label, "")}, s.speed)
            for entry in self.servers or ()
            for s in entry.there()
        )

    def plan(self) -> Rehearsal:
        """What to play."""
        named = [Runner.parse(text) for text in self.policies]
        learner = next((one for one in reversed(named) if not one.plain), None)
        told = Runner.parse(self.told) if self.told else learner
        return Rehearsal(
            self._stream(),
            tuple(named),
            tuple(range(self.seeds)) if isinstance(self.seeds, int) else tuple(self.seeds),
            Runner.parse(self.plain),
            None if told is None else Runner(told.policy, told.by, "told"),
            self.latency.latency(),
            self.plain_latency.latency(),
            self.patience or PATIENCE,
        )

    def changed(self, **changes: object) -> RehearsalFile:
        """The same with other values, checked again."""
        made = self.replace(**changes)
        if mistakes := list(_across(made)):
            raise first_of(mistakes, Tree(None))
        return made

    def on(self, servers: Sequence[Server]) -> RehearsalFile:
        """The same on these servers."""
        entries = [
            ServerEntry(name=s.name, capacity=dict(format_amounts(s.capacity)), labels=dict(s.labels), speed=s.speed)
            for s in servers
        ]
        return self.changed(servers=entries)

    def played(self) -> dict[str, Any]:
        """All that the numbers of a run depend on, except its scheduler and seed."""
        return self.model_dump(mode="json", exclude={"policies", "plain", "told", "seeds"})

    def _stream(self) -> Stream:
        if self.measured is not None:
            asked = self.measured
            rest = asked.jobs, asked.rate, asked.luck, asked.server_spread
            return (
                gavel_stream(*rest)
                if asked.table == "gavel"
                else sia_stream(trace_beside(self._folder, asked.table), *rest)
            )
        if self.trace is not None:
            log = self.trace
            file, servers = trace_beside(self._folder, log.file), self.there()
            units = fine_units(servers)
            gangs = tuple(trace_gangs(file, log.types or {OTHERS: {}}, log.jobs, units))
            if log.types is None:
                shape = len(gangs), 0.0, log.luck, log.server_spread
                gpus = [math.ceil((gang.demand or {}).get("gpu", 0) / units.get("gpu", MILLI)) for gang in gangs]
                each = (replace(gang, tasks=gang.tasks * max(n, 1)) for gang, n in zip(gangs, gpus, strict=True))
                return TrainingTrace(read_gavel(), servers, *shape, tuple(each))
            servers = tuple(in_units(server, units) for server in servers)
            _check_sizes(gangs, servers)
            return TraceStream(gangs, servers, log.types, log.luck, log.server_spread, units=units)
        drawn = self.stream
        assert drawn is not None
        return ClassStream(
            drawn.jobs,
            drawn.rate,
            drawn.work or 0.0,
            self.there(),
            drawn.types,
            tuple(drawn.tasks),
            drawn.luck,
            drawn.server_spread,
            amounts(drawn.resources),
        )


def read_rehearsal(path: Path) -> RehearsalFile:
    """A rehearsal file; the first mistake is told with its line."""
    made = checked(read_file(path, "rehearsal"), RehearsalFile, _across)
    made._folder = path.parent
    return made


def _across(file: RehearsalFile) -> Iterator[Mistake]:
    given = [name for name in ("stream", "measured", "trace") if getattr(file, name) is not None]
    if len(given) != 1:
        yield Mistake((given[-1],) if given else ("stream",), "one of stream, measured and trace", ", ".join(given))
        return
    if (file.measured is None) == (file.servers is None):
        expected = "no servers beside measured, which has its own" if file.servers else f"servers for the {given[0]}"
        yield Mistake(("servers",), expected, None)
    classes = dict.fromkeys(server.labels[CLASS] for server in file.there())
    for i, entry in enumerate(file.servers or ()):
        if file.class_label not in (entry.labels or {}):
            yield Mistake(("servers", i, "labels"), f"the label {file.class_label}, its class", entry.labels)
    yield from doubled(file.servers or ())
    if file.trace is not None and (file.trace.types is None) == (file.trace.measured is None):
        yield Mistake(("trace", "types"), "one of types and measured", file.trace.types)
    if file.trace is not None and file.trace.measured and (rest := [name for name in classes if name not in GPUS]):
        yield Mistake(("trace", "measured"), f"servers of the classes {', '.join(GPUS)}", ", ".join(rest))
    types = (file.stream.types if file.stream else file.trace.types if file.trace else None) or {}
    for type_, speeds in types.items():
        for name in speeds:
            if name not in classes:
                expected = f"a class of servers: {', '.join(classes)}"
                yield Mistake((given[0], "types", type_, name), expected, name)
        try:
            check_type(type_, type_)
        except InvalidInput as error:
            yield Mistake((given[0], "types", type_), error.expected, type_)
    if file.stream is not None:
        yield from _too_large(file.stream, file.there())
    yield from _unknown_policies(file)


def _too_large(stream: StreamEntry, servers: Sequence[Server]) -> Iterator[Mistake]:
    """Jobs that never fit."""
    if not stream.work:
        yield Mistake(("stream", "work"), "a duration > 0", stream.work)
    demand = amounts(stream.resources)
    for type_, speeds in stream.types.items():
        there = [server.capacity for server in servers if server.labels[CLASS] in speeds]
        rooms = [[one.get(name, 0) // milli for name, milli in demand.items() if milli] for one in there]
        room = sum(min(one, default=0) for one in rooms)
        if room < max(stream.tasks):
            expected = f"at most {room} tasks, which fit on the classes of {type_}"
            yield Mistake(("stream", "tasks"), expected, max(stream.tasks))


def _check_sizes(gangs: Sequence[Gang], servers: Sequence[Server]) -> None:
    """Refuse a trace with a task that no server can ever hold."""
    most = {name: max(one.capacity.get(name, 0) for one in servers) for one in servers for name in one.capacity}
    for gang in gangs:
        for name, much in (gang.demand or {}).items():
            if much > most.get(name, 0):
                found = f"more {name} for a task of job {gang.name} than any server has"
                raise InvalidInput("jobs that fit on the servers (memory: 64Gi is 64 GiB)", found=found, key="trace")


def _unknown_policies(file: RehearsalFile) -> Iterator[Mistake]:
    listed = [(("policies", i), text) for i, text in enumerate(file.policies)]
    alone = [((key,), text) for key, text in (("plain", file.plain), ("told", file.told)) if text]
    for key, text in [*listed, *alone]:
        runner = Runner.parse(text)
        try:
            if not runner.plain:
                make_driver(runner.policy, 0, ())
        except BerthError as error:
            yield Mistake(key, f"a policy or a plain scheduler ({', '.join(PLAIN)}): {error}", text)
