"""Watches go on from where they broke off; a version that is too old costs a list of one kind; counted in requests."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from berth.errors import BerthError
from berth.live.core.jobs import Server
from berth.live.engines.kubernetes import status, watching
from berth.live.engines.kubernetes.engine import _compared
from berth.live.engines.kubernetes.objects import PodSpec
from berth.live.engines.kubernetes.pods import requests_of
from berth.live.engines.kubernetes.settings import KubernetesSettings
from berth.live.engines.kubernetes.state import State
from berth.live.engines.kubernetes.status import seen
from berth.live.engines.kubernetes.watching import Followed, Watching
from berth.live.kubernetes_api import BOOKMARK, ClusterRefused, ClusterSilent, Stop, WatchExpired
from tests.harness.waiting import eventually_async
from tests.live.engines.kubernetes.builders import node, pod

Object = dict[str, Any]
Steps = list[tuple[str, Object] | BaseException]


def thing(uid: str, version: int) -> Object:
    return {"metadata": {"uid": uid, "name": uid, "resourceVersion": str(version)}}


class Scripted:
    """An API server whose lists and watches are written down; a watch without more steps is quiet until the end."""

    def __init__(self, lists: Mapping[str, list[tuple[list[Object], str]]], watches: Mapping[str, list[Steps]]) -> None:
        self.lists, self.watches = copy.deepcopy(dict(lists)), copy.deepcopy(dict(watches))
        self.asked: list[tuple[str, str]] = []
        self.over = threading.Event()

    def list(self, path: str, query: Mapping[str, str], keep: Callable[[Any], Any]) -> tuple[list[Any], str]:
        self.asked.append(("list", path))
        found, version = self.lists[path].pop(0)
        return [keep(one) for one in found], version

    def watch(
        self, path: str, query: Mapping[str, str], version: str, stop: Stop, *, bookmarks: bool
    ) -> Iterator[tuple[str, Object]]:
        assert bookmarks
        self.asked.append((version, path))
        for step in self.watches[path].pop(0) if self.watches[path] else ():
            if isinstance(step, BaseException):
                raise step
            yield step
        self.over.wait()


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "FIRST_WAIT", 0.001)


def followed(*names: str) -> tuple[Followed, ...]:
    return tuple(Followed(name, name, {}, lambda given, _: given["metadata"]["resourceVersion"]) for name in names)


def changes(api: Scripted, many: int, *names: str) -> list[Any]:
    """The first changes."""

    async def run() -> list[Any]:
        made = Watching(api, followed(*names), asyncio.Event())  # type: ignore[arg-type]
        await made.start()
        try:
            return await eventually_async(lambda: list(made.changes), lambda found: len(found) >= many)
        finally:
            made.stop()
            api.over.set()

    return asyncio.run(run())


SILENT = ClusterSilent("a watch broke off")


def test_a_watch_goes_on_from_the_last_version_and_nothing_is_listed_again() -> None:
    steps: list[Steps] = [
        [("ADDED", thing("b", 7)), SILENT],
        [(BOOKMARK, {"metadata": {"resourceVersion": "12"}}), ClusterRefused("busy", 503)],
        [("DELETED", thing("a", 13)), SILENT],
    ]
    api = Scripted({"pods": [([thing("a", 3)], "5")], "nodes": [([], "5")]}, {"pods": steps, "nodes": []})
    found = changes(api, 2, "pods", "nodes")
    assert found == [("pods", "b", "7"), ("pods", "a", None)]
    asked = [one for one, path in api.asked if path == "pods"]
    assert asked[:4] == ["list", "5", "7", "12"]
    assert [one for one, path in api.asked if path == "nodes"] == ["list", "5"]


def test_a_version_that_is_too_old_costs_a_list_of_this_kind_and_tells_what_differs() -> None:
    lists = {
        "pods": [
            ([thing("a", 1), thing("b", 2), thing("c", 3)], "5"),
            ([thing("b", 2), thing("c", 9), thing("d", 8)], "9"),
        ],
        "nodes": [([thing("n", 1)], "5")],
    }
    api = Scripted(lists, {"pods": [[("MODIFIED", thing("a", 6)), WatchExpired("too old")]], "nodes": []})
    found = changes(api, 4, "pods", "nodes")
    assert found[0] == ("pods", "a", "6")
    assert sorted(found[1:], key=str) == [("pods", "a", None), ("pods", "c", "9"), ("pods", "d", "8")]
    assert sum(one == "list" for one, path in api.asked if path == "nodes") == 1
    assert [one for one, path in api.asked if path == "pods"][:3] == ["list", "5", "list"]


@pytest.mark.parametrize("error", [ClusterRefused("no", 403), ValueError("unexpected")])
def test_an_error_that_does_not_pass_ends_the_watch(error: Exception) -> None:
    api = Scripted({"pods": [([], "5")]}, {"pods": [[error]]})
    (found,) = changes(api, 1, "pods")
    assert isinstance(found, BerthError)
    assert str(error) in str(found)
    assert api.asked == [("list", "pods"), ("5", "pods")]


def test_a_watch_that_does_not_go_on_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PATIENCE", 0.05)
    api = Scripted({"pods": [([], "5")]}, {"pods": [[SILENT] for _ in range(10_000)]})
    assert [str(one) for one in changes(api, 1, "pods")] == [str(SILENT)]
    assert len(api.asked) > 2


def test_what_follows_from_the_spec_of_a_pod_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed, real = list[PodSpec](), requests_of

    def counted(spec: PodSpec) -> dict[str, int]:
        computed.append(spec)
        return real(spec)

    monkeypatch.setattr(status, "requests_of", counted)
    given = pod("p", "n1", {"cpu": "2"})
    given["metadata"]["uid"] = "1"
    first = seen(given)
    assert first.excess == {"pods": 1000}  # an older version made it: the first container is counted
    many = len(computed)
    for phase in ("Pending", "Running", "Running"):
        given["status"] = {"phase": phase}
        first = seen(given, first)
        assert first.excess == {"pods": 1000}
    assert len(computed) == many == 2
    given["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    assert seen(given, seen(pod("p", "n1", {"cpu": "2"}) | {"metadata": given["metadata"]})).requests["cpu"] == 3000


def test_servers_are_computed_from_a_copy() -> None:
    state = State(KubernetesSettings(), "jobs", "s")
    held = pod("p", "n1", {"cpu": "1"})
    held["metadata"]["uid"] = "1"
    nodes = {f"u{i}": state.followed()[0].keep(node(f"n{i}", {"cpu": "4", "pods": "9"}), None) for i in (1, 2)}
    state.take({"nodes": nodes, "maps": {}, "pods": {"1": seen(held)}})
    before, later = dict(state.servers), state.gather()
    list(state.apply("pods", "1", None))
    assert state.stale
    assert _compared(before, later) == (before, [])
    after, news = _compared(before, state.gather())
    assert not state.stale
    assert [server.name for server in news] == ["n1"]
    assert {name: server.taken for name, server in after.items()} == {"n1": {}, "n2": {}}
    joined = Server("n3", {"cpu": 1})
    assert _compared(before, lambda: {**before, "n3": joined})[1] == [joined]
