"""Learned order of a batch queue beside RLScheduler's network, on the ten windows of its tables.

python -m benchmarks.learned_order            evaluates the orders that come with berth, in seconds
python -m benchmarks.learned_order --train    trains them again first, in minutes on one core, and writes them

The protocol is that of `berth verify rlscheduler`: ten windows of 1,024 jobs, each on an empty pool, committed picks,
without and with backfilling. berth trains one order for each log, for both columns, on windows that overlap none of the
ten; the authors of RLScheduler held no windows out. `BERTH_TRACES` names the folder of the traces.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from berth.families.placement.policies import order as orders
from berth.families.placement.policies.order import Order, order_named
from berth.families.placement.policies.priority import score_function
from berth.families.placement.training.orders import OrderPlan, QueuedJobs, train_order
from berth.lab.replay.samples import job_windows
from berth.lab.verify.batch import (
    NETWORKS,
    ORDERS,
    PRINTED,
    SCORES,
    STARTS,
    TABLES,
    WINDOW,
    environment_jobs,
    windowed,
)
from berth.traces.folder import traces_folder

BACKFILLS = {"none": "no backfilling", "shadow": "backfilling"}
RULES = {
    "FCFS": SCORES["FCFS"],
    "SJF": SCORES["SJF"],
    "F1": SCORES["F1"],
    "WFP3, corrected": SCORES["WFP3"].replace(PRINTED, "wait"),
    "smallest area first": "estimate * size",
}


def train(jobs: QueuedJobs, capacity: float, name: str, steps: int, seed: int) -> None:
    """Train an order on windows that do not overlap the ten, and write it into the package."""
    began = time.process_time()
    plan = OrderPlan(capacity, tuple(BACKFILLS), singly=True, steps=steps, seed=seed)

    def show(step: int, best: float) -> None:
        if step % plan.every == 0:
            spent = time.process_time() - began
            print(f"{name}: step {step}, {best:.3f} of SJF, {spent:.0f} s", file=sys.stderr, flush=True)

    found = train_order(jobs, plan, job_windows(STARTS, WINDOW), show)
    found.order.save(Path(orders.__file__).parent / "orders" / f"{name}.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="train the orders again, and write them")
    parser.add_argument("--logs", nargs="+", choices=list(ORDERS.values()), default=list(ORDERS.values()))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder = traces_folder(None)
    if folder is None:
        parser.error("set BERTH_TRACES to the folder of public traces")
    told: list[str] = []
    print("| log | rule | no backfilling | backfilling |\n|---|---|---|---|")
    for file, name in ORDERS.items():
        if name not in arguments.logs:
            continue
        jobs, capacity = QueuedJobs(*environment_jobs(folder / file)), float(TABLES[file][0])
        if arguments.train:
            train(jobs, capacity, name, arguments.steps, arguments.seed)
        for rule, score in RULES.items():
            cells = [np.mean(windowed(jobs, capacity, how, score=score_function(score))) for how in BACKFILLS]
            print(f"| {name} | {rule} | {' | '.join(f'{cell:,.2f}' for cell in cells)} |")
        theirs = " | ".join(f"{NETWORKS[file][how]:,.2f}" for how in BACKFILLS)
        print(f"| {name} | RLScheduler's network, as printed | {theirs} |")
        order = order_named(name)
        fresh = Order.fresh(np.random.default_rng(0))
        for what, weights in (
            ("smallest predicted area first", fresh.weights),
            ("berth's learned order", order.weights),
        ):
            cells = [np.mean(windowed(jobs, capacity, how, weights=weights)) for how in BACKFILLS]
            print(f"| {name} | {what} | {' | '.join(f'{cell:,.2f}' for cell in cells)} |", flush=True)
        made, plan = order.made, order.made["plan"]
        told.append(f"\n{name}: seed {plan['seed']}, {plan['steps']} steps; weights {order.weights.round(3).tolist()}")
        for how in plan["backfills"]:
            each = ", ".join(f"{x:,.1f}" for x in windowed(jobs, capacity, how, weights=order.weights))
            told.append(f"By window, {BACKFILLS[how]}: {each}")
        told.append(f"Windows of {plan['window_jobs']} jobs to train on start at: {made['training_windows']}")
        told.append(f"Windows of {plan['validation_jobs']} to validate on start at: {made['validation_windows']}")
        told.append(f"Slowdown there: {made['validation_slowdown']}; of SJF: {made['shortest_first']}")
    print("\n".join(told))


if __name__ == "__main__":
    main()
