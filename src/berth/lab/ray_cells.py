"""Many cells over a Ray cluster.

Scenarios go into Ray's object store once. A cell whose node dies is computed again elsewhere: it depends on nothing but
itself, so the numbers are the same. Every node needs berth, of the same version.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import berth
from berth.errors import BerthError, MissingExtra
from berth.lab.cells import Cell, Record, Work
from berth.lab.pool import Done, Failure, attempt
from berth.lab.warm import warm_groups, warm_up
from berth.scenario import Scenario

__all__ = ["run_on_ray"]

AHEAD = 4
"""Cells that are handed to Ray beyond those that can run at once, for each processor: enough to keep it busy."""


def _cell(scenario: Scenario, cell: Cell, version: str) -> Record | Failure:
    import numba

    if berth.__version__ != version:
        return Failure(f"berth {berth.__version__} on this node, {version} where the sweep was started")
    numba.set_num_threads(1)
    return attempt(scenario, cell)


def _compiled(scenarios: Sequence[Scenario], works: Sequence[Work]) -> None:
    warm_up(scenarios, works)


def run_on_ray(
    scenarios: Sequence[Scenario],
    works: Sequence[Work],
    done: Done,
    address: str | None = None,
    workers: int | None = None,
) -> None:
    """Compute every cell on the cluster at `address`, or on one started here, and hand each to `done`."""
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingExtra("running on Ray", "ray") from None
    began = not ray.is_initialized()
    if began:
        here = str(Path(berth.__file__).parents[1])
        path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
        environment = {"env_vars": {"PYTHONPATH": path}}  # nodes of this machine find berth where this process does
        try:
            ray.init(
                address=address,
                num_cpus=workers if address is None else None,
                runtime_env=environment,
                log_to_driver=False,
                logging_level="ERROR",
                include_dashboard=False if address is None else None,
            )
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            text = " ".join(str(error).split())
            raise BerthError(f"no Ray cluster at {address}: {text[:200]}") from error
    try:
        _run(ray, scenarios, works, done)
    finally:
        if began:
            ray.shutdown()


def _run(ray: Any, scenarios: Sequence[Scenario], works: Sequence[Work], done: Done) -> None:
    # a task whose process or node dies is tried again for as long as there is any node
    remote = ray.remote(num_cpus=1, max_retries=-1)
    work_on, compile_for = remote(_cell), remote(_compiled)
    stored = [ray.put(scenario) for scenario in scenarios]
    groups = warm_groups(scenarios, works)
    ray.get([compile_for.remote(*_alone(scenarios, group)) for group in groups])
    waiting = list(reversed(works))
    running: dict[Any, Work] = {}
    try:
        while waiting or running:
            room = max(int(ray.cluster_resources().get("CPU", 1)), 1) * AHEAD
            while waiting and len(running) < room:
                work = waiting.pop()
                running[work_on.remote(stored[work.place], work.cell, berth.__version__)] = work
            ready, _ = ray.wait(list(running), timeout=1.0)
            for reference in ready:
                work = running.pop(reference)
                try:
                    result = ray.get(reference)
                except ray.exceptions.RayError as error:
                    result = Failure(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
                done(work, result)
    except BaseException:
        for reference in running:
            ray.cancel(reference, force=True)
        raise


def _alone(scenarios: Sequence[Scenario], group: Sequence[Work]) -> tuple[list[Scenario], list[Work]]:
    """One cell of each kind of a group, with the scenarios that they need alone."""
    first = {(work.cell.name, work.cell.information): work for work in group}
    needed = sorted({work.place for work in first.values()})
    return [scenarios[place] for place in needed], [Work(needed.index(w.place), w.cell) for w in first.values()]
