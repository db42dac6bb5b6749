"""A Slurm in memory for tests of the engine: it takes, refuses and holds jobs as it is told, and runs nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from berth.live.engines import EngineError
from berth.live.engines.slurm.commands import Refused
from berth.live.engines.slurm.parsing import Config, Node, SlurmJob
from berth.live.engines.slurm.partitions import Partition, Reservation
from berth.live.engines.slurm.submission import Submission

__all__ = ["SlurmInMemory"]

OLD = datetime.fromtimestamp(time.time() - 7200.0).isoformat(timespec="seconds")


class SlurmInMemory:
    """Nodes n1 to n4 in the partition `main`; `errors` are raised by the next submissions, one each."""

    def __init__(self, user: str = "") -> None:
        self.user = user
        """The user of submitted jobs."""
        self.errors: list[EngineError] = []
        self.always: EngineError | None = None
        """Raised by each submission."""
        self.there: dict[int, SlurmJob] = {}
        self.submitted: list[str] = []
        self.ended: list[int] = []
        """Jobs that were cancelled."""
        self.released: list[int] = []
        self._last = 100

    def held_job(self, user: str, partition: str = "shared") -> SlurmJob:
        """A job that a user submits to Slurm itself, held for berth."""
        self._last += 1
        submit = time.time() - 10.0
        job = SlurmJob(self._last, frozenset({"PENDING"}), name="theirs", user=user, partition=partition, submit=submit)
        self.there[job.id] = replace(job, reason="JobHeldAdmin", held=True, priority=0, eligible=submit)
        return self.there[job.id]

    async def jobs(self) -> list[SlurmJob]:
        return list(self.there.values())

    async def nodes(self) -> list[Node]:
        return [Node(f"n{i}", frozenset({"IDLE"}), 4, 4096, partitions=("main", "shared")) for i in range(1, 5)]

    async def partitions(self) -> dict[str, Partition]:
        return {"main": Partition("main", True), "shared": Partition("shared")}

    async def reservations(self) -> list[Reservation]:
        return []

    async def config(self) -> Config:
        return Config(OLD, 300.0, True)

    async def lost_steps(self, job: int) -> bool | None:
        return False

    async def skip(self, number: int) -> None:
        pass

    async def submit(self, submission: Submission) -> int:
        self.submitted.append(submission.name)
        if self.errors:
            raise self.errors.pop(0)
        if self.always is not None:
            raise self.always
        self._last += 1
        nodes = tuple(name for component in submission.components for name in component.nodes)
        job = SlurmJob(self._last, frozenset({"RUNNING"}), submission.tag, submission.name, self.user, nodes=nodes)
        self.there[job.id] = replace(job, submit=time.time(), start=time.time())
        return job.id

    async def cancel(self, jobs: Sequence[int]) -> None:
        self.ended.extend(jobs)
        for job in jobs:
            self.there[job] = replace(self.there[job], states=frozenset({"CANCELLED"}), end=time.time())

    async def update(self, job: int, changes: Mapping[str, str]) -> None:
        if job not in self.there:
            raise Refused("scontrol update: Invalid job id specified")
        self.there[job] = replace(self.there[job], comment=changes.get("Comment", self.there[job].comment))

    async def hold(self, job: int) -> None:
        pass

    async def release(self, job: int) -> None:
        self.released.append(job)
        self.there[job] = replace(self.there[job], states=frozenset({"RUNNING"}), reason="", nodes=("n1",))

    async def close(self) -> None:
        pass
