"""Make the workload files that come with berth from the public traces.

    BERTH_TRACES=/path/to/traces python benchmarks/fit_workloads.py [NAME ...]
    BERTH_TRACES=/path/to/traces python benchmarks/fit_workloads.py --closeness

Files go to src/berth/data/workloads. What a source does not tell and was supposed stands in each file under `assumed`.
The second line makes none: it prints how close those that are there are to their traces, as a table in Markdown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import berth
from berth.model import Floats
from berth.random import stream
from berth.traces.fitting.closeness import compared, held_out
from berth.traces.fitting.distributions import LEVELS, Mix, Quantiles, read_histograms, read_marginals, short
from berth.traces.fitting.fit import files_read, fit, machine_table_of
from berth.traces.fitting.generate import offered_load
from berth.traces.fitting.workload import (
    FOLDER,
    Arrivals,
    Demand,
    JobClass,
    Machine,
    Provenance,
    Speeds,
    UnitOf,
    Workload,
    load_workload,
)
from berth.traces.formats import load_trace
from berth.traces.formats.pai import read_minibatch
from berth.traces.trace import CORES, GPUS, MEMORY, Source, Trace

ARCHIVE = "Parallel Workloads Archive; it asks that it and the person named in the log's header be credited"
FITS: dict[str, Callable[[str, Path], Workload]] = {}
"""What makes the workload of each name."""


# ---------------------------------------------------------------------------- batch logs

LOGS = {
    "sdsc-sp2": (
        "SDSC-SP2-1998-4.2-cln",
        "SDSC SP2: 128 nodes, batch jobs of two years, 1998 to 2000",
        "San Diego Supercomputer Center, by the Parallel Workloads Archive (research and non-profit use)",
    ),
    "nasa-ipsc": ("NASA-iPSC-1993-3.1-cln", "NASA iPSC/860: 128 nodes, batch jobs of three months, 1993", ARCHIVE),
    "llnl-atlas": ("LLNL-Atlas-2006-2.1-cln", "LLNL Atlas: 1,152 nodes of 8 cores, six months, 2006 to 2007", ARCHIVE),
    "hpc2n": ("HPC2N-2002-head", "HPC2N: 120 nodes of 2 cores, the first 57 days, 2002", ARCHIVE),
    "metacentrum": (
        "wagap-2013",
        "MetaCentrum: 68 nodes of two kinds, January to March 2013",
        "distributed with the Alea simulator (LGPL)",
    ),
    "lublin-256": (
        "lublin_256-synthetic",
        "SYNTHETIC: 256 nodes, jobs of the model of Lublin and Feitelson",
        "distributed with deep-batch-scheduler (no licence stated)",
    ),
}


def log(name: str, folder: Path) -> Workload:
    """A batch log."""
    file, title, terms = LOGS[name]
    trace = load_trace(folder / "swf" / f"{file}.swf.gz")
    origin = Provenance(source=file, licence=terms, synthetic="synthetic" in file, berth=berth.__version__)
    return fit(trace, name, title=title, provenance=origin)


for log_name in LOGS:
    FITS[log_name] = log


# ---------------------------------------------------------------------------- Alibaba

STUDY = "Alibaba Open Cluster Trace Program; its README allows use for research or study and asks to cite the paper"
BY = "CC BY 4.0"
MARGINALS = (
    "that size, run time and requests of a task do not hang together inside a class: the source publishes each alone"
)


def openb(name: str, folder: Path) -> Workload:
    """Pods of a GPU cluster; those of the first 115 days, a few, are left out as the trace's users do."""
    trace = load_trace(folder / "alibaba-gpu-v2023" / "openb_pod_list_gpuspec33.csv.gz")
    late = trace.replace(jobs=trace.jobs.filter(pl.col("submit_s") >= 9_936_000))
    origin = Provenance(
        source="Alibaba cluster-trace-gpu-v2023 (openb), the list in which a third of GPU pods need a GPU model, as in "
        "production",
        licence=STUDY,
        berth=berth.__version__,
    )
    title = "Alibaba openb: 1,523 nodes with 6,212 GPUs of seven models, shared GPUs, 34 days, 2023"
    return fit(late, name, title=title, provenance=origin)


def alibaba2017(name: str, folder: Path) -> Workload:
    """Batch tasks of one day."""
    trace = load_trace(folder / "alibaba-v2017" / "batch_task.csv.gz")
    shape: dict[str, list[Any]] = {
        "machine": ["machine"],
        "count": [1300],
        "speed": [1.0],
        "cpu": [64.0],
        "memory": [1.0],
    }
    machines = Trace.of({}, shape, trace.resources).machines
    origin = Provenance(
        source="Alibaba cluster-trace-v2017, batch_task",
        licence=STUDY,
        assumed=[
            "machines: the table is not among the files; 1,300 as published, of 64 cores and all memory of the largest",
            "that the instances of a task run together, from its creation to its end",
        ],
        berth=berth.__version__,
    )
    title = "Alibaba 2017: 1,300 machines, batch tasks of many instances, one day"
    return fit(trace.replace(machines=machines), name, title=title, provenance=origin)


def alibaba2018(name: str, folder: Path) -> Workload:
    """Batch tasks, from histograms over all of them."""
    path = folder / "alibaba-v2018" / "marginal_histograms.csv.gz"
    table = read_histograms(path)

    def counts(quantity: str) -> tuple[Floats, Floats]:
        part = table.filter((pl.col("quantity") == quantity) & (pl.col("upper") > 0)).sort("upper")
        return part["upper"].to_numpy(), part["count"].to_numpy()

    gap, often = counts("job_interarrival_s")
    same = float(table.filter((pl.col("quantity") == "job_interarrival_s") & (pl.col("upper") <= 0))["count"].sum())
    together = same / (same + often.sum())
    # jobs in one second, if each is as likely as any to be followed by another in the same, and the tasks of all these
    rng = stream(0, "alibaba-v2018")
    jobs = rng.geometric(1 - together, 200_000)
    size, share = counts("tasks_per_job")
    tasks = rng.choice(size, jobs.sum(), p=share / share.sum())
    batch = np.add.reduceat(tasks, np.cumsum(jobs) - jobs)
    mean = float((gap * often).sum() / often.sum())
    cpu, memory = (counts(quantity) for quantity in ("task_plan_cpu_pct", "task_plan_mem_norm"))
    top = np.argsort(-memory[1], kind="stable")[:16]
    vectors = [
        ([short(c / 100), short(m)], n / cpu[1].sum() * k / memory[1][top].sum())
        for c, n in zip(*cpu, strict=True)
        for m, k in zip(memory[0][top], memory[1][top], strict=True)
        if n > 1e-3 * cpu[1].sum()
    ]
    total = sum(weight for _, weight in vectors)
    job = JobClass(
        name="task",
        share=1.0,
        pieces=Mix.from_counts(*counts("instances_per_task")),
        run_s=Mix.from_counts(*counts("task_duration_s")),
        demands=[Demand(amounts=amounts, share=round(weight / total, 7)) for amounts, weight in vectors],
        whole_seconds=True,
    )
    gaps = Mix.from_counts(gap / mean, often)
    return Workload(
        name=name,
        title="Alibaba 2018: 4,034 machines of 96 cores, batch tasks of many instances, from histograms",
        provenance=Provenance(
            source="Alibaba cluster-trace-v2018, histograms over all DAG jobs (Tian et al., SoCC '19)",
            licence=f"{STUDY}; histograms: MIT",
            files=files_read([path, folder / "alibaba-v2018" / "machine_meta.csv.gz"]),
            rows=int(counts("task_duration_s")[1].sum()),
            span="8 days",
            assumed=[
                MARGINALS,
                "that the instances of a task run together, for the time of the task; tasks of 0 s are left out",
                "that all tasks of a job come with it, and nothing of the order in its DAG",
                "no rate by hour: the histogram of gaps does not tell it",
            ],
            berth=berth.__version__,
        ),
        resources=[UnitOf(name="cpu", unit="core"), UnitOf(name="memory", unit="percent of a machine")],
        machines=[Machine(capacity=[96.0, 100.0], count=4034)],
        arrivals=Arrivals(
            events_per_hour=short(3600 / mean), gap=gaps, batch=Mix.of(batch.astype(np.float64)), whole_seconds=True
        ),
        classes=[job],
    )


def pai(name: str, folder: Path) -> Workload:
    """Tasks of a machine-learning platform, from curves of the publisher's own analysis."""
    place = folder / "alibaba-gpu-v2020"
    path = place / "pai_published_marginals.csv"
    table = read_marginals(path)

    def curve(quantity: str) -> tuple[Floats, Floats]:
        part = table.filter(pl.col("quantity") == quantity)
        return part["value"].cast(pl.Float64).to_numpy(), part["percent"].to_numpy()

    def each(quantity: str, unit: float, lowest: float, highest: float) -> Quantiles:
        """Of an instance: the curve of whole tasks as far as those of one instance go."""
        values, percent = curve(quantity)
        kept = percent <= ALONE
        return Quantiles.from_cdf(values[kept] / unit, percent[kept] / ALONE * 100, lowest, highest)

    machines = load_trace(place / "pai_machine_spec.csv.gz").machines
    shares = {
        row["quantity"].removeprefix("gpu_type_"): row["percent"]
        for row in table.filter(pl.col("quantity").str.starts_with("gpu_type_")).iter_rows(named=True)
    }
    # instances in tasks of n and more → tasks of n
    sizes, above = curve("instances_in_tasks_with_at_least_n_instances")
    ends = np.array([1.0, *sizes, 800.0])
    inside = -np.diff([100.0, *above, 0.0])
    middle = np.maximum(1, np.rint(np.sqrt(ends[:-1] * (ends[1:] - 1))))
    tasks = np.maximum(inside, 0) / middle
    pieces = Mix.from_counts(middle[tasks > 0], tasks[tasks > 0], most=40)
    rest = [
        each("task_cpu_request_pct", 100, 0.5, 12.0),
        each("task_mem_request_gb", 1, 2.0, 60.0),
        each("task_gpu_request_pct", 100, 0.05, 1.0),
    ]
    classes = [
        JobClass(
            name=gpu,
            kind=gpu,
            share=round(share / sum(shares.values()), 6),
            pieces=pieces,
            run_s=Mix(rest=Quantiles.from_cdf(*curve(f"task_runtime_s_{gpu}"), lowest=5.0, highest=1_000_000.0)),
            rest=rest,
            needs=gpu,
            whole_seconds=True,
        )
        for gpu, share in shares.items()
    ]
    hourly = curve("median_tasks_submitted_in_hour_of_day")[1]
    levels = np.minimum(np.array(LEVELS), 1 - 1e-5)
    poisson = Quantiles(values=[short(v) for v in -np.log1p(-levels)])
    spec = Trace.of({}, machines, (CORES, MEMORY, GPUS))
    minibatch = [place / f"minibatch_job_{i}.csv.gz" for i in (1, 2, 3, 4)]
    return Workload(
        name=name,
        title="Alibaba PAI: 1,897 machines with 6,742 GPUs of five models, from published curves, 2020",
        provenance=Provenance(
            source="Alibaba cluster-trace-gpu-v2020: curves of the publisher's analysis, machines, mini-batch times",
            licence=BY,
            files=files_read([path, place / "pai_machine_spec.csv.gz", *minibatch]),
            rows=0,
            span="two months",
            assumed=[
                "curves were read off figures: a percentage point more or less",
                MARGINALS,
                f"requests of an instance: the curves of whole tasks up to {ALONE:g} %, those of one instance",
                "gaps between arrivals: exponential, around the median number of tasks in each hour",
                "that the instances of a task run together",
            ],
            berth=berth.__version__,
        ),
        resources=[UnitOf(name=r.name, unit=r.unit) for r in spec.resources],
        machines=machine_table_of(spec),
        arrivals=Arrivals(
            events_per_hour=short(float(hourly.mean())),
            hours=[short(v, 4) for v in hourly / hourly.mean()],
            gap=Mix(rest=poisson),
            whole_seconds=True,
        ),
        classes=classes,
        speeds=speeds(minibatch),
    )


ALONE = 82.0
"""Percent of PAI tasks with at most one GPU in all: taken for those of one instance."""


def speeds(files: list[Path]) -> Speeds:
    """Of each worker of a training job: its mean speed over that of the job, and how far its speed varies."""
    between, within = [], []
    for file in files:
        speed = read_minibatch(file).with_columns((1 / pl.col("time")).alias("speed"))
        each = speed.group_by("worker").agg(
            pl.col("speed").mean().alias("mean"), (pl.col("speed").std() / pl.col("speed").mean()).alias("cv")
        )
        between += (each["mean"] / each["mean"].mean()).to_list()
        within += each["cv"].to_list()
    levels = np.linspace(0, 1, 21)
    return Speeds(
        between=[short(v, 4) for v in np.quantile(between, levels)],
        within=[short(v, 4) for v in np.quantile(within, levels)],
    )


# ---------------------------------------------------------------------------- Microsoft


def itp(name: str, folder: Path) -> Workload:
    """Training jobs of eight clusters, as one."""
    files = sorted((folder / "microsoft-itp-2021").glob("cluster*.csv.gz"))
    traces = [load_trace(file) for file in files]
    jobs = pl.concat(
        [
            trace.jobs.with_columns(
                kind=pl.lit(file.name.split(".")[0]), job=file.name.split(".")[0] + "/" + pl.col("job")
            )
            for file, trace in zip(files, traces, strict=True)
        ]
    )
    source = Source("itp", tuple(map(str, files)))
    origin = Provenance(
        source="Microsoft ITP 2021 (ElasticFlow, ASPLOS '23), eight clusters as one", licence="MIT",
        berth=berth.__version__,
    )  # fmt: skip
    title = "Microsoft ITP: deep-learning training, gangs of 1 to 64 GPUs, eight clusters, two months, 2021"
    whole = Trace.of(jobs, None, traces[0].resources, source)
    return fit(whole, name, title=title, provenance=origin, machine={"gpu": 8.0})


def philly(name: str, folder: Path) -> Workload:
    """Training jobs of fifteen virtual clusters."""
    trace = load_trace(folder / "microsoft-philly-2017" / "philly.csv.gz")
    origin = Provenance(
        source="Microsoft Philly 2017 (Jeon et al., ATC '19), the 82,247 jobs of the Pollux simulator",
        licence="CC BY 4.0; extract: Apache-2.0",
        berth=berth.__version__,
    )
    title = "Microsoft Philly: deep-learning training, gangs of 1 to 128 GPUs, 15 virtual clusters, 2017"
    return fit(trace, name, title=title, provenance=origin, machine={"gpu": 8.0})


# ---------------------------------------------------------------------------- Google


def google2011(name: str, folder: Path) -> Workload:
    """Jobs of 21 days; their requests from the public sample of 2019, by scheduling class."""
    trace = load_trace(folder / "google-2011" / "jobs_days00-20.csv.gz")
    other = folder / "google-2019" / "joined_sample.csv.gz"
    requests = pl.read_csv(other).filter((pl.col("collection_type") == 0) & (pl.col("req_cpus") > 0))
    jobs = trace.jobs.filter(pl.col("submit_s") >= 600)
    amounts = np.zeros((len(jobs), 2))
    kind = jobs["kind"].to_numpy()
    for scheduling in range(4):
        part = requests.filter(pl.col("scheduling_class") == scheduling).select("req_cpus", "req_memory").to_numpy()
        rows = np.flatnonzero(kind == str(scheduling))
        amounts[rows] = part[stream(0, "google-2011", scheduling).integers(len(part), size=len(rows))]
    jobs = jobs.with_columns(
        pl.lit(1, dtype=pl.Int64).alias("pieces"), pl.Series("cpu", amounts[:, 0]), pl.Series("memory", amounts[:, 1])
    )
    platforms = trace.machines["label"].value_counts(sort=True)["label"].to_list()
    names = {label: f"platform-{i + 1}" for i, label in enumerate(platforms)}
    machines = trace.machines.with_columns(pl.col("label").replace(names)).filter(pl.col("cpu") > 0)
    origin = Provenance(
        source="Google clusterdata-2011-2: jobs of days 0 to 20, machines",
        licence=BY,
        files=files_read([*trace.source.files, other]),
        assumed=[
            "requests: not published with these jobs; those of the 2019 sample, by scheduling class",
            "one task a job: numbers of tasks are not published with these jobs, so the load is far below the real one",
        ],
        berth=berth.__version__,
    )
    title = "Google 2011: one cell of 12,583 machines, jobs of 21 days (requests: those of 2019)"
    return fit(trace.replace(jobs=jobs, machines=machines), name, title=title, provenance=origin)


TIERS = {"free": 1374, "batch": 4139, "mid": 18187, "production": 54789, "monitoring": 834226}
"""Published mean run of a task in seconds (C. Maggioni, bachelor thesis, USI)."""


def google2019(name: str, folder: Path) -> Workload:
    """Requests by tier and machines of cell a; durations by their published means alone."""
    place = folder / "google-2019"
    sample = load_trace(place / "joined_sample.csv.gz").jobs.filter((pl.col("cpu") > 0) & (pl.col("memory") > 0))
    cell = load_trace(place / "2019_a_host_resource.csv")
    levels = np.minimum(np.array(LEVELS), 1 - 1e-5)
    exponential = -np.log1p(-levels)
    classes = []
    for tier, mean in TIERS.items():
        part = sample.filter(pl.col("kind") == tier)
        classes.append(
            JobClass(
                name=tier,
                kind=tier,
                share=round(len(part) / len(sample), 6),
                pieces=Mix(values=[1.0], shares=[1.0]),
                run_s=Mix(rest=Quantiles(values=[short(mean * v) for v in exponential])),
                rest=[Quantiles.of(part[column].to_numpy()) for column in ("cpu", "memory")],
                whole_seconds=True,
            )
        )
    found = Workload(
        name=name,
        title="Google 2019: cell a, 10,002 machines, requests by tier (durations: published means alone)",
        provenance=Provenance(
            source="Google clusterdata-2019: public sample of instances, machines of cell a",
            licence=BY,
            files=files_read([place / "joined_sample.csv.gz", place / "2019_a_host_resource.csv"]),
            rows=len(sample),
            span="a month",
            assumed=[
                "run times: exponential with the published mean of each tier",
                "arrivals: not published in these files; a Poisson process with a load of 0.6",
                "that cores and memory do not hang together inside a tier; one task a job",
            ],
            berth=berth.__version__,
        ),
        resources=[UnitOf(name=r.name, unit=r.unit) for r in cell.resources],
        machines=machine_table_of(cell),
        arrivals=Arrivals(events_per_hour=1.0, gap=Mix(rest=Quantiles(values=[short(v) for v in exponential]))),
        classes=classes,
    )
    rate = short(0.6 / float(offered_load(found).max()))
    return found.model_copy(update={"arrivals": found.arrivals.model_copy(update={"events_per_hour": rate})})


FITS["google-2011"], FITS["google-2019"], FITS["philly"] = google2011, google2019, philly
FITS.update({"openb": openb, "alibaba-v2017": alibaba2017, "alibaba-v2018": alibaba2018, "pai": pai, "itp": itp})


TRACES = {
    **{name: f"swf/{file}.swf.gz" for name, (file, _, _) in LOGS.items()},
    "openb": "alibaba-gpu-v2023/openb_pod_list_gpuspec33.csv.gz",
    "alibaba-v2017": "alibaba-v2017/batch_task.csv.gz",
    "philly": "microsoft-philly-2017/philly.csv.gz",
}
"""Workloads whose trace is one file, so that they can be set against it."""
SHOWN = ("gap between arrivals", "hour of the day", "run time", "pieces", "cpu", "memory", "gpu")


def closeness_table(folder: Path) -> None:
    """KS statistics of each workload and its trace; in brackets those of the two halves of the trace."""
    print(f"| workload | {' | '.join(SHOWN)} |")
    print("|---|" + "---|" * len(SHOWN))
    for name, file in TRACES.items():
        trace = load_trace(folder / file)
        found = {row.name: row.ks for row in compared(trace, load_workload(name))[1]}
        halves = {row.name: row.ks for row in held_out(trace)[1]}
        cells = [f"{found[n]:.3f} ({halves[n]:.3f})" if n in found else "" for n in SHOWN]
        print(f"| {name} | {' | '.join(cells)} |")


def main(names: list[str]) -> None:
    folder = Path(os.environ["BERTH_TRACES"])
    if names == ["--closeness"]:
        closeness_table(folder)
        return
    for name in names or FITS:
        workload = FITS[name](name, folder)
        path = FOLDER / f"{name}.json"
        workload.save(path)
        print(f"{name}: {workload.provenance.rows:,} rows, {len(workload.classes)} classes, {path.stat().st_size:,} B")


if __name__ == "__main__":
    main(sys.argv[1:])
