"""Many cells over a Ray cluster.

Scenarios go into Ray's object store once. A cell whose node dies is computed again elsewhere: it depends on nothing but
itself, so the numbers are the same. Every node needs berth, the very same code.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import berth
from berth.errors import BerthError, MissingExtra
from berth.lab.cells import Cell, Record, Work, code_hash
from berth.lab.pool import DIED, Done, Failure, attempt
from berth.lab.warm import warm_groups, warm_up
from berth.scenario import Scenario

__all__ = ["run_on_ray"]

AHEAD = 2
"""Cells that are handed to Ray for each processor: enough to keep it busy."""

TRIES = 3
"""How often a cell is begun when its process or node dies: a cell that kills its process must not go on for ever."""


def _cell(scenario: Scenario, cell: Cell, code: str) -> Record | Failure:
    import numba

    if code_hash() != code:
        return Failure(f"berth on {socket.gethostname()} is not the one that the sweep was started with")
    numba.set_num_threads(1)
    return attempt(scenario, cell)


def run_on_ray(
    scenarios: Sequence[Scenario],
    works: Sequence[Work],
    done: Done,
    address: str | None = None,
    workers: int | None = None,
) -> None:
    """Compute every cell on the cluster at `address`, at most `workers` at once, and hand each to `done`.

    Without `address` it is the cluster that RAY_ADDRESS names, or one that is started here.
    """
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingExtra("running on Ray", "ray") from None
    began = not ray.is_initialized()
    with contextlib.redirect_stdout(sys.stderr):  # Ray tells there of processes and nodes that died
        if began:
            _connect(ray, address or os.environ.get("RAY_ADDRESS") or "local", workers)
        try:
            _run(ray, scenarios, works, done, workers)
        finally:
            if began:
                ray.shutdown()


def _connect(ray: Any, address: str, workers: int | None) -> None:
    here = str(Path(berth.__file__).parents[1])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    new = {"num_cpus": workers, "include_dashboard": False} if address == "local" else {}
    if not new:
        _reachable(address)
    try:
        ray.init(
            address=address,
            runtime_env={"env_vars": {"PYTHONPATH": path}},  # nodes of this machine find berth where this process does
            log_to_driver=False,
            logging_level="ERROR",
            **new,
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError, ray.exceptions.RayError) as error:
        raise BerthError(f"no Ray cluster at {address}: {' '.join(str(error).split())[:200]}") from error
    if not ray.cluster_resources().get("CPU"):
        ray.shutdown()
        raise BerthError(f"the Ray cluster at {address} has no node with processors")


def _reachable(address: str) -> None:
    """Refuse an address where nobody answers: Ray itself would try for a long time, and end the process."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()) or "://" in address:
        return  # Ray's own words, such as auto
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise BerthError(f"no Ray cluster at {address}: {error.strerror or error}") from error


def _run(ray: Any, scenarios: Sequence[Scenario], works: Sequence[Work], done: Done, workers: int | None) -> None:
    again = TRIES - 1
    work_on = ray.remote(num_cpus=1, max_retries=again)(_cell)
    _compile(ray, scenarios, works)
    stored = [ray.put(scenario) for scenario in scenarios]
    waiting = list(reversed(works))
    running: dict[Any, Work] = {}
    try:
        while waiting or running:
            room = workers or max(int(ray.cluster_resources().get("CPU", 1)), 1) * AHEAD
            while waiting and len(running) < room:
                work = waiting.pop()
                running[work_on.remote(stored[work.place], work.cell, code_hash())] = work
            ready, _ = ray.wait(list(running), timeout=1.0)
            for reference in ready:
                work = running.pop(reference)
                try:
                    result = ray.get(reference)
                except ray.exceptions.WorkerCrashedError:
                    result = Failure(f"{DIED.error}, {TRIES} times")
                except ray.exceptions.RayError as error:
                    result = Failure(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
                done(work, result)
    except BaseException:
        for reference in running:
            ray.cancel(reference, force=True)
        raise


def _compile(ray: Any, scenarios: Sequence[Scenario], works: Sequence[Work]) -> None:
    """Compile on every machine what cells need there; whatever goes wrong, the cells report it."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    compiled = ray.remote(num_cpus=1, max_retries=0)(warm_up)
    machines = {
        node["NodeManagerHostname"]: node["NodeID"]
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU")
    }
    tasks = []
    for node in machines.values():
        here = compiled.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True))
        tasks += [here.remote(*_needed(scenarios, group)) for group in warm_groups(scenarios, works)]
    ray.wait(tasks, num_returns=len(tasks))


def _needed(scenarios: Sequence[Scenario], group: Sequence[Work]) -> tuple[list[Scenario], list[Work]]:
    """One cell of each kind of a group, with the scenarios that they need alone."""
    first = {(work.cell.name, work.cell.information): work for work in group}
    needed = sorted({work.place for work in first.values()})
    return [scenarios[place] for place in needed], [Work(needed.index(w.place), w.cell) for w in first.values()]
