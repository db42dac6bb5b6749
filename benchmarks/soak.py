"""A month of the service in virtual time: `python -m benchmarks.soak` (`--quick` for a look, minutes).

A scheduler runs in this process over a simulated cluster, with a store and an engine file in the folder `--out`, and
ended jobs and events are kept for `--retention` days. Every `--step` seconds of virtual time, jobs end, the next ones
are submitted and started; nothing waits for a real clock. Two jobs in five are of types that appear, run for about a
day and never return; there is one type for 60 jobs. Memory and the sizes of files are written to `soak.parquet` every
six hours of virtual time, with a plot. At the end the process is killed, and a new one opens its store: the restart.

An interrupted run goes on when it is started again with the same folder. `--show` prints a folder's rows so far.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from berth.files.quantities import amounts
from berth.live.core.jobs import Job, Role
from berth.live.engines import clock as clocks
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import ServiceSettings

__all__ = ["growth", "jobs_of", "main", "month"]

DAY, DAYS = 86400.0, 30.0
SAMPLE = DAY / 4
"""Seconds of virtual time between two rows."""
JOBS_A_TYPE, STEADY = 60, 0.6
"""Jobs for each type, and the share of jobs whose types run all month."""
RUNS = 1800.0
"""Seconds that a job runs on a server of speed 1, on average."""
LOAD = 0.7
"""The share of the cluster that jobs hold."""
CPUS, MOST_CPUS = 64, 4
"""Cores of a server, and the most that a task asks for."""
LATE = 2 / 3
"""Growth is measured after this share of the days; by then the most types that are remembered have come."""
LEVELS = {"memory": "memory_mb", "store": "store_mb", "engine's file": "engine_mb", "snapshot": "snapshot_mb"}
"""What has to level off."""


class VirtualTime:
    """Stands in for the module `time` where the service reads its clock."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    monotonic = time


def jobs_of(step: int, count: int, total: int, steps: int) -> list[Job]:
    """The jobs of a step: the same ones whenever it is drawn."""
    rng = np.random.default_rng([1, step])
    types = max(total // JOBS_A_TYPE, 20)
    steady = max(types // 10, 10)
    born = max(int((types - steady) * (step + 1) / steps), 1)
    recent = max(int((types - steady) / DAYS), 1)
    jobs = []
    for i in range(count):
        if rng.random() < STEADY:
            type_ = f"steady/t{int(steady * rng.random() ** 2)}"
        else:
            type_ = f"new/t{max(born - 1 - int(rng.exponential(recent)), 0)}"
        demand = amounts({"cpu": int(rng.integers(1, MOST_CPUS + 1)), "memory": f"{int(rng.integers(1, 9))}Gi"})
        work = float(RUNS * np.exp(rng.normal(-0.5, 1.0)))
        roles = (Role("worker", 1 if rng.random() < 0.9 else 2, demand),)
        name, user = f"j{step}-{i}", f"u{rng.integers(40)}"
        jobs.append(Job(name, type_, roles, user, f"team{rng.integers(8)}", work=work, retries=1))
    return jobs


def servers_for(total: int) -> int:
    """How many servers carry the load."""
    cpus = total / (DAYS * DAY) * RUNS * 1.1 * (MOST_CPUS + 1) / 2
    return max(int(np.ceil(cpus / CPUS / LOAD)), 4)


class Month:
    """A scheduler, its engine and the clock that both of them read."""

    def __init__(self, folder: Path, total: int, step: float, retention: float) -> None:
        self.folder, self.total, self.step = folder, total, step
        self.steps = int(DAYS * DAY / step)
        self.settings = settings_of(folder, total, retention)
        self._time = VirtualTime()
        vars(clocks)["time"] = self._time
        self.scheduler: Scheduler
        self.begin = 0.0

    async def open(self) -> int:
        """Open the scheduler; returns the step from which the run goes on."""
        self.scheduler = await Scheduler.open(self.settings)
        noted = self.folder / "begin.json"
        if not noted.exists():  # tomorrow, so that the system clock is behind in each process that goes on
            noted.write_text(json.dumps(DAY * np.ceil(time.time() / DAY + 1)))
        self.begin = json.loads(noted.read_text())
        return int(np.searchsorted(self.ends, self.scheduler.dispatcher.state.submissions, "right"))

    @property
    def ends(self) -> np.ndarray[Any, Any]:
        """How many jobs have come by the end of each step."""
        return np.arange(1, self.steps + 1) * self.total // self.steps

    async def go(self, step: int) -> None:
        """Let a step pass, then submit and start its jobs."""
        clock = self.scheduler.clock
        self._time.now += max(self.begin + step * self.step - clock(), 0.0)
        await self._settle()
        before = int(self.ends[step - 1]) if step else 0
        jobs = jobs_of(step, int(self.ends[step]) - before, self.total, self.steps)
        missing = jobs[self.scheduler.dispatcher.state.submissions - before :]
        if missing:
            await self.scheduler.submit(missing)
        await self._settle()

    async def _settle(self) -> None:
        """Wait until nothing is left to do at this moment."""
        journal, link = self.scheduler._journal, self.scheduler._link
        engine: Any = link._engine
        while True:
            engine.look()
            seq = journal.seq
            journal._decide_at = 0.0  # decide at once, however long the last decision took
            await journal.ask(lambda round_: None)
            done = journal.seq == seq and not journal._changed and not link._commander._wanted
            if done and engine.cluster.next_end > self.scheduler.clock():
                return
            await asyncio.sleep(0)

    def row(self, step: int, began: float) -> dict[str, float]:
        """Memory, sizes of files, and counts now."""
        gc.collect()
        state = self.scheduler.dispatcher.state
        with sqlite3.connect(f"file:{self.settings.store}?mode=ro", uri=True) as store:
            kept, events = (store.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("jobs", "journal"))
            last = "SELECT length(body) FROM snapshots ORDER BY seq DESC LIMIT 1"
            snapshot = (store.execute(last).fetchone() or (0,))[0]
        store.close()
        files = [self.folder / f"berth.db{end}" for end in ("", "-wal", "-shm")]
        return {
            "day": (step + 1) * self.step / DAY,
            "jobs": float(state.submissions),
            "present": float(len(state.jobs)),
            "types": float(len(state.learned.types)),
            "kept_jobs": float(kept),
            "kept_events": float(events),
            "memory_mb": resident() / 1e6,
            "store_mb": sum(file.stat().st_size for file in files if file.exists()) / 1e6,
            "engine_mb": Path(str(self.settings.engine_state)).stat().st_size / 1e6,
            "snapshot_mb": snapshot / 1e6,
            "processor_s": time.process_time(),
            "wall_s": time.monotonic() - began,
        }


def settings_of(folder: Path, total: int, retention: float) -> ServiceSettings:
    """The settings of the service; writes the file of its cluster."""
    cluster, state = folder / "cluster.yaml", folder / "engine.jsonl"
    capacity = f"{{cpu: {CPUS}, memory: 512Gi}}"
    servers = f"servers:\n  - {{name: n, capacity: {capacity}, count: {servers_for(total)}}}\n"
    cluster.write_text(f"{servers}truth: {{spread: 0.3, noise: 0.2, faults: 0.02}}\n", encoding="utf-8")
    return ServiceSettings(
        store=str(folder / "berth.db"),
        engine=f"simulated:{cluster}",
        policy="completion",
        budget=1e3,
        soon=0.0,
        snapshot_every=min(max(total // 20, 1000), 20_000),
        retention=retention * DAY,
        engine_state=str(state),
    )


def resident() -> float:
    """Bytes of memory that this process holds now."""
    if os.path.exists("/proc/self/statm"):
        return float(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


async def month(folder: Path, total: int, step: float, retention: float) -> None:
    """Play the month, or the rest of it; the process ends without closing the store, as if it were killed."""
    played, file = Month(folder, total, step, retention), folder / "soak.parquet"
    rows = pl.read_parquet(file).to_dicts() if file.exists() else []
    before = {name: rows[-1][name] if rows else 0.0 for name in ("processor_s", "wall_s")}
    first, began = await played.open(), time.monotonic()
    for at in range(first, played.steps):
        await played.go(at)
        if int((at + 1) * step // SAMPLE) > int(at * step // SAMPLE) or at == played.steps - 1:
            row = played.row(at, began)
            rows = [one for one in rows if one["day"] < row["day"]]
            rows.append({**row, **{name: row[name] + since for name, since in before.items()}})
            _write(pl.DataFrame(rows), file)
            print(_line(rows[-1]), flush=True)
    os._exit(0)


def _write(rows: pl.DataFrame, file: Path) -> None:
    """Write the rows, whole even if this is interrupted."""
    beside = file.with_suffix(".new")
    rows.write_parquet(beside)
    beside.replace(file)


def _line(row: dict[str, float]) -> str:
    speed = row["jobs"] / max(row["processor_s"], 1e-9)
    sizes = ", ".join(f"{what} {row[name]:.1f} MB" for what, name in LEVELS.items())
    return f"day {row['day']:5.2f}: {row['jobs']:,.0f} jobs, {sizes}, {speed:.0f} jobs a processor second"


async def restart(folder: Path, total: int, retention: float) -> None:
    """Open the store of a process that was killed; prints the seconds that it took."""
    settings = settings_of(folder, total, retention)
    began, spent = time.monotonic(), time.process_time()
    scheduler = await Scheduler.open(settings)
    told = {
        "wall_s": time.monotonic() - began,
        "processor_s": time.process_time() - spent,
        "memory_mb": resident() / 1e6,
        "jobs": scheduler.dispatcher.state.submissions,
    }
    (folder / "restart.json").write_text(json.dumps(told))
    os._exit(0)


# ------------------------------------------------------------------ results


def growth(rows: pl.DataFrame, column: str, since: float) -> tuple[float, float] | None:
    """The mean of a column after day `since`, and by what share of it a straight line rises in a day.

    >>> growth(pl.DataFrame({"day": [1.0, 2.0, 3.0, 4.0, 5.0], "mb": [90.0, 7.0, 9.0, 11.0, 13.0]}), "mb", 1.0)
    (10.0, 0.2)
    """
    late = rows.filter(pl.col("day") > since)
    if len(late) < 4:
        return None
    mean = float(late[column].to_numpy().mean())
    slope = float(np.polyfit(late["day"].to_numpy(), late[column].to_numpy(), 1)[0])
    return mean, round(slope / max(mean, 1e-12), 9)


def shown(folder: Path, retention: float) -> None:
    """Print and plot what a folder has."""
    rows = pl.read_parquet(folder / "soak.parquet")
    last = float(rows["day"].to_list()[-1])
    console, since = Console(width=130), max(retention + 1.0, LATE * last)
    for row in rows.gather_every(max(len(rows) // 15, 1)).to_dicts():
        console.print(_line(row))
    table = Table("", f"mean after day {since:.1f}, MB", "growth a day, %", title=f"up to day {last:.1f}")
    for what, column in LEVELS.items():
        found = growth(rows, column, since)
        table.add_row(what, *(("–", "–") if found is None else (f"{found[0]:.1f}", f"{100 * found[1]:+.2f}")))
    console.print(table)
    if (folder / "restart.json").exists():
        told = json.loads((folder / "restart.json").read_text())
        seconds = f"{told['wall_s']:.1f} s ({told['processor_s']:.1f} s of processor time)"
        console.print(f"restart after {told['jobs']:,} jobs: {seconds}, {told['memory_mb']:.0f} MB")
    _plot(rows, retention, folder / "soak.png")


def _plot(rows: pl.DataFrame, retention: float, file: Path) -> None:
    figure = Figure(figsize=(9.0, 5.0), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True).ravel()
    for ax, (what, column) in zip(axes, LEVELS.items(), strict=True):
        ax.plot(rows["day"].to_numpy(), rows[column].to_numpy())
        ax.axvline(retention, color="0.7", linestyle=":")
        ax.set(title=f"{what}, MB", ylim=(0, None))
    for ax in axes[2:]:
        ax.set_xlabel("day (dotted: the retention)")
    figure.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=500_000, help="jobs of the month")
    parser.add_argument("--step", type=float, default=1200.0, help="virtual seconds between two batches of jobs")
    parser.add_argument("--retention", type=float, default=7.0, help="days for which ended jobs and events are kept")
    parser.add_argument("--out", type=Path, default=Path("results/soak"), help="folder of the store and the results")
    parser.add_argument("--quick", action="store_true", help="10,000 jobs")
    parser.add_argument("--show", action="store_true", help="print and plot the rows that a folder has so far")
    parser.add_argument("--part", choices=("month", "restart"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    total = 10_000 if given.quick else given.jobs
    given.out.mkdir(parents=True, exist_ok=True)
    if given.part == "month":
        asyncio.run(month(given.out, total, given.step, given.retention))
    elif given.part == "restart":
        asyncio.run(restart(given.out, total, given.retention))
    if not given.show:
        for part in ("month", "restart"):
            subprocess.run([sys.executable, "-m", "benchmarks.soak", *sys.argv[1:], "--part", part], check=True)
    shown(given.out, given.retention)


if __name__ == "__main__":
    main()
