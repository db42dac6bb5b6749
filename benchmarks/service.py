"""The live scheduler: `python -m benchmarks.service` (`--quick` for a look, `--profile` for where a tick goes).

A tick decides with a full cluster and a long queue: since the tick before, one job in a hundred of those that ran has
ended, and as many came. Its time is processor time of deciding and taking note of the decision. Set OMP_NUM_THREADS=1:
threads of a BLAS use processor time while they wait. Submissions go into a scheduler in batches, several at a time, and
count when they are durable.

Ticks come in variants: `plain`; `quota`, where a team reaches its limit; `late`, where a job has waited longer than
`patience` and servers are reserved for it; `windows`, where a third of the servers close at different times and jobs
have time limits; `levels`, where jobs have different priorities. With `--beside CHECKOUT` each tick is also measured
with the package of another checkout (`git worktree add CHECKOUT COMMIT`), in turn with this one:

    python -m benchmarks.service --policy completion --variant plain late --sizes 10000x1000 --beside ../berth-before
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import math
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import berth
from berth.files.quantities import amounts
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.dry_run import plan, spare_of
from berth.live.core.events import Finished, ServerJoined, Started, Submitted
from berth.live.core.explain import explain
from berth.live.core.jobs import Job, Role, Server
from berth.live.core.queues import Queues
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import ServiceSettings
from berth.model import Floats
from scripts.postgres import binaries, postgres_server

__all__ = ["VARIANTS", "Tick", "answers", "compared", "jobs", "main", "submissions", "tick_table", "ticks"]

ROOT = Path(__file__).resolve().parent.parent
VARIANTS = ("plain", "quota", "late", "windows", "levels")
POLICIES = ("in-order-best-fit", "best-fit", "completion", "reservation", "escb-v")
CLOSINGS = 8
"""Hours after which the last servers close; in each hour some do."""
LEVELS = 5
"""Priorities of jobs."""


def jobs(seed: int = 0) -> Iterator[Job]:
    """Gangs of few types and many shapes; some may start with fewer tasks, have two roles, or need a class."""
    rng = np.random.default_rng(seed)
    number = 0
    while True:
        tasks = int(rng.integers(1, 9))
        demand = amounts({"cpu": int(rng.integers(1, 9)), "memory": f"{int(rng.integers(1, 33))}Gi"})
        roles: tuple[Role, ...] = (Role("worker", tasks, demand, tasks if rng.random() < 0.8 else max(1, tasks // 2)),)
        if rng.random() < 0.2:
            roles = (*roles, Role("server", 1, amounts({"cpu": 2, "memory": "4Gi"})))
        needs = {"class": "ab"[int(rng.integers(2))]} if rng.random() < 0.3 else {}
        user = f"u{rng.integers(20)}"
        yield Job(f"j{number}", f"t{rng.integers(10)}", roles, user, f"team{rng.integers(5)}", needs=needs, work=60.0)
        number += 1


@dataclass(frozen=True)
class Tick:
    """A policy that decides about a queue of a size; `variant` is one of `VARIANTS`."""

    policy: str
    variant: str
    waiting: int
    servers: int


def ticks(case: Tick, count: int, profile: bool = False) -> Iterator[float]:
    """Seconds of processor time of each of `count` ticks."""
    dispatcher, coming = _cluster(case), _coming(case)
    rng = np.random.default_rng(1)
    now = 0.0
    profiler = cProfile.Profile()
    for tick in range(-2, count):
        now += 1.0
        while _waiting(dispatcher) < case.waiting:
            for _ in range(case.waiting // 10):
                dispatcher.handle(Submitted(now, next(coming)))
            if tick == -2:
                _decided(dispatcher, now)
        if tick == -2 and case.variant == "late":
            whole = Role("worker", max(case.servers // 10, 2), amounts({"cpu": 64}))
            dispatcher.handle(Submitted(-2.0 * dispatcher.state.queues.patience, Job("late", "late", (whole,))))
        running = [record for record in dispatcher.state.jobs.values() if record.phase == "running"]
        for i in rng.choice(len(running), max(len(running) // 100, 1), replace=False):
            dispatcher.handle(Finished(now, running[i].job.id, running[i].attempt, 60.0))
            dispatcher.handle(Submitted(now, next(coming)))
        if profile and tick >= 0:
            profiler.enable()
        begin = time.process_time()
        _decided(dispatcher, now)
        took = time.process_time() - begin
        profiler.disable()
        if tick >= 0:
            yield took
    if dispatcher.refusals:
        raise SystemExit(f"{case.policy} was refused: {dict(dispatcher.refusals)}")
    if case.variant == "late" and dispatcher.state.jobs["late"].phase != "waiting":
        raise SystemExit(f"{case.policy} started the late job, which was to wait: fewer ticks, or more servers")
    if profile:
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(25)


def _cluster(case: Tick) -> Dispatcher:
    """A dispatcher with servers, and with what the variant says of queues."""
    quotas = {"team:team0": amounts({"cpu": 6 * case.servers})} if case.variant == "quota" else {}
    dispatcher = Dispatcher(case.policy, queues=Queues(quotas=quotas), budget=1e9)
    for r in range(case.servers):
        there, closes = amounts({"cpu": 64, "memory": "256Gi"}), case.variant == "windows" and r % 3 == 0
        until = 3600.0 * (1 + r // 3 % CLOSINGS) if closes else None
        dispatcher.handle(ServerJoined(0.0, Server(f"n{r}", there, {"class": "ab"[r % 2]}, until=until)))
    return dispatcher


def _coming(case: Tick) -> Iterator[Job]:
    """Jobs as the variant has them."""
    rng = np.random.default_rng(3)
    for job in jobs():
        if case.variant == "windows":
            yield job.replace(limit=float(rng.integers(600, 3600 * CLOSINGS)))
        elif case.variant == "levels":
            yield job.replace(priority=int(rng.integers(LEVELS)))
        else:
            yield job


def _worker(case: Tick, count: int, package: Path) -> subprocess.Popen[str]:
    """A process that measures one tick for each line it reads, with berth as in this folder."""
    command = [sys.executable, "-m", "benchmarks.service", "--serve", json.dumps([*astuple(case), count, str(package)])]
    environment = {**os.environ, "PYTHONPATH": str(package)}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT, bufsize=1
    )


def _serve(policy: str, variant: str, waiting: int, servers: int, count: int, package: str) -> None:
    """Print the seconds of a tick for each line that is read: the process that `_worker` starts."""
    there = Path(berth.__file__).resolve().parent.parent
    if there != Path(package).resolve():
        raise SystemExit(f"--beside: expected a checkout with berth in {package}, imported berth from {there}")
    measured = ticks(Tick(policy, variant, waiting, servers), count)
    while sys.stdin.readline():
        print(next(measured, math.nan), flush=True)


def compared(case: Tick, count: int, checkouts: Sequence[Path]) -> Floats:
    """Seconds of processor time of each tick in each checkout, (checkouts, ticks); the checkouts take turns."""
    workers = [_worker(case, count, checkout / "src") for checkout in checkouts]
    took = np.full((len(workers), count), np.nan)
    for tick in range(count + 1):  # the last checks what the run was
        for worker, row, checkout in zip(workers, took, checkouts, strict=True):
            assert worker.stdin is not None
            assert worker.stdout is not None
            try:
                worker.stdin.write("\n")
                answer = worker.stdout.readline()
            except BrokenPipeError:
                answer = ""
            if not answer:
                raise SystemExit(f"{case} failed with the package of {checkout}")
            if tick < count:
                row[tick] = float(answer)
    for worker in workers:
        worker.communicate()
    return took


def tick_table(
    policies: Sequence[str], variants: Sequence[str], sizes: Sequence[tuple[int, int]], count: int, beside: Path | None
) -> Table:
    """A row for each policy, variant and size; `beside` is another checkout that takes turns with this one.

    `growth` is the power of the size with which a tick grows since the size above: 1 if twice the jobs and servers
    take twice as long.
    """
    columns = ["policy", "variant", "waiting", "servers", "median, ms", "p95, ms", "growth"]
    columns += [f"{beside.name}, ms", "growth there", "ratio"] if beside else []
    table = Table(*columns, title="one tick, processor time")
    for policy, variant in product(policies, variants):
        before: list[tuple[int, float]] = []
        for waiting, servers in sizes:
            took = 1e3 * compared(Tick(policy, variant, waiting, servers), count, [ROOT, *([beside] if beside else [])])
            medians = np.median(took, axis=1).tolist()
            growth = ["" for _ in medians]
            if before:
                growth = [
                    f"{math.log(now / then) / math.log(waiting / size):.2f}"
                    for now, (size, then) in zip(medians, before, strict=True)
                ]
            before = [(waiting, median) for median in medians]
            row = [policy, variant, f"{waiting}", f"{servers}", f"{medians[0]:.1f}"]
            row += [f"{np.percentile(took[0], 95):.1f}", growth[0]]
            row += [f"{medians[1]:.1f}", growth[1], f"{medians[0] / medians[1]:.2f}"] if beside else []
            table.add_row(*row)
    return table


def answers(policy: str, servers: int, waiting: int) -> tuple[float, float, float]:
    """Seconds for an explanation of the last in line, a plan, and the copy for a plan, which alone holds up others."""
    dispatcher, coming = Dispatcher(policy, budget=1e9), jobs()
    for r in range(servers):
        there = amounts({"cpu": 64, "memory": "256Gi"})
        dispatcher.handle(ServerJoined(0.0, Server(f"n{r}", there, {"class": "ab"[r % 2]})))
    while _waiting(dispatcher) < waiting:
        for _ in range(waiting // 10):
            dispatcher.handle(Submitted(1.0, next(coming)))
        _decided(dispatcher, 1.0)
    last = [record.job.id for record in dispatcher.state.jobs.values() if record.phase == "waiting"][-1]

    def took(run: Callable[[], object]) -> float:
        begin = time.process_time()
        run()
        return time.process_time() - begin

    found = []
    for _ in range(5):
        wanted, spare = next(coming), spare_of(dispatcher)
        found.append(
            (
                took(lambda: explain(dispatcher.state, last, 2.0)),
                took(lambda spare=spare, wanted=wanted: plan(spare, [wanted], 2.0)),  # type: ignore[misc]
                took(lambda: spare_of(dispatcher)),
            )
        )
    explained, planned, copied = np.median(np.array(found), axis=0).tolist()
    return explained, planned, copied


def _waiting(dispatcher: Dispatcher) -> int:
    return sum(record.phase == "waiting" for record in dispatcher.state.jobs.values())


def _decided(dispatcher: Dispatcher, now: float) -> None:
    decided = dispatcher.decide(now)
    if decided is not None:
        for record in dispatcher.handle(decided).changed:
            dispatcher.handle(Started(now, record.job.id, record.attempt))


def submissions(store: str, total: int, batch: int, together: int = 4) -> float:
    """Jobs that a scheduler takes in a second."""

    async def run() -> float:
        scheduler = await Scheduler.open(ServiceSettings(store=store, tick=1.0, faster=60.0))
        coming = jobs(2)
        batches = [[next(coming) for _ in range(batch)] for _ in range(total // batch)]
        begin = time.perf_counter()

        async def worker() -> None:
            while batches:
                await scheduler.submit(batches.pop())

        await asyncio.gather(*(worker() for _ in range(together)))
        took = time.perf_counter() - begin
        await scheduler.close()
        return total / took

    return asyncio.run(run())


def _size(text: str) -> tuple[int, int]:
    """Waiting jobs and servers of `10000x1000`."""
    parts = text.split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) >= 10 for part in parts):
        raise argparse.ArgumentTypeError(f"expected WAITINGxSERVERS, both at least 10, such as 10000x1000, got {text}")
    return int(parts[0]), int(parts[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--profile", metavar="POLICY", help="show where the time of ticks goes")
    parser.add_argument("--policy", nargs="+", help="measure ticks alone, of these policies")
    parser.add_argument("--variant", nargs="+", choices=VARIANTS, help="measure ticks alone, of these variants")
    parser.add_argument("--sizes", nargs="+", type=_size, metavar="WAITINGxSERVERS", help="sizes of queue and cluster")
    parser.add_argument("--ticks", type=int, default=40, help="ticks of each size (default: 40)")
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="measure ticks alone, there too, in turn")
    parser.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        _serve(*given.serve)
        return
    if given.beside and not (given.beside / "src" / "berth").is_dir():
        parser.error(f"--beside: expected a checkout with src/berth, found none in {given.beside}")
    sizes = given.sizes or [(1000, 100), (3000, 300), *([] if given.quick else [(10_000, 1000)])]
    if given.profile:
        variant = given.variant[0] if given.variant else "plain"
        for _ in ticks(Tick(given.profile, variant, *sizes[-1]), 10, profile=True):
            pass
        return
    console = Console(width=130)
    policies, variants = given.policy or POLICIES, given.variant or VARIANTS
    beside = given.beside.resolve() if given.beside else None
    console.print(tick_table(policies, variants, sizes, given.ticks, beside))
    if given.policy or given.variant or given.beside:
        return
    columns = ("policy", "servers", "waiting", "explain, ms", "plan, ms", "copy, ms")
    table = Table(*columns, title="one answer, processor time")
    for policy in ("in-order-best-fit", "best-fit"):
        for waiting, servers in sizes:
            table.add_row(
                policy, f"{servers}", f"{waiting}", *(f"{1e3 * s:.1f}" for s in answers(policy, servers, waiting))
            )
    console.print(table)
    table = Table("store", "batch", "jobs a second", title="submissions, wall time")
    total = 2_000 if given.quick else 20_000
    for batch in (10, 100, 1000):
        with tempfile.TemporaryDirectory() as folder:
            table.add_row("SQLite", f"{batch}", f"{submissions(f'{folder}/berth.db', total, batch):.0f}")
        if binaries() is not None:
            with postgres_server(durable=True) as address:
                table.add_row("PostgreSQL", f"{batch}", f"{submissions(address, total, batch):.0f}")
    console.print(table)


if __name__ == "__main__":
    main()
