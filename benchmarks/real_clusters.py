"""Real gangs on a real cluster: `python -m benchmarks.real_clusters slurm`, `ray` or `kubernetes`.

A local cluster (`berth.live.clusters`) with nodes of three classes, and a stream of gangs of three types. Every task is
a process that runs for as long as its type takes on the class of the node where it finds itself, times luck that is
drawn for each gang and class from the seed (`berth.live.twin.streams`). So every scheduler meets the same gangs, at the
same times, with the same luck. Times are those that the tasks themselves write down.

Placed by: Slurm alone (first come first served with backfill), Ray alone (placement groups, PACK) or kube-scheduler
alone (a Job for each gang, whose tasks need not start together), and a real `berth serve` with a policy
(`completion`, `escb-v by class`, …). Each run begins knowing nothing; with `told` behind its name the service finds
25 earlier runs of each type on each node, and with `unlearned`, `unpooled`, `eager` or `unmixed` a part of it is
switched off (as in `berth rehearse`). Everything is paired by seed; results go to `--out` as Parquet, Markdown and
pictures. Runs are kept there as they end; the same command goes on. `--equal` makes all nodes equally fast. Tasks
only sleep, so that several runs share a machine (`--together`). With `--compute` they compute instead, and the speed of
a class is the processor quota of its tasks (`benchmarks.computing_task`); the quotas of all processors of the cluster
add up to at most 1.5 processors of the machine, and one cluster runs at a time. A run during which the machine's host
gave more than a tenth of its processor time to others, or less than a seventh of it was idle or used by computing
tasks, or in which a node lost a gang, is done again, under every scheduler alike, and the benchmark says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from benchmarks import computing_task
from benchmarks.experience import write_experience
from berth import __version__
from berth.lab.show.canvas import COLOURS, finish, new_figure, to_png
from berth.live.clusters.kubernetes import KubernetesNode, LocalKubernetes
from berth.live.kubernetes_api import connect_with_token
from berth.live.twin.knowledge import PARTS
from berth.live.twin.rehearse import share_of_gain
from berth.live.twin.runs import Runner
from berth.live.twin.streams import THREE_CLASSES, ClassStream, Gang, class_servers
from berth.statistics import Estimate, estimate, paired
from tests.live.service.live import LiveProcess, serving_process

__all__ = ["Ran", "main", "summary"]

KINDS = ("slurm", "ray", "kubernetes")
RUNNERS = (*KINDS, "best-fit", "escb-v by class", "completion", "completion told")
CPUS = 4
EQUAL = 0.7
"""The speed of all types on all nodes where nodes are equal."""
TRIES = 4
"""How often a run is begun before the benchmark gives up."""
NICE, IDLE, STEAL = 1, 3, 7
"""Columns of the first line of /proc/stat; processes that are nice give way, so that their time counts as idle."""
MOST_STOLEN = 0.1
LEAST_IDLE = 0.15
"""Of the processor time during a run that counts: what the host may give to others, and what must be idle."""
STORE = "berth.db"
"""The store of a service, as `serving` names it."""
COMPUTED = 1.5
"""Processors of the machine that all tasks together may use, where they compute."""
TASK = """#!/bin/sh
# WITNESS GANG WORK a=SECONDS b=SECONDS c=SECONDS: run as long as the class of this node takes, and say when
witness=$1 gang=$2 work=$3; shift 3
node=${BERTH_SERVER:-$SLURMD_NODENAME}
class=$(sed -n "s/^$node //p" "$witness.nodes")
for pair; do [ "${pair%=*}" = "$class" ] && seconds=${pair#*=}; done
began=$(date +%s.%N)
used=$(RUN "$seconds")
printf '%s %s %s %s %s\\n' "$gang" "$node" "$began" "$(date +%s.%N)" "${used:-0}" >> "$witness"
"""
SLEEPING = TASK.replace("RUN", "sleep")


@dataclass(frozen=True)
class Ran:
    """What became of a gang: seconds since the first came."""

    seed: int
    runner: str
    name: str
    type: str
    tasks: int
    nodes: str
    arrival: float
    began: float
    ended: float


class LostGang(Exception):
    """A task did not run, or not once."""


# ---------------------------------------------------------------------- one run


@dataclass(frozen=True)
class Place:
    """Where a run takes place: its files, the task, and the environment of commands."""

    folder: Path
    environment: dict[str, str]
    engine: str

    @property
    def witness(self) -> Path:
        """Where tasks write."""
        return self.folder / "witness"

    def command(self, gang: Gang) -> list[str]:
        """What each task runs."""
        seconds = [f"{name}={value:g}" for name, value in gang.seconds.items()]
        return [str(self.folder / "task.sh"), str(self.witness), gang.name, f"{gang.work:g}", *seconds]


def follow(stream_: Sequence[Gang], submit: Any) -> float:
    """Submit each gang when it comes; when the first came."""
    first = time.time()
    for gang in stream_:
        time.sleep(max(first + gang.arrival - time.time(), 0.0))
        submit(gang)
    return first


def by_slurm(place: Place, stream_: Sequence[Gang], patience: float) -> float:
    """Slurm alone places them."""

    def submit(gang: Gang) -> None:
        line = " ".join(place.command(gang))
        command = ["sbatch", "-Q", "-n", str(gang.tasks), "-c", "1", "-o", "/dev/null", "--wrap", f"srun {line}"]
        subprocess.run(command, env=place.environment, check=True)

    first = follow(stream_, submit)
    wait_until_all(place, stream_, patience)
    return first


def by_ray(place: Place, stream_: Sequence[Gang], patience: float) -> float:
    """Ray alone places them."""
    gangs = [{"arrival": gang.arrival, "tasks": gang.tasks, "command": place.command(gang)} for gang in stream_]
    file = place.folder / "gangs.jsonl"
    file.write_text("".join(json.dumps(gang) + "\n" for gang in gangs))
    command = [sys.executable, "-m", "benchmarks.ray_alone", place.engine.removeprefix("ray:"), str(file)]
    done = subprocess.run(command, env=place.environment, check=True, stdout=subprocess.PIPE, timeout=patience)
    return float(done.stdout.split()[0])


def by_kubernetes(place: Place, stream_: Sequence[Gang], patience: float) -> float:
    """kube-scheduler alone places them: each gang is a Job, and each of its pods starts when it has a node."""
    api = connect_with_token(Path(place.environment["KUBECONFIG"]))

    def submit(gang: Gang) -> None:
        server = {"name": "BERTH_SERVER", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        asked = {"requests": {"cpu": "1"}}
        box = {"name": "main", "image": "none", "command": place.command(gang), "env": [server], "resources": asked}
        template = {"spec": {"restartPolicy": "Never", "containers": [box]}}
        spec = {"parallelism": gang.tasks, "completions": gang.tasks, "template": template}
        made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": gang.name}, "spec": spec}
        api.request("POST", "/apis/batch/v1/namespaces/default/jobs", made)

    first = follow(stream_, submit)
    wait_until_all(place, stream_, patience)
    return first


def by_berth(place: Place, stream_: Sequence[Gang], runner: Runner, patience: float) -> float:
    """A berth service places them, with what its store has."""
    policy = runner.policy
    with served(place, runner) as live:

        def submit(gang: Gang) -> None:
            job = {"name": gang.name, "type": gang.type, "tasks": gang.tasks, "resources": {"cpu": 1}}
            live.ask("POST", "/v1/jobs", {**job, "work": gang.work, "command": place.command(gang)})

        live.wait_for("/v1/policy", lambda now: now["policy"] == policy and now["preparing"] is None)
        live.wait_for("/v1/servers", lambda there: there and all(server["state"] == "up" for server in there))
        first = follow(stream_, submit)
        wait_until_all(place, stream_, patience)
        return first


@contextmanager
def served(place: Place, runner: Runner) -> Iterator[LiveProcess]:
    """A service of its own for one run."""
    learn = ["--learn-by", runner.by] if runner.by else []
    arguments = ["--open", "--engine", place.engine, "--policy", runner.policy, *learn]
    module = ("benchmarks.parts", runner.mode) if runner.mode in PARTS else ("berth",)
    with serving_process(place.folder, *arguments, module=module, env=place.environment) as live:
        try:
            yield live
        finally:
            (place.folder / "serve.log").write_text("".join(live.lines))


def lines(place: Place) -> list[list[str]]:
    """What tasks wrote: gang, node, beginning, end, processor time of its computation."""
    return [line.split() for line in place.witness.read_text().splitlines()] if place.witness.exists() else []


def wait_until_all(place: Place, stream_: Sequence[Gang], patience: float) -> None:
    """Wait until every task has ended."""
    tasks, end_by = sum(gang.tasks for gang in stream_), time.monotonic() + patience
    while len(lines(place)) < tasks:
        if time.monotonic() > end_by:
            raise LostGang(f"only {len(lines(place))} of {tasks} tasks ended within {patience:g} s")
        time.sleep(0.2)


def ran(place: Place, stream_: Sequence[Gang], seed: int, runner: str, first: float) -> list[Ran]:
    """What became of each gang; each task must have run exactly once."""
    found = []
    rows = lines(place)
    for gang in stream_:
        mine = [row for row in rows if row[0] == gang.name]
        if len(mine) != gang.tasks:
            raise LostGang(f"{gang.name} has {gang.tasks} tasks, and {len(mine)} ran")
        began, ended = min(float(row[2]) for row in mine), max(float(row[3]) for row in mine)
        nodes = ",".join(sorted(row[1] for row in mine))
        found.append(
            Ran(seed, runner, gang.name, gang.type, gang.tasks, nodes, gang.arrival, began - first, ended - first)
        )
    return found


def installed_hooks(folder: Path) -> list[str]:
    """Settings of berth's engine in `slurm.yaml`, and lines for slurm.conf, so that slurmctld tells berth at once."""
    from berth.live.engines.slurm.hooks import hook_script

    hook = folder / "hook.sh"
    hook.write_text(hook_script(folder / "hooks"))
    hook.chmod(0o755)
    (folder / "slurm.yaml").write_text(f"spool: {folder}/spool\noutput: {folder}\nhooks: {folder}/hooks\n")
    return [f"PrologSlurmctld={hook}", f"EpilogSlurmctld={hook}"]


@contextmanager
def cluster(kind: str, nodes: int, hooks: bool = True, task_: str = SLEEPING) -> Iterator[Place]:
    """A fresh cluster for one run; Slurm alone does without the hooks that berth installs."""
    with tempfile.TemporaryDirectory(prefix="berth-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        names = {server.name: server.labels["class"] for server in class_servers(nodes, CPUS)}
        (folder / "witness.nodes").write_text("".join(f"{node} {kind_}\n" for node, kind_ in names.items()))
        task = folder / "task.sh"
        task.write_text(task_)
        task.chmod(0o755)
        made: Any
        if kind == "slurm":
            from berth.live.clusters.slurm import LocalSlurm, SlurmNode

            there = [SlurmNode(node, CPUS, features=(f"class={kind_}",)) for node, kind_ in names.items()]
            made = LocalSlurm(folder / "slurm", there, installed_hooks(folder) if hooks else ())
            made.start()
            place = Place(folder, made.environment, f"slurm:{folder}/slurm.yaml")
        elif kind == "kubernetes":
            nodes_ = [KubernetesNode(n, CPUS, labels={"class": kind_}) for n, kind_ in names.items()]
            made = LocalKubernetes(folder / "kubernetes", nodes_)
            made.start()
            (folder / "kubernetes.yaml").write_text(f"kubeconfig: {made.kubeconfig}\nimage: none\n")
            environment = {**os.environ, "KUBECONFIG": str(made.kubeconfig)}
            place = Place(folder, environment, f"kubernetes:{folder}/kubernetes.yaml")
        else:
            from berth.live.clusters.ray import LocalRay, RayNode

            made = LocalRay(folder / "ray", [RayNode(n, CPUS, labels={"class": kind_}) for n, kind_ in names.items()])
            made.start()
            place = Place(folder, dict(os.environ), f"ray:{made.address}")
        try:
            yield place
        finally:
            made.stop()


def task_of(stream_: Sequence[Gang], given: argparse.Namespace) -> str:
    """The task of all gangs: a sleep, or a computation whose quotas add up to at most `COMPUTED`."""
    if not given.compute:
        return SLEEPING
    fastest = max(gang.work / seconds for gang in stream_ for seconds in gang.seconds.values())
    share = COMPUTED / (given.nodes * CPUS * fastest)
    words = [sys.executable, "-I", "-S", computing_task.__file__, f"{given.compute:g}", f"{share:g}"]
    return TASK.replace("RUN", f'{shlex.join(words)} "$work"')


def run(kind: str, runner: str, seed: int, given: argparse.Namespace) -> tuple[list[Ran], float]:
    """One run from nothing, and the processor time that its tasks computed."""
    servers = class_servers(given.nodes, CPUS)
    table = {name: dict.fromkeys(row, EQUAL) if given.equal else row for name, row in THREE_CLASSES.items()}
    world = ClassStream(given.jobs, given.rate, given.work, servers, table)
    stream_, patience = world.gangs(seed), 10.0 * given.jobs / given.rate + 120.0
    with cluster(kind, given.nodes, runner != kind, task_of(stream_, given)) as place:
        if runner == kind:
            alone = {"slurm": by_slurm, "ray": by_ray, "kubernetes": by_kubernetes}[kind]
            first = alone(place, stream_, patience)
        else:
            wanted = Runner.parse(runner)
            if wanted.mode == "told":
                write_experience(place.folder / STORE, servers, table, world.luck, seed)
            first = by_berth(place, stream_, wanted, patience)
        return ran(place, stream_, seed, runner, first), sum(float(line[4]) for line in lines(place))


def kept_or_run(runner: str, seed: int, given: argparse.Namespace, settings: dict[str, str]) -> list[Ran]:
    """A run that was kept, or one that is run now, and kept."""
    part = given.out / f"{seed}-{runner.replace(' ', '-')}.json"
    if part.exists() and alike((kept := json.loads(part.read_text()))["settings"], settings):
        return [Ran(**row) for row in kept["rows"]]
    for _ in range(TRIES):
        before = processor_time()
        try:
            rows, computed = run(given.kind, runner, seed, given)
        except LostGang as error:
            print(f"seed {seed}, {runner}: done again: {error}", flush=True)
            continue
        used = processor_time() - before
        free = used[IDLE] + used[NICE] + computed * os.sysconf("SC_CLK_TCK")  # tasks that compute are no disturbance
        stolen, idle = used[STEAL] / used.sum(), free / used.sum()
        if stolen > MOST_STOLEN or idle < LEAST_IDLE:
            quiet = f"the machine was idle for {idle:.0%} of the time, its host took {stolen:.0%}"
            print(f"seed {seed}, {runner}: done again: {quiet}", flush=True)
            continue
        beside = part.with_suffix(".new")
        about = {"settings": settings, "stolen": stolen, "idle": idle}
        beside.write_text(json.dumps({**about, "rows": [asdict(row) for row in rows]}))
        beside.replace(part)
        return rows
    raise SystemExit(f"seed {seed}, {runner}: {TRIES} times in vain")


def processor_time() -> np.ndarray:
    """The machine's processor time since it began, by what it was used for, as Linux counts it."""
    return np.array(Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:], dtype=float)


# ---------------------------------------------------------------------- what came out


def measures(rows: pl.DataFrame, nodes: int) -> pl.DataFrame:
    """Of each run its times, the servers that a gang has, and the share of all processors that tasks held."""
    held = (pl.col("tasks") * (pl.col("ended") - pl.col("began"))).sum()
    makespan = pl.col("ended").max()
    return rows.group_by("seed", "runner", maintain_order=True).agg(
        makespan=makespan,
        turnaround=(pl.col("ended") - pl.col("arrival")).mean(),
        wait=(pl.col("began") - pl.col("arrival")).mean(),
        run=(pl.col("ended") - pl.col("began")).mean(),
        longest_wait=(pl.col("began") - pl.col("arrival")).max(),
        servers=pl.col("nodes").str.split(",").list.n_unique().mean(),
        utilisation=held / (makespan * nodes * CPUS),
    )


def said(found: Estimate | None, form: str = "{:.1f}") -> str:
    """An estimate in words."""
    if found is None:
        return "–"
    return form.format(found.mean) + ("" if found.half is None else f" ± {form.format(found.half)}")


def summary(runs: pl.DataFrame, against: Sequence[str]) -> list[dict[str, str]]:
    """A line for each runner: means over seeds, and ratios to other runners taken within each seed."""
    table = []
    found = {
        runner: {row["seed"]: row for row in runs.filter(runner=runner).iter_rows(named=True)}
        for runner in runs["runner"].unique(maintain_order=True).to_list()
    }
    for runner, mine in found.items():
        line = {"placed by": str(runner)}
        for name in ("turnaround", "wait", "longest_wait", "run"):
            line[f"{name.replace('_', ' ')} (s)"] = said(estimate(row[name] for row in mine.values()), "{:.2f}")
        for name in ("servers", "utilisation"):
            line[name] = said(estimate(row[name] for row in mine.values()), "{:.2f}")
        for other in against:
            name = "turnaround"
            ratio = paired({s: r[name] for s, r in mine.items()}, {s: r[name] for s, r in found[other].items()})
            line[f"{name} / {other}"] = said(ratio, "{:.3f}")
        told = next((name for name in found if name.endswith(" told")), None)
        if told is not None and against:
            times = [{s: r["turnaround"] for s, r in found[name].items()} for name in (runner, against[0], told)]
            line[f"share of the gain of {told}"] = (
                said(share_of_gain(*times), "{:.0%}") if runner != against[0] else "–"
            )
        table.append(line)
    return table


def picture(rows: pl.DataFrame, runs: pl.DataFrame) -> bytes:
    """Turnaround of all gangs, and how it changes as gangs come: a scheduler that learns gets better."""
    figure, axes = new_figure(10.0, columns=2)
    shares, over = axes[0]
    for number, runner in enumerate(runs["runner"].unique(maintain_order=True).to_list()):
        mine = rows.filter(runner=runner).with_columns(turnaround=pl.col("ended") - pl.col("arrival"))
        times = np.sort(mine["turnaround"].to_numpy())
        shares.step(times, np.arange(1, len(times) + 1) / len(times), color=COLOURS[number], label=runner, where="post")
        mean = mine.group_by("name", maintain_order=True).agg(pl.col("turnaround").mean())["turnaround"].to_numpy()
        width = min(20, len(mean))
        over.plot(np.convolve(mean, np.ones(width) / width, "valid"), color=COLOURS[number])
    shares.set(xlabel="turnaround (s)", ylabel="share of gangs", title="Gangs that ended within a time")
    over.set(xlabel="gang", ylabel="turnaround (s)", title="Mean of 20 gangs and all seeds")
    finish(figure, shares, top=0.35, between=0.25)
    return to_png(figure)


def markdown(table: Sequence[dict[str, str]]) -> str:
    """The table for a document."""
    columns = list(table[0])
    rows = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*rows, *("| " + " | ".join(line.values()) + " |" for line in table)]) + "\n"


def alike(kept: dict[str, str], settings: dict[str, str]) -> bool:
    """Whether a run that was kept is the one that is asked for, among however many others."""
    same = all(kept[key] == settings[key] for key in ("kind", "jobs", "nodes", "rate", "work", "equal", "version"))
    return same and (float(kept.get("compute", 0)) > 0) == (float(settings["compute"]) > 0)


def main() -> None:
    """Run what is asked for, and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--together", type=int, default=1, help="runs at a time")
    parser.add_argument("--equal", action="store_true", help="all nodes are equally fast")
    parser.add_argument("--compute", action="store_true", help="tasks compute under processor quotas; they sleep else")
    parser.add_argument("--jobs", type=int, help="gangs a run; 240 on Slurm and Kubernetes, 100 on Ray")
    parser.add_argument("--nodes", type=int, help="8 on Slurm and Kubernetes, 4 on Ray")
    parser.add_argument("--rate", type=float, help="gangs a second; 2.5 on Slurm and Kubernetes, 1.2 on Ray")
    parser.add_argument("--work", type=float, default=2.5, help="seconds at speed 1")
    parser.add_argument("--runners", nargs="+", default=RUNNERS, help="who places")
    parser.add_argument("--out", type=Path, default=Path("runs/real-clusters"))
    given = parser.parse_args()
    if given.compute and given.together > 1:
        parser.error("--compute: one cluster at a time (--together 1)")
    given.compute = computing_task.rate() if given.compute else 0.0  # blocks a second; 0: tasks sleep
    usual = {"slurm": (240, 8, 2.5), "kubernetes": (240, 8, 2.5), "ray": (100, 4, 1.2)}[given.kind]
    given.jobs, given.nodes, given.rate = (
        own if own is not None else default
        for own, default in zip((given.jobs, given.nodes, given.rate), usual, strict=True)
    )
    runners = [name for name in given.runners if name not in set(KINDS) - {given.kind}]
    out = given.out = given.out / given.kind
    out.mkdir(parents=True, exist_ok=True)
    console, found = Console(), list[Ran]()
    settings = {key: str(value) for key, value in vars(given).items()} | {"version": __version__}
    order = [(seed, runner) for seed in range(given.first, given.first + given.seeds) for runner in runners]
    # processes, and fresh ones: Ray must be started in a main thread, and once in a process
    fresh = get_context("spawn")
    with ProcessPoolExecutor(given.together, mp_context=fresh, max_tasks_per_child=1) as pool:
        parts = [pool.submit(kept_or_run, runner, seed, given, settings) for seed, runner in order]
        for (seed, runner), part in zip(order, parts, strict=True):
            rows = part.result()
            turnaround = np.mean([row.ended - row.arrival for row in rows])
            console.print(f"seed {seed}, {runner}: mean turnaround {turnaround:.2f} s")
            found += rows
    rows_ = pl.DataFrame([asdict(row) for row in found])
    runs = measures(rows_, given.nodes)
    rows_.write_parquet(out / "gangs.parquet", metadata=settings)
    runs.write_parquet(out / "runs.parquet", metadata=settings)
    table = summary(runs, [name for name in (given.kind, "best-fit") if name in runners])
    shown = Table(*table[0], title=f"{given.jobs} gangs on {given.nodes} nodes of {given.kind}, {given.seeds} seeds")
    for line in table:
        shown.add_row(*line.values())
    console.print(shown)
    (out / "table.md").write_text(markdown(table))
    (out / "turnaround.png").write_bytes(picture(rows_, runs))
    console.print(f"written to {out}")


if __name__ == "__main__":
    main()
