"""Engines by name."""

from __future__ import annotations

from pathlib import Path

from berth.errors import InvalidInput
from berth.live.engines import Engine, Owner
from berth.live.engines.clock import Clock
from berth.live.engines.ray.engine import RayEngine
from berth.live.engines.remote import RemoteEngine
from berth.live.engines.simulated.engine import SimulatedEngine, example_cluster, read_cluster
from berth.live.engines.slurm import SlurmEngine, SlurmSettings, check_settings, read_settings

__all__ = ["check_engine", "make_engine"]


def make_engine(name: str, clock: Clock, state_file: str | None = None, owner: Owner | None = None) -> Engine:
    """The engine that a person means, for the attempts of an owner.

    * `simulated`: a small cluster in this process
    * `simulated:FILE`: the cluster of a YAML file, in this process
    * `simulated:unix:PATH`: a simulated cluster in another process
    * `slurm`, `slurm:FILE`: a Slurm cluster, with the settings of a YAML file
    * `ray`, `ray:ADDRESS`: the Ray cluster that RAY_ADDRESS names, or the one of this machine; the one at an address

    >>> make_engine("cloud", Clock())
    Traceback (most recent call last):
    berth.errors.InvalidInput: engine: got 'cloud', expected simulated, simulated:FILE, simulated:unix:PATH, slurm, ...
    """
    kind, _, rest = name.partition(":")
    if kind not in ("simulated", "slurm", "ray") or (":" in name and not rest):
        known = "simulated, simulated:FILE, simulated:unix:PATH, slurm, slurm:FILE, ray or ray:ADDRESS"
        raise InvalidInput(known, value=name, key="engine")
    if kind == "slurm":
        file = Path(rest) if rest else None
        try:
            return SlurmEngine(read_settings(file) if file else SlurmSettings(), owner=owner, file=file)
        except InvalidInput as error:
            raise error.at(file=file) from None
    if kind == "ray":
        return RayEngine(rest or None, owner)
    if rest.startswith("unix:"):
        return RemoteEngine(Path(rest.removeprefix("unix:")))
    cluster = read_cluster(Path(rest)) if rest else example_cluster()
    return SimulatedEngine(cluster, clock, None if state_file is None else Path(state_file))


def check_engine(name: str) -> None:
    """Refuse an engine that cannot be made, before anything is made for it."""
    kind, _, rest = name.partition(":")
    if kind != "slurm" or (":" in name and not rest):
        make_engine(name, Clock())
        return
    file = Path(rest) if rest else None
    try:
        check_settings(read_settings(file) if file else SlurmSettings())
    except InvalidInput as error:
        raise error.at(file=file) from None
