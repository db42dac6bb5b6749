"""The rights of `deploy/kubernetes` suffice for the engine and the lease, and allow nothing else.

A user without other rights takes the place of the service account, on a real control plane.
"""

from __future__ import annotations

import asyncio
import copy
import operator
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any

import pytest

from berth.live.clusters.kubernetes import LocalKubernetes
from berth.live.core.events import Cancel, Event, Failed, Finished, Start, Started
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines import EngineError, Owner
from berth.live.engines.kubernetes.engine import KubernetesEngine
from berth.live.engines.kubernetes.lease import Lease
from berth.live.engines.kubernetes.settings import KubernetesSettings
from berth.live.kubernetes_api import Api, ApiError, ClusterRefused, connect
from tests.harness.waiting import eventually, eventually_async
from tests.live.engines.kubernetes.installation import resources, the
from tests.real.kubernetes.conftest import NODES

USER = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "berth"}
JOBS = str(the("Role")["metadata"]["namespace"])
TEAM = "team-a"
GROUP = "/apis/rbac.authorization.k8s.io/v1"


def path_of(one: dict[str, Any]) -> str:
    version, kind, namespace = one["apiVersion"], one["kind"], one["metadata"].get("namespace")
    root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    return f"{root}{f'/namespaces/{namespace}' if namespace else ''}/{kind.lower()}s"


def apply(api: Api) -> None:
    """Create the namespaces, the account and the roles, bound to the user."""
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}
    objects = [team, *(copy.deepcopy(one) for _, one in resources())]
    for kind in ("Namespace", "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"):
        for one in objects:
            if one["kind"] == kind:
                if "subjects" in one:
                    one["subjects"] = [USER]
                try:
                    api.request("POST", path_of(one), one)
                except ClusterRefused as refused:  # this module may be set up a second time
                    if refused.status != HTTPStatus.CONFLICT:
                        raise


def has_account(api: Api, namespace: str) -> bool:
    """Whether pods can be created: they need the default account, with its token."""
    try:
        account = api.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
    except ApiError:
        return False
    return bool(account.get("secrets"))


@pytest.fixture(scope="module")
def installed(kubernetes_cluster: LocalKubernetes) -> Iterator[LocalKubernetes]:
    """The cluster with the namespaces and the roles of the manifests."""
    api = kubernetes_cluster.api
    apply(api)
    for namespace in (JOBS, TEAM):
        eventually(lambda: has_account(api, namespace), what=f"no account in {namespace}")  # noqa: B023
    yield kubernetes_cluster
    for _, one in resources():
        if one["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            with suppress(ApiError):
                api.request("DELETE", f"{path_of(one)}/{one['metadata']['name']}")


@pytest.fixture
def api(installed: LocalKubernetes) -> Iterator[Api]:
    """Requests of the user."""
    api = connect(installed.user("berth"))
    yield api
    api.close()


@asynccontextmanager
async def listening(cluster: LocalKubernetes) -> AsyncIterator[tuple[KubernetesEngine, list[Event]]]:
    """An engine of the user, and its events so far."""
    settings = KubernetesSettings(kubeconfig=cluster.user("berth"), namespace=JOBS, image="none")
    engine, events = KubernetesEngine(settings, Owner("rights")), list[Event]()

    async def listen() -> None:
        async for event in engine.events():
            events.append(event)

    snapshot = await engine.snapshot()
    assert sorted(server.name for server in snapshot.servers) == sorted(node.name for node in NODES)
    task = asyncio.create_task(listen())
    try:
        yield engine, events
    finally:
        task.cancel()
        await asyncio.wait({task})
        await engine.close()


async def seen(events: list[Event], kind: type[Event], job: str) -> Any:
    """The first event of this kind, or failure, of a job."""

    def found() -> list[Event]:
        return [one for one in events if getattr(one, "job", None) == job and isinstance(one, (kind, Failed))]

    first = (await eventually_async(found, what=f"no {kind.__name__} of {job}"))[0]
    assert isinstance(first, kind), first
    return first


def job(name: str, count: int, *command: str) -> Job:
    return Job(name, "test", (Role("worker", count, {"cpu": 1000}),), payload={"command": list(command)})


def test_the_engine_runs_and_cancels_jobs(installed: LocalKubernetes) -> None:
    async def run() -> None:
        async with listening(installed) as (engine, events):
            both = (Place("n1", "worker", 1), Place("n2", "worker", 1))
            await engine.execute(Start("gang", 1, both), job("gang", 2, "sleep", "0.5"))
            await engine.execute(Start("single", 1, both[:1]), job("single", 1, "sleep", "0.5"))
            await engine.execute(Start("long", 1, both[1:]), job("long", 1, "sleep", "600"))
            for name in ("gang", "single", "long"):
                started = await seen(events, Started, name)
                assert started.details["namespace"] == JOBS
            await engine.execute(Cancel("long", 1), None)
            assert (await seen(events, Failed, "long")).fault == "cancelled"
            for name in ("gang", "single"):
                await seen(events, Finished, name)

    asyncio.run(run())


def test_the_api_server_accepts_the_other_objects(installed: LocalKubernetes) -> None:
    kinds = ("Deployment", "PersistentVolumeClaim", "Service", "MutatingWebhookConfiguration")
    others = [one for _, one in resources() if one["kind"] in kinds]
    made = [installed.api.request("POST", path_of(one), one, {"dryRun": "All"}) for one in others]
    assert [(one["kind"], one["metadata"]["name"]) for one in made] == [
        (one["kind"], one["metadata"]["name"]) for one in others
    ]
    assert {one["kind"] for one in made} == set(kinds)


def refusal(api: Api, method: str, path: str, body: Any = None) -> int:
    with pytest.raises(ClusterRefused) as refused:
        api.request(method, path, body)
    return refused.value.status


POD: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/api/v1/namespaces/{JOBS}/secrets", None),
        ("GET", "/api/v1/secrets", None),
        ("POST", "/api/v1/namespaces/default/pods", POD),
        ("POST", f"/api/v1/namespaces/{TEAM}/pods", POD),
        ("POST", "/api/v1/namespaces/berth/pods", POD),
        ("PATCH", "/api/v1/nodes/n1", {"spec": {"unschedulable": True}}),
        ("POST", f"/apis/apps/v1/namespaces/{JOBS}/deployments", DEPLOYMENT),
        ("GET", "/api/v1/namespaces/kube-system/configmaps", None),
        ("POST", "/api/v1/namespaces/kube-system/configmaps", {"metadata": {"name": "c"}}),
        ("GET", f"/apis/coordination.k8s.io/v1/namespaces/{JOBS}/leases/other", None),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/berth", None),
        ("POST", f"/api/v1/namespaces/{JOBS}/pods/p/binding", {"target": {"name": "n1"}}),
        ("POST", f"/api/v1/namespaces/{JOBS}/pods/p/exec", None),
        ("POST", f"/api/v1/namespaces/{JOBS}/serviceaccounts/default/token", {"spec": {"audiences": []}}),
        ("POST", f"{GROUP}/namespaces/{JOBS}/roles", {"metadata": {"name": "r"}}),
    ],
)
def test_what_is_not_in_the_roles_is_refused(api: Api, method: str, path: str, body: Any) -> None:
    assert refusal(api, method, path, body) == 403


def test_the_rights_of_a_companion_hold_in_its_namespaces_only(installed: LocalKubernetes, api: Api) -> None:
    for namespace in (TEAM, "default"):
        pods = f"/api/v1/namespaces/{namespace}/pods"
        pod = copy.deepcopy(POD)
        pod["spec"]["schedulerName"] = "berth"
        installed.api.request("POST", pods, pod)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "p"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        }
        note = {"metadata": {"annotations": {"berth.io/note": "x"}}}
        asked = (("PATCH", f"{pods}/p", note), ("POST", f"{pods}/p/binding", binding), ("DELETE", f"{pods}/p", None))
        for method, path, body in asked:
            if namespace == TEAM:
                api.request(method, path, body)
            else:
                assert refusal(api, method, path, body) == 403
        wanted = f"/apis/batch/v1/namespaces/{namespace}/jobs/none"
        assert refusal(api, "GET", wanted) == (404 if namespace == TEAM else 403)


async def refused(lease: Lease) -> str:
    """Why a lease is not to be had; empty if it is."""
    try:
        await lease.acquire()
    except EngineError as error:
        return str(error)
    return ""


def lease(api: Api) -> dict[str, Any]:
    """The lease as it is in the cluster."""
    found: dict[str, Any] = api.request("GET", f"/apis/coordination.k8s.io/v1/namespaces/{JOBS}/leases/berth")["spec"]
    return found


def test_one_lease_leads_and_another_takes_over(installed: LocalKubernetes, api: Api) -> None:
    async def run() -> None:
        lost = list[str]()
        first = Lease(api, JOBS, identity="a", duration=600.0, renew=0.1, on_lost=lost.append)
        second = Lease(api, JOBS, identity="b", duration=3.0, renew=600.0)
        await first.acquire()
        taken = lease(api)
        await eventually_async(lambda: lease(api)["renewTime"], lambda time: time > taken["renewTime"], "not renewed")
        assert await refused(second) == "another berth leads: a"
        assert first.held
        await first.release()
        await eventually_async(lambda: refused(second), operator.not_, "a lease that was released is not free")
        await second._stop()  # as if its process had been killed
        assert lease(api)["holderIdentity"] == "b"
        await eventually_async(lambda: refused(first), operator.not_, "a lease that is not renewed does not expire")
        assert first.held
        assert lost == []
        assert lease(api)["holderIdentity"] == "a"
        assert lease(api)["leaseTransitions"] == taken["leaseTransitions"] + 2
        await first.release()

    asyncio.run(run())
