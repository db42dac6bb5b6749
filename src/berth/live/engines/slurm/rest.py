"""Slurm over slurmrestd instead of its commands: for a berth that runs where Slurm is not installed.

It uses `v0.0.38` of the API, which slurmrestd of 22.05 to 23.11 has. The API needs a JSON Web Token (`scontrol
token`), which berth reads for each request, so that it may be replaced while berth runs; jobs run as the user of the
token. slurmrestd reports neither how long slurmctld remembers jobs nor their default memory, and 22.05 ignores that
jobs are not to be requeued: a job whose node is lost then fails by the engine's fault.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from berth.live.engines import EngineError
from berth.live.engines.slurm.commands import Away, Refused
from berth.live.engines.slurm.long_json import loads
from berth.live.engines.slurm.parsing import Config, Node, SlurmJob, read_job, read_json_node
from berth.live.engines.slurm.partitions import Partition, Reservation, read_json_partitions, read_json_reservations
from berth.live.engines.slurm.settings import SlurmSettings
from berth.live.engines.slurm.submission import Component, Submission

__all__ = ["SlurmRest"]

BASE = "/slurm/v0.0.38"
PARALLEL = 4
LARGEST = 256 * 2**20
UNTOLD = 300.0
"""Seconds for which slurmctld is assumed to remember jobs: its default."""


class SlurmRest:
    """Slurm over HTTP; `rest` of the settings is the address."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._where, self._token, self._seconds = settings.rest, settings.token, settings.command_seconds
        self._user = pwd.getpwuid(os.getuid()).pw_name
        self._room = asyncio.Semaphore(PARALLEL)

    async def _ask(self, method: str, path: str, body: object = None, **lists: Callable[[Any], Any]) -> dict[str, Any]:
        """Its answer, in which the elements of long lists are read by these functions."""
        name = f"slurmrestd {method} {path}"
        async with self._room:
            try:
                async with asyncio.timeout(self._seconds):
                    status, text = await self._exchange(method, path, body)
            except TimeoutError:
                raise Away(f"{name}: no answer in {self._seconds:g} s", heard=True) from None
            except (ConnectionRefusedError, FileNotFoundError):
                raise Away(f"{name}: no server listens at {self._where}", heard=False) from None
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
                raise Away(f"{name}: {error}", heard=True) from None
        try:
            found = await asyncio.to_thread(loads, text, **lists)
        except ValueError:
            found = None
        except EngineError as error:
            raise EngineError(f"{name}: {error}") from None
        if not isinstance(found, dict):
            raise Away(f"{name}: expected JSON, got {status} {text[:120]!r}", heard=status != 401)
        errors = found.get("errors") or []
        if errors or status >= 400:
            first = errors[0] if errors else {}
            said = first.get("description") or first.get("error") or str(status)
            if re.search("Unable to contact|timed out|Unspecified error|Zero Bytes|authentication", said):
                raise Away(f"{name}: {said}", heard=True)
            raise Refused(f"{name}: {said}")
        return found

    async def _exchange(self, method: str, path: str, body: object) -> tuple[int, str]:
        if self._where.startswith("unix:"):
            connecting = asyncio.open_unix_connection(self._where.removeprefix("unix:"), limit=LARGEST)
            host = "localhost"
        else:
            url = urlsplit(self._where)
            host = url.netloc
            connecting = asyncio.open_connection(
                url.hostname,
                url.port or (443 if url.scheme == "https" else 80),
                ssl=url.scheme == "https",
                limit=LARGEST,
            )
        reader, writer = await connecting
        try:
            content = b"" if body is None else json.dumps(body).encode()
            lines = [
                f"{method} {BASE}{path} HTTP/1.1",
                f"Host: {host}",
                "Connection: close",
                f"X-SLURM-USER-NAME: {self._user}",
                *self._authentication(),
                *(["Content-Type: application/json", f"Content-Length: {len(content)}"] if content else []),
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode() + content)
            await writer.drain()
            status = int((await reader.readline()).split()[1])
            length = None
            while header := (await reader.readline()).strip().lower():
                if header.startswith(b"content-length:"):
                    length = int(header.partition(b":")[2])
            text = await (reader.read(LARGEST) if length is None else reader.readexactly(length))
            return status, text.decode(errors="replace")
        except IndexError:
            raise ValueError("expected an answer of HTTP") from None
        finally:
            writer.close()

    def _authentication(self) -> list[str]:
        if self._token is None:
            return []
        try:
            token = self._token.read_text(encoding="ascii").strip().removeprefix("SLURM_JWT=")
        except (OSError, UnicodeDecodeError) as error:
            raise EngineError(f"the token in {self._token} cannot be read: {error}") from None
        if not re.fullmatch(r"[\w.=-]+", token, re.ASCII):
            raise EngineError(f"expected a JSON Web Token in {self._token}, as `scontrol token` prints it")
        return [f"X-SLURM-USER-TOKEN: {token}"]

    async def jobs(self) -> list[SlurmJob]:
        return _list(await self._ask("GET", "/jobs", jobs=read_job), "jobs")

    async def nodes(self) -> list[Node]:
        return _list(await self._ask("GET", "/nodes", nodes=read_json_node), "nodes")

    async def partitions(self) -> dict[str, Partition]:
        return read_json_partitions(await self._ask("GET", "/partitions"))

    async def reservations(self) -> list[Reservation]:
        return read_json_reservations(await self._ask("GET", "/reservations"))

    async def config(self) -> Config:
        found = (await self._ask("GET", "/diag")).get("statistics") or {}
        return Config(str(found.get("req_time_start")), UNTOLD, False)

    async def lost_steps(self, job: int) -> bool:
        return False  # slurmrestd reports no steps

    async def skip(self, number: int) -> None:
        """Do nothing: slurmrestd cannot do it."""

    async def submit(self, submission: Submission) -> int:
        jobs = [_job(submission, component) for component in submission.components]
        what = {"job": jobs[0]} if len(jobs) == 1 else {"jobs": jobs}
        found = await self._ask("POST", "/job/submit", {"script": submission.script, **what})
        number = found.get("job_id")
        if isinstance(number, bool) or not isinstance(number, int):
            raise Away(f"slurmrestd: expected the number of a job, got {number!r}", heard=True)
        return number

    async def cancel(self, jobs: Sequence[int]) -> None:
        for job in jobs:
            try:
                await self._ask("DELETE", f"/job/{job}")
            except Refused as error:
                if not re.search("already completing|Invalid job id|already finished|finished", str(error)):
                    raise

    async def update(self, job: int, changes: Mapping[str, str]) -> None:
        raise Refused("jobs are not changed by slurmrestd")

    async def hold(self, job: int) -> None:
        raise Refused("jobs are not held by slurmrestd")

    async def release(self, job: int) -> None:
        raise Refused("jobs are not released by slurmrestd")

    async def close(self) -> None:
        """Do nothing: no connection is kept."""


def _list(found: Mapping[str, Any], name: str) -> list[Any]:
    there = found.get(name)
    if not isinstance(there, list):
        raise EngineError(f"slurmrestd GET /{name}: expected a list of {name}, got {str(there)[:120]}")
    return there


def _job(submission: Submission, component: Component) -> dict[str, Any]:
    """The request of a component."""
    nodes = len(component.nodes)
    asked: dict[str, Any] = {
        "name": submission.name,
        "comment": submission.tag,
        "nodes": [nodes, nodes],
        "nodelist": ",".join(component.nodes),
        "cpus_per_task": component.cpus,
        "environment": dict(submission.environment),
        "current_working_directory": submission.directory,
        "standard_output": submission.output.replace("%", "%%"),
        "open_mode": "append",
        "requeue": False,
    }
    chosen = component.tasks is None
    asked["tasks"] = component.total if component.tasks is None else component.tasks * nodes
    if component.alike and not chosen:
        asked["tasks_per_node"] = component.tasks
    if component.memory_mib is not None:
        asked["memory_per_cpu" if chosen else "memory_per_node"] = component.memory_mib
    if chosen:
        asked.update({f"{name}s_per_task": str(count) for name, count in component.gres})
    elif component.gres:
        asked["gres"] = ",".join(f"{name}:{count}" for name, count in component.gres)
    if submission.partition:
        asked["partition"] = submission.partition
    if submission.minutes is not None:
        asked["time_limit"] = submission.minutes
    return asked
