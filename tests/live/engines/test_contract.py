"""`check_engine` passes engines that are sound, catches each that is broken on purpose, and says what was not tried."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from berth.errors import EngineCheckFailed, UnknownName
from berth.live.core.jobs import Job, Role
from berth.live.engines import Engine, EngineError
from berth.live.engines.remote import RemoteEngine
from berth.live.engines.simulated.engine import SimulatedEngine
from berth.testing import ENGINE_CHECKS, EngineResult, Ledger, Script, Sighting, SimulatedSite, Site, check_engine
from tests.live.engines.processes import Processes, ProcessSite
from tests.testing.broken.engines import BROKEN_ENGINES

CASES = [(check, engine) for check, engines in BROKEN_ENGINES.items() for engine in engines]
SEVERAL = {
    "StartsInPart": {"all-or-nothing", "survives-lost-servers"},
    "EndsWithItsDriver": {"leaves-jobs-running", "goes-on-with-a-new-driver"},
}
"""Broken engines whose fault shows in more than one check; each of the others is caught by its own alone."""


def outcome(site: Site, **options: object) -> tuple[dict[str, EngineResult], str]:
    """What each check found, and what is said about it."""
    try:
        results, message = check_engine(site, **options), ""  # type: ignore[arg-type]
    except EngineCheckFailed as error:
        results, message = error.results, str(error)
    return {result.check: result for result in results}, message


def outcome_of_broken(make: Callable[[float], Site], expected: set[str]) -> tuple[set[str], str]:
    """What fails with little patience, as a broken engine lets waits run out; with more, where a busy machine does."""
    for patience in (4.0, 30.0):
        results, message = outcome(make(patience))
        if failed(results) == expected:
            break
    return failed(results), message


def failed(results: dict[str, EngineResult]) -> set[str]:
    return {name for name, result in results.items() if result.findings}


def not_tried(results: dict[str, EngineResult]) -> set[str]:
    return {name for name, result in results.items() if result.not_tried}


class ServerSite(Site):
    """A simulated cluster in a process of its own, which is killed and started again; it logs what really begins."""

    short = 0.2
    runs_payload = False

    def __init__(self, folder: Path, remembers: bool = True) -> None:
        self._socket, self._log, cluster = folder / "s", folder / "log", folder / "cluster.yaml"
        cluster.write_text("servers: [{name: n, count: 6, capacity: {cpu: 4}}]")
        self._command = [sys.executable, "-m", "berth.live.engines.simulated.server", "--socket", str(self._socket)]
        self._command += ["--log", str(self._log), "--cluster", str(cluster)]
        self._command += ["--state", str(folder / "state")] if remembers else []
        self._process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"listening")
        return process

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.communicate()

    async def engine(self) -> Engine:
        return RemoteEngine(self._socket)

    def job(self, id: str, roles: tuple[Role, ...], script: Script) -> Job:
        return Job(id, "contract", roles, work=script.seconds, payload={"command": ["false"] if script.fails else []})

    async def begun(self) -> Sequence[Sighting]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        ends = {(line["job"], line["attempt"]): line["how"] for line in lines if line["what"] == "ended"}
        return [
            Sighting(line["job"], line["attempt"], role, server, self._state(ends.get((line["job"], line["attempt"]))))
            for line in lines
            if line["what"] == "began"
            for server, role, count in line["places"]
            for _ in range(count)
        ]

    def _state(self, how: str | None) -> Literal["runs", "ended", "gone"]:
        return "runs" if how is None else "ended" if how == "finished" else "gone"

    async def restart(self) -> None:
        self.end()
        self._process = self._begin()


@contextmanager
def server(remembers: bool = True) -> Iterator[ServerSite]:
    with tempfile.TemporaryDirectory() as folder:  # a short path: those of sockets are limited
        site = ServerSite(Path(folder), remembers)
        try:
            yield site
        finally:
            site.end()


@contextmanager
def processes(folder: Path, shell: bool = False) -> Iterator[ProcessSite]:
    there = Processes()
    there.shell = shell
    try:
        yield ProcessSite(folder, there)
    finally:
        there.close()
        Ledger(folder).kill()


def test_the_simulated_engine_keeps_every_promise() -> None:
    results, message = outcome(SimulatedSite())
    assert not failed(results), message
    assert not_tried(results) == {"payload-is-data", "survives-the-other-side"}


def test_a_simulated_cluster_in_another_process_keeps_every_promise_also_when_it_is_killed() -> None:
    with server() as site:
        results, message = outcome(site)
    assert not failed(results), message
    assert not_tried(results) == {"payload-is-data", "cancelled-behind-our-back", "survives-lost-servers"}


def test_an_engine_of_real_processes_keeps_every_promise_and_its_tasks_are_the_witness(tmp_path: Path) -> None:
    with processes(tmp_path) as site:
        results, message = outcome(site)
    assert not failed(results), message
    assert not_tried(results) == {"survives-the-other-side", "survives-lost-servers"}


@pytest.mark.parametrize(("check", "engine"), CASES, ids=[engine.__name__ for _, engine in CASES])
def test_broken_engine_is_caught(check: str, engine: type[SimulatedEngine]) -> None:
    expected = SEVERAL.get(engine.__name__, {check})
    found, message = outcome_of_broken(lambda patience: SimulatedSite(engine, patience), expected)
    assert found == expected, message
    line = next(line for line in message.splitlines() if line.startswith(f"{check}: "))
    assert "; expected " in line
    assert line.endswith(f"({engine.__name__})")


def test_a_shell_between_payload_and_task_is_caught(tmp_path: Path) -> None:
    with processes(tmp_path, shell=True) as site:
        site.patience = 4.0
        results, _ = outcome(site, skip=[name for name in ENGINE_CHECKS if name != "payload-is-data"])
    assert failed(results) == {"payload-is-data"}


def test_a_cluster_that_forgets_what_runs_when_it_is_restarted_is_caught() -> None:
    with server(remembers=False) as site:
        site.patience = 4.0
        results, message = outcome(site, skip=[name for name in ENGINE_CHECKS if name != "survives-the-other-side"])
    assert failed(results) == {"survives-the-other-side"}, message


def test_every_check_has_a_broken_engine_and_states_its_promise() -> None:
    assert set(BROKEN_ENGINES) == set(ENGINE_CHECKS) - {"payload-is-data", "survives-the-other-side"}
    for name, check in ENGINE_CHECKS.items():
        assert check.__doc__, name
        assert check.__name__.replace("_", "-") == name


def test_what_was_not_tried_is_not_passed_and_does_not_fail() -> None:
    class Poor(SimulatedSite):
        another_process = False
        lose = Site.lose

    results, message = outcome(Poor(), skip=["cancels"])
    assert not message
    assert "cancels" not in results
    lost = results["survives-lost-servers"]
    assert not lost.passed
    assert str(lost) == "survives-lost-servers: not tried: the site has no lose"
    assert str(results["leaves-jobs-running"]) == "leaves-jobs-running: not tried: jobs end with the driver there"


def test_an_engine_that_cannot_be_reached_and_a_cluster_that_is_too_small() -> None:
    class Gone(SimulatedEngine):
        async def snapshot(self) -> object:  # type: ignore[override]
            raise EngineError("nobody there")

    with pytest.raises(AssertionError, match=r"no snapshot in 0.3 s: EngineError: nobody there"):
        check_engine(SimulatedSite(Gone, patience=0.3))
    small = SimulatedSite()
    for name in list(small.cluster.servers)[2:]:
        del small.cluster.servers[name]
    with pytest.raises(AssertionError, match="expected 3 servers of 2 cpus or more"):
        check_engine(small)
    with pytest.raises(UnknownName, match="unknown check 'cancel'; did you mean 'cancels'"):
        check_engine(small, skip=["cancel"])
