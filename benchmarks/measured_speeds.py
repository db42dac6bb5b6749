"""Speeds learned from nothing on Gavel's cluster: `python -m benchmarks.measured_speeds`.

Training jobs of 83 types, with the speeds that Narayanan et al. (OSDI 2020) measured on K80, P100 and V100, come to 120
GPUs (`berth.live.twin.measured`). Nobody is told the speeds. The twin plays every scheduler with the same jobs, at the
same times, with the same luck. Results go to `--out` as Parquet, Markdown and a picture; runs that are there are not
repeated.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console

from berth.cli.live.rehearse import table_of
from berth.lab.rehearsal import played
from berth.lab.run.store import ResultDirectory, versions
from berth.lab.show.canvas import COLOURS, finish, new_figure, to_png
from berth.live.twin.measured import gavel_stream
from berth.live.twin.rehearse import Rehearsal, Row, rows_of, share_of_gain
from berth.live.twin.runs import Run, Runner

__all__ = ["main"]

NAMES = {
    "slurm": "first-fit",
    "pack": "best-fit",
    "fgd alone": "FGD",
    "completion unpooled": "each pair for itself",
    "completion": "berth, pooled",
    "completion told": "told the speeds",
}
"""Schedulers, and what the table and the picture call them."""
RATES = (1, 2, 3, 4)


def plan_of(rate: float, jobs: int, seeds: Sequence[int], runners: Sequence[str]) -> Rehearsal:
    """The rehearsal at one load, in jobs an hour."""
    told = Runner("completion", mode="told")
    named = tuple(Runner.parse(name) for name in runners)
    return Rehearsal(gavel_stream(jobs, rate / 3600), named, tuple(seeds), Runner("slurm"), told)


def picture(found: dict[float, tuple[list[Row], list[Run]]], seeds: int) -> bytes:
    """Turnaround relative to first-fit by load, and as jobs come."""
    figure, axes = new_figure(10.0, columns=2)
    loads, seen = axes[0]
    rates = sorted(found)
    middle = rates[len(rates) // 2]
    first = {run.seed: run.turnaround for run in found[middle][1] if run.runner == "slurm"}
    width = max(len(next(iter(first.values()))) // 8, 1)
    for number, (name, words) in enumerate(NAMES.items()):
        rows = [next((row for row in found[rate][0] if row.runner == name), None) for rate in rates]
        there = [(rate, row.ratio) for rate, row in zip(rates, rows, strict=True) if row is not None and row.ratio]
        if not there:
            continue
        low_high = [(0.0 if one.half is None else one.half) for _, one in there]
        means = [one.mean for _, one in there]
        loads.errorbar([rate for rate, _ in there], means, low_high, color=COLOURS[number], label=words, capsize=2)
        mine = {run.seed: run.turnaround for run in found[middle][1] if run.runner == name}
        ours, theirs = (np.mean([one[seed] for seed in mine], axis=0) for one in (mine, first))
        smooth = [np.convolve(one, np.ones(width) / width, "valid") for one in (ours, theirs)]
        seen.plot(np.arange(len(smooth[0])) + width, smooth[0] / smooth[1], color=COLOURS[number])
    loads.set(xlabel="jobs an hour", ylabel="turnaround / first-fit", title=f"120 GPUs, {seeds} seeds")
    loads.set_ylim(bottom=0.0)
    seen.set(xlabel="jobs seen", title=f"{middle:g} jobs an hour, mean of {width} jobs")
    seen.set_ylim(bottom=0.0)
    finish(figure, loads, top=0.35, between=0.25)
    return to_png(figure)


def markdown(found: dict[float, tuple[list[Row], list[Run]]]) -> str:
    """The table for a document: ratios to first-fit, and the share of what knowing gains."""
    lines = ["| jobs an hour | first-fit | " + " | ".join(list(NAMES.values())[1:]) + " | berth's share |"]
    lines.append("|" + "---|" * (len(NAMES) + 2))
    for rate, (rows, _) in sorted(found.items()):
        by = {row.runner: row for row in rows}
        plain = by["slurm"].turnaround
        cells = [f"{rate:g}", "–" if plain is None else f"{plain.mean / 3600:.1f} h"]
        for name in list(NAMES)[1:]:
            ratio = by[name].ratio if name in by else None
            half = "" if ratio is None or ratio.half is None else f" ± {ratio.half:.3f}"
            cells.append("–" if ratio is None else f"{ratio.mean:.3f}{half}")
        share = by["completion"].share if "completion" in by else None
        half = "" if share is None or share.half is None else f" ± {share.half:.0%}"
        lines.append("| " + " | ".join([*cells, "–" if share is None else f"{share.mean:.0%}{half}"]) + " |")
    return "\n".join(lines) + "\n"


def quarters(found: dict[float, tuple[list[Row], list[Run]]]) -> str:
    """berth's share of what knowing gains, in each quarter of the jobs as they come."""
    lines = ["| jobs an hour | first quarter | second | third | last |", "|---|---|---|---|---|"]
    for rate, (_, runs) in sorted(found.items()):
        cells = []
        for quarter in range(4):
            by: dict[str, dict[int, float]] = {}
            for run in runs:
                part = np.array_split(run.turnaround[np.argsort(run.arrival)], 4)[quarter]
                by.setdefault(run.runner, {})[run.seed] = float(part.mean())
            share = share_of_gain(*(by.get(name, {}) for name in ("completion", "slurm", "completion told")))
            cells.append("–" if share is None or share.half is None else f"{share.mean:.0%} ± {share.half:.0%}")
        lines.append(f"| {rate:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the twin at each load, and write the table, the runs and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES), help="jobs an hour")
    parser.add_argument("--jobs", type=int, default=1200)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--runners", nargs="+", default=list(NAMES), help="schedulers as `berth rehearse` names them")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/measured-speeds"))
    given = parser.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    console = Console(highlight=False)
    directory = ResultDirectory(given.out, "berth measured speeds")
    settings = {key: str(value) for key, value in vars(given).items()}
    directory.create({"settings": settings, "versions": versions()})
    found: dict[float, tuple[list[Row], list[Run]]] = {}
    for rate in given.rates:
        plan = plan_of(rate, given.jobs, seeds, given.runners)
        runs = played(plan, ["gavel", rate, given.jobs], directory, given.workers)
        found[rate] = rows_of(plan, runs), runs
        console.print(f"{rate:g} jobs an hour", table_of(plan, found[rate][0]))
    table = pl.concat(run.frame().with_columns(rate=pl.lit(rate)) for rate, (_, runs) in found.items() for run in runs)
    about = {
        name: pl.lit(str(value)) for name, value in {**settings, **versions()}.items() if name not in table.columns
    }
    directory.write_table("jobs.parquet", table.with_columns(**about))
    directory.write_text("table.md", f"{markdown(found)}\n{quarters(found)}")
    rows = [{"rate": rate, **asdict(row)} for rate, (rows, _) in found.items() for row in rows]
    directory.write_json("summary.json", rows)
    directory.write("plots/measured-speeds.png", lambda path: path.write_bytes(picture(found, len(seeds))))
    console.print(f"written to {given.out}")


if __name__ == "__main__":
    main()
