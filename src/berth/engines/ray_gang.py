"""One attempt of a job on a Ray cluster: a placement group, and a Ray task in it for each task of the gang.

Nothing begins before every task of the gang has a process on its node that answers. The attempt ends when nothing of it
runs any more: each task has said how it ended, or was silent for so long that its guard has killed it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from berth.engines.ray_task import LARGEST

__all__ = ["Gang", "Part", "Site"]

RAY_NAMES = {"cpu": "CPU", "gpu": "GPU"}
NODE_LABEL = "ray.io/node-id"
PULSE = 1.0
"""Seconds after which a task asks again."""


@dataclass(frozen=True)
class Site:
    """What a gang needs to know of where it is."""

    keeper: Any
    task: Any
    """`run_task`, as Ray calls it."""
    guard: str
    address: str
    lease: float
    """Seconds after which a task that hears nothing from the keeper is killed, wherever it is."""
    margin: float
    """Seconds more after which the keeper relies on it."""
    patience: float
    """Seconds within which all tasks of a gang must be there."""
    grace: float
    """Seconds that a task has to end by itself."""
    alive: Callable[[str], bool]
    """Whether Ray holds a node for alive."""
    suspect: Callable[[str], None]
    """To be told of a node that is silent."""


@dataclass
class Part:
    """One task of a gang; `heard` is when it asked last, by the keeper's clock."""

    server: str
    node: str
    ip: str
    role: str
    rank: int
    demand: Mapping[str, int]
    heard: float = 0.0
    here: bool = False
    began: bool = False
    over: bool = False
    seconds: float = 0.0
    result: bytes | None = None
    reference: Any = None

    @property
    def bundle(self) -> dict[str, float]:
        """What it takes, in Ray's words; a task that takes nothing still has a place on its node."""
        given = {RAY_NAMES.get(name, name): milli / 1000 for name, milli in self.demand.items() if milli}
        return given or {f"node:{self.ip}": 0.001}

    def __str__(self) -> str:
        return f"task {self.role} {self.rank} on {self.server}"


@dataclass
class Gang:
    """An attempt, from its start to its end."""

    job: str
    attempt: int
    parts: Sequence[Part]
    payload: Mapping[str, Any]
    site: Site
    started: bool = False
    verdict: tuple[str, str] | None = None
    """Why it is to end, and by whose fault; only the first counts."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def seconds(self) -> float:
        """How long it ran: as long as its longest task."""
        return max(part.seconds for part in self.parts)

    def end(self, reason: str, fault: str) -> None:
        """All of it is to end."""
        if self.verdict is None:
            self.verdict = reason, fault
            self._wake()

    def lost_node(self, node: str) -> None:
        """A node is gone, with what it had."""
        for part in self.parts:
            if part.node == node and not part.over:
                self.end(f"server {part.server} was lost", "server")

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait(self, seconds: float) -> None:
        """Wait for something to change, at most so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), max(seconds, 0.0))

    async def pulse(self, index: int) -> str:
        """A task asks what to do: `wait` for the others, run (`begin`), or `end`. The answer comes when there is one."""
        part = self.parts[index]
        part.heard = time.monotonic()
        if not part.here:
            part.here = True
            self._wake()
        if self.verdict is None and (part.began or not self.started):
            await self._wait(PULSE)
        if self.verdict is not None:
            return "end"
        part.began = part.began or self.started
        return "begin" if self.started else "wait"

    async def run(self, told: Callable[[], None]) -> None:
        """Start it, say so when all of it runs, and come back when none of it does."""
        from ray.util.placement_group import placement_group, remove_placement_group

        group = None
        following: list[asyncio.Task[None]] = []
        try:
            group = placement_group(
                [part.bundle for part in self.parts],
                name=f"berth-{self.job}-{self.attempt}",
                bundle_label_selector=[{NODE_LABEL: part.node} for part in self.parts],
            )
            for index, part in enumerate(self.parts):
                part.reference = self._submit(group, index, part)
                following.append(asyncio.create_task(self._follow(part)))
            if await self._gathered():
                self.started = True
                self._wake()
                told()
            await asyncio.gather(*following)
        except Exception as error:  # a ValueError is about what the job wants, such as half a unit more than one
            self.end(f"Ray refused it: {_line(error)}", "job" if isinstance(error, ValueError) else "engine")
            await asyncio.gather(*following)
        finally:
            if group is not None:
                remove_placement_group(group)

    def _submit(self, group: Any, index: int, part: Part) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        amounts = dict(part.bundle)
        options: dict[str, Any] = {"num_cpus": amounts.pop("CPU", 0), "num_gpus": amounts.pop("GPU", 0) or None}
        options["memory"] = int(amounts.pop("memory", 0)) or None
        task = self.site.task.options(
            name=f"berth {self.job}",
            resources=amounts or None,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, index),
            **options,
        )
        return task.remote(self.site.keeper, (self.job, self.attempt), index, self._told(part), self.site.guard)

    def _told(self, part: Part) -> dict[str, Any]:
        """What a task needs to know to run."""
        there = {one.server: one.ip for one in self.parts}
        berth = {
            "BERTH_JOB": self.job,
            "BERTH_ATTEMPT": str(self.attempt),
            "BERTH_ROLE": part.role,
            "BERTH_RANK": str(part.rank),
            "BERTH_TASKS": str(len(self.parts)),
            "BERTH_SERVER": part.server,
            "BERTH_SERVERS": ",".join(there),
            "BERTH_ADDRESSES": ",".join(there.values()),
            "RAY_ADDRESS": self.site.address,
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
            "lease": self.site.lease,
            "grace": self.site.grace,
        }

    async def _gathered(self) -> bool:
        """Wait until every task is there; whether they are."""
        until = time.monotonic() + self.site.patience
        while self.verdict is None and time.monotonic() < until:
            if all(part.here for part in self.parts):
                return True
            await self._wait(until - time.monotonic())
        missing = [part for part in self.parts if not part.here]
        for part in missing:
            self.site.suspect(part.node)
        if missing:
            many = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            self.end(f"{missing[0]}{many} did not get ready in {self.site.patience:g} s", "engine")
        return False

    async def _follow(self, part: Part) -> None:
        """Wait until a task is over, and see how it went."""
        asked, lease = asyncio.ensure_future(part.reference), self.site.lease
        while not asked.done():
            if self.verdict is not None and not part.here:
                break  # if it comes after all, it is told to end
            if part.here and time.monotonic() - part.heard > lease:
                self.site.suspect(part.node)
                self.end(f"server {part.server} has not answered for {lease:g} s", "server")
                break
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait({asked, changed}, timeout=PULSE, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        if asked.done() and asked.exception() is None:
            self._judge(part, asked.result())
        else:
            if asked.done():
                self._lost(part, asked.exception())
            asked.cancel()
            if part.began:  # by then its guard has killed it
                await asyncio.sleep(max(part.heard + lease + self.site.margin - time.monotonic(), 0.0))
        part.over = True
        self._wake()

    def _lost(self, part: Part, error: BaseException | None) -> None:
        if self.site.alive(part.node):
            self.end(f"{part} was lost: {_line(error)}", "engine")
        else:
            self.end(f"server {part.server} was lost", "server")

    def _judge(self, part: Part, went: Mapping[str, Any]) -> None:
        """Take note of how a task went."""
        part.seconds, part.result = went["seconds"], went.get("result")
        how, code = went["how"], went["code"]
        if how == "refused":
            self.end(f"{part} could not be run: {went['error']}", "job")
        elif how == "unguarded":
            self.end(f"{part}: {went['error']}", "engine")
        elif how == "silence":
            self.end(f"{part} heard nothing from the head of the cluster for {self.site.lease:g} s", "engine")
        elif how == "ended" and code:
            what = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self.end(f"{part} {what}{': ' if went['words'] else ''}{went['words']}", "job")
        elif how == "ended" and went.get("large"):
            self.end(f"{part} gave a result of {went['large']} bytes, more than {LARGEST}", "job")


def _line(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
