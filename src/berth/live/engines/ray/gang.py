"""One attempt of a job on a Ray cluster: a placement group that holds its places, and its tasks, run by nodes' agents.

Nothing begins before the whole group is ready. The attempt ends when none of its tasks runs any more: each has
reported its end, or its node was silent for so long that the guard has killed it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from berth.live.engines.ray.agent import LARGEST, PULSE

__all__ = ["Gang", "Node", "Part"]

RAY_NAMES = {"cpu": "CPU", "gpu": "GPU"}
NODE_LABEL = "ray.io/node-id"
NUMBERED = {"GPU", "TPU", "NPU", "HPU", "neuron_cores"}
"""Resources whose devices Ray assigns by environment variables."""
PATIENCE = 10.0
"""Seconds within which the group must be ready."""
WORKER = 60.0
"""Seconds within which Ray must start a process on a node: on a busy node it takes long."""
GRACE = 2.0
"""Seconds that a task has to end by itself."""
EPS = 1e-4
"""Ray counts resources in ten thousandths."""
FIRST_LOOK, LAST_LOOK = 0.01, 0.5
"""Seconds between two checks of the group, at first and at last."""


@dataclass
class Node:
    """A node as the keeper knows it; `heard` is the time of its agent's last heartbeat, by the keeper's clock."""

    id: str
    ip: str
    life: str
    agent: Any
    server: dict[str, Any]
    born: float
    heard: float | None = None
    lost: bool = False


@dataclass
class Part:
    """One task of a gang."""

    node: Node
    role: str
    rank: int
    demand: Mapping[str, int]
    began: bool = False
    over: bool = False
    seconds: float = 0.0
    result: bytes | None = None

    @property
    def server(self) -> str:
        return str(self.node.server["name"])

    @property
    def bundle(self) -> dict[str, float]:
        """What it takes, in Ray's units; a task that takes nothing still has a place on its node."""
        given = {RAY_NAMES.get(name, name): milli / 1000 for name, milli in self.demand.items() if milli}
        return given or {f"node:{self.node.ip}": 0.001}

    def __str__(self) -> str:
        return f"task {self.role} {self.rank} on {self.server}"


@dataclass
class Gang:
    """An attempt, from its start to its end."""

    job: str
    attempt: int
    parts: Sequence[Part]
    payload: Mapping[str, Any]
    lease: float
    """Seconds without a heartbeat after which a guard kills its task."""
    margin: float
    """Further seconds after which the keeper relies on that."""
    probe: Any
    """A Ray task that returns its environment."""
    started: bool = False
    verdict: tuple[str, str, str] | None = None
    """Why it must end, and by whose fault; only the first counts."""
    refused_by: Sequence[str] | None = None
    """The servers that had no room for it, if that is why it ends."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        """The name of its placement group."""
        return f"berth-{self.job}-{self.attempt}"

    @property
    def seconds(self) -> float:
        """How long it ran: as long as its longest task."""
        return max(part.seconds for part in self.parts)

    def end(self, reason: str, fault: str, last_output: str = "") -> None:
        """End all of it."""
        if self.verdict is not None:
            return
        self.verdict = reason, fault, last_output
        self._changed.set()
        for part in self.parts:
            if part.began and not part.over and not part.node.lost:
                part.node.agent.end.remote(self.job, self.attempt)

    def lost_node(self, node: Node) -> None:
        """Lose a node, with its tasks."""
        self._changed.set()
        for part in self.parts:
            if part.node is node and not part.over:
                self.end(f"server {part.server} was lost", "server")

    async def run(self, told: Callable[[], None]) -> None:
        """Start it, report when all of it runs, and return when none of it does."""
        from ray.util.placement_group import placement_group, remove_placement_group

        group = None
        try:
            group = placement_group(
                [part.bundle for part in self.parts],
                name=self.name,
                bundle_label_selector=[{NODE_LABEL: part.node.id} for part in self.parts],
            )
            if await self._there(group):
                devices = await asyncio.gather(*(self._devices(group, i, p) for i, p in enumerate(self.parts)))
                if self.verdict is None:
                    self.started = True
                    told()
                    parts = zip(self.parts, devices, strict=True)
                    await asyncio.gather(*(self._run(i, *given) for i, given in enumerate(parts)))
        except Exception as error:  # a ValueError is the job's fault, such as a demand for one and a half devices
            self.end(f"Ray refused it: {_line(error)}", "job" if isinstance(error, ValueError) else "engine")
        finally:
            for node in {part.node.id: part.node for part in self.parts if part.began and not part.node.lost}.values():
                node.agent.forget.remote(self.job, self.attempt)
            if group is not None:
                remove_placement_group(group)

    async def _there(self, group: Any) -> bool:
        """Wait until the whole group is ready; whether it is."""
        from ray.util.placement_group import placement_group_table

        until, wait = time.monotonic() + PATIENCE, FIRST_LOOK
        while self.verdict is None:
            state = placement_group_table(group).get("state")
            if state == "CREATED":
                return True
            if state == "REMOVED" or time.monotonic() > until:
                why = "was removed" if state == "REMOVED" else f"did not get ready in {PATIENCE:g} s"
                if state != "REMOVED":
                    self.refused_by = self._full() or [part.server for part in self.parts]
                self.end(f"its placement group {why}", "engine")
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait)
            wait = min(1.5 * wait, LAST_LOOK)
        return False

    def _full(self) -> list[str]:
        """The servers that have too little free for their tasks: other programs hold it."""
        from ray._private.state import available_resources_per_node

        free = available_resources_per_node()
        asked: dict[tuple[str, str, str], float] = {}
        for part in self.parts:
            for name, amount in part.bundle.items():
                key = part.server, part.node.id, name
                asked[key] = asked.get(key, 0.0) + amount
        lacking = (
            server for (server, node, name), amount in asked.items() if free.get(node, {}).get(name, 0.0) < amount - EPS
        )
        return list(dict.fromkeys(lacking))

    async def _devices(self, group: Any, index: int, part: Part) -> dict[str, str]:
        """Environment variables that select this task's devices: those that Ray sets for a task in its bundle."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        amounts = part.bundle
        if not NUMBERED & amounts.keys():
            return {}
        gpus = amounts.pop("GPU", 0)
        others = {name: amount for name, amount in amounts.items() if name in NUMBERED}
        strategy = PlacementGroupSchedulingStrategy(group, index)
        asked = self.probe.options(num_gpus=gpus, resources=others, scheduling_strategy=strategy).remote()
        try:
            found: dict[str, str] = await asyncio.wait_for(asked, WORKER)
        except TimeoutError:
            raise TimeoutError(f"no process was started on {part.server} in {WORKER:g} s") from None
        return found

    async def _run(self, index: int, part: Part, devices: Mapping[str, str]) -> None:
        """Let the agent of its node run a task, and judge the result."""
        if self.verdict is not None:
            return
        part.began = True
        told = self._told(part, devices)
        asked = asyncio.ensure_future(part.node.agent.run.remote(self.job, self.attempt, index, told))
        while not asked.done() and not part.node.lost:
            await asyncio.wait({asked}, timeout=PULSE)
        if asked.done() and asked.exception() is None:
            self._judge(part, asked.result())
        else:
            self.end(f"server {part.server} was lost", "server")
            asked.cancel()
            killed = (part.node.heard or 0.0) + self.lease + self.margin  # its guard has killed it by then
            await asyncio.sleep(max(killed - time.monotonic(), 0.0))
        part.over = True

    def _told(self, part: Part, devices: Mapping[str, str]) -> dict[str, Any]:
        """The order for the agent that runs a task."""
        there = {one.server: one.node.ip for one in self.parts}
        berth = {
            "BERTH_JOB": self.job,
            "BERTH_ATTEMPT": str(self.attempt),
            "BERTH_ROLE": part.role,
            "BERTH_RANK": str(part.rank),
            "BERTH_TASKS": str(len(self.parts)),
            "BERTH_SERVER": part.server,
            "BERTH_SERVERS": ",".join(there),
            "BERTH_ADDRESSES": ",".join(there.values()),
            **devices,
        }
        return {
            "command": self.payload.get("command") or [],
            "script": self.payload.get("script"),
            "callable": self.payload.get("callable"),
            "workdir": self.payload.get("workdir"),
            "environment": self.payload.get("environment") or {},
            "berth": berth,
            "role": part.role,
            "rank": part.rank,
            "lease": self.lease,
            "grace": GRACE,
        }

    def _judge(self, part: Part, went: Mapping[str, Any]) -> None:
        """Judge how a task ended."""
        part.seconds, part.result = went["seconds"], went["result"]
        how, code = went["how"], went["code"]
        if how == "refused":
            self.end(f"{part} could not be run", "job", went["error"])  # the error may quote the command
        elif how == "unguarded":
            self.end(f"{part}: {went['error']}", "engine")
        elif how == "silence":
            self.end(f"{part} heard nothing from the head of the cluster for {self.lease:g} s", "engine")
        elif how == "ended" and code:
            what = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self.end(f"{part} {what}", "job", went["words"])
        elif how == "ended" and went["large"]:
            self.end(f"{part} gave a result of {went['large']} bytes, more than {LARGEST}", "job")


def _line(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
