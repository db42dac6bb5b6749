"""Sweeps with their reports: of comparisons (a scenario) or of replays (a trace)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from berth.errors import InvalidInput
from berth.files.yaml_tree import read_file
from berth.lab.replay.sweep import ReplaySweep, ReplaySweepFile, load_replay_sweep, replay_sweep
from berth.lab.run import sweep as compared
from berth.lab.run.runner import Progress
from berth.lab.run.store import ResultDirectory
from berth.lab.run.sweep import Sweep, SweepFile

__all__ = ["load_sweep", "sweep"]


def load_sweep(path: str | os.PathLike[str]) -> SweepFile | ReplaySweepFile:
    """Read and check a sweep file: of replays if it names a trace, else of comparisons.

    >>> load_sweep("nowhere.yaml")
    Traceback (most recent call last):
    berth.errors.InvalidInput: nowhere.yaml: ...
    """
    tree = read_file(Path(path), "sweep")
    given = tree.value if isinstance(tree.value, dict) else {}
    traced = "trace" in given or any(
        isinstance(given.get(part), dict) and "trace" in given[part] for part in ("grid", "set")
    )
    return load_replay_sweep(path) if traced and "scenario" not in given else compared.load_sweep(path)


def sweep(
    plan: SweepFile | ReplaySweepFile | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    on: str = "local",
    address: str | None = None,
    seeds: int | Sequence[int] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Sweep | ReplaySweep:
    """Run a sweep and write its report to `out`; `on` is "local" (processes of this machine) or "ray" (a cluster).

    A point with invalid settings is an error before anything runs; a failing cell is listed and stops no other.
    """
    if not isinstance(plan, SweepFile | ReplaySweepFile):
        plan = load_sweep(plan)
    if isinstance(plan, SweepFile):
        title = plan.title

        def report(directory: ResultDirectory, found: Sweep, manifest: Mapping[str, Any]) -> None:
            from berth.lab.show.sweeps import table_of, write_sweep_report

            write_sweep_report(directory, table_of(found, title), manifest)

        return compared.sweep(
            plan, out=out, workers=workers, on=on, address=address, seeds=seeds, progress=progress, report=report
        )
    for key, value in {"on": None if on == "local" else on, "address": address, "seeds": seeds}.items():
        if value is not None:
            raise InvalidInput("nothing: sweeps of replays run on this machine, by samples", value=value, key=key)
    return replay_sweep(plan, out=out, workers=workers, progress=progress)
