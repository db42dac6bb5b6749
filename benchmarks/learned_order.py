"""Learned order of a batch queue beside RLScheduler's network, on the ten windows of its tables.

python -m benchmarks.learned_order            evaluates the orders of examples/learned-order
python -m benchmarks.learned_order --train    trains them again first, in minutes on one core, and writes them

The protocol is that of `berth verify rlscheduler`: ten windows of 1,024 jobs, each on an empty pool, committed picks,
without and with backfilling. One order is trained for each log, for both columns, on windows that overlap none of the
ten; the authors of RLScheduler held no windows out. `BERTH_TRACES` names the folder of the traces.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from berth.families.placement.policies.priority import score_function
from berth.families.placement.pool_runs import run_pool
from berth.lab.replay.results import bounded_slowdown
from berth.lab.replay.samples import job_windows
from berth.lab.verify.batch import NETWORKS, PRINTED, SCORES, TABLES
from berth.lab.verify.environment import LEARNED, STARTS, WINDOW, environment_jobs
from berth.traces.folder import traces_folder

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "learned-order"))
example, pool, training = (importlib.import_module(f"berth_learned_order{part}") for part in ("", ".pool", ".training"))

BACKFILLS = {"none": "no backfilling", "shadow": "backfilling"}
RULES = {
    "FCFS": SCORES["FCFS"],
    "SJF": SCORES["SJF"],
    "F1": SCORES["F1"],
    "WFP3, corrected": SCORES["WFP3"].replace(PRINTED, "wait"),
    "smallest area first": "estimate * size",
}


def by_window(jobs: Any, capacity: float, backfill: str, order: Any) -> list[float]:
    """Mean bounded slowdown of each window, under an order or a rule."""
    means = []
    for window in job_windows(STARTS, WINDOW):
        part = jobs.part(window.start, WINDOW)
        if isinstance(order, str):
            how: dict[str, Any] = {"score": score_function(order), "committed": True, "singly": True}
            began = run_pool(part.submit, part.size, part.run, part.estimate, capacity, backfill=backfill, **how)
        else:
            began = pool.play(*part, capacity, order.weights, pool.MODES[backfill], True, True)
        means.append(float(bounded_slowdown(began - part.submit, part.run).mean()))
    return means


def train(jobs: Any, capacity: float, name: str, steps: int, seed: int) -> None:
    """Train an order on windows that do not overlap the ten, and write it into the example."""
    plan = training.OrderPlan(capacity, tuple(BACKFILLS), singly=True, steps=steps, seed=seed)

    def show(step: int, best: float) -> None:
        if step % plan.every == 0:
            print(f"{name}: step {step}, {best:.3f} of SJF", file=sys.stderr, flush=True)

    found = training.train_order(jobs, plan, job_windows(STARTS, WINDOW), show)
    (example.FOLDER / f"{name}.json").write_text(found.order.text(), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="train the orders again, and write them")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder = traces_folder(None)
    if folder is None:
        parser.error("set BERTH_TRACES to the folder of public traces")
    print("| log | rule | no backfilling | backfilling |\n|---|---|---|---|")
    for file, (name, _) in LEARNED.items():
        jobs, capacity = training.QueuedJobs(*environment_jobs(folder / file)), float(TABLES[file][0])
        if arguments.train:
            train(jobs, capacity, name, arguments.steps, arguments.seed)
        rules = {
            **RULES,
            "smallest predicted area first": example.Order.fresh(),
            "the learned order": example.order_named(name),
        }
        for rule, order in rules.items():
            cells = [np.mean(by_window(jobs, capacity, how, order)) for how in BACKFILLS]
            print(f"| {name} | {rule} | {' | '.join(f'{cell:,.2f}' for cell in cells)} |", flush=True)
        theirs = " | ".join(f"{NETWORKS[file][how]:,.2f}" for how in BACKFILLS)
        print(f"| {name} | RLScheduler's network, as printed | {theirs} |")


if __name__ == "__main__":
    main()
