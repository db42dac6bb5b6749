"""How long the event loop of a large service stalls: `python -m benchmarks.stalls` (`--quick` for a look).

A real service on a simulated cluster is filled over HTTP, stopped, and started again from its store. Then readers ask
for the first page of the queue, jobs end and come at a steady rate, snapshots are written and metrics are read. All
stalls are measured inside the process: by how much a task that is due every 10 ms is late. Stalls during decisions,
which another thread makes, are shown apart. On a busy machine, look at the processor time: no more of a stall, or of
the time for a page, than the process has used of a processor is its own. `--where` prints what the loop did in long
stalls.

With `--beside CHECKOUT` each phase is also measured with the package of another checkout (`git worktree add CHECKOUT
COMMIT`), in turn with this one. The file needs nothing that commit 87a3ffa lacks.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.live.core.dispatcher import Dispatcher
from berth.live.service.scheduler import Scheduler

__all__ = ["main"]

ROOT = Path(__file__).resolve().parent.parent
TICK = 0.01
"""Seconds between two looks at the loop."""
LONG = 0.1
"""Seconds of a stall whose place `--where` prints."""
BATCH = 1_000
STARTING = 15.0
"""Seconds that count as after the start."""
PATIENCE = 600.0
Pages = list[tuple[float, float]]
"""Seconds of each read of the queue, and of the processor time of the service meanwhile."""
RUN = 500.0
"""Seconds that jobs run on average: a cluster of 10,000 servers ends 20 of its 10,000 jobs a second."""


# ---------------------------------------------------------------------- inside the service


class Inside:
    """What is measured in the process: stalls, decisions and garbage collections, by the clock of all processes."""

    def __init__(self) -> None:
        self.stalls, self.decisions, self.collections = array("d"), array("d"), array("d")
        """Stalls and collections are rows of end, seconds and seconds of processor time, decisions of begin and end."""
        self.where: Counter[str] = Counter()
        self._due, self._began = time.monotonic(), (0.0, 0.0)

    async def look(self) -> None:
        """Measure how late this task is, for ever."""
        while True:
            self._due, before = time.monotonic() + TICK, time.process_time()
            await asyncio.sleep(TICK)
            now, used = time.monotonic(), time.process_time() - before
            late = max(now - self._due, 0.0)
            self.stalls.extend((now, late, min(late, used)))

    def watch(self, loop_thread: int) -> None:
        """Count what the loop does while it is late, for ever."""
        while True:
            time.sleep(LONG / 4)
            if time.monotonic() - self._due > LONG:
                frame = sys._current_frames()[loop_thread]
                calls = [f"{Path(one.filename).stem}.{one.name}" for one in traceback.extract_stack(frame)[-6:]]
                self.where[" > ".join(calls)] += 1

    def collected(self, phase: str, _: dict[str, int]) -> None:
        """Note a collection, of which `gc` tells."""
        now, used = time.monotonic(), time.thread_time()
        if phase == "start":
            self._began = now, used
        else:
            self.collections.extend((now, now - self._began[0], used - self._began[1]))

    def install(self, where: bool) -> None:
        """Measure from the moment at which a scheduler is opened."""
        decide, open_ = Dispatcher.decide, Scheduler.open.__func__  # type: ignore[attr-defined]

        def timed(dispatcher: Dispatcher, time_: float) -> Any:
            begin = time.monotonic()
            try:
                return decide(dispatcher, time_)
            finally:
                self.decisions.extend((begin, time.monotonic()))

        async def opened(cls: type[Scheduler], settings: Any) -> Scheduler:
            cls._looking = asyncio.create_task(self.look())  # type: ignore[attr-defined]
            if where:
                threading.Thread(target=self.watch, args=(threading.get_ident(),), daemon=True).start()
            found: Scheduler = await open_(cls, settings)
            return found

        Dispatcher.decide = timed  # type: ignore[assignment, method-assign]
        Scheduler.open = classmethod(opened)  # type: ignore[assignment, method-assign]
        gc.callbacks.append(self.collected)


def serve(to: str, where: bool, words: list[str]) -> None:
    """Serve, and write what was measured when the service has stopped."""
    from berth.cli import main as berth

    inside = Inside()
    inside.install(where)
    try:
        berth(["serve", *words])
    finally:
        tables = {name: list(getattr(inside, name)) for name in ("stalls", "decisions", "collections")}
        Path(to).write_text(json.dumps({**tables, "where": inside.where.most_common(12)}))


# ---------------------------------------------------------------------- beside the service


class Client:
    """Requests over one connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def ask(self, method: str, path: str, body: object = None) -> None:
        """Make a request, and read the whole answer."""
        text = None if body is None else json.dumps(body)
        try:
            answer = self._answer(method, path, text)
        except http.client.RemoteDisconnected:  # the service ends a connection that was idle for long
            self._connection.close()
            answer = self._answer(method, path, text)
        data = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {data[:300]!r}")

    def _answer(self, method: str, path: str, text: str | None) -> http.client.HTTPResponse:
        self._connection.request(method, path, text, {"Content-Type": "application/json"})
        return self._connection.getresponse()


class Service:
    """A service on a store, and what is measured in it."""

    def __init__(self, folder: Path, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port, self.process, self._folder = port, process, folder

    def stop(self) -> dict[str, Any]:
        """Stop it in good order; what it measured."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(PATIENCE)
        found: dict[str, Any] = json.loads((self._folder / "measured.json").read_text())
        return found

    def processor(self) -> float:
        """Seconds of processor time that it has used so far."""
        used = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with suppress(FileNotFoundError):  # the thread has just ended
                used += int((task / "schedstat").read_text().split()[0])
        return 1e-9 * used

    def memory(self) -> float:
        """The most that it held of memory so far, in GiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


@contextmanager
def service(folder: Path, every: int, where: bool, checkout: Path = ROOT) -> Iterator[Service]:
    """A service with the package of a checkout, which writes a snapshot every `every` events."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    config = folder / "berth.yaml"
    settings = {"engine": "simulated:cluster.yaml", "engine_state": str(folder / "engine"), "snapshot_every": every}
    config.write_text(json.dumps({**settings, "store": str(folder / "berth.db"), "budget": 60.0}))
    words = [sys.executable, "-m", "benchmarks.stalls", "--serve", str(folder / "measured.json")]
    words += ["--where"] * where
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    process = subprocess.Popen([*words, "--", "--config", str(config), "--port", str(port)], env=environment, cwd=ROOT)
    try:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and process.poll() is None:
            with suppress(OSError):
                Client(port).ask("GET", "/healthz")
                break
            time.sleep(0.1)
        if process.poll() is not None:
            raise SystemExit(f"the service with the package of {checkout} ended with exit code {process.returncode}")
        yield Service(folder, port, process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def jobs(count: int, first: bool, rng: random.Random) -> list[dict[str, object]]:
    """Jobs that wait; the `first` ones fill a server each."""
    if first:
        return [_job(rng, 4, 16) for _ in range(count)]
    return [_job(rng, rng.randint(1, 8), rng.randint(4, 16)) for _ in range(count)]


def _job(rng: random.Random, tasks: int, cpus: int) -> dict[str, object]:
    resources = {"cpu": cpus, "memory": f"{4 * cpus}Gi"}
    work = rng.uniform(0.2, 1.8) * RUN
    return {"type": f"t{rng.randrange(200)}", "tasks": tasks, "resources": resources, "work": work}


def fill(port: int, servers: int, waiting: int) -> None:
    """Submit jobs that fill the cluster, and jobs that wait."""
    client, rng = Client(port), random.Random(0)
    for first, count in ((True, servers), (False, waiting)):
        for begin in range(0, count, BATCH):
            client.ask("POST", "/v1/jobs", jobs(min(BATCH, count - begin), first, rng))


def load(service: Service, seconds: float, readers: int, rate: float, each: int) -> Pages:
    """Read and submit for some seconds. Each second, `each` jobs come.

    Returns how long each read of the queue took, and the processor time that the service used meanwhile.
    """
    until, took, failed = time.monotonic() + seconds, Pages(), list[BaseException]()

    def again(every: float, run: Callable[[Client], None]) -> None:
        client, due = Client(service.port), time.monotonic()
        try:
            while due < until:
                time.sleep(max(due - time.monotonic(), 0.0))
                run(client)
                due = max(due + every, time.monotonic())
        except BaseException as error:
            failed.append(error)

    def read(client: Client) -> None:
        used, begin = service.processor(), time.perf_counter()
        client.ask("GET", "/v1/queue?limit=100")
        seconds = time.perf_counter() - begin
        took.append((seconds, min(seconds, service.processor() - used)))

    rng = random.Random(1)
    runs: list[tuple[float, Callable[[Client], None]]] = [(1.0 / rate, read)] * readers
    runs.append((1.0, lambda client: client.ask("POST", "/v1/jobs", jobs(each, False, rng))))
    runs.append((5.0, lambda client: client.ask("GET", "/metrics")))
    threads = [threading.Thread(target=again, args=run, daemon=True) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return took


# ---------------------------------------------------------------------- results


def stalls_of(measured: dict[str, Any], begin: float, end: float) -> list[list[float]]:
    """Milliseconds of all stalls that ended between two times: outside decisions, and during them."""
    rows = np.array(measured["stalls"]).reshape(-1, 3)
    rows = rows[(rows[:, 0] >= begin) & (rows[:, 0] < end)]
    first, last = np.array([*measured["decisions"], np.inf, np.inf]).reshape(-1, 2).T
    decision = np.minimum(np.searchsorted(last, rows[:, 0] - rows[:, 1]), len(first) - 1)
    during = first[decision] < rows[:, 0]
    return [1e3 * rows[~during, 1:], 1e3 * rows[during, 1:]]  # type: ignore[list-item]


def add_row(table: Table, phase: str, measured: dict[str, Any], begin: float, end: float, took: Pages) -> None:
    """Add the figures of a phase."""
    for what, found in zip(("", "  in decisions"), stalls_of(measured, begin, end), strict=True):
        rows = np.asarray(found)
        cells = [f"{rows[:, i].max(initial=0.0):,.0f}" for i in (0, 1)]
        cells += [f"{np.percentile(rows[:, i], 99):,.0f}" if len(rows) else "" for i in (0, 1)]
        pages = [f"{1e3 * seconds:,.0f}" for seconds in np.percentile(took, 99, axis=0)] if took else ["", ""]
        gcs = np.array(measured["collections"]).reshape(-1, 3)
        longest = gcs[(gcs[:, 0] >= begin) & (gcs[:, 0] < end), 1:].max(axis=0, initial=0.0)
        cells += [*pages, *(f"{1e3 * seconds:,.0f}" for seconds in longest)] if not what else []
        table.add_row(what or phase, *cells)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=10_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=90.0, help="for how long the load lasts")
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=2.0, help="pages that a reader asks for in a second")
    parser.add_argument("--quick", action="store_true", help="a small service, for a few seconds")
    parser.add_argument("--where", action="store_true", help="print what the loop did in stalls")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="measure each phase there too, in turn")
    parser.add_argument("--serve", metavar="FILE", help=argparse.SUPPRESS)
    given, words = parser.parse_known_args()
    if given.serve:
        serve(given.serve, given.where, [word for word in words if word != "--"])
        return
    if given.beside and not (given.beside / "src" / "berth").is_dir():
        parser.error(f"--beside: expected a checkout with src/berth, found none in {given.beside}")
    if given.quick:
        given.servers, given.waiting, given.seconds = 300, 3_000, 10.0
    with tempfile.TemporaryDirectory() as name:
        measure(given, Path(name))


def measure(given: argparse.Namespace, folder: Path) -> None:
    """Run all phases, and print their figures."""
    titles = ("stalls outside decisions, ms", "worst", "its processor time", "p99", "processor")
    title = f"{given.servers:,} servers, {given.waiting:,} waiting jobs"
    table = Table(*titles, "page, p99", "processor", "gc", "processor", title=title)
    checkouts = [("", ROOT), *([(f", {given.beside.name}", given.beside.resolve())] if given.beside else [])]
    for phase in (filling, loading):
        for number, (name, checkout) in enumerate(checkouts):
            place = folder / str(number)
            place.mkdir(exist_ok=True)
            phase(given, table, name, place, checkout)
    Console(width=130).print(table)


def filling(given: argparse.Namespace, table: Table, name: str, folder: Path, checkout: Path) -> None:
    """Fill a new service, and stop it."""
    server = {"name": "n", "capacity": {"cpu": 64, "memory": "256Gi"}, "count": given.servers}
    (folder / "cluster.yaml").write_text(json.dumps({"servers": [server]}))
    with service(folder, 20_000, given.where, checkout) as first:
        begin = time.monotonic()
        fill(first.port, given.servers, given.waiting)
        end = time.monotonic()
        found = first.stop()
    print(f"filled in {end - begin:.0f} s, stopped in {time.monotonic() - end:.0f} s{name}", flush=True)
    add_row(table, f"while it is filled{name}", found, begin, end, [])
    say_where(given, found, f"filling{name}")


def loading(given: argparse.Namespace, table: Table, name: str, folder: Path, checkout: Path) -> None:
    """Start the service again, and put it under load."""
    opened = time.monotonic()
    with service(folder, 1_000, given.where, checkout) as second:
        begin = time.monotonic()
        print(f"serves again after {begin - opened:.0f} s{name}", flush=True)
        each = max(round(given.servers / RUN), 1)
        early = load(second, min(STARTING, given.seconds), given.readers, given.rate, each)
        middle = time.monotonic()
        late = load(second, given.seconds, given.readers, given.rate, each)
        end, memory = time.monotonic(), second.memory()
        found = second.stop()
    add_row(table, f"after the start{name}", found, begin, middle, early)
    add_row(table, f"under load{name}", found, middle, end, late)
    print(f"memory: {memory:.1f} GiB at most{name}")
    say_where(given, found, f"load{name}")


def say_where(given: argparse.Namespace, measured: dict[str, Any], phase: str) -> None:
    """Print what the loop did in long stalls, if that is asked for."""
    if given.where:
        print(f"in long stalls, {phase}:", *(f"{count:5}  {text}" for text, count in measured["where"]), sep="\n")


if __name__ == "__main__":
    main()
