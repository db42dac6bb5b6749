"""Simulated cluster in this process as a site: a test of `check_engine`, and an example of a site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from berth.files.quantities import amounts
from berth.live.core.events import Cancel, Failed, Start
from berth.live.core.jobs import Job, Role, Server
from berth.live.engines import Engine
from berth.live.engines.clock import Clock
from berth.live.engines.simulated.cluster import SimulatedCluster
from berth.live.engines.simulated.engine import SimulatedEngine
from berth.testing.engines.site import Script, Sighting, Site

__all__ = ["SimulatedSite", "WitnessedCluster"]


class WitnessedCluster(SimulatedCluster):
    """Simulated cluster that records what really began."""

    def __init__(self, servers: int) -> None:
        super().__init__([Server(f"n{i}", amounts({"cpu": 4})) for i in range(servers)])
        self.begun: list[Start] = []
        self.undead: set[tuple[str, int, str]] = set()
        """Tasks that run on after their attempt has ended (job, attempt, server): none, unless an engine is broken."""

    def execute(self, command: Start | Cancel, job: Job | None, time: float) -> bool:
        key = command.job, command.attempt
        before = self.started.get(key, 0)
        done = super().execute(command, job, time)
        if isinstance(command, Start) and self.started.get(key, 0) > before:
            self.begun.append(command)
        return done


class SimulatedSite(Site):
    """Eight servers of 4 cpus; `driver` makes the engine under test."""

    short = 0.1
    runs_payload = False

    def __init__(self, driver: type[SimulatedEngine] = SimulatedEngine, patience: float = 20.0) -> None:
        self.name, self.patience = driver.__name__, patience
        self.cluster, self.clock = WitnessedCluster(8), Clock()
        self._driver = driver
        self._open: SimulatedEngine | None = None

    async def engine(self) -> Engine:
        self._open = self._driver(self.cluster, self.clock)
        return self._open

    def job(self, id: str, roles: tuple[Role, ...], script: Script) -> Job:
        if script.fails:  # a simulated job fails halfway
            return Job(id, "contract", roles, work=2 * script.seconds, payload={"command": ["false"]})
        return Job(id, "contract", roles, work=script.seconds)

    async def begun(self) -> Sequence[Sighting]:
        self.cluster._advance(self.clock())
        return [
            Sighting(start.job, start.attempt, place.role, place.server, self._state(start, place.server))
            for start in self.cluster.begun
            for place in start.places
            for _ in range(place.count)
        ]

    def _state(self, start: Start, server: str) -> Literal["runs", "ended", "gone"]:
        known = self.cluster.attempt(start.job, start.attempt)
        if known is None or known.end is None or (start.job, start.attempt, server) in self.cluster.undead:
            return "runs"
        return "gone" if isinstance(known.end, Failed) and known.end.fault != "job" else "ended"

    async def lose(self, server: str) -> None:
        self.cluster.lose(server, self.clock())
        self._wake()

    async def restore(self, server: str) -> None:
        self.cluster.restore(server, self.clock())
        self._wake()

    async def cancel_behind(self, job: str, attempt: int) -> None:
        self.cluster.execute(Cancel(job, attempt), None, self.clock())
        self._wake()

    def _wake(self) -> None:
        """Wake the engine: a cluster changed from outside does not notify it."""
        if self._open is not None:
            self._open.look()
