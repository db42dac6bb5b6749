"""The contract of engines on a real cluster, with the tasks themselves as witnesses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from berth.errors import EngineCheckFailed
from berth.live.core.jobs import Job, Role
from berth.testing import ENGINE_CHECKS, EngineResult, Ledger, Script, Sighting, Site, check_engine
from tests.harness.invariants import InvariantBroken
from tests.harness.waiting import DEADLINE

__all__ = ["WitnessedSite", "checked"]


class WitnessedSite(Site):
    """A site whose tasks write into a folder that they began."""

    patience = DEADLINE

    def __init__(self, folder: Path) -> None:
        self.ledger = Ledger(folder)
        self._tasks: dict[str, int] = {}

    def job(self, id: str, roles: tuple[Role, ...], script: Script) -> Job:
        self._tasks[id] = sum(role.count for role in roles)
        return self.ledger.job(id, roles, script)

    async def begun(self) -> Sequence[Sighting]:
        return self.ledger.begun()

    def begun_twice(self) -> list[str]:
        """Attempts of which more tasks began than they have."""
        began = Counter((sight.job, sight.attempt) for sight in self.ledger.begun())
        return [
            f"{count} tasks of attempt {attempt} of {job} began, which has {self._tasks.get(job, 0)}"
            for (job, attempt), count in began.items()
            if count > self._tasks.get(job, 0)
        ]


def checked(site: WitnessedSite, names: Collection[str] = tuple(ENGINE_CHECKS)) -> dict[str, EngineResult]:
    """Run the checks of an engine, or those with these names; the result of each, by its name."""
    try:
        return {result.check: result for result in check_engine(site, skip=ENGINE_CHECKS.keys() - set(names))}
    except EngineCheckFailed as failed:
        if twice := site.begun_twice():
            raise InvariantBroken("; ".join(twice)) from failed
        raise
