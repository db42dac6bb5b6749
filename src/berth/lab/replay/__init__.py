"""Replay traces under other policies: the start of each job, and the metrics."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from berth.errors import InvalidInput, UnsupportedProblem
from berth.families.placement.trace_world import batch_jobs, pooled, squeezed
from berth.lab.replay import run
from berth.lab.replay.results import Replay, ReplaySetting, load, save, with_earlier
from berth.lab.run.store import ResultDirectory, now, opened, versions
from berth.registry import PolicySpec
from berth.traces.formats import open_trace
from berth.traces.lint import usable
from berth.traces.trace import Trace

__all__ = ["DEFAULT_POLICIES", "Replay", "ReplaySetting", "replay"]

KIND = "berth replay"
DEFAULT_POLICIES = ("fcfs", "sjf", "easy", "conservative")
SHARED_POLICIES = ("fcfs", "best-fit", "tetris", "fgd")
"""Policies compared by default if jobs share GPUs."""


def replay(
    trace: str | Path | Trace,
    policies: Sequence[str] | None = None,
    setting: ReplaySetting | None = None,
    *,
    format: str | None = None,
    machines: str | Path | None = None,
    strict: bool = False,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Replay:
    """Replay a trace under each policy; `progress` is called with the policy, moments done and moments in all.

    With `out`, results are saved there, and those of the same trace and setting are reused.

    >>> jobs = {"submit_s": [0.0, 0.0, 1.0], "run_s": [5.0, 5.0, 4.0], "pieces": [2, 4, 2], "cpu": [1.0, 1.0, 1.0]}
    >>> found = replay(Trace.of(jobs), ["fcfs", "easy"], ReplaySetting(processors=4))
    >>> [row["mean_wait_seconds"] for row in found.rows]
    [4.666666666666667, 1.6666666666666667]
    """
    setting = setting or ReplaySetting()
    unreadable: dict[str, int] = {}
    unread: InvalidInput | None = None
    if not isinstance(trace, Trace):
        reading = open_trace(trace, format, machines=machines, strict=strict)
        trace = reading.trace()
        unreadable = dict(reading.report.skipped)
        unread = next((found[0] for found in reading.report.examples.values()), None)
    if setting.processors is not None:
        trace = pooled(trace, setting.processors, setting.resource)
    elif setting.resource is not None:
        raise InvalidInput("processors too: a resource is that of a pool", value=setting.resource, key="resource")
    playable, unusable = usable(trace)
    left_out = {**unreadable, **unusable}
    if setting.first is not None:
        playable = playable.replace(jobs=playable.jobs.head(setting.first))
    if setting.load is not None:
        playable = squeezed(playable, setting.load)
    try:
        batch = batch_jobs(playable, exact=setting.exact, stopped=setting.stopped)
    except InvalidInput as error:
        if not len(trace) and unread is not None:
            raise unread from None
        raise error.at(file=next(iter(trace.source.files), None)) from None
    chosen = policies or (DEFAULT_POLICIES if batch.problem.devices is None else SHARED_POLICIES)
    specs = [_placement(text) for text in dict.fromkeys(chosen)]
    source = {"format": trace.source.format, "files": {file: _hash(file) for file in trace.source.files}}
    facts = {"source": source, "played": _digest(playable), "setting": vars(setting), "versions": versions()}
    rows: list[dict[str, Any]] = []
    tables: list[pl.DataFrame] = []
    refused: dict[str, str] = {}
    with opened(out, KIND) as folder:
        if folder is not None:
            before = folder.manifest()
            if before is not None and any(before.get(key) != value for key, value in facts.items()):
                expected = "a directory without results, or with those of this very trace and setting"
                raise InvalidInput(expected, found=f"{str(folder.path)!r}, which has others", key="out")
            folder.create(facts)
        for spec in specs:
            found = None if folder is None else load(folder, str(spec))
            if found is None:
                try:
                    found = run.played(spec, batch, playable, setting, progress)
                except UnsupportedProblem as error:
                    refused[str(spec)] = str(error)
                    continue
                if folder is not None:
                    save(folder, str(spec), *found)
            rows.append({"policy": str(spec), **found[0]})
            tables.append(found[1].select(pl.lit(str(spec)).alias("policy"), pl.all()))
        if not rows:
            raise UnsupportedProblem("; ".join(refused.values()))
        told = "" if unread is None else str(unread)
        result = Replay(source, setting, rows, pl.concat(tables), left_out, refused, told)
        if folder is not None:
            _write(folder, with_earlier(folder, result), facts)
    return result


def _write(folder: ResultDirectory, result: Replay, facts: Mapping[str, Any]) -> None:
    from berth.lab.replay.plots import save_replay_plots

    folder.write_table("jobs.parquet", result.jobs)
    flat = [{k: v for k, v in row.items() if not isinstance(v, dict)} for row in result.rows]
    folder.write_table("summary.parquet", pl.DataFrame(flat, infer_schema_length=None))
    folder.write_json("summary.json", result.rows)
    save_replay_plots(result, folder)
    told = {**facts, "left_out": dict(result.left_out), "refused": dict(result.refused)}
    folder.write_json("manifest.json", folder.described(told, now()))  # last: marks a complete directory


def _placement(text: str) -> PolicySpec:
    spec = PolicySpec.parse(text)
    family = getattr(spec.load(), "family", None)
    if family != "placement":
        raise InvalidInput("a policy of the placement family", found=f"{text}, of the {family} family", key="policy")
    return spec


def _hash(file: str) -> str | None:
    """SHA-256 of a file of the trace, None if it is missing."""
    path = Path(file)
    if not path.is_file():
        return None
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _digest(trace: Trace) -> str:
    """SHA-256 of the jobs played; file hashes are not enough, since a trace may be in memory or read in another way."""
    found = hashlib.sha256(repr(trace.resources).encode())
    for table in (trace.jobs, trace.machines, trace.outages):
        bytes_of = io.BytesIO()
        table.rechunk().write_ipc(bytes_of)
        found.update(bytes_of.getvalue())
    return found.hexdigest()
