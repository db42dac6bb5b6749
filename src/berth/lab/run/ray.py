"""Run cells on a Ray cluster.

Contexts go into Ray's object store once. This module chooses the node of each cell, and computes the cells of a node
that dies or stops answering again elsewhere; cells are independent, so the numbers are the same. Ray's own retries are
off: Ray would wait for a node that hangs, and retry a cell that runs out of memory for ever. Every node needs the same
version of berth.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from berth.about import HOME
from berth.errors import BerthError, InvalidInput, MissingExtra
from berth.lab.run.cells import COMPARED, code_hash
from berth.lab.run.processes import DIED
from berth.lab.run.runner import AnyKind, Done, Failure, Work
from berth.ray_nodes import Nodes, host_and_port, on_node

__all__ = ["check_cluster", "run_on_ray"]

AHEAD = 2
"""Cells submitted to Ray per processor: enough to keep it busy."""

PATIENCE = 60
"""Timeout for connecting to a cluster, in seconds."""

PROBE = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"

TRIES = 3
"""Largest number of attempts of a cell whose process or node dies: a cell may kill its process each time."""

LOOK = 1.0
"""Seconds between two checks of the nodes."""

COMPILE = 600.0
"""Longest wait of cells for compilation, in seconds."""


def _cell(context: Any, cell: Any, kind: AnyKind, code: str) -> Any:
    import numba

    if code_hash() != code:
        return Failure(f"berth on {socket.gethostname()} is not the one that the sweep was started with")
    numba.set_num_threads(1)
    return kind.attempt(context, cell)


def run_on_ray(
    contexts: Sequence[Any],
    works: Sequence[Work],
    done: Done,
    address: str | None = None,
    workers: int | None = None,
    kind: AnyKind = COMPARED,
) -> None:
    """Compute every cell on the cluster at `address`, at most `workers` at once, and pass each to `done`.

    Without `address`, use the cluster that RAY_ADDRESS names, or start one here.
    """
    ray = _ray()
    began = not ray.is_initialized()
    with contextlib.redirect_stdout(sys.stderr):  # Ray prints there about processes and nodes that died
        if began:
            _connect(ray, _place(address), workers)
        try:
            _run(ray, contexts, works, done, workers, kind)
        finally:
            if began:
                ray.shutdown()


def check_cluster(address: str | None) -> None:
    """Refuse an address without a Ray cluster, in bounded time, before anything is written or run."""
    if _ray().is_initialized() or _place(address) == "local":
        return
    _check_reachable(_place(address))
    _check_connects(_place(address))


def _ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise MissingExtra("running on Ray", "ray") from None
    return ray


def _place(address: str | None) -> str:
    return address or os.environ.get("RAY_ADDRESS") or "local"


def _connect(ray: Any, address: str, workers: int | None) -> None:
    here = str(HOME.parent)
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"), os.getcwd())))
    new = {"num_cpus": workers, "include_dashboard": False} if address == "local" else {}
    try:
        ray.init(
            address=address,
            runtime_env={"env_vars": {"PYTHONPATH": path}},  # nodes on this machine import berth from the same place
            log_to_driver=False,
            logging_level="ERROR",
            **new,
        )
    except (ConnectionError, ValueError, RuntimeError, TimeoutError, ray.exceptions.RayError) as error:
        raise BerthError(f"no Ray cluster at {address}: {' '.join(str(error).split())[:200]}") from error
    if not ray.cluster_resources().get("CPU"):
        ray.shutdown()
        raise BerthError(f"the Ray cluster at {address} has no node with processors")


def _check_reachable(address: str) -> None:
    """Refuse at once an invalid address, or one that does not answer."""
    try:
        place = host_and_port(address.removeprefix("ray://"))
    except InvalidInput as error:
        raise InvalidInput(error.expected, value=address, key=error.key) from None
    if place is None:
        return
    try:
        socket.create_connection(place, timeout=PATIENCE / 6).close()
    except OSError as error:
        raise BerthError(f"no Ray cluster at {address}: {error.strerror or error}") from error


def _check_connects(address: str) -> None:
    """Connect in a separate process first: if another service answers, Ray retries for long or ends the process."""
    probe = [sys.executable, "-c", PROBE, address]
    try:
        tried = subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise BerthError(f"no Ray cluster at {address}: no answer that Ray understands in {PATIENCE} s") from None
    if tried.returncode:
        said = [line for line in tried.stderr.splitlines() if line.strip()]
        raise BerthError(f"no Ray cluster at {address}: {said[-1].strip()[:200] if said else 'Ray gave up'}")


def _run(
    ray: Any,
    contexts: Sequence[Any],
    works: Sequence[Work],
    done: Done,
    workers: int | None,
    kind: AnyKind = COMPARED,
) -> None:
    nodes = Nodes(ray)
    _compile(ray, list(nodes.serving), contexts, works, kind)
    compute = ray.remote(num_cpus=1, max_retries=0)(_cell)
    stored, code = [ray.put(context) for context in contexts], code_hash()
    waiting = list(reversed(works))
    tries: Counter[Work] = Counter()
    running: dict[Any, tuple[Work, str]] = {}
    try:
        while waiting or running:
            nodes.look()
            for reference in [reference for reference, (_, node) in running.items() if node not in nodes.serving]:
                waiting.append(running.pop(reference)[0])  # a late result is ignored
                ray.cancel(reference, force=True)
            while waiting and (workers is None or len(running) < workers):
                free = _freest(nodes.serving, Counter(node for _, node in running.values()), len(waiting))
                if free is None:
                    break
                work = waiting.pop()
                task = compute.options(scheduling_strategy=on_node(free))
                running[task.remote(stored[work.place], work.cell, kind, code)] = work, free
            if not running:
                time.sleep(LOOK)
                continue
            for reference in ray.wait(list(running), timeout=LOOK)[0]:
                work, _ = running.pop(reference)
                tries[work] += 1
                result = _result(ray, reference, last=tries[work] == TRIES)
                if result is None:
                    waiting.append(work)
                else:
                    done(work, result)
    except BaseException:
        for reference in running:
            ray.cancel(reference, force=True)
        raise


def _freest(serving: Mapping[str, int], busy: Mapping[str, int], waiting: int) -> str | None:
    """Node with the largest free share, if any has room; near the end no node is given work ahead.

    >>> _freest({"a": 2, "b": 4}, {"a": 1, "b": 1}, waiting=1)
    'b'
    >>> _freest({"a": 1}, {"a": 1}, waiting=1) is None
    True
    """
    ahead = AHEAD if waiting > sum(serving.values()) else 1
    with_room = [node for node, processors in serving.items() if busy.get(node, 0) < processors * ahead]
    return min(with_room, key=lambda node: busy.get(node, 0) / serving[node], default=None)


def _result(ray: Any, reference: Any, last: bool) -> Any:
    """Result of a cell; None if its process or node was lost, and this is not the last attempt."""
    errors = ray.exceptions
    try:
        return ray.get(reference)
    except (
        errors.WorkerCrashedError,
        errors.NodeDiedError,
        errors.TaskUnschedulableError,
        errors.ObjectLostError,
    ):
        return Failure(f"{DIED.error}, {TRIES} times") if last else None
    except errors.RayError as error:
        return Failure(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def _compile(ray: Any, nodes: Sequence[str], contexts: Sequence[Any], works: Sequence[Work], kind: AnyKind) -> None:
    """Compile the cells' kernels on every machine; the cells report any error or timeout."""
    compiled = ray.remote(num_cpus=1, max_retries=0)(_warm_up)
    machines = {node["NodeManagerHostname"]: node["NodeID"] for node in ray.nodes() if node["NodeID"] in nodes}
    groups = [_needed(contexts, kind.alike(group)) for group in kind.groups(contexts, works)]
    tasks = [
        compiled.options(scheduling_strategy=on_node(node)).remote(kind, *group)
        for node in machines.values()
        for group in groups
    ]
    if tasks:
        ray.wait(tasks, num_returns=len(tasks), timeout=COMPILE)


def _warm_up(kind: AnyKind, contexts: Sequence[Any], works: Sequence[Work]) -> None:
    kind.warm_up(contexts, works)


def _needed(contexts: Sequence[Any], works: Sequence[Work]) -> tuple[list[Any], list[Work]]:
    """These cells with only the contexts that they need."""
    needed = sorted({work.place for work in works})
    return [contexts[place] for place in needed], [Work(needed.index(work.place), work.cell) for work in works]
