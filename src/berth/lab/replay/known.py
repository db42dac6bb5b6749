"""What is known of a log besides its jobs: types, speeds, and the configuration of a service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from berth.errors import InvalidInput
from berth.files.wording import counted
from berth.lab.replay.samples import Sample, Samples
from berth.lab.replay.setting import ReplaySetting
from berth.traces.throughputs import Throughputs
from berth.traces.trace import Trace

if TYPE_CHECKING:  # replays of plain logs do not load the live scheduler
    from berth.lab.replay.cluster_file import ClusterFile
    from berth.lab.replay.live_runs import Service
    from berth.lab.replay.types import TypedJobs
    from berth.live.twin.served import ServedQueues

__all__ = ["Beyond", "Known"]

STOP = ", or --stop: the estimate of a job is then its time limit"


class Known(NamedTuple):
    """What is known of a sample: types and speeds, and what a service adds."""

    typed: TypedJobs | None = None
    service: Service | None = None

    @property
    def live(self) -> bool:
        """Whether every policy is played by the dispatcher: run times or waiting depend on more than the log."""
        return self.service is not None or (self.typed is not None and bool(self.typed.speeds))


@dataclass(frozen=True, eq=False)
class Beyond:
    """The files and rules of a setting, read once for all samples."""

    setting: ReplaySetting
    table: Throughputs | None = None
    cluster: ClusterFile | None = None
    queues: ServedQueues | None = None
    machines: ClusterFile | None = None
    """The file with the servers."""

    @classmethod
    def of(cls, setting: ReplaySetting, machines: str | Path | None = None) -> Beyond:
        """Read what the setting names, and servers of a cluster file that is given as the table of machines."""
        if setting.types is None and setting.speeds is None and setting.cluster is None and machines is None:
            return cls(setting)
        from berth.lab.replay.cluster_file import read_cluster_file
        from berth.lab.replay.types import read_speeds

        table = None if setting.speeds is None else read_speeds(setting.speeds)
        there = None if machines is None else read_cluster_file(machines)
        if there is not None and not there.there():
            raise InvalidInput("a file with servers", found="none", key="servers", file=str(machines))
        if setting.cluster is None:
            return cls(setting, table, machines=there)
        file = read_cluster_file(setting.cluster)
        try:
            return cls(setting, table, file, file.served(setting.stopped, STOP), there or file)
        except InvalidInput as error:
            raise error.at(file=setting.cluster) from None

    @property
    def live(self) -> bool:
        """Whether every policy is played by the dispatcher; machines are then not merged."""
        return self.table is not None or self.cluster is not None

    @property
    def files(self) -> list[str]:
        """The files that were read."""
        named = (self.setting.speeds, self.setting.cluster)
        return [name for name in named if name is not None and name != "gavel"]

    def on_servers(self, trace: Trace) -> Trace:
        """The trace on the servers of the cluster file, if it has any."""
        servers = [] if self.machines is None else self.machines.there()
        if self.machines is None or not servers:
            return trace
        from berth.lab.replay.cluster_file import machines_of

        return trace.replace(machines=machines_of(servers, trace.resources, self.machines.class_label))

    @property
    def policies(self) -> list[str] | None:
        """The policy that the service is configured to run, if any."""
        return None if self.cluster is None or self.cluster.policy is None else [self.cluster.policy]

    def accepted(self, samples: Samples) -> Samples:
        """The samples with the jobs that the service accepts; those that it refuses are counted by reason."""
        if self.queues is None:
            return samples
        found, left_out = list[Sample](), Counter(samples.left_out)
        for sample in samples.samples:
            trace, refused = self.queues.accepted(sample.trace)
            found.append(replace(sample, trace=trace, played=trace))
            left_out.update(refused)
        return replace(samples, samples=found, left_out=left_out)

    def known(self, sample: Sample) -> Known:
        """What is known of a sample."""
        trace, setting = sample.played, self.setting
        if setting.types is None and not self.live:
            return Known()
        from berth.lab.replay.live_runs import Service
        from berth.lab.replay.types import typed_jobs

        typed = typed_jobs(trace, setting.types, self.table, setting.seed, sample.name)
        if self.queues is None or self.cluster is None:
            return Known(typed)
        rows = trace.jobs.select("user", "group", "kind", "estimate_s").rows()
        jobs = [self.queues.submitted(*row) for row in rows]
        return Known(typed, Service(self.queues, jobs, trace.resources, self.cluster.learn_by is not None))

    def notes(self, samples: Sequence[Sample], known: Sequence[Known], live: bool) -> tuple[str, ...]:
        """What was assumed, in words; `live`: a policy of the live scheduler plays."""
        first, one = samples[0], known[0]
        said = [self._types([more.typed for more in known if more.typed is not None])] if one.typed is not None else []
        said += [self._speeds(first, one)] if live or self.live or one.typed is not None else []
        if self.queues is not None:
            said.append(f"queues: those of {self.setting.cluster}; policies decide in the wrappers of the service")
            said.append(self.queues.moved(pl.concat([sample.trace.jobs["kind"] for sample in samples])))
        return tuple(filter(None, said))

    def _types(self, typed: Sequence[TypedJobs]) -> str:
        many = counted(len({type_ for one in typed for type_ in one.types}), "type")
        if typed[0].drawn:
            return f"types: {many}, drawn by seed {self.setting.seed}: the log does not tell what its jobs are"
        return f"types: {many} by {self.setting.types or 'kind'}"

    def _speeds(self, sample: Sample, one: Known) -> str:
        if one.typed is not None and one.typed.speeds:
            values, classes = one.typed.speeds.values(), len({name for _, name, _ in one.typed.speeds})
            told = f"{min(values):.2g} to {max(values):.2g} by type on {counted(classes, 'class')}"
            return f"speeds: {self.setting.speeds}, {told.replace('classs', 'classes')}; no policy is told them"
        if sample.played.machines["speed"].fill_null(1.0).n_unique() > 1:
            return "speeds: those of the machines, which every policy is told; learning speeds gains nothing here"
        return "speeds: all 1, as neither the log nor --speeds tells others; learning speeds gains nothing here"
