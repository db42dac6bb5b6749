"""The state of the cluster as the engine knows it: nodes, pods, and the records of attempts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from berth.files.quantities import Amounts
from berth.live.core.jobs import Server
from berth.live.engines.kubernetes.record import RECORD, STORE, Key, Record, is_go, read_record
from berth.live.engines.kubernetes.servers import server_of, taken_of
from berth.live.engines.kubernetes.settings import KubernetesSettings
from berth.live.engines.kubernetes.status import SeenPod, seen
from berth.live.engines.kubernetes.watching import Followed

__all__ = ["State"]

NODES, MAPS, PODS = "nodes", "maps", "pods"
log = logging.getLogger(__name__)


class State:
    """Kept up to date by `take`, which begins anew, and `apply`.

    A pod belongs to the record that made it, to the record that placed it, or to nobody here.
    """

    def __init__(self, settings: KubernetesSettings, namespace: str, store: str) -> None:
        self.namespace, self.store = namespace, store
        self.records: dict[Key, Record] = {}
        self.servers: dict[str, Server] = {}
        self.stale = False
        """Whether `servers` have to be computed anew."""
        self.foreign: dict[str, SeenPod] = {}
        """Pods that no record has, by uid."""
        self._settings = settings
        self._names: dict[str, Key] = {}
        self._pods: dict[str, dict[str, SeenPod]] = {}
        """The pods of each record, by uid."""
        self._placed: dict[str, str] = {}
        """The record that placed a pod of others, by the pod's uid."""
        self._homes: dict[str, str] = {}
        """The record of each pod that has one."""
        self._nodes: dict[str, tuple[Server | None, bool]] = {}
        """Each node by uid, with nothing taken, and whether it is ready."""
        self._unready: dict[str, float] = {}
        """Since when a node is not ready, by a clock that does not jump."""
        self._lost: set[str] = set()
        """Nodes that count as lost."""

    def followed(self) -> tuple[Followed, ...]:
        """What the engine watches."""
        maps = f"/api/v1/namespaces/{self.namespace}/configmaps"
        ours = {"labelSelector": f"{STORE}={self.store}"}
        return (
            Followed(NODES, "/api/v1/nodes", {}, lambda given, _: server_of(given, self._settings)),
            Followed(MAPS, maps, ours, lambda given, _: given),
            Followed(PODS, "/api/v1/pods", {}, seen),
        )

    def pods(self, record: Record) -> dict[str, SeenPod]:
        """The pods of an attempt, by uid."""
        return self._pods.get(record.name, {})

    def everyone(self) -> Iterator[SeenPod]:
        """All pods of the cluster."""
        yield from self.foreign.values()
        for pods in self._pods.values():
            yield from pods.values()

    def drop(self, pod: SeenPod) -> None:
        """Forget a pod that is not in the cluster any more."""
        for _ in self._pod_changed(pod.uid, None):
            pass

    def take(self, objects: dict[str, dict[str, Any]]) -> None:
        """Begin with these objects, and with what this process alone knows of its attempts."""
        known, self.records, self._names, self._placed = self.records, {}, {}, {}
        self._nodes = dict(objects[NODES])
        self.foreign, self._homes, self._pods = {}, {}, {}
        gos = {one["metadata"]["labels"][RECORD] for one in objects[MAPS].values() if is_go(one)}
        for one in objects[MAPS].values():
            if not is_go(one):
                self._read(one, known)
        for pod in objects[PODS].values():
            self.add(pod)
        for record in self.records.values():
            record.released = record.name in gos
            if record.manifests is None and not record.members:
                # a task of a gang that was not let go has not begun: its pod may be made anew
                count = len(record.tasks)
                record.created = record.released or count == 1 or len(self.pods(record)) == count
        self.servers = self.gather()()

    def apply(self, what: str, uid: str, found: Any) -> Iterator[Key]:
        """Apply a change; the attempts that it concerns."""
        if what == NODES:
            self.stale = self.stale or self._nodes.get(uid) != found
            if found is None:
                self._nodes.pop(uid, None)
            else:
                self._nodes[uid] = found
        elif what == PODS:
            yield from self._pod_changed(uid, found)
        elif found is None:
            for record in [record for record in self.records.values() if record.uid == uid]:
                record.gone = True
                yield record.key
        elif is_go(found):
            if (key := self._names.get(found["metadata"]["labels"][RECORD])) is not None:
                self.records[key].released = True
        else:
            self._read(found, self.records)

    def know(self, record: Record) -> None:
        """Add a record, and take the pods that it places from nobody."""
        self.records[record.key] = record
        self._names[record.name] = record.key
        for _, _, uid in record.members if record.end is None else ():
            self._placed[uid] = record.name
            if (pod := self.foreign.pop(uid, None)) is not None:
                self.add(pod)

    def forget(self, record: Record) -> None:
        """Drop a record; pods that are left of it are nobody's."""
        self.records.pop(record.key, None)
        self._names.pop(record.name, None)
        for _, _, uid in record.members:
            self._placed.pop(uid, None)
        for uid, pod in self._pods.pop(record.name, {}).items():
            self._homes.pop(uid, None)
            if not pod.ended:
                self.foreign[uid] = pod
        self.stale = True

    def give_back(self, record: Record) -> None:
        """Leave the pods of others that a record placed, or did not place after all."""
        for _, _, uid in record.members:
            self._placed.pop(uid, None)
            self._homes.pop(uid, None)
        self.foreign |= self._pods.pop(record.name, {})
        self.stale = True

    def read(self, config_map: dict[str, Any]) -> Record | None:
        """Read a record that was found in the cluster."""
        return self._read(config_map, self.records)

    def _read(self, config_map: dict[str, Any], known: dict[Key, Record]) -> Record | None:
        record = read_record(config_map)
        if record is None:
            log.warning("ConfigMap %s is not the record of an attempt", config_map["metadata"]["name"])
            return None
        before = known.get(record.key)
        if before is not None and before.uid == record.uid:
            before.end, before.verdict = before.end or record.end, before.verdict or record.verdict
            record = before
        self.know(record)
        return record

    def add(self, pod: SeenPod) -> None:
        """Add a pod, or its new state."""
        name = self._placed.get(pod.uid) or ""
        if not name and pod.labels.get(STORE) == self.store and pod.namespace == self.namespace:
            name = pod.labels.get(RECORD) or ""
        if name:
            self._pods.setdefault(name, {})[pod.uid] = pod
            self._homes[pod.uid] = name
        else:
            self.foreign[pod.uid] = pod

    def _pod_changed(self, uid: str, pod: SeenPod | None) -> Iterator[Key]:
        name = self._homes.get(uid, "")
        before = self.foreign.pop(uid, None) or self._pods.get(name, {}).get(uid)
        if pod is not None:
            self.add(pod)
            name = self._homes.get(uid, "")
        elif name:
            del self._homes[uid]
            self._pods[name].pop(uid, None)
            if not self._pods[name]:
                del self._pods[name]
        if name in self._names:
            yield self._names[name]
        self.stale = self.stale or _held(before) != _held(pod)

    @property
    def waits(self) -> bool:
        """Whether a node may soon count as lost."""
        return self._unready.keys() != self._lost

    def gather(self) -> Callable[[], dict[str, Server]]:
        """Copy quickly what servers are computed from; the answer, which any thread may call, computes them anew."""
        self.stale = False
        clock = time.monotonic()
        unready = [uid for uid, (_, ready) in self._nodes.items() if not ready]
        self._unready = {uid: self._unready.get(uid, clock) for uid in unready}
        limit = self._settings.lost_seconds
        self._lost = {uid for uid, since in self._unready.items() if clock - since >= limit}
        there = [server for uid, (server, _) in self._nodes.items() if server is not None and uid not in self._lost]
        others, ours = list(self.foreign.values()), list[SeenPod]()
        for name, pods in self._pods.items():
            record = self.records.get(self._names[name]) if name in self._names else None
            if record is None or record.end is not None:
                others += pods.values()
            elif not record.members:
                ours += pods.values()
        return partial(_servers, there, others, ours, self._settings.names())


def _servers(
    there: Sequence[Server], others: Sequence[SeenPod], ours: Sequence[SeenPod], names: Mapping[str, str]
) -> dict[str, Server]:
    """Servers, and what pods of others take of them, and what pods of berth's own take that berth does not count."""
    servers = {server.name: server for server in there}
    held = [one for pod in others if (one := _held(pod)) is not None]
    held += [(pod.excess, pod.node) for pod in ours if _held(pod)]
    taken = taken_of(held, servers, names)
    return {
        name: Server(name, one.capacity, one.labels, one.speed, one.closed, taken[name])
        for name, one in servers.items()
    }


def _held(pod: SeenPod | None) -> tuple[Amounts, str] | None:
    """What a pod holds, and of which node."""
    return None if pod is None or not pod.node or pod.ended else (pod.requests, pod.node)
