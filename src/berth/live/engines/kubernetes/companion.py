"""Pods that others create, for berth to place: of Jobs, JobSets, operators, or kubectl.

A pod is meant for berth if its `schedulerName` is `berth` (berth then binds it itself) or if it has the scheduling gate
`berth.io/place` (berth then adds the node to its affinity and removes the gate in one request, and kube-scheduler binds
it). Pods of one group (`groups`) are placed together or not at all. Annotations of a pod may say more: `berth.io/type`,
`berth.io/work`, `berth.io/estimate`, `berth.io/priority`, `berth.io/gang-size`.

Pods with rules that berth does not know, and would break by placing them, are left alone, with an event that says why;
one that a gate holds is let go, or it would wait for ever.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any, Literal

from berth.errors import BerthError, InvalidInput
from berth.files.quantities import parse_duration
from berth.live.core.jobs import Job, Place, Role
from berth.live.engines.kubernetes.affinity import REQUIRED, Rules, here
from berth.live.engines.kubernetes.groups import gang_of_pods, group_of
from berth.live.engines.kubernetes.objects import PodObject
from berth.live.engines.kubernetes.pods import PODS, Pod, not_modelled, pod_of
from berth.live.engines.kubernetes.settings import KubernetesSettings
from berth.live.engines.kubernetes.state import State
from berth.live.engines.kubernetes.status import SeenPod
from berth.live.kubernetes_api import Api, ApiError, ClusterRefused

__all__ = ["GATE", "ORIGIN", "SCHEDULER", "Companion", "Group", "Way"]

ORIGIN, SCHEDULER, GATE = "kubernetes", "berth", "berth.io/place"
SAID = "berth.io/"
SIZES = (f"{SAID}gang-size", "kueue.x-k8s.io/pod-group-total-count", "pod-group.scheduling.sigs.k8s.io/min-available")
"""Annotations and labels that say how many pods a group has."""
OF_KUBE_SCHEDULER = ("preemption",)
"""What is not modelled but does no harm if berth places a pod."""
WARNINGS = 1000
"""The most warnings that are remembered, so as not to repeat them."""
Name = tuple[str, str, str]
"""Namespace, kind and name of a group."""
Mode = Literal["off", "scheduler", "gates"]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Group:
    """Pods that wait together, and the job that they are to berth."""

    job: Job
    pods: dict[str, tuple[SeenPod, ...]]
    """The pods of each role."""

    @cached_property
    def uids(self) -> frozenset[str]:
        """The uids of its pods."""
        return frozenset(pod.uid for pods in self.pods.values() for pod in pods)

    def members(self, places: Iterable[Place]) -> tuple[tuple[str, str, str], ...]:
        """Namespace, name and uid of its pods, in the order of the places."""
        left = {role: list(pods) for role, pods in self.pods.items()}
        chosen = [left[place.role].pop(0) for place in places for _ in range(place.count)]
        return tuple((pod.namespace, pod.name, pod.uid) for pod in chosen)


class Way:
    """How a pod is sent to its node."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode

    def waits(self, pod: SeenPod) -> bool:
        """Whether a pod waits for berth."""
        if pod.node or pod.deleting or pod.phase != "Pending":
            return False
        if self._mode == "scheduler":
            return pod.spec.get("schedulerName") == SCHEDULER and not _gates(pod)
        return self._mode == "gates" and _gates(pod) == [GATE]  # others must let it go first

    def held(self, pod: SeenPod) -> bool:
        """Whether a pod has berth's gate, perhaps beside gates of others."""
        return not pod.deleting and GATE in _gates(pod)

    def sent(self, pod: SeenPod, server: str) -> bool:
        """Whether berth sent a pod to a node."""
        if self._mode == "gates":
            return GATE not in _gates(pod) and _pinned(pod, server)
        return pod.node == server

    def elsewhere(self, pod: SeenPod, server: str) -> bool:
        """Whether another program let a pod go, or bound it to another node."""
        free = self._mode == "gates" and GATE not in _gates(pod)
        return pod.node not in ("", server) or (free and not _pinned(pod, server))

    async def send(self, api: Api, pod: SeenPod, server: str) -> None:
        """Send a pod to a node."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        if self._mode == "gates":
            await api.ask("PATCH", path, release(pod, server))
        else:
            await api.ask("POST", f"{path}/binding", binding(pod, server))


def _gates(pod: SeenPod) -> list[str]:
    """The scheduling gates of a pod."""
    return [str(one.get("name")) for one in pod.spec.get("schedulingGates") or ()]


def _pinned(pod: SeenPod, server: str) -> bool:
    """Whether berth added a node to the affinity of a pod."""
    required = ((pod.spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    return any(here(server) in (term.get("matchFields") or ()) for term in required.get("nodeSelectorTerms") or ())


def binding(pod: SeenPod, server: str) -> dict[str, Any]:
    """The request that binds a pod."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": server},
    }


def release(pod: SeenPod, server: str | None) -> dict[str, Any]:
    """The change (a merge patch) that pins a pod to a node, if one is given, and removes berth's gate.

    A gated pod may only get stricter, so the node is added to each of its terms.
    """
    gates = [one for one in pod.spec.get("schedulingGates") or () if one.get("name") != GATE]
    spec: dict[str, Any] = {"schedulingGates": gates}
    if server is not None:
        own = copy.deepcopy(((pod.spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {})
        terms = own.get("nodeSelectorTerms") or [{}]
        for term in terms:
            term["matchFields"] = [*(term.get("matchFields") or ()), here(server)]
        spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    return {"metadata": {"uid": pod.uid}, "spec": spec}


class Companion:
    """Finds groups of pods that wait to be placed."""

    def __init__(self, api: Api, settings: KubernetesSettings) -> None:
        self.waiting: dict[str, Group] = {}
        self.pause: float | None = None
        """Seconds until the next look, if a group may soon be complete."""
        self._api, self._settings, self._way = api, settings, Way(settings.companion)
        self._read: dict[str, tuple[Name, Pod]] = {}
        self._since: dict[Name, tuple[int, float]] = {}
        """How many pods of a group waited at the last look, and since when there are that many."""
        self._warned: set[str] = set()
        self._placed: Counter[Name] | None = None
        """How many pods of each group have their nodes, counted at most once in a look."""
        self._names: dict[str, Name] = {}
        """The groups of pods that have their nodes."""
        self.ignored: dict[str, tuple[SeenPod, str]] = {}
        """Pods that wait and that berth cannot place, by their uids, and why."""

    async def look(self, state: State) -> None:
        """Look for groups that are complete."""
        if self._settings.companion == "off":
            return
        spaces = self._settings.namespaces
        groups: dict[Name, list[SeenPod]] = {}
        read: dict[str, tuple[Name, Pod]] = {}
        self.ignored = {}
        waiting = [pod for pod in state.foreign.values() if self._way.waits(pod)]
        for pod in sorted(waiting, key=lambda pod: pod.name):
            if spaces and pod.namespace not in spaces:
                continue
            if pod.uid not in self._read:
                try:
                    model = _model(pod)
                except (BerthError, ValueError) as error:
                    self._warn(f"pod {pod.namespace}/{pod.name}", error, [pod])
                    continue
                self._read[pod.uid] = _name(model), model
            key, _ = read[pod.uid] = self._read[pod.uid]
            groups.setdefault(key, []).append(pod)
        self._read = read
        before = {group.uids: group for group in self.waiting.values()}
        self.waiting, self.pause, self._placed = {}, None, None
        for key, members in groups.items():
            known = before.get(frozenset(pod.uid for pod in members))
            group = known or (self._group(key, members) if await self._complete(key, members, state) else None)
            if group is not None:
                self.waiting[group.job.id] = group
        self._since = {key: one for key, one in self._since.items() if key in groups}

    async def _complete(self, key: Name, pods: Sequence[SeenPod], state: State) -> bool:
        """Whether all pods of a group are there, those counted that were placed before."""
        if key[1] == "Pod":
            return True
        count, since = self._since.get(key, (0, 0.0))
        clock = time.monotonic()
        if count != len(pods):
            since = clock
            self._since[key] = len(pods), clock
        try:
            size = await self._size(key, pods[0])
        except ApiError:  # for now
            self.pause = self._settings.settle
            return False
        if size is not None:
            if len(pods) >= size:
                return True
            if self._placed is None:
                self._placed = self._count_placed(state)
            if len(pods) + self._placed[key] >= size:
                return True
            if key[1] == "Job":  # its status may be behind its pods, and nothing tells when it changes
                self.pause = self.pause or self._settings.settle
            return False
        if clock - since >= self._settings.settle:
            return True
        self.pause = min(self._settings.settle, 0.5)
        return False

    def _count_placed(self, state: State) -> Counter[Name]:
        """How many pods of each group have their nodes and have not ended."""
        names: dict[str, Name] = {}
        for pod in state.everyone():
            if pod.node and not pod.ended and not pod.deleting:
                with suppress(BerthError, ValueError):
                    names[pod.uid] = self._names.get(pod.uid) or _name(_model(pod))
        self._names = names
        return Counter(names.values())

    async def _size(self, key: Name, pod: SeenPod) -> int | None:
        """How many pods a group should have now; None if nothing says it."""
        for name in SIZES:
            given = pod.annotations.get(name) or pod.labels.get(name) or ""
            if re.fullmatch(r"\d{1,6}", given, re.ASCII):
                return int(given)
        if key[1] != "Job":
            return None
        path = f"/apis/batch/v1/namespaces/{key[0]}/jobs/{key[2]}"
        try:
            found = await self._api.ask("GET", path)
        except ClusterRefused as error:
            if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
                return None
            raise
        spec, status = found.get("spec") or {}, found.get("status") or {}
        many, most = int(spec.get("parallelism", 1)), spec.get("completions")
        return many if most is None else min(many, int(most) - _over(status))

    def _warn(self, what: str, error: Exception, pods: Sequence[SeenPod]) -> None:
        """Note why pods are left alone, and say it once."""
        self.ignored |= {pod.uid: (pod, " ".join(str(error).split())) for pod in pods}
        if len(self._warned) > WARNINGS:
            self._warned.clear()
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s waits for berth and is ignored: %s", what, " ".join(str(error).split()))

    def _group(self, key: Name, pods: Sequence[SeenPod]) -> Group | None:
        """A group as a job of berth; None if berth cannot place it."""
        try:
            return _group_of(key, pods, [self._read[pod.uid][1] for pod in pods], self._settings)
        except (BerthError, ValueError) as error:
            self._warn(f"{key[1]} {key[0]}/{key[2]}", error, pods)
            return None

    async def let_go(self, pod: SeenPod) -> None:
        """Leave a pod that berth cannot place to kube-scheduler, if a gate holds it."""
        if self._settings.companion == "gates":
            await self._api.ask("PATCH", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", release(pod, None))

    async def delete(self, group: Group) -> None:
        """Delete the pods of a group that is no longer wanted."""
        for pods in group.pods.values():
            for pod in pods:
                path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
                try:
                    await self._api.ask("DELETE", path, {"preconditions": {"uid": pod.uid}})
                except ClusterRefused as error:
                    log.warning("pod %s could not be deleted: %s", pod.name, error)


def _over(status: Mapping[str, Any]) -> int:
    """How many completions of a Job are done or given up.

    >>> _over({"succeeded": 2, "uncountedTerminatedPods": {"succeeded": ["u"]}, "failedIndexes": "1,4-6"})
    7
    """
    counted = int(status.get("succeeded") or 0) + len(
        (status.get("uncountedTerminatedPods") or {}).get("succeeded") or ()
    )
    ends = [one.split("-") for one in str(status.get("failedIndexes") or "").split(",") if one]
    return counted + sum(int(last[-1]) - int(last[0]) + 1 for last in ends)


def _name(pod: Pod) -> Name:
    """Namespace, kind and name of the group of a pod; one without a group is its own."""
    kind, name = group_of(pod.metadata, pod.spec) or ("Pod", pod.metadata.name)
    return pod.namespace, kind, name


def _model(pod: SeenPod) -> Pod:
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "labels": dict(pod.labels),
        "annotations": dict(pod.annotations),
        "ownerReferences": [{"kind": kind, "name": name} for kind, name, _ in pod.owners],
    }
    return pod_of(PodObject.model_validate({"metadata": metadata, "spec": dict(pod.spec)}))


def _group_of(key: Name, pods: Sequence[SeenPod], models: Sequence[Pod], settings: KubernetesSettings) -> Group:
    space, kind, name = key
    for model in models:
        beyond = [one for one in not_modelled(model.spec) if not one.startswith(OF_KUBE_SCHEDULER)]
        if beyond:
            raise InvalidInput(f"pods without {beyond[0]}, which berth does not know")
    needs = [_needs(model.rules) for model in models]
    if any(one != needs[0] for one in needs):
        raise InvalidInput("the same node selector for all pods of a group")
    gang = gang_of_pods(kind, name, models)
    alike: dict[str, list[SeenPod]] = {one.role.name: [] for one in gang.pods}
    by_demand = {(tuple(sorted(one.role.demand.items())), one.rules, one.missing): one.role.name for one in gang.pods}
    for pod, model in zip(pods, models, strict=True):
        own = tuple(sorted(model.requests.items())), model.rules, tuple(not_modelled(model.spec))
        alike[by_demand[own]].append(pod)
    names = settings.names()
    roles = tuple(
        Role(
            _word(one.role.name),
            one.role.count,
            {names.get(n, n): milli for n, milli in one.role.demand.items()},
            asked={names.get(n, n): milli for n, milli in one.role.demand.items() if n != PODS},
        )
        for one in gang.pods
    )
    said = {n.removeprefix(SAID): value for n, value in pods[0].annotations.items() if n.startswith(SAID)}
    digest = hashlib.sha256(" ".join(sorted(pod.uid for pod in pods)).encode()).hexdigest()[:12]
    plain = re.sub(r"[^a-z0-9.-]", "-", f"{space}-{name}".lower())[:80]
    priority = said.get("priority", "")
    job = Job(
        f"kubernetes-{plain}-{digest}",
        said.get("type") or f"{_word(space)}/{_word(re.sub(r'[-_.]*[0-9]*$', '', name) or name)}",
        roles,
        user=_word(space),
        team=_word(space),
        priority=int(priority) if re.fullmatch(r"-?\d{1,6}", priority) else 0,
        needs=needs[0],
        work=parse_duration(said["work"], f"{SAID}work") if "work" in said else None,
        estimate=parse_duration(said["estimate"], f"{SAID}estimate") if "estimate" in said else None,
        payload={"namespace": space, "kind": kind, "name": name},
        origin=ORIGIN,
    )
    return Group(job, {_word(role): tuple(those) for role, those in alike.items()})


def _needs(rules: Rules) -> dict[str, str]:
    """Rules of nodes as labels that a server must have."""
    if rules.terms is not None and len(rules.terms) != 1:
        raise InvalidInput("at most one term of node affinity")
    needs: dict[str, str] = {}
    for text, rule in (*rules.selector, *(rules.terms or ((),))[0]):
        if rule.operator != "In" or rule.key in needs or rule.key == "metadata.name":
            raise InvalidInput("node affinity by labels with the operator In, each once", found=text)
        needs[rule.key] = "|".join(rule.values)
    return needs


def _word(text: str) -> str:
    """A text as an id: invalid characters become `_`."""
    plain = re.sub(r"[^A-Za-z0-9._@-]", "_", text)[:100]
    return plain if re.match(r"[A-Za-z0-9]", plain) else f"x{plain}"
