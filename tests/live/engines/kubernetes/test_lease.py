"""The rules by which a lease is acquired, renewed, lost and released."""

from __future__ import annotations

import asyncio
import copy
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from berth.errors import InvalidInput
from berth.live.engines import EngineError
from berth.live.engines.kubernetes.lease import Lease, own_identity
from berth.live.kubernetes_api import ClusterRefused, ClusterSilent
from tests.harness.waiting import eventually_async


class Leases:
    """One lease as the API server keeps it: a write must name the current version."""

    def __init__(self) -> None:
        self.object: dict[str, Any] | None = None
        self.failure: Exception | None = None
        self.before_write: Callable[[], None] | None = None
        """Runs once between a read and the write that follows."""
        self._version = 0
        self._lock = threading.RLock()

    def request(self, method: str, path: str, body: Any = None) -> Any:
        if self.failure is not None:
            raise self.failure
        assert path.startswith("/apis/coordination.k8s.io/v1/namespaces/jobs/leases")
        if method == "GET":
            if self.object is None:
                raise ClusterRefused("not found", status=404)
            return copy.deepcopy(self.object)
        hook, self.before_write = self.before_write, None
        if hook is not None:
            hook()
        with self._lock:
            if method == "POST" and self.object is not None:
                raise ClusterRefused("already exists", status=409)
            if method == "PUT" and (
                self.object is None or body["metadata"].get("resourceVersion") != str(self._version)
            ):
                raise ClusterRefused("the object has been modified", status=409)
            self.put(body)
            return copy.deepcopy(self.object)

    def put(self, body: dict[str, Any]) -> None:
        """Write the object without a check."""
        with self._lock:
            self._version += 1
            self.object = copy.deepcopy(body)
            self.object["metadata"]["resourceVersion"] = str(self._version)

    def held_by(self, holder: str) -> None:
        """Let a process hold the lease, or renew it."""
        now = f"2026-01-01T00:00:00.{self._version:06d}Z"
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now, "acquireTime": now}
        self.put({"metadata": {"name": "berth", "namespace": "jobs"}, "spec": spec})

    @property
    def spec(self) -> dict[str, Any]:
        assert self.object is not None
        spec: dict[str, Any] = self.object["spec"]
        return spec


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_first_process_creates_the_lease_and_the_second_is_refused() -> None:
    async def run() -> None:
        api = Leases()
        first, second = Lease(api, "jobs", "berth", "a"), Lease(api, "jobs", "berth", "b")
        assert not first.held
        await first.acquire()
        await first.acquire()
        with pytest.raises(EngineError, match=r"^another berth leads: a$"):
            await second.acquire()
        assert (first.held, second.held) == (True, False)
        first.check()
        with pytest.raises(EngineError, match="does not lead: another berth leads: a"):
            second.check()
        assert api.object is not None
        assert api.object["metadata"]["name"] == "berth"
        assert api.spec["holderIdentity"] == "a"
        assert api.spec["leaseDurationSeconds"] == 15
        assert api.spec["leaseTransitions"] == 0
        for field in ("acquireTime", "renewTime"):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", api.spec[field])
        await first.release()

    asyncio.run(run())


def test_a_released_lease_is_free_at_once() -> None:
    async def run() -> None:
        api = Leases()
        first, second = Lease(api, "jobs", "berth", "a"), Lease(api, "jobs", "berth", "b")
        await first.acquire()
        await first.release()
        assert not first.held
        assert "holderIdentity" not in api.spec
        await second.acquire()
        assert api.spec["holderIdentity"] == "b"
        assert api.spec["leaseTransitions"] == 1
        await first.release()
        assert api.spec["holderIdentity"] == "b"
        await second.release()

    asyncio.run(run())


def test_a_lease_expires_by_the_local_clock_and_only_if_it_does_not_change() -> None:
    async def run() -> None:
        api, clock = Leases(), Clock()
        api.held_by("a")  # its renewTime is long past, which says nothing
        lease = Lease(api, "jobs", "berth", "b", clock=clock)
        for renewed in (True, True, False):
            with pytest.raises(EngineError, match="another berth leads: a"):
                await lease.acquire()
            clock.now += 14.9
            with pytest.raises(EngineError, match="another berth leads: a"):
                await lease.acquire()
            if renewed:
                api.held_by("a")
            clock.now += 0.2
        await lease.acquire()
        assert lease.held
        assert api.spec["holderIdentity"] == "b"
        await lease.release()

    asyncio.run(run())


def test_the_duration_of_the_holder_counts() -> None:
    async def run() -> None:
        api, clock = Leases(), Clock()
        api.held_by("a")
        lease = Lease(api, "jobs", "berth", "b", duration=2.0, clock=clock)
        for seconds in (0.0, 10.0):
            clock.now += seconds
            with pytest.raises(EngineError, match="another berth leads: a"):
                await lease.acquire()

    asyncio.run(run())


def test_of_two_processes_that_write_at_once_one_gets_the_lease() -> None:
    async def run() -> None:
        api = Leases()
        api.before_write = lambda: api.held_by("a")
        lease = Lease(api, "jobs", "berth", "b")
        with pytest.raises(EngineError, match="another berth leads: a"):
            await lease.acquire()
        assert api.spec["holderIdentity"] == "a"

    asyncio.run(run())


def test_a_change_of_other_fields_does_not_cost_the_lease() -> None:
    async def run() -> None:
        api, lost = Leases(), list[str]()
        lease = Lease(api, "jobs", "berth", "a", renew=0.02, on_lost=lost.append)
        await lease.acquire()
        assert api.object is not None
        note = copy.deepcopy(api.object)
        note["metadata"]["annotations"] = {"team": "x"}
        api.before_write = lambda: api.put(note)
        await eventually_async(lambda: api.before_write is None)
        before = api.spec["renewTime"]
        await eventually_async(lambda: bool(api.spec["renewTime"] != before))
        assert api.object["metadata"]["annotations"] == {"team": "x"}
        assert lease.held
        assert lost == []
        await lease.release()

    asyncio.run(run())


def test_a_removed_lease_is_created_again() -> None:
    async def run() -> None:
        api = Leases()
        lease = Lease(api, "jobs", "berth", "a", renew=0.02)
        await lease.acquire()
        api.object = None
        await eventually_async(lambda: api.object is not None)
        assert lease.held
        await lease.release()

    asyncio.run(run())


def test_a_lease_that_another_process_took_is_lost() -> None:
    async def run() -> None:
        api, lost = Leases(), list[str]()
        lease = Lease(api, "jobs", "berth", "a", renew=0.02, on_lost=lost.append)
        await lease.acquire()
        api.held_by("b")
        await eventually_async(lambda: bool(lost))
        assert lost == ["another berth leads: b"]
        assert not lease.held
        await lease.release()
        assert api.spec["holderIdentity"] == "b"

    asyncio.run(run())


def test_a_holder_without_the_api_server_gives_up_before_the_lease_expires() -> None:
    async def run() -> None:
        api, lost = Leases(), list[str]()
        lease = Lease(api, "jobs", "berth", "a", duration=3.0, renew=0.05, on_lost=lost.append)
        await lease.acquire()
        api.failure = ClusterSilent("no answer")
        await eventually_async(lambda: not lease.held)
        await eventually_async(lambda: bool(lost))
        assert lost == ["the lease was not renewed for 2 s (no answer)"]
        api.failure = None
        await lease.acquire()
        assert lease.held
        await lease.release()

    asyncio.run(run())


def test_a_last_try_that_is_cut_off_does_not_hide_what_the_api_server_said() -> None:
    clock, ended = Clock(), threading.Event()

    class Slow(Leases):
        """Refuses the first renewal, and does not answer the next one while the lease lasts."""

        def request(self, method: str, path: str, body: Any = None) -> Any:
            if self.failure is not None and clock.now < 101.9:
                clock.now = 101.9
            elif self.failure is not None:
                clock.now = 102.0
                ended.wait(60.0)
            return super().request(method, path, body)

    async def run() -> None:
        api, lost = Slow(), list[str]()
        lease = Lease(api, "jobs", "berth", "a", duration=3.0, renew=0.05, on_lost=lost.append, clock=clock)
        await lease.acquire()
        api.failure = ClusterSilent("no answer")
        await eventually_async(lambda: bool(lost))
        ended.set()
        assert lost == ["the lease was not renewed for 2 s (no answer)"]

    asyncio.run(run())


def test_a_process_that_stood_still_does_not_lead() -> None:
    async def run() -> None:
        api, clock = Leases(), Clock()
        lease = Lease(api, "jobs", "berth", "a", clock=clock)
        await lease.acquire()
        clock.now += 9.9
        assert lease.held
        clock.now += 0.2
        assert not lease.held
        await lease.release()
        assert api.spec["holderIdentity"] == "a"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (ClusterRefused("403 Forbidden", status=403), InvalidInput),
        (ClusterRefused("500 Internal Server Error", status=500), EngineError),
        (ClusterSilent("no answer"), EngineError),
    ],
)
def test_trouble_of_the_api_server_is_said(failure: Exception, kind: type[Exception]) -> None:
    api = Leases()
    api.failure = failure
    with pytest.raises(kind, match=str(failure)):
        asyncio.run(Lease(api, "jobs", "berth", "a").acquire())


def test_a_release_without_the_api_server_does_not_raise(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        api = Leases()
        lease = Lease(api, "jobs", "berth", "a")
        await lease.acquire()
        api.failure = ClusterSilent("no answer")
        await lease.release()
        assert not lease.held

    asyncio.run(run())
    assert "expires in 15 s: no answer" in caplog.text


def test_the_identity_is_the_pod_the_store_or_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAME", raising=False)
    assert re.fullmatch(r".+_\d+", own_identity())
    assert own_identity("s7").endswith("_s7")
    monkeypatch.setenv("POD_NAME", "berth-7d9f-x2")
    assert Lease(Leases(), "jobs").identity == "berth-7d9f-x2"
