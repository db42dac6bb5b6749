"""The service over HTTP: `python -m benchmarks.service_http`, and `--soak MINUTES` for its memory under load.

A real `berth serve` in a process of its own, on a simulated cluster. Submissions come in batches from several clients
at a time, for some seconds, and count when they are answered, which is when they are durable. A soak keeps submitting
at a steady rate on a fast clock, and looks at the memory of the service again and again.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from scripts.postgres import binaries, postgres_server
from tests.live.service.live import serving_process

__all__ = ["main", "rate", "served", "soak"]


@contextmanager
def served(store: str, faster: float = 60.0) -> Iterator[tuple[int, int]]:
    """A service: its process and its port."""
    with serving_process(Path(), "--store", store, "--faster", str(faster)) as live:
        yield live.process.pid, live.port


def _jobs(count: int, kind: int, work: float) -> bytes:
    one = {"type": f"t{kind % 10}", "tasks": 1 + kind % 3, "resources": {"cpu": 1 + kind % 4}, "work": work}
    return json.dumps([one] * count).encode()


def _post(connection: http.client.HTTPConnection, body: bytes) -> None:
    connection.request("POST", "/v1/jobs", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    if answer.status != 201:
        raise SystemExit(f"refused: {answer.status}")


def rate(port: int, batch: int, seconds: float, together: int = 4) -> float:
    """Jobs that are accepted in a second."""
    until = time.monotonic() + seconds
    done = [0] * together

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for kind in itertools.count(number):
            if time.monotonic() > until:
                break
            _post(connection, _jobs(batch, kind, 30.0))
            done[number] += batch

    begin = time.monotonic()
    threads = [threading.Thread(target=client, args=(i,)) for i in range(together)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.monotonic() - begin)


def _memory(process: int) -> float:
    """What a process holds of memory, in MiB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def soak(minutes: float, faster: float, a_second: int) -> list[tuple[float, int, float]]:
    """Minutes, jobs accepted and MiB, again and again, while jobs come at a steady rate."""
    found: list[tuple[float, int, float]] = []
    with tempfile.TemporaryDirectory() as folder, served(f"{folder}/berth.db", faster) as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        begin, sent, look = time.monotonic(), 0, 0.0
        while (now := time.monotonic() - begin) < 60 * minutes:
            _post(connection, _jobs(a_second, sent, 5.0 * faster / max(a_second, 1)))
            sent += a_second
            if now >= look:
                found.append((now / 60, sent, _memory(process)))
                look = now + 60 * minutes / 20
            time.sleep(max(begin + sent / a_second - time.monotonic(), 0.0))
        found.append(((time.monotonic() - begin) / 60, sent, _memory(process)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="for how long submissions come")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="look at the memory instead")
    parser.add_argument("--faster", type=float, default=360.0, help="seconds of the soak's clock that pass in one")
    parser.add_argument("--rate", type=int, default=20, help="jobs a second of the soak")
    given = parser.parse_args()
    console = Console(width=110)
    if given.soak:
        found = soak(given.soak, given.faster, given.rate)
        table = Table("minute", "jobs so far", "memory, MiB", title=f"soak, clock × {given.faster:g}")
        for minute, sent, memory in found:
            table.add_row(f"{minute:.1f}", f"{sent}", f"{memory:.1f}")
        console.print(table)
        late = np.array(found[len(found) // 2 :])
        slope = np.polyfit(late[:, 1], late[:, 2], 1)[0]
        console.print(
            f"second half: {1000 * slope:+.3f} MiB for 1000 jobs, {given.soak * given.faster / 60:.1f} h of its clock"
        )
        return
    table = Table("store", "batch", "jobs a second", title="submissions over HTTP, 4 clients")
    cores = os.cpu_count()
    for batch in (1, 10, 100, 1000):
        with tempfile.TemporaryDirectory() as folder, served(f"{folder}/berth.db") as (_, port):
            table.add_row("SQLite", f"{batch}", f"{rate(port, batch, given.seconds):.0f}")
        if binaries() is not None:
            with postgres_server(durable=True) as address, served(address) as (_, port):
                table.add_row("PostgreSQL", f"{batch}", f"{rate(port, batch, given.seconds):.0f}")
    console.print(table)
    console.print(f"on {cores} cores, which clients and store use too")


if __name__ == "__main__":
    main()
