"""Engines by name: the built-in ones and those that installed packages offer (entry points `berth.engines`).

* `simulated`: a small cluster in this process
* `simulated:FILE`: the cluster of a YAML file, in this process
* `simulated:unix:PATH`: a simulated cluster in another process
* `slurm`, `slurm:FILE`: a Slurm cluster, with the settings of a YAML file
* `kubernetes`, `kubernetes:FILE`: the Kubernetes cluster that kubectl uses; one with the settings of a YAML file
* `ray`, `ray:ADDRESS`: the Ray cluster that RAY_ADDRESS names, or the one of this machine; the one at an address
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from berth.errors import InvalidInput, UnknownName
from berth.live.engines import Engine, EngineKind, Owner
from berth.live.engines.clock import Clock
from berth.registry import load, offered

__all__ = ["check_engine", "engine_in", "engine_names", "make_engine"]

GROUP = "berth.engines"
BUILTIN = {
    "simulated": "berth.live.engines.simulated.engine:ENGINE",
    "slurm": "berth.live.engines.slurm.engine:ENGINE",
    "ray": "berth.live.engines.ray.engine:ENGINE",
    "kubernetes": "berth.live.engines.kubernetes.engine:ENGINE",
}


def engine_names() -> dict[str, str]:
    """Every name and its `module:attribute`; an installed package cannot take a built-in name."""
    return {**offered(GROUP), **BUILTIN}


def _kind(name: str) -> tuple[EngineKind, str]:
    """The kind of an engine, and the rest of its name after the colon."""
    kind, colon, rest = name.partition(":")
    names = engine_names()
    if kind not in names:
        raise UnknownName("engine", kind, names)
    if colon and not rest:
        raise InvalidInput(f"{kind}, or something after the colon", value=name, key="engine")
    return load(names[kind], "engine", kind, EngineKind), rest


def _checked(name: str) -> tuple[EngineKind, Any]:
    kind, rest = _kind(name)
    return kind, kind.settings(rest)


def make_engine(name: str, clock: Clock, state_file: str | None = None, owner: Owner | None = None) -> Engine:
    """The engine of this name, for the attempts of an owner.

    >>> make_engine("slrm", Clock())
    Traceback (most recent call last):
    berth.errors.UnknownName: unknown engine 'slrm'; did you mean 'slurm'?
    """
    kind, settings = _checked(name)
    return kind.make(settings, clock, None if state_file is None else Path(state_file), owner)


def check_engine(name: str) -> None:
    """Refuse an engine that cannot be made, without making it."""
    _checked(name)


def engine_in(name: str, folder: Path) -> str:
    """The same engine, where the path in its name is relative to a folder.

    >>> engine_in("slurm:slurm.yaml", Path("/etc/berth")), engine_in("ray:10.0.0.1:6379", Path("/etc/berth"))
    ('slurm:/etc/berth/slurm.yaml', 'ray:10.0.0.1:6379')
    """
    kind, rest = _kind(name)
    if not (kind.reads_file and rest):
        return name
    scheme = "unix:" if rest.startswith("unix:") else ""
    return f"{name.partition(':')[0]}:{scheme}{folder / rest.removeprefix(scheme)}"
