"""One poll of a large Slurm cluster: `python -m benchmarks.slurm_polling` (`--quick` for a look).

It prints for how long a poll holds up the event loop at most: as it is, and as it was when answers were read on the
loop. On a busy machine, look at the processor time. There are 10,000 nodes, each with one job of berth. The answers
are recorded ones of two versions of Slurm, multiplied; programs with the names of Slurm's commands print them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from berth.live.engines.slurm import SlurmEngine, SlurmSettings
from berth.live.engines.slurm.commands import SlurmCommands
from berth.live.engines.slurm.parsing import Node, SlurmJob, read_job, read_nodes
from berth.live.engines.slurm.submission import write_tag
from tests.live.engines.slurm.recorded import INSTANCE, USER, VERSIONS, recording

__all__ = ["main"]

POLLS = 3
TICK = 0.02
"""Seconds between two looks at the loop."""


class Before(SlurmCommands):
    """Slurm's commands, whose answers are read on the loop."""

    async def jobs(self) -> list[SlurmJob]:
        return [read_job(job) for job in json.loads(await self._ask("squeue", "--json", "--states=all"))["jobs"]]

    async def nodes(self) -> list[Node]:
        return read_nodes(await self._ask("scontrol", "-o", "show", "nodes"))


def write_answers(folder: Path, version: str, count: int) -> None:
    """Make programs that answer as Slurm does on a cluster with this many nodes and jobs."""
    answers = {name: recording(version, f"{name}.txt") for name in ("config", "partitions", "reservation")}
    (like,) = (line for line in recording(version, "nodes.txt").splitlines() if line.startswith("NodeName=n3 "))
    answers["nodes"] = "".join(f"{like.replace('n3', f'n{i}')}\n" for i in range(count))
    (job,) = (job for job in json.loads(recording(version, "squeue.json"))["jobs"] if job["name"] == "small")
    text = json.dumps({**job, "user_name": USER}).replace('"n3"', '"NODE"').replace(job["comment"], "TAG")
    jobs = [
        text.replace("NODE", f"n{i}")
        .replace("TAG", write_tag(INSTANCE, f"j{i}", 1))
        .replace(f'"job_id": {job["job_id"]}', f'"job_id": {i + 1}')
        for i in range(count)
    ]
    answers["squeue"] = f'{{"meta": {{}}, "errors": [], "jobs": [{", ".join(jobs)}]}}'
    for name, text in answers.items():
        (folder / name).write_text(text)
    (folder / "bin").mkdir()
    for command, which in (("squeue", "squeue"), ("scontrol", "$what")):
        program = folder / "bin" / command
        program.write_text(f"#!/bin/sh\nfor what; do :; done\nexec cat {folder}/{which}\n")  # the last argument
        program.chmod(0o755)


async def longest_stall(stop: asyncio.Event) -> tuple[float, float]:
    """By how many seconds the loop was late at most, and the most processor time of this process meanwhile."""
    longest = used = 0.0
    while not stop.is_set():
        begin, processor = time.perf_counter(), time.process_time()
        await asyncio.sleep(TICK)
        longest = max(longest, time.perf_counter() - begin - TICK)
        used = max(used, time.process_time() - processor)
    return longest, used


async def polled(folder: Path, kind: type[SlurmCommands]) -> tuple[float, float, float]:
    """The longest stall of some polls after a first one, its processor time, and the mean processor time of a poll."""
    spool = folder / kind.__name__
    spool.mkdir()
    (spool / "instance").write_text(INSTANCE)
    settings = SlurmSettings(spool=spool, command_seconds=120.0)
    engine = SlurmEngine(settings, kind(settings))
    await engine.snapshot()
    stop = asyncio.Event()
    watching = asyncio.create_task(longest_stall(stop))
    await asyncio.sleep(0.1)
    begin = time.process_time()
    for _ in range(POLLS):
        await engine._watch.look(everything=True)
    took = (time.process_time() - begin) / POLLS
    stop.set()
    longest, used = await watching
    running = sum(record.began for record in engine._spool.open)
    assert running == len(engine._watch.servers), "not all jobs run"
    await engine.close()
    return longest, used, took


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    count = 1_000 if parser.parse_args().quick else 10_000
    table = Table("Slurm", "answers (MB)", "", "longest stall", "processor time of it", "processor time of a poll")
    for version in VERSIONS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_answers(folder, version, count)
            size = sum((folder / which).stat().st_size for which in ("squeue", "nodes")) / 1e6
            with patch.dict(os.environ, {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}):
                for kind, when in ((Before, "before"), (SlurmCommands, "now")):
                    longest, used, took = asyncio.run(polled(folder, kind))
                    row = [f"{1e3 * longest:.0f} ms", f"{1e3 * used:.0f} ms", f"{took:.2f} s"]
                    table.add_row(version, f"{size:.0f}", when, *row)
    Console().print(table)


if __name__ == "__main__":
    main()
