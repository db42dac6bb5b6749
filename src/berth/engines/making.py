"""Engines by name."""

from __future__ import annotations

from pathlib import Path

from berth.engines import Engine
from berth.engines.clock import Clock
from berth.engines.remote import RemoteEngine
from berth.engines.simulated import SimulatedEngine, example_cluster, read_cluster
from berth.errors import InvalidInput

__all__ = ["make_engine"]


def make_engine(name: str, clock: Clock, state_file: str | None = None) -> Engine:
    """The engine that a person means.

    * `simulated`: a small cluster in this process
    * `simulated:FILE`: the cluster of a YAML file, in this process
    * `simulated:unix:PATH`: a simulated cluster in another process

    >>> make_engine("cloud", Clock())
    Traceback (most recent call last):
    berth.errors.InvalidInput: engine: got 'cloud', expected simulated, simulated:FILE or simulated:unix:PATH
    """
    kind, _, rest = name.partition(":")
    if kind != "simulated" or (":" in name and not rest):
        raise InvalidInput("simulated, simulated:FILE or simulated:unix:PATH", value=name, key="engine")
    if rest.startswith("unix:"):
        return RemoteEngine(Path(rest.removeprefix("unix:")))
    cluster = read_cluster(Path(rest)) if rest else example_cluster()
    return SimulatedEngine(cluster, clock, None if state_file is None else Path(state_file))
