"""Contract of an engine: `check_engine` checks every promise of the protocol."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from berth.errors import BerthError, EngineCheckFailed, UnknownName
from berth.testing.engines.checks import SIDE_BY_SIDE, Check
from berth.testing.engines.checks_alone import ALONE, FIRST
from berth.testing.engines.listener import Listener
from berth.testing.engines.site import Site
from berth.testing.engines.trial import Room, Trial
from berth.testing.subject import Broken, Finding, short

__all__ = ["ENGINE_CHECKS", "EngineResult", "check_engine"]

ENGINE_CHECKS: dict[str, Check] = {**FIRST, **SIDE_BY_SIDE, **ALONE}
"""Every check by name; the docstring of each is the promise."""

NEEDS = {
    "cancelled-behind-our-back": ("cancel_behind",),
    "survives-the-other-side": ("restart",),
    "survives-lost-servers": ("lose", "restore"),
}


@dataclass(frozen=True)
class EngineResult:
    """Result of one check on one engine: passed if it was tried and there are no findings.

    >>> print(EngineResult("starts-once", "ours", (Finding("a gang", "2 began", "1"),)))
    starts-once: on a gang: 2 began; expected 1 (ours)
    >>> print(EngineResult("survives-lost-servers", "ours", not_tried="the site has no lose"))
    survives-lost-servers: not tried: the site has no lose
    """

    check: str
    engine: str
    findings: tuple[Finding, ...] = ()
    not_tried: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the check was tried and every promise was kept."""
        return not self.findings and self.not_tried is None

    def __str__(self) -> str:
        if self.not_tried is not None:
            return f"{self.check}: not tried: {self.not_tried}"
        if self.passed:
            return f"{self.check}: passed"
        first = self.findings[0]
        more = f"; and {len(self.findings) - 1} more" if len(self.findings) > 1 else ""
        return f"{self.check}: on {first.instance}: {first.seen}; expected {first.expected}{more} ({self.engine})"


def check_engine(site: Site, *, skip: Collection[str] = ()) -> list[EngineResult]:
    """Run every check on an engine; raise `EngineCheckFailed`, an `AssertionError` with a line for each failure.

    `site` is a small class by the engine's author (`berth.testing.engines.site.Site`): it makes drivers of one cluster
    and jobs that really run there, and reports what really began. Its optional abilities, such as taking a server away,
    decide which checks are tried; the others are reported as not tried. `skip` names checks to leave out. Checks run
    concurrently unless they disturb each other, with jobs of a few seconds (`Site.short`). One test is enough:

    ```python
    class OurSite(Site):
        def __init__(self, folder):
            self.ledger = Ledger(folder)                # tasks write down that they began

        async def engine(self):
            return OurEngine("localhost:1234")

        def job(self, id, roles, script):
            return self.ledger.job(id, roles, script)   # payload: {"command": [...], "environment": {...}}

        async def begun(self):
            return self.ledger.begun()

    def test_engine_keeps_its_promises(tmp_path):
        for result in check_engine(OurSite(tmp_path)):
            print(result)
    ```

    >>> from berth.testing import SimulatedSite
    >>> [str(result) for result in check_engine(SimulatedSite(), skip=list(ENGINE_CHECKS)[1:])]
    ['lists-its-servers: passed']
    """
    for name in skip:
        if name not in ENGINE_CHECKS:
            raise UnknownName("check", name, ENGINE_CHECKS)
    engine = site.name or type(site).__name__
    results = asyncio.run(_Suite(site, engine, skip).run())
    failed = [result for result in results if result.findings]
    if failed:
        tried = sum(result.not_tried is None for result in results)
        said = "\n".join(str(result) for result in results if not result.passed)
        raise EngineCheckFailed(f"{engine} broke {len(failed)} of {tried} promises:\n{said}", results)
    return results


def _missing(site: Site, name: str) -> str | None:
    """Reason why a check cannot be tried, or None."""
    if lacking := site.lacks(*NEEDS.get(name, ())):
        return f"the site has no {' and no '.join(lacking)}"
    if name == "payload-is-data" and not site.runs_payload:
        return "payloads do not run there"
    if name in ("goes-on-with-a-new-driver", "leaves-jobs-running") and not site.another_process:
        return "jobs end with the driver there"
    return None


class _Suite:
    """All checks on one site."""

    def __init__(self, site: Site, engine: str, skip: Collection[str]) -> None:
        self._site, self._engine = site, engine
        self._names = [name for name in ENGINE_CHECKS if name not in skip]
        self._missing = {name: why for name in self._names if (why := _missing(site, name))}
        self._driver = Listener(site.engine, site.patience)
        self._tag = f"t{uuid.uuid4().hex[:8]}"
        self._trials: dict[str, Trial] = {}

    async def run(self) -> list[EngineResult]:
        """Run the checks: those that need the cluster alone, then concurrent ones, then those that disturb others."""
        try:
            room = Room((await self._driver.open()).servers)
            for at_once in (FIRST, SIDE_BY_SIDE):
                await asyncio.gather(*(self._try(name, room) for name in self._tried(at_once)))
            for name in self._tried(ALONE):
                await self._try(name, room)
            await asyncio.sleep(2 * self._site.short)  # to catch tasks that begin late
            for trial in self._trials.values():
                await trial.judge()
        except (Broken, BerthError, TimeoutError, OSError) as error:
            seen = error.seen if isinstance(error, Broken) else short(error)
            return [EngineResult("lists-its-servers", self._engine, (Finding("the first snapshot", seen, "servers"),))]
        finally:
            with suppress(Exception):  # a check tests closing
                await self._driver.close()
        return [self._result(name) for name in self._names]

    def _tried(self, checks: Mapping[str, Check]) -> list[str]:
        return [name for name in checks if name in self._names and name not in self._missing]

    def _result(self, name: str) -> EngineResult:
        trial = self._trials.get(name)
        return EngineResult(name, self._engine, tuple(trial.findings) if trial else (), self._missing.get(name))

    async def _try(self, name: str, room: Room) -> None:
        number = list(ENGINE_CHECKS).index(name)
        trial = self._trials[name] = Trial(self._site, self._driver, room, f"{self._tag}-{number}")
        try:
            await ENGINE_CHECKS[name](trial)
        except Broken as broken:
            trial.found("the cluster", broken)
        except Exception as error:
            trial.found("the cluster", Broken(f"raised {short(error)}", "no error"))
