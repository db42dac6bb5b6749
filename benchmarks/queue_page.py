"""The first page of a long queue: `python -m benchmarks.queue_page` (`--quick` for a look).

It prints the time for which `GET /v1/queue?limit=100` holds up the event loop: as it is, and as it was when all waiting
jobs were put in order as records and all reasons were computed on the loop. Times are medians.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.service import jobs
from berth.files.quantities import amounts
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import ServerJoined, Started, Submitted
from berth.live.core.jobs import Server
from berth.live.core.order import ordered
from berth.live.core.reasons import queue_page, waiting_in_order
from berth.live.core.state import State

__all__ = ["main"]

LIMIT, ROUNDS = 100, 15


def filled(servers: int, waiting: int) -> State:
    """A full cluster, and jobs that wait."""
    dispatcher, coming = Dispatcher(budget=1e9), jobs()
    for r in range(servers):
        there = amounts({"cpu": 64, "memory": "256Gi"})
        dispatcher.handle(ServerJoined(0.0, Server(f"n{r}", there, {"class": "ab"[r % 2]})))
    for _ in range(servers * 4):
        dispatcher.handle(Submitted(0.0, next(coming)))
    decided = dispatcher.decide(0.0)
    if decided is not None:
        for record in dispatcher.handle(decided).changed:
            dispatcher.handle(Started(0.0, record.job.id, record.attempt))
    while dispatcher.state.table.waiting < waiting:
        dispatcher.handle(Submitted(1.0, next(coming)))
    return dispatcher.state


def before(state: State) -> None:
    """Put all waiting jobs in order as records, and compute the reasons of the first."""
    order = [record for _, record in ordered(state, 2.0)]
    assert len(order[:LIMIT]) == LIMIT
    waiting_in_order(state, 2.0, LIMIT)


def took(run: Callable[[], object]) -> float:
    """The median time of a call in milliseconds, after a first one that fills caches."""
    run()
    seconds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(seconds))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    table = Table("servers", "waiting", "on the loop, before", "on the loop, now", "beside it, now", "ratio")
    for servers, waiting in ((100, 2_000),) if quick else ((1_000, 10_000), (3_000, 100_000)):
        state = filled(servers, waiting)
        old, new = took(partial(before, state)), took(partial(queue_page, state, 2.0, LIMIT))
        page = queue_page(state, 2.0, LIMIT)
        rest = took(page.reasons)
        row = [f"{servers:,}", f"{state.table.waiting:,}", f"{old:.1f} ms", f"{new:.1f} ms", f"{rest:.1f} ms"]
        table.add_row(*row, f"{old / new:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
