"""Samples of a replay: a part of the log, windows of it, or replicas of a fitted workload.

Every policy is played on every sample, so policies are compared sample by sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from berth.errors import InvalidInput
from berth.families.placement.trace_world import merged, pooled, squeezed
from berth.files.quantities import parse_duration
from berth.lab.replay.setting import ReplaySetting
from berth.model import Floats
from berth.random import stream
from berth.traces.fitting.fit import fit
from berth.traces.fitting.generate import generate
from berth.traces.fitting.workload import Workload, load_workload, workload_names
from berth.traces.formats import Reading, open_trace, option_names, recognised
from berth.traces.lint import usable
from berth.traces.pools import spoken_merging
from berth.traces.summary import log_start
from berth.traces.trace import Source, Trace

__all__ = ["Measurement", "Sample", "Samples", "job_windows", "opened_log", "samples_of"]

REPLICA_JOBS = 10_000
"""Jobs of a replica, if the setting does not say."""

Time = str | float | None


@dataclass(frozen=True)
class Measurement:
    """Which jobs of a trace are played, and which of them count.

    `since`, `until`: play jobs submitted in this time only; seconds or a duration ("30d") from the first submission, or
    a date ("1998-05-01") if the log says when it began. `warm_up`, `cool_down`: jobs at either end that are played and
    do not count; a duration, or a share of the jobs ("5%"). `windows`: play this many windows of `window_jobs` jobs or
    of the time `window_length`, each on an empty cluster; they start at `window_starts` (number of a job, or time) or
    at random, without overlap. `replicas`: play this many workloads drawn from a fit, each with another seed.
    `slowdown_bound`: run times below this many seconds (default 10) count as this in bounded slowdowns.
    """

    since: Time = None
    until: Time = None
    warm_up: Time = None
    cool_down: Time = None
    windows: int | None = None
    window_jobs: int | None = None
    window_length: Time = None
    window_starts: tuple[Time, ...] = ()
    replicas: int | None = None
    slowdown_bound: float | None = None


@dataclass(frozen=True, eq=False)
class Sample:
    """A usable trace to play; only jobs submitted in `span` count (None: all).

    `played` is the trace itself, or that trace with its machines merged into one pool.
    """

    name: str
    trace: Trace
    span: tuple[float, float] | None
    played: Trace

    @property
    def merging(self) -> str:
        """Which machines were merged, in words."""
        return "" if self.played is self.trace else spoken_merging(self.trace)


@dataclass(frozen=True, eq=False)
class Samples:
    """All samples, the source of the trace, and the jobs left out by reason; `unread` is the first unreadable line."""

    source: Source
    samples: list[Sample]
    left_out: Mapping[str, int]
    unread: InvalidInput | None = None

    @property
    def merging(self) -> str:
        """Which machines were merged, in words; if only in some of the samples, in how many."""
        said = [sample.merging for sample in self.samples if sample.merging]
        if not said or len(said) == len(self.samples):
            return said[0] if said else ""
        return f"in {len(said)} of {len(self.samples)} samples {said[0]}"


def samples_of(
    given: str | Path | Trace,
    setting: ReplaySetting,
    measure: Measurement,
    *,
    format: str | None = None,
    machines: str | Path | None = None,
    strict: bool = False,
    on: Callable[[Trace], Trace] = lambda trace: trace,
) -> Samples:
    """Read a trace, or draw replicas of a workload, and cut it into samples; `on` gives each trace its machines."""
    if measure.replicas is not None and _window_options(measure):
        raise InvalidInput("windows or replicas, not both", key="replicas")
    if measure.slowdown_bound is not None and not 0 < measure.slowdown_bound < math.inf:
        raise InvalidInput("a number of seconds above 0", value=measure.slowdown_bound, key="slowdown_bound")
    if measure.replicas is not None and measure.replicas < 1:
        raise InvalidInput("a whole number ≥ 1", value=measure.replicas, key="replicas")
    if setting.processors is None and setting.resource is not None:
        raise InvalidInput("processors too: a resource is that of a pool", value=setting.resource, key="resource")
    unread, left_out, workload = None, dict[str, int](), _workload(given, measure)
    if setting.size is not None and (workload is not None or isinstance(given, Trace)):
        raise InvalidInput("no size: it chooses a field when a log is read", value=setting.size, key="size")
    if workload is None and not isinstance(given, Trace):
        reading = opened_log(given, setting.size, format, machines=machines, strict=strict)
        given = reading.trace()
        left_out = dict(reading.report.skipped)
        unread = next((found[0] for found in reading.report.examples.values()), None)
    whole = given if isinstance(given, Trace) else None
    source = Source("workload", (str(given),)) if whole is None else whole.source
    if measure.replicas is not None:
        workload = workload or fit(_given(whole), "replayed")
        named: Iterator[tuple[str, Trace]] = _replicas(workload, setting, measure.replicas)
    else:
        named = iter([("", _given(whole))])
    samples: list[Sample] = []
    for name, trace in named:
        there = _whole_gpus(on(trace)) if setting.whole_gpus else on(trace)
        playable, unusable = usable(_on_pool(there, setting), zero_run_times=setting.zero_run_times)
        for reason, count in unusable.items():
            left_out[reason] = left_out.get(reason, 0) + count
        part = _between(playable, measure)
        if setting.first is not None:
            part = part.replace(jobs=part.jobs.head(setting.first))
        for window, cut in _windows(part, setting, measure):
            loaded = cut if setting.load is None else squeezed(cut, setting.load)
            pool = None if setting.outages or setting.speeds or setting.cluster else merged(loaded)
            samples.append(Sample(name or window, loaded, _span(loaded, measure), loaded if pool is None else pool))
    return Samples(source, samples, left_out, unread)


def opened_log(
    path: str | Path,
    size: str | None,
    format: str | None = None,
    *,
    machines: str | Path | None = None,
    strict: bool = False,
) -> Reading:
    """Open a trace in which the size of a job is this one of two fields; refuse a format that has only one."""
    if size is None:
        return open_trace(path, format, machines=machines, strict=strict)
    chosen = format or recognised(Path(path).expanduser())
    if "size" not in option_names(chosen):
        expected = "a log in the Standard Workload Format (swf), which has requested and allocated sizes"
        raise InvalidInput(expected, found=f"a trace in the format {chosen}", key="size", file=path)
    return open_trace(path, chosen, machines=machines, strict=strict, size=size)


def _given(trace: Trace | None) -> Trace:
    if trace is None:
        raise InvalidInput("a trace", found="a fitted workload: give --replicas, to draw from it", key="trace")
    return trace


def _workload(given: str | Path | Trace, measure: Measurement) -> Workload | None:
    """The fitted workload of this name or file; None for a trace."""
    if isinstance(given, Trace) or measure.replicas is None:
        return None
    return load_workload(str(given)) if str(given) in workload_names() or Path(given).suffix == ".json" else None


def _replicas(workload: Workload, setting: ReplaySetting, count: int) -> Iterator[tuple[str, Trace]]:
    for seed in range(setting.seed, setting.seed + count):
        yield f"replica {seed}", generate(workload, jobs=setting.first or REPLICA_JOBS, seed=seed)


def _on_pool(trace: Trace, setting: ReplaySetting) -> Trace:
    return trace if setting.processors is None else pooled(trace, setting.processors, setting.resource)


def _whole_gpus(trace: Trace) -> Trace:
    """The same jobs, where each that shares a GPU has a whole one."""
    if "gpu" not in trace.jobs.columns:
        raise InvalidInput("a log whose jobs ask for GPUs", found="no resource gpu", key="whole_gpus")
    shares = pl.col("gpu").is_between(0.0, 1.0, closed="none")
    return trace.replace(jobs=trace.jobs.with_columns(pl.when(shares).then(1.0).otherwise(pl.col("gpu")).alias("gpu")))


def _between(trace: Trace, measure: Measurement) -> Trace:
    """The jobs submitted from `since` until before `until`."""
    if (measure.since is None and measure.until is None) or not len(trace.jobs):
        return trace
    submit = trace.jobs["submit_s"]
    since = float(submit[0]) if measure.since is None else _moment(measure.since, trace, "since")
    until = math.inf if measure.until is None else _moment(measure.until, trace, "until")
    jobs = trace.jobs.filter((submit >= since) & (submit < until))
    if not len(jobs):
        length = (float(submit[-1]) - float(submit[0])) / 86400
        found = (
            f"none from {measure.since or 'the start'} to {measure.until or 'the end'} of a log of {length:.4g} days"
        )
        raise InvalidInput("a time with at least one job", found=found, key="since")
    return trace.replace(jobs=jobs)


def _moment(given: str | float, trace: Trace, key: str) -> float:
    """Seconds from the trace's zero: given as a duration from the first submission, or as a date."""
    try:
        date = datetime.fromisoformat(given) if isinstance(given, str) and given[:5].endswith("-") else None
    except ValueError:
        raise InvalidInput("a date such as 1998-05-01 or 1998-05-01T12:00", value=given, key=key) from None
    if date is None:
        return float(trace.jobs["submit_s"][0]) + parse_duration(given, key)
    zero = log_start(trace.source)
    if zero is None:
        expected = "a time from the first submission, such as 30d: this log does not say when it began"
        raise InvalidInput(expected, value=given, key=key)
    return (date.astimezone(UTC) if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - zero


# --- windows


def job_windows(starts: Sequence[int], length: int) -> list[slice]:
    """Windows of `length` jobs that begin at these jobs, counted from 0."""
    return [slice(start, start + length) for start in starts]


def _window_options(measure: Measurement) -> bool:
    return bool(measure.windows or measure.window_jobs or measure.window_length or measure.window_starts)


def _windows(trace: Trace, setting: ReplaySetting, measure: Measurement) -> Iterator[tuple[str, Trace]]:
    """Each window with its name; the whole trace if no window is asked for."""
    if not _window_options(measure) or not len(trace.jobs):
        yield "", trace
        return
    if (measure.window_jobs is None) == (measure.window_length is None):
        raise InvalidInput("either window_jobs or window_length", key="windows")
    if not measure.window_starts and measure.windows is None:
        raise InvalidInput("a number of windows, or their starts", key="windows")
    if measure.window_starts and measure.windows not in (None, len(measure.window_starts)):
        found = f"{measure.windows} windows with {len(measure.window_starts)} starts"
        raise InvalidInput("a number of windows or their starts, not both", found=found, key="windows")
    submit = trace.jobs["submit_s"].to_numpy()
    if measure.window_jobs is not None:
        if measure.window_jobs < 1:
            raise InvalidInput("a whole number ≥ 1", value=measure.window_jobs, key="window_jobs")
        starts = [_place(start) for start in measure.window_starts] or _apart(
            len(submit), measure.window_jobs, measure.windows or 0, setting.seed, whole=True
        )
        slices = job_windows([int(start) for start in starts], measure.window_jobs)
    else:
        length = parse_duration(measure.window_length, "window_length")
        times = [_moment(start, trace, "window_starts") for start in measure.window_starts if start is not None]
        if not times:
            drawn = _apart(float(submit[-1] - submit[0]), length, measure.windows or 0, setting.seed, whole=False)
            times = [float(submit[0]) + float(start) for start in drawn]
        slices = [
            slice(*(int(place) for place in np.searchsorted(submit, [time, time + length], side="left")))
            for time in times
        ]
    for one in slices:
        jobs = trace.jobs[one]
        if not len(jobs) or (measure.window_jobs is not None and len(jobs) < measure.window_jobs):
            found = f"{len(jobs):,} from job {one.start:,} of {len(submit):,}"
            raise InvalidInput("a window full of jobs", found=found, key="windows")
        yield f"from job {one.start}", trace.replace(jobs=jobs)


def _place(start: Time) -> int:
    try:
        found = int(str(start))
    except ValueError:
        found = -1
    if found < 0:
        raise InvalidInput("the number of a job, counted from 0", value=start, key="window_starts")
    return found


def _apart(total: float, length: float, count: int, seed: int, *, whole: bool) -> Floats:
    """Starts of `count` windows of this length, drawn at random without overlap.

    >>> _apart(100.0, 10.0, 3, 0, whole=True).tolist()
    [3.0, 42.0, 59.0]
    """
    if count < 1:
        raise InvalidInput("a whole number ≥ 1", value=count, key="windows")
    room = total - count * length
    if room < 0:
        most = int(total // length) if length > 0 else 0
        said = "no window of this length fits" if not most else f"at most {most:,} fit without overlap"
        raise InvalidInput(f"fewer or shorter windows: {said}", value=count, key="windows")
    draw = stream(seed, "windows")
    free = draw.integers(0, int(room) + 1, size=count) if whole else draw.random(count) * room
    starts: Floats = np.sort(free).astype(np.float64) + np.arange(count) * length
    return starts


# --- what counts


def _span(trace: Trace, measure: Measurement) -> tuple[float, float] | None:
    """Time of the submissions that count: without warm-up and cool-down."""
    if (measure.warm_up is None and measure.cool_down is None) or not len(trace.jobs):
        return None
    submit = trace.jobs["submit_s"].to_numpy()
    begin = submit[0] + _left_out(measure.warm_up, submit, "warm_up")
    end = submit[-1] - _left_out(measure.cool_down, -submit[::-1], "cool_down")
    if begin >= end or not ((submit >= begin) & (submit <= end)).any():
        found = f"nothing left of {len(submit):,} jobs in {submit[-1] - submit[0]:,.0f} s"
        raise InvalidInput("a warm-up and cool-down that leave jobs to count", found=found, key="warm_up")
    return float(begin), float(end)


def _left_out(given: Time, submit: Floats, key: str) -> float:
    """Seconds left out at the start of these submissions: a duration, or the time of a share of the jobs."""
    if given is None:
        return 0.0
    if isinstance(given, str) and given.rstrip().endswith("%"):
        try:
            share = float(given.rstrip()[:-1]) / 100
        except ValueError:
            share = math.nan
        if not 0 <= share < 1:
            raise InvalidInput("a duration, or a share from 0% to below 100%", value=given, key=key)
        return float(submit[min(math.ceil(share * len(submit)), len(submit) - 1)] - submit[0])
    return parse_duration(given, key)
