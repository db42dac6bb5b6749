"""Replay traces under other policies: the start of each job, and the metrics."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from berth.errors import InvalidInput, UnknownName, UnsupportedProblem
from berth.families.placement.trace_world import BatchJobs, batch_jobs
from berth.lab.replay import run
from berth.lab.replay.known import Beyond
from berth.lab.replay.results import Played, Replay, ReplaySetting, assembled, earlier, load, save
from berth.lab.replay.samples import Measurement, Sample, Samples, samples_of
from berth.lab.run.store import ResultDirectory, now, opened, versions
from berth.live.core import LIVE
from berth.registry import PolicySpec, in_family, written
from berth.traces.trace import Trace

__all__ = ["DEFAULT_POLICIES", "Measurement", "Replay", "ReplaySetting", "replay"]

KIND = "berth replay"
DEFAULT_POLICIES = ("fcfs", "sjf", "easy", "conservative")
SHARED_POLICIES = ("fcfs", "best-fit", "tetris", "fgd")
"""Policies compared by default if jobs share GPUs."""


def replay(
    trace: str | Path | Trace,
    policies: Sequence[str | type[Any]] | None = None,
    setting: ReplaySetting | None = None,
    measure: Measurement | None = None,
    *,
    baseline: str | None = None,
    format: str | None = None,
    machines: str | Path | None = None,
    strict: bool = False,
    out: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Replay:
    """Replay a trace under each policy; `progress` is called with the policy, moments done and moments in all.

    A policy is a name, "module:Class", or the class itself. `measure` says which jobs are played and which count, and
    asks for windows or replicas; with several of them, policies are compared with `baseline` (default: the first)
    sample by sample. With `out`, results are saved there, and those of the same trace and setting are reused.

    >>> jobs = {"submit_s": [0.0, 0.0, 1.0], "run_s": [5.0, 5.0, 4.0], "pieces": [2, 4, 2], "cpu": [1.0, 1.0, 1.0]}
    >>> found = replay(Trace.of(jobs), ["fcfs", "easy"], ReplaySetting(processors=4))
    >>> [row["mean_wait_seconds"] for row in found.rows]
    [4.666666666666667, 1.6666666666666667]
    """
    setting, measure = setting or ReplaySetting(), measure or Measurement()
    servers = machines if machines is not None and Path(machines).suffix in (".yaml", ".yml") else None
    beyond = Beyond.of(setting, servers)
    table = None if servers is not None else machines
    read = partial(samples_of, trace, setting, measure, format=format, machines=table, strict=strict)
    samples = beyond.accepted(read(on=beyond.on_servers))
    batches = [_batch(samples, sample, setting) for sample in samples.samples]
    specs = [_policy(text) for text in chosen_policies(policies or beyond.policies, baseline, batches[0])]
    known = [beyond.known(sample) for sample in samples.samples]
    source = {"format": samples.source.format, "files": {file: _hash(file) for file in samples.source.files}}
    facts: dict[str, Any] = {
        "source": source,
        "played": trace_digest(samples.samples, scripts="script" in (setting.types or "")),
        "setting": setting.stated(),
        "measurement": {**vars(measure), "window_starts": list(measure.window_starts)},
        "versions": versions(),
    }
    if beyond.files:
        facts["beyond"] = {file: _hash(file) for file in beyond.files}
    cells: dict[str, list[Played]] = {}
    refused: dict[str, str] = {}
    with opened(out, KIND) as folder:
        if folder is not None:
            before = folder.manifest()
            if before is not None and any(before.get(key) != value for key, value in facts.items()):
                expected = "a directory without results, or with those of this very trace and setting"
                raise InvalidInput(expected, found=f"{str(folder.path)!r}, which has others", key="out")
            folder.create(facts)
        for spec in specs:
            found: list[Played] = []
            try:
                for sample, batch, more in zip(samples.samples, batches, known, strict=True):
                    one = None if folder is None else load(folder, str(spec), sample.name, beyond.live)
                    if one is None:
                        counted = sample.span, measure.slowdown_bound
                        one = run.played(spec, batch, sample.trace, setting, progress, *counted, more)
                        if folder is not None:
                            save(folder, str(spec), *one, sample=sample.name, live=beyond.live)
                    found.append(one)
            except UnsupportedProblem as error:
                refused[str(spec)] = str(error)
                continue
            cells[str(spec)] = found
        if not cells:
            raise UnsupportedProblem("; ".join(refused.values()))
        names = tuple(sample.name for sample in samples.samples)
        told = "" if samples.unread is None else str(samples.unread)
        base = "" if baseline is None else str(_policy(baseline))
        notes = beyond.notes(samples.samples, known, any(run.is_live(spec) for spec in specs))
        common = partial(
            assembled,
            source,
            setting,
            measure,
            names,
            left_out=samples.left_out,
            refused=refused,
            merging=samples.merging,
            notes=notes,
        )
        result = common(cells, base, unreadable=told)
        if folder is not None:
            _write(
                folder, common({**cells, **earlier(folder, names, cells, beyond.live)}, base, unreadable=told), facts
            )
    return result


def chosen_policies(policies: Sequence[str | type[Any]] | None, baseline: str | None, batch: BatchJobs) -> list[str]:
    """The policies to play, each once, and the baseline among them."""
    chosen = policies or (DEFAULT_POLICIES if batch.problem.devices is None else SHARED_POLICIES)
    return list(dict.fromkeys(map(written, [*chosen, *([] if baseline is None else [baseline])])))


def _batch(samples: Samples, sample: Sample, setting: ReplaySetting) -> BatchJobs:
    try:
        return batch_jobs(sample.played, exact=setting.exact, stopped=setting.stopped)
    except InvalidInput as error:
        if samples.unread is not None and not len(sample.trace):
            raise samples.unread from None
        raise error.at(file=next(iter(samples.source.files), None)) from None


def _write(folder: ResultDirectory, result: Replay, facts: Mapping[str, Any]) -> None:
    from berth.lab.replay.plots import save_replay_plots
    from berth.lab.replay.report import render_replay, replay_command_line

    folder.write_table("jobs.parquet", result.jobs)
    flat = [{k: v for k, v in row.items() if not isinstance(v, dict)} for row in result.rows]
    folder.write_table("summary.parquet", pl.DataFrame(flat, infer_schema_length=None))
    folder.write_json("summary.json", result.rows)
    if len(result.samples) > 1:
        each = [{k: v for k, v in row.items() if not isinstance(v, dict)} for row in result.each]
        folder.write_table("samples.parquet", pl.DataFrame(each, infer_schema_length=None))
    told = {**facts, "left_out": dict(result.left_out), "refused": dict(result.refused), "merging": result.merging}
    told |= {"notes": list(result.notes)} if result.notes else {}
    done = folder.described({**told, "command": replay_command_line(result)}, now())
    folder.write_text("report.html", render_replay(result, save_replay_plots(result, folder), done))
    folder.write_json("manifest.json", done)  # last: marks a complete directory


def _policy(text: str) -> PolicySpec:
    """Parse a policy that the lab or the dispatcher of the live scheduler can play."""
    if text in LIVE:
        return PolicySpec(text)
    spec = _parsed(text, LIVE)
    if run.is_live(spec):
        from berth.live.core.drivers import make_driver  # here: other replays do not load the live scheduler

        make_driver(text, 0, ())
    return spec


def _parsed(text: str, more: Iterable[str]) -> PolicySpec:
    try:
        return PolicySpec.parse(text)
    except UnknownName as error:
        raise in_family(error, "placement", more) from None


def placement_policy(text: str, more: Iterable[str] = ()) -> PolicySpec:
    """Parse a policy; refuse one of another family. `more` are other names that the caller knows."""
    spec = _parsed(text, more)
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


def trace_digest(samples: Sequence[Sample], *, scripts: bool = False) -> str:
    """SHA-256 of the jobs played; file hashes are not enough, since a trace may be in memory or read in another way.

    Their scripts count only where types are told by them.
    """
    found = hashlib.sha256()
    for sample in samples:
        trace = sample.trace
        found.update(repr((trace.resources, sample.span)).encode())
        jobs = trace.jobs if scripts else trace.jobs.drop("script")
        for table in (jobs, trace.machines, trace.outages):
            bytes_of = io.BytesIO()
            table.rechunk().write_ipc(bytes_of)
            found.update(bytes_of.getvalue())
    return found.hexdigest()
