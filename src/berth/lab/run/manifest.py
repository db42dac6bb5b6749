"""What was run, with what, and how to run it again."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from berth.about import VERSION
from berth.lab.run.store import KIND

__all__ = ["command_line", "machine", "manifest", "now", "versions"]


def command_line(
    scenario: str,
    facts: Mapping[str, Any],
    overrides: Mapping[str, Any] | None,
    out: str | os.PathLike[str] | None,
) -> str:
    """The command that repeats a comparison with these facts.

    >>> facts = {"policies": ["drf"], "seeds": [0, 1], "baseline": "drf", "information": ["hidden"], "oracles": []}
    >>> command_line("small", facts, {"horizon": 50}, None)
    'berth compare small --policy drf --seeds 2 --baseline drf --arrivals hidden --oracle none --set horizon=50'
    """
    words = ["berth", "compare", scenario]
    for policy in facts["policies"]:
        words += ["--policy", policy]
    seeds, information = list(facts["seeds"]), list(facts["information"])
    if seeds == list(range(len(seeds))):
        words += ["--seeds", str(len(seeds))]
    else:
        for seed in seeds:
            words += ["--seed", str(seed)]
    words += ["--baseline", facts["baseline"], "--arrivals", "both" if len(information) > 1 else information[0]]
    for oracle in facts["oracles"] or ["none"]:
        words += ["--oracle", oracle]
    for key, value in (overrides or {}).items():
        words += ["--set", f"{key}={value}"]
    if out is not None:
        words += ["--out", os.fspath(out)]
    return shlex.join(words)


def manifest(facts: Mapping[str, Any], finished: str | None = None, reused: int = 0, failed: int = 0) -> dict[str, Any]:
    """The facts of a comparison and of this machine; `finished` is None until everything is there."""
    return {
        "kind": KIND,
        **facts,
        "finished": finished,
        "cells_reused": reused,
        "cells_failed": failed,
        "platform": platform.platform(),
        "machine": machine(),
    }


def machine() -> str:
    """What this machine is, in a few words."""
    return f"{platform.machine()}, {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    """Of berth, Python and what the numbers depend on."""
    found = {"berth": VERSION, "python": platform.python_version()}
    for package in ("numpy", "numba", "scipy", "polars"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def now() -> str:
    """The time, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
