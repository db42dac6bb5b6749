"""Output of the tasks of an attempt, read from the logs of their pods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus

from berth.errors import InvalidInput
from berth.live.core.events import last_line
from berth.live.engines import EngineError, NoLogs
from berth.live.engines.kubernetes.record import Record
from berth.live.engines.kubernetes.status import SeenPod
from berth.live.kubernetes_api import ApiError

__all__ = ["last_words", "read_logs"]

PARALLEL = 8
"""Logs that are read at once."""
MOST, LEAST = 16 * 2**20, 4096
"""Bytes of all logs together, and of the log of a task in a large gang."""
Ask = Callable[[str, Mapping[str, str]], Awaitable[str]]
"""Reads the text at a path, with a query."""


async def read_logs(ask: Ask, record: Record, pods: Iterable[SeenPod], task: int | None, tail: int) -> str:
    """The last lines of each task, or of one task; Kubernetes keeps them as long as the pods."""
    names, there = _names(record), {pod.name: pod for pod in pods}
    if task is not None and task >= len(names):
        raise InvalidInput(f"a task from 0 to {len(names) - 1}", value=task, key="task")
    few = asyncio.Semaphore(PARALLEL)
    chosen = range(len(names)) if task is None else [task]
    query = {"tailLines": str(tail), "limitBytes": str(max(MOST // max(len(chosen), 1), LEAST))}

    async def read(index: int) -> str | None:
        pod = there.get(record.members[index][1] if record.members else record.pod(index))
        if pod is None:
            return None
        async with few:
            try:
                path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log"
                return await ask(path, {**_box(pod), **query})
            except ApiError as error:
                if error.status == HTTPStatus.BAD_REQUEST:  # the container has not started
                    return ""
                if error.status != HTTPStatus.NOT_FOUND:
                    raise EngineError(str(error)) from None
                return None

    texts = await asyncio.gather(*(read(index) for index in chosen))
    if all(text is None for text in texts):
        raise NoLogs(f"attempt {record.key[1]} of job {record.key[0]} has no pods any more, and their output is gone")
    if len(chosen) == 1:
        return texts[0] or ""
    return "".join(
        f"{names[index]}: {line}\n"
        for index, text in zip(chosen, texts, strict=True)
        for line in (text or "").splitlines()
    )


async def last_words(ask: Ask, pod: SeenPod) -> str:
    """The last line that a pod printed, if it can be read."""
    try:
        text = await ask(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log", {**_box(pod), "tailLines": "20"})
    except ApiError:
        return ""
    return last_line(text)


def _box(pod: SeenPod) -> dict[str, str]:
    """The container whose output is read."""
    return {"container": pod.spec["containers"][0]["name"]}


def _names(record: Record) -> list[str]:
    """Role and rank of each task, such as `worker-2`."""
    ranks: dict[str, int] = {}
    names = []
    for role, _ in record.tasks:
        ranks[role] = ranks.get(role, -1) + 1
        names.append(f"{role}-{ranks[role]}")
    return names
