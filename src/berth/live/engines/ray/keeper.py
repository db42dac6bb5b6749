"""The keeper of gangs: a detached actor on a Ray cluster that starts them, watches them, and remembers their ends.

A cluster has one keeper, because actors have unique names; services come and go, and gangs go on. The keeper writes to
the cluster's own key-value store, before anything begins, which attempts there are and how they ended. So an attempt
begins once, even if the keeper dies. All gangs die with the keeper: the new one waits until they must be over, and
reports that those attempts failed by the engine's fault.

It speaks the JSON of `berth.live.engines.wire`, and is pickled by value: nodes need nothing of berth.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from berth.live.engines.ray.agent import Agent
from berth.live.engines.ray.gang import NODE_LABEL, Gang, Node, Part

__all__ = ["NAME", "NAMESPACE", "Keeper"]

NAME, NAMESPACE = "keeper", "berth"
MARGIN = 2.0
"""Seconds after the end of a lease until the keeper relies on the end of the leased tasks."""
LOOK = 1.0
"""Seconds between two checks of the nodes."""
FIRST_WORD, BEGUN = 20.0, 120.0
"""Seconds that the first request waits for the agents, and after which an agent that has not begun is replaced."""
TWINS = 60.0
"""Seconds after which two nodes of one name count as two: before, one of them may be lost and not yet detected."""
AWAY = 6.0
"""Seconds after which an owner without requests counts as away."""
NEWS = 2.0
"""Seconds after which a poll for events gets an empty answer."""
REMEMBERED = 10_000
"""The number of ended attempts that are remembered."""
EVENTS = 50_000
"""The number of events that are remembered."""
RESULTS = 256 * 2**20
"""The most bytes of callables' results that are kept; the oldest go first."""
OURS = {"CPU": "cpu", "GPU": "gpu"}
HIDDEN = ("node:", "object_store_memory", "accelerator_type:", "bundle_group_")
Key = tuple[str, int]
Json = dict[str, Any]


def _devices() -> dict[str, str]:
    """The environment variables by which Ray assigns devices to a task."""
    return {name: value for name, value in os.environ.items() if "VISIBLE" in name}


class Keeper:
    """Keeps gangs."""

    def __init__(self, guard: str, lease: float) -> None:
        self._guard, self._lease = guard, lease
        self._life = os.urandom(8).hex()
        self._born = time.monotonic()
        self._gangs: dict[Key, Gang] = {}
        self._known: dict[Key, Json] = {}
        """Every attempt: its places, or its end once it has ended."""
        self._ended: deque[Key] = deque()
        self._results: dict[Key, list[bytes | None]] = {}
        self._events: deque[Json] = deque(maxlen=EVENTS)
        self._told = 0
        self._nodes: dict[str, Node] = {}
        self._twins: dict[str, float] = {}
        """Nodes with the name of another, and since when: the other may be about to be lost."""
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._probe: Any = None
        self._owner: list[str] = json.loads(self._store("_internal_kv_get", b"owner") or "[]")
        self._owner_heard = float("-inf")
        self._recall()

    # ------------------------------------------------------------------ what others ask

    async def ask(self, text: str) -> str:
        """Answer a request or command, in JSON."""
        self._begin()
        asked = json.loads(text)
        if refusal := self._claim(asked.get("owner") or []):
            return json.dumps({"error": refusal})
        while any(node.heard is None for node in self._nodes.values()) and time.monotonic() < self._born + FIRST_WORD:
            await asyncio.sleep(0.05)
        if asked.get("do") == "snapshot":
            return json.dumps({"snapshot": self._snapshot(), "told": self._told, "life": self._life})
        if asked.get("do") == "recalled":
            return json.dumps({"recalled": sorted({job for job, _ in self._known})})
        if "start" in asked:
            self._start(asked["start"], asked["job"])
        elif "cancel" in asked:
            self._cancel(asked["cancel"]["job"], asked["cancel"]["attempt"])
        return json.dumps({"done": True})

    async def news(self, life: str, since: int) -> str:
        """Events after the first `since`, as soon as there are some; null for a client that has missed too many."""
        self._begin()
        if life != self._life or since < self._told - len(self._events):
            return "null"
        self._owner_heard = time.monotonic()
        if since == self._told:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), NEWS)
        return json.dumps(list(self._events)[len(self._events) - (self._told - since) :])

    async def pulse(self, node: str, life: str) -> str:
        """Answer the heartbeat of a node's agent."""
        known = self._nodes.get(node)
        if known is None or known.life != life or known.lost:
            return "end"
        first, known.heard = known.heard is None, time.monotonic()
        if first:
            self._tell({"kind": "server-joined", "server": known.server})
        return "go on"

    async def result(self, job: str, attempt: int) -> list[bytes | None] | None:
        """The result of a job's callable, pickled, for each task in the order of roles and ranks."""
        return self._results.get((job, attempt))

    def _claim(self, owner: list[str]) -> str | None:
        """Give the cluster to an owner, or say why not: running gangs belong to one owner only.

        When another owner takes over, the attempts of the first are forgotten.
        """
        if owner and owner[:1] != self._owner[:1]:
            running = [key[0] for key, known in self._known.items() if known["end"] is None]
            here = time.monotonic() - self._owner_heard < AWAY
            if self._owner and (running or here):
                what = f"{len(running)} of its gangs run, such as {running[0]}" if running else "it is being served"
                return f"this Ray cluster belongs to another berth service, with the store {self._owner[-1]}: {what}"
            for key in list(self._known):
                self._forget(key)
            self._ended.clear()
            self._events.clear()
            self._owner, self._life, self._told = owner, os.urandom(8).hex(), 0
            self._store("_internal_kv_put", b"owner", json.dumps(owner).encode(), True)
        if owner:
            self._owner_heard = time.monotonic()
        return None

    # ------------------------------------------------------------------ attempts

    def _snapshot(self) -> Json:
        attempts = [
            {"job": job, "attempt": attempt, "places": [] if known["end"] else known["places"], "end": known["end"]}
            for (job, attempt), known in self._known.items()
        ]
        servers = [node.server for node in self._nodes.values() if node.heard is not None]
        return {"servers": servers, "attempts": attempts}

    def _start(self, start: Json, job: Json) -> None:
        key = start["job"], start["attempt"]
        demands = {role["name"]: role["demand"] for role in job["roles"]}
        if not all(place["role"] in demands for place in start["places"]):
            raise ValueError(f"places for roles that job {key[0]} does not have")
        if key in self._known or not self._write(key, start["places"], None, new=True):
            return
        there = {node.server["name"]: node for node in self._nodes.values() if node.heard is not None}
        away = [place["server"] for place in start["places"] if place["server"] not in there]
        if away:
            self._end(key, f"server {away[0]} is away", "server")
            return
        payload = job.get("payload") or {}
        if not any(payload.get(what) for what in ("command", "script", "callable")):
            self._end(key, "there is nothing to run: a command, a script or a callable", "job")
            return
        ranks = dict.fromkeys(demands, 0)
        parts = []
        for place in start["places"]:
            role, node = place["role"], there[place["server"]]
            for _ in range(place["count"]):
                parts.append(Part(node, role, ranks[role], demands[role]))
                ranks[role] += 1
        self._gangs[key] = gang = Gang(*key, parts, payload, self._lease, MARGIN, self._probe)
        self._spawn(self._run(key, gang))

    async def _run(self, key: Key, gang: Gang) -> None:
        where = f"berth/{key[0]}-{key[1]} in the directory `logs` of Ray's session, on each of its nodes"
        started = {"kind": "started", "job": key[0], "attempt": key[1], "details": {"output": where}}
        await gang.run(lambda: self._tell(started))
        del self._gangs[key]
        if gang.verdict is not None:
            self._end(key, *gang.verdict, refused_by=gang.refused_by)
            return
        if gang.payload.get("callable"):
            order = {role: number for number, role in enumerate(dict.fromkeys(part.role for part in gang.parts))}
            ranked = sorted(gang.parts, key=lambda part: (order[part.role], part.rank))
            self._keep_result(key, [part.result for part in ranked])
        self._close(key, {"kind": "finished", "seconds": gang.seconds})

    def _keep_result(self, key: Key, found: list[bytes | None]) -> None:
        self._results[key] = found
        while sum(len(one or b"") for kept in self._results.values() for one in kept) > RESULTS and self._results:
            del self._results[next(iter(self._results))]

    def _cancel(self, job: str, attempt: int) -> None:
        key = job, attempt
        if (gang := self._gangs.get(key)) is not None:
            gang.end("cancelled", "cancelled")
        elif key not in self._known and self._write(key, [], None, new=True):
            self._end(key, "cancelled before it began", "cancelled")

    def _end(
        self, key: Key, reason: str, fault: str, last_output: str = "", refused_by: Sequence[str] | None = None
    ) -> None:
        end = {"kind": "failed", "reason": reason, "fault": fault, "last_output": last_output}
        self._close(key, {**end, "refused_by": refused_by})

    def _close(self, key: Key, end: Json) -> None:
        """Record the end of an attempt, then report it."""
        end = {"time": time.time(), "job": key[0], "attempt": key[1], **end}
        self._write(key, [], end)
        self._ended.append(key)
        self._tell(end)
        if len(self._ended) > REMEMBERED:
            self._forget(self._ended.popleft())

    def _forget(self, key: Key) -> None:
        del self._known[key]
        self._results.pop(key, None)
        self._store("_internal_kv_del", _name(key))

    def _tell(self, event: Json) -> None:
        self._events.append({"time": time.time(), **event})
        self._told += 1
        self._changed.set()
        self._changed = asyncio.Event()

    # ------------------------------------------------------------------ memory

    def _store(self, what: str, *given: Any) -> Any:
        from ray.experimental import internal_kv

        return getattr(internal_kv, what)(*given, namespace=NAMESPACE.encode())

    def _write(self, key: Key, places: list[Json], end: Json | None, new: bool = False) -> bool:
        """Write an attempt to the store; False if it should be `new` and is not."""
        known = {"places": places, "end": end}
        there = self._store("_internal_kv_put", _name(key), json.dumps(known).encode(), not new)
        if new and there:
            return False
        self._known[key] = known
        return True

    def _recall(self) -> None:
        """Read the attempts that an earlier keeper wrote."""
        for name in self._store("_internal_kv_list", b"attempt/"):
            text = self._store("_internal_kv_get", name)
            if text is not None:
                _, job, attempt = name.decode().split("/")
                self._known[job, int(attempt)] = json.loads(text)
        ended = [(known["end"]["time"], key) for key, known in self._known.items() if known["end"] is not None]
        self._ended.extend(key for _, key in sorted(ended))

    async def _bury(self) -> None:
        """Report the end of gangs that ran when an earlier keeper died, once they must have ended."""
        from ray.util.placement_group import get_placement_group, placement_group_table, remove_placement_group

        left = [key for key, known in self._known.items() if known["end"] is None]
        if not left:
            return
        names = {f"berth-{job}-{attempt}" for job, attempt in left}
        for group in placement_group_table().values():
            if group["name"] in names and group["state"] != "REMOVED":
                with suppress(ValueError):
                    remove_placement_group(get_placement_group(group["name"]))
        await asyncio.sleep(max(self._born + self._lease + MARGIN - time.monotonic(), 0.0))
        for key in left:
            self._end(key, "the keeper of gangs on the Ray cluster was lost", "engine")

    # ------------------------------------------------------------------ nodes

    def _begin(self) -> None:
        """Begin to watch, at the first request."""
        if not self._tasks:
            import ray

            self._probe = ray.remote(num_cpus=0, max_retries=0)(_devices)
            self._look()
            self._spawn(self._watch())
            self._spawn(self._bury())

    def _spawn(self, what: Any) -> None:
        task = asyncio.get_running_loop().create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(LOOK)
            if time.monotonic() > before + 3 * LOOK:
                continue  # this process stalled: handle the heartbeats that came meanwhile first
            with suppress(Exception):  # the head of the cluster does not answer: retry later
                self._look()

    def _look(self) -> None:
        """Check which nodes are there, and which agents send heartbeats."""
        import ray

        now = time.monotonic()
        there = {node["NodeID"]: node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")}
        for node in list(self._nodes.values()):
            late = now - node.born > BEGUN if node.heard is None else now - node.heard > self._lease
            if node.id not in there or late:
                self._lose(node)
        self._twins = {node: since for node, since in self._twins.items() if node in there}
        for found in there.values():
            known = self._nodes.get(found["NodeID"])
            if known is None:
                if (name := self._name(found)) is not None:
                    self._nodes[found["NodeID"]] = self._node(name, found)
            elif (server := _server(known.server["name"], found)) != known.server:
                known.server = server
                if known.heard is not None:
                    self._tell({"kind": "server-changed", "server": server})
        running = [gang for gang in self._gangs.values() if gang.started]
        if running:
            from ray.util.placement_group import placement_group_table

            there_too = {group["name"] for group in placement_group_table().values() if group["state"] != "REMOVED"}
            for gang in running:
                if gang.name not in there_too:
                    gang.end("its placement group was removed by another program", "cancelled")

    def _lose(self, node: Node) -> None:
        """Lose a node and all gangs with a part there; if it is still there, it gets a new agent."""
        import ray

        del self._nodes[node.id]
        node.lost = True
        ray.kill(node.agent)
        if node.heard is not None:
            self._tell({"kind": "server-lost", "server": node.server["name"]})
        for gang in self._gangs.values():
            gang.lost_node(node)

    def _name(self, found: Json) -> str | None:
        """The name of a new node; None while another node has it, which may be the same node before a restart."""
        node = found["NodeID"]
        name = str((found["Labels"] or {}).get("name") or found["NodeManagerAddress"].replace(":", "-"))
        name = name if name[0].isalnum() else f"node{name}"
        if all(known.server["name"] != name for known in self._nodes.values()):
            self._twins.pop(node, None)
            return name
        since = self._twins.setdefault(node, time.monotonic())
        return f"{name}-{node[:8]}" if time.monotonic() > since + TWINS else None

    def _node(self, name: str, found: Json) -> Node:
        """Start the agent of a node that is new, or has lost its agent."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node, life = found["NodeID"], os.urandom(8).hex()
        on_node = NodeAffinitySchedulingStrategy(node, soft=False)
        options = {"num_cpus": 0, "max_concurrency": 100_000, "scheduling_strategy": on_node}
        keeper = ray.get_runtime_context().current_actor
        agent = ray.remote(Agent).options(**options).remote(keeper, node, life, self._guard, self._lease)
        agent.attend.remote()
        return Node(node, found["NodeManagerAddress"], life, agent, _server(name, found), time.monotonic())


def _server(name: str, found: Json) -> Json:
    """A node as a server. Ray's CPU takes precedence over a custom resource named cpu."""
    capacity = {
        OURS.get(resource, resource): round(amount * 1000)
        for resource, amount in sorted(found["Resources"].items(), reverse=True)
        if not resource.startswith(HIDDEN) and "_group_" not in resource
    }
    labels = {label: value for label, value in (found["Labels"] or {}).items() if label != NODE_LABEL}
    return {"name": name, "capacity": capacity, "labels": labels, "speed": 1.0}


def _name(key: Key) -> bytes:
    return f"attempt/{key[0]}/{key[1]}".encode()
