"""Slurm's commands, run without a shell: their arguments, and what their failures mean."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import BinaryIO, Protocol

from berth.live.engines import EngineError
from berth.live.engines.slurm.parsing import (
    NUMBER,
    Config,
    Node,
    SlurmJob,
    read_config,
    read_jobs,
    read_nodes,
)
from berth.live.engines.slurm.partitions import Partition, Reservation, read_partitions, read_reservations
from berth.live.engines.slurm.settings import SlurmSettings
from berth.live.engines.slurm.submission import Component, Submission

__all__ = ["Away", "Refused", "Slurm", "SlurmCommands", "sbatch_arguments"]

PARALLEL = 4
"""The most commands that run in parallel."""
NOT_SENT = re.compile(
    "connect failure|Connection refused|Protocol authentication error|Munge|cannot stat file|"
    "Unable to process configuration|establish a configuration source|resolve hostname"
)
"""Errors of the commands after which slurmctld has certainly not received the request."""
AWAY = re.compile(
    "Unable to contact|Socket timed out|Zero Bytes|Transport|temporarily unable|Unable to establish|"
    "connection shutdown|not responding|Connection reset|Connection timed out|in standby mode|Unexpected message|"
    "invalid during node|No response|missing socket|Message (receive|send) failure|Communication|Header lengths|"
    "message length|Broken pipe"
)
"""Errors of the commands when slurmctld did not answer; it may or may not have received the request."""


log = logging.getLogger(__name__)


class Away(EngineError):
    """slurmctld did not answer. `heard` says whether it may have received the request."""

    def __init__(self, message: str, heard: bool) -> None:
        super().__init__(message)
        self.heard = heard


class Refused(EngineError):
    """Slurm refused the request."""


class Slurm(Protocol):
    """The operations of Slurm that the engine needs, by commands or REST."""

    async def jobs(self) -> list[SlurmJob]:
        """All jobs that slurmctld knows, including recently ended ones."""
        ...

    async def nodes(self) -> list[Node]: ...

    async def partitions(self) -> dict[str, Partition]: ...

    async def reservations(self) -> list[Reservation]:
        """Current and future reservations of nodes."""
        ...

    async def config(self) -> Config: ...

    async def lost_steps(self, job: int) -> bool | None:
        """Whether slurmctld believes that steps of a job run which some of their nodes lack; None if it has none."""
        ...

    async def skip(self, number: int) -> None:
        """Use up job ids up to this one: reports of nodes about forgotten jobs would be taken for new jobs."""
        ...

    async def submit(self, submission: Submission) -> int:
        """Slurm's id of the job; raises `Refused` or `Away`."""
        ...

    async def cancel(self, jobs: Sequence[int]) -> None:
        """End jobs, including those that have ended already."""
        ...

    async def update(self, job: int, changes: Mapping[str, str]) -> None: ...

    async def hold(self, job: int) -> None: ...

    async def release(self, job: int) -> None: ...

    async def close(self) -> None: ...


def sbatch_arguments(submission: Submission) -> list[str]:
    """The options of sbatch; those of several components are separated by `:`."""
    words: list[str] = []
    for component in submission.components:
        if words:
            words.append(":")
        words += [
            "--no-requeue",
            "--ignore-pbs",
            f"--job-name={submission.name}",
            f"--comment={submission.tag}",
            f"--chdir={submission.directory}",
            f"--output={submission.output.replace('%', '%%')}",
            "--open-mode=append",
            f"--nodes={len(component.nodes)}",
            f"--nodelist={','.join(component.nodes)}",
            f"--cpus-per-task={component.cpus}",
            *_shares(component),
        ]
        if submission.partition:
            words.append(f"--partition={submission.partition}")
        if submission.minutes is not None:
            words.append(f"--time={submission.minutes}")
        if submission.user is not None:  # with its supplementary groups, which Slurm looks up
            words += [f"--uid={submission.user.pw_uid}", f"--gid={submission.user.pw_gid}"]
    return words


def _shares(component: Component) -> list[str]:
    """The options for how many tasks and how much memory and GRES each node gives."""
    memory = component.memory_mib
    if component.tasks is None:
        words = [f"--ntasks={component.total}"]
        words += [] if memory is None else [f"--mem-per-cpu={memory}M"]
        return words + [f"--{name}s-per-task={count}" for name, count in component.gres]
    words = [f"--ntasks-per-node={component.tasks}" if component.alike else f"--ntasks={len(component.nodes)}"]
    words += [] if memory is None else [f"--mem={memory}M"]
    gres = ",".join(f"{name}:{count}" for name, count in component.gres)
    return words + ([f"--gres={gres}"] if gres else [])


class SlurmCommands:
    """Slurm by sbatch, squeue, scontrol and scancel."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._seconds, self._partition = settings.command_seconds, settings.partition
        # no variable of berth's own environment may act as an option
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SLURM", "SBATCH", "SALLOC", "SQUEUE", "SINFO", "SCANCEL", "BERTH"))
        }
        if settings.conf is not None:
            self._environment["SLURM_CONF"] = str(settings.conf)
        elif "SLURM_CONF" in os.environ:
            self._environment["SLURM_CONF"] = os.environ["SLURM_CONF"]
        self._room = asyncio.Semaphore(PARALLEL)
        self._threads = ThreadPoolExecutor(PARALLEL, thread_name_prefix="slurm")

    async def _ask(self, *words: str, given: bytes = b"", variables: bytes | None = None) -> str:
        """Run a command and return its output. Memory files replace pipes, which could deadlock."""
        name = " ".join(words[:3] if words[0] == "scontrol" else words[:1])
        with ExitStack() as stack:
            files = [stack.enter_context(_memory(content)) for content in (given, b"", b"")]
            if variables is not None:
                files.append(stack.enter_context(_memory(variables)))
                # by its name: each component of a job opens it again
                words = (*words[:1], f"--export-file=/proc/self/fd/{files[3].fileno()}", *words[1:])
            async with self._room:
                code = await self._run(name, words, files)
            reading = asyncio.get_running_loop().run_in_executor(self._threads, _contents, files[1:3])
            out, err = await reading
        if code == 0:
            return out
        if code in (-9, 137):
            raise Away(f"{name} did not end in {self._seconds:g} s", heard=True)
        if code == 127:
            raise Away(f"{name} cannot be run: is Slurm installed, and in the PATH?", heard=False)
        raise failure(name, err.strip() or out.strip() or "no reason")

    async def _run(self, name: str, words: Sequence[str], files: Sequence[BinaryIO]) -> int:
        try:
            # it times out by itself even if berth is gone
            process = subprocess.Popen(
                ["timeout", "--signal=KILL", f"{self._seconds:g}", *words],
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                env=self._environment,
                pass_fds=[file.fileno() for file in files[3:]],
                start_new_session=True,
            )
        except OSError as error:
            raise Away(f"{name} cannot be run: {error.strerror or error}", heard=False) from None
        try:
            async with asyncio.timeout(self._seconds + 5.0):
                return await asyncio.get_running_loop().run_in_executor(self._threads, process.wait)
        except TimeoutError:
            raise Away(f"{name} did not end in {self._seconds:g} s", heard=True) from None
        finally:  # nothing is awaited here: the task may be cancelled again
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    async def jobs(self) -> list[SlurmJob]:
        return await asyncio.to_thread(read_jobs, await self._ask("squeue", "--json", "--states=all"))

    async def nodes(self) -> list[Node]:
        return await asyncio.to_thread(read_nodes, await self._ask("scontrol", "-o", "show", "nodes"))

    async def partitions(self) -> dict[str, Partition]:
        return read_partitions(await self._ask("scontrol", "-o", "--all", "show", "partitions"))

    async def reservations(self) -> list[Reservation]:
        return read_reservations(await self._ask("scontrol", "-o", "show", "reservation"))

    async def config(self) -> Config:
        return read_config(await self._ask("scontrol", "show", "config"))

    async def lost_steps(self, job: int) -> bool | None:
        before = await self._steps(job)
        if not before:
            return None
        said = await self._ask("sstat", "--noheader", "--parsable2", "--pidformat", "--allsteps", f"--jobs={job}")
        there = {line.partition("|")[0].rpartition(".")[2] for line in said.splitlines()}
        return bool((before & await self._steps(job)) - there)

    async def _steps(self, job: int) -> set[str]:
        """The ids of steps that slurmctld believes to run."""
        said = await self._ask("squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i")
        return {line.strip().rpartition(".")[2] for line in said.splitlines()} - {"batch", "extern"}

    async def skip(self, number: int) -> None:
        words = ["--parsable", "--hold", f"--job-name={NUMBER}", "--output=/dev/null", "--wrap=true"]
        words += [f"--partition={self._partition}"] if self._partition else []
        used: list[int] = []
        try:
            while not used or used[-1] < number:
                used.append(_number(await self._ask("sbatch", *words)))
        except Refused as error:
            log.warning("ids of jobs that slurmctld may have forgotten are reused: %s", error)
        finally:
            if used:
                await self.cancel(used)

    async def submit(self, submission: Submission) -> int:
        variables = b"".join(
            f"{name}={value}".encode("utf-8", "surrogateescape") + b"\0"
            for name, value in submission.environment.items()
        )
        answer = await self._ask(
            "sbatch",
            "--parsable",
            *sbatch_arguments(submission),
            given=submission.script.encode("utf-8", "surrogateescape"),
            variables=variables,
        )
        return _number(answer)

    async def cancel(self, jobs: Sequence[int]) -> None:
        try:
            await self._ask("scancel", "--quiet", *(str(job) for job in jobs))
        except Refused as error:
            if not re.search("already completing|Invalid job id|already finished|individual component", str(error)):
                raise

    async def update(self, job: int, changes: Mapping[str, str]) -> None:
        words = [f"{name}={value}" for name, value in changes.items()]
        await self._ask("scontrol", "update", f"JobId={job}", *words)

    async def hold(self, job: int) -> None:
        await self._ask("scontrol", "hold", str(job))

    async def release(self, job: int) -> None:
        await self._ask("scontrol", "release", str(job))

    async def close(self) -> None:
        """Do nothing: no connection is kept."""


def _number(answer: str) -> int:
    match = re.search(r"^(\d+)", answer.strip())
    if match is None:
        raise Away(f"sbatch: expected the number of a job, got {answer.strip()[:80]!r}", heard=True)
    return int(match[1])


def _memory(content: bytes) -> BinaryIO:
    """A file in memory, positioned at its beginning."""
    file = os.fdopen(os.memfd_create("berth"), "w+b")
    file.write(content)
    file.seek(0)
    return file


def _contents(files: Sequence[BinaryIO]) -> list[str]:
    for file in files:
        file.seek(0)
    return [file.read().decode(errors="replace") for file in files]


def failure(name: str, said: str) -> EngineError:
    """The error of a command: slurmctld is away, or it refused."""
    last = re.sub(r"^(\w+): (error|fatal): ", "", said.splitlines()[-1].strip())
    if "configuration source" in last:
        last += " (say where slurm.conf is: with `conf` in the settings of the engine, or with SLURM_CONF)"
    if NOT_SENT.search(said):
        return Away(f"{name}: {last}", heard=False)
    if AWAY.search(said):
        return Away(f"{name}: {last}", heard=True)
    return Refused(f"{name}: {last}")
