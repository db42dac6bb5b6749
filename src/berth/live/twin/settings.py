"""Rehearsal files: a cluster, a stream, schedulers and latencies as people write them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from berth.errors import BerthError, InvalidInput
from berth.files.quantities import UNITS, amounts
from berth.files.wording import NAME, Amounts, Mistake, Part, by, checked, first_of, said
from berth.files.yaml_tree import Tree, read_file
from berth.live.core.drivers import make_driver
from berth.live.core.jobs import Server
from berth.live.core.specs import Duration
from berth.live.engines.simulated.cluster import Latency
from berth.live.engines.simulated.engine import ServerEntry, doubled
from berth.live.twin.plain import PLAIN
from berth.live.twin.rehearse import Rehearsal
from berth.live.twin.runs import Runner
from berth.live.twin.streams import CLASS, ClassStream, Stream

__all__ = ["RehearsalFile", "read_rehearsal"]

Seed = Annotated[int, Field(ge=0)]
Spread = Annotated[float, Field(ge=0, le=3)]
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

    types: Annotated[
        dict[Annotated[str, Field(pattern=NAME)], dict[str, Annotated[float, Field(gt=0)]]], Field(min_length=1)
    ] = Field(description="speeds by type of job and class of server; a job cannot run on a class that is missing")
    jobs: Annotated[int, Field(ge=1, le=1_000_000)] = 110
    rate: Annotated[float, by(_rate, str)] = Field(description="arrivals, such as 1.05/s or 3/h (Poisson)")
    work: Annotated[Duration, Field(description="mean work of a job: its run time at speed 1")]
    tasks: Annotated[list[Annotated[int, Field(ge=1, le=100_000)]], Field(min_length=1)] = Field(
        [1, 2, 3, 4], description="sizes of gangs, each as likely as the others"
    )
    resources: Amounts = Field({"cpu": 1}, description="what a task takes of its server")
    luck: Spread = Field(0.15, description="spread of the logarithm of run times")
    server_spread: Spread = Field(0.0, description="spread of the logarithm of servers' own speeds")


class RehearsalFile(Part):
    """What a rehearsal file says."""

    servers: Annotated[list[ServerEntry], Field(min_length=1)] = Field(description="as in a cluster file")
    class_label: str = Field(CLASS, description="the label of a server that tells its class")
    stream: StreamEntry
    policies: Annotated[list[str], Field(min_length=1)] = Field(
        description=f"`POLICY` or `POLICY by LABEL`, or a plain scheduler: {', '.join(PLAIN)}"
    )
    plain: str = Field("slurm", description="the scheduler that the others are compared with")
    told: str | None = Field(None, description="the policy that is told the speeds; default: the last of `policies`")
    latency: LatencyEntry = Field(default_factory=LatencyEntry, description="of the engine under berth")
    plain_latency: LatencyEntry = Field(default_factory=LatencyEntry, description="of a plain scheduler")
    seeds: Annotated[
        Annotated[int, Field(ge=1)] | Annotated[list[Seed], Field(min_length=1)],
        said("how many seeds, or a list of seeds ≥ 0"),
    ] = Field(60, description="a number N for seeds 0 … N−1, or a list of seeds")

    def there(self) -> tuple[Server, ...]:
        """The servers, with their classes as label `CLASS`."""
        servers = [server for entry in self.servers for server in entry.there()]
        return tuple(
            Server(s.name, s.capacity, {**s.labels, CLASS: s.labels.get(self.class_label, "")}, s.speed)
            for s in servers
        )

    def plan(self) -> Rehearsal:
        """What is to be played."""
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
        )

    def changed(self, **changes: object) -> RehearsalFile:
        """The same with other values, checked again."""
        made = self.replace(**changes)
        if mistakes := list(_across(made)):
            raise first_of(mistakes, Tree(None))
        return made

    def played(self) -> dict[str, Any]:
        """All that the numbers of a run depend on, except its scheduler and seed."""
        return self.model_dump(mode="json", exclude={"policies", "plain", "told", "seeds"})

    def _stream(self) -> Stream:
        given = self.stream
        return ClassStream(
            given.jobs,
            given.rate,
            given.work or 0.0,
            self.there(),
            given.types,
            tuple(given.tasks),
            given.luck,
            given.server_spread,
            amounts(given.resources),
        )


def read_rehearsal(path: Path) -> RehearsalFile:
    """A rehearsal file; the first mistake is told with its line."""
    return checked(read_file(path, "rehearsal"), RehearsalFile, _across)


def _across(file: RehearsalFile) -> Iterator[Mistake]:
    yield from doubled(file.servers)
    if not file.stream.work:
        yield Mistake(("stream", "work"), "a duration > 0", file.stream.work)
    classes: dict[str, int] = {}
    for i, entry in enumerate(file.servers):
        name = (entry.labels or {}).get(file.class_label)
        if name is None:
            yield Mistake(
                ("servers", i, "labels"), f"the label {file.class_label}, the class of the server", entry.labels
            )
        else:
            classes[name] = classes.get(name, 0) + len(entry.there()) * _room(entry, file.stream.resources)
    for type_, speeds in file.stream.types.items():
        for name in speeds:
            if name not in classes:
                yield Mistake(("stream", "types", type_, name), f"a class of servers: {', '.join(classes)}", name)
        room, largest = sum(classes.get(name, 0) for name in speeds), max(file.stream.tasks)
        if room < largest:
            yield Mistake(("stream", "tasks"), f"at most {room} tasks, which fit on the classes of {type_}", largest)
    for key, texts in (
        ("policies", file.policies),
        ("plain", [file.plain]),
        ("told", [file.told] if file.told else []),
    ):
        for i, text in enumerate(texts):
            try:
                runner = Runner.parse(text)
                if not runner.plain:
                    make_driver(runner.policy, 0, ())
            except BerthError as error:
                yield Mistake((key, i) if key == "policies" else (key,), str(error), text)


def _room(entry: ServerEntry, demand: Amounts) -> int:
    """How many tasks a server has room for."""
    there, wanted = amounts(entry.capacity), amounts(demand)
    return min((there.get(name, 0) // milli for name, milli in wanted.items() if milli), default=0)
