"""The live scheduler: `python -m benchmarks.service` (`--quick` for a look, `--profile` for where a tick goes).

A tick decides with a full cluster and a long queue: since the tick before, one job in a hundred of those that ran has
ended, and as many came. Its time is processor time of deciding and taking note of the decision. Set OMP_NUM_THREADS=1:
threads of a BLAS use processor time while they wait. Submissions go into a scheduler in batches, several at a time, and
count when they are durable.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from berth.files.quantities import amounts
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.dry_run import plan, spare_of
from berth.live.core.events import Finished, ServerJoined, Started, Submitted
from berth.live.core.explain import explain
from berth.live.core.jobs import Job, Role, Server
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import ServiceSettings
from berth.model import Floats
from scripts.postgres import binaries, postgres_server

__all__ = ["answers", "jobs", "main", "submissions", "ticks"]


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


def ticks(policy: str, servers: int, waiting: int, count: int, profile: bool = False) -> Floats:
    """Seconds of processor time of each of `count` ticks."""
    dispatcher = Dispatcher(policy, budget=1e9)
    for r in range(servers):
        there = amounts({"cpu": 64, "memory": "256Gi"})
        dispatcher.handle(ServerJoined(0.0, Server(f"n{r}", there, {"class": "ab"[r % 2]})))
    coming = jobs()
    rng = np.random.default_rng(1)
    now = 0.0
    took = np.zeros(count)
    profiler = cProfile.Profile()
    for tick in range(-2, count):
        now += 1.0
        while sum(record.phase == "waiting" for record in dispatcher.state.jobs.values()) < waiting:
            for _ in range(waiting // 10):
                dispatcher.handle(Submitted(now, next(coming)))
            if tick == -2:
                _decided(dispatcher, now)
        running = [record for record in dispatcher.state.jobs.values() if record.phase == "running"]
        for i in rng.choice(len(running), max(len(running) // 100, 1), replace=False):
            dispatcher.handle(Finished(now, running[i].job.id, running[i].attempt, 60.0))
            dispatcher.handle(Submitted(now, next(coming)))
        if profile and tick >= 0:
            profiler.enable()
        begin = time.process_time()
        _decided(dispatcher, now)
        if tick >= 0:
            took[tick] = time.process_time() - begin
        profiler.disable()
    if dispatcher.refusals:
        raise SystemExit(f"{policy} was refused: {dict(dispatcher.refusals)}")
    if profile:
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(25)
    return took


def answers(policy: str, servers: int, waiting: int) -> tuple[float, float, float]:
    """Seconds for an explanation of the last in line, a plan, and the copy for a plan, which alone holds up others."""
    dispatcher, coming = Dispatcher(policy, budget=1e9), jobs()
    for r in range(servers):
        there = amounts({"cpu": 64, "memory": "256Gi"})
        dispatcher.handle(ServerJoined(0.0, Server(f"n{r}", there, {"class": "ab"[r % 2]})))
    while len(dispatcher.state.waiting) < waiting:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--profile", metavar="POLICY", help="show where the time of ticks goes")
    given = parser.parse_args()
    sizes = [(100, 1000), (300, 3000)] if given.quick else [(100, 1000), (300, 3000), (1000, 10_000)]
    if given.profile:
        ticks(given.profile, *sizes[-1], 10, profile=True)
        return
    console = Console(width=130)
    table = Table("policy", "servers", "waiting", "median, ms", "p95, ms", title="one tick, processor time")
    for policy in ("in-order-best-fit", "best-fit", "completion", "reservation", "escb-v"):
        for servers, waiting in sizes:
            median, high = np.percentile(1e3 * ticks(policy, servers, waiting, 40), [50, 95])
            table.add_row(policy, f"{servers}", f"{waiting}", f"{median:.1f}", f"{high:.1f}")
    console.print(table)
    columns = ("policy", "servers", "waiting", "explain, ms", "plan, ms", "copy, ms")
    table = Table(*columns, title="one answer, processor time")
    for policy in ("in-order-best-fit", "best-fit"):
        for servers, waiting in sizes:
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
