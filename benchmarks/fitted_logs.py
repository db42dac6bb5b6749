"""Fitted batch logs beside the real ones: estimates, and the order of EASY and conservative backfilling.

    BERTH_TRACES=/path/to/traces python -m benchmarks.fitted_logs [NAME ...] [--seeds 10]

Two tables in Markdown. The first has facts about the estimates of each log and of a log of the same length generated
from its fit. The second plays EASY and conservative backfilling on the real log and on generated ones, as many jobs at
the offered load of the real log, each on one pool of all processors. It has each number under EASY (for generated logs
the median), the ratio of conservative to EASY, and how many generated logs find the same policy better as the whole
real log; differences of up to 1 % count as equal. For scale, as many parts of the real log are played one by one.
"""

from __future__ import annotations

import argparse
import os
from itertools import pairwise
from pathlib import Path

import numpy as np

from berth.families.placement.trace_world import pooled
from berth.lab.replay import replay
from berth.traces.fitting.closeness import estimate_facts
from berth.traces.fitting.fit import prepared
from berth.traces.fitting.generate import generate
from berth.traces.fitting.workload import load_workload
from berth.traces.formats import load_trace
from berth.traces.lint import usable
from berth.traces.load import offered
from berth.traces.trace import CORES, Trace

LOGS = {
    "sdsc-sp2": "SDSC-SP2-1998-4.2-cln",
    "llnl-atlas": "LLNL-Atlas-2006-2.1-cln",
    "hpc2n": "HPC2N-2002-head",
    "metacentrum": "wagap-2013",
}
BAND = 0.01
"""Two policies whose numbers differ by less than this share count as equal."""
NUMBERS = {"mean_wait_seconds": "mean wait", "mean_bounded_slowdown": "mean bounded slowdown"}


def on_pool(trace: Trace) -> Trace:
    """The usable jobs on one pool of all processors."""
    total = float((trace.machines["count"] * trace.machines[CORES.name]).sum())
    return usable(pooled(trace, total, CORES.name))[0]


def played(trace: Trace) -> dict[str, tuple[float, float]]:
    """Each number under EASY, and conservative over EASY (1 if nobody waits)."""
    easy, conservative = replay(trace, ["easy", "conservative"]).rows
    return {name: (easy[name], conservative[name] / easy[name] if easy[name] > 0 else 1.0) for name in NUMBERS}


def verdict(ratio: float) -> str:
    """The better policy."""
    return "equal" if abs(ratio - 1) <= BAND else "EASY" if ratio > 1 else "conservative"


def estimates(name: str, trace: Trace) -> None:
    """Rows of the first table."""
    made = generate(load_workload(name), jobs=len(prepared(trace)), seed=0)
    for title, facts in (("real", estimate_facts(trace)), ("generated", estimate_facts(made))):
        if facts is None:
            raise SystemExit(f"{name}: no estimates")
        hours = [f"{facts[key] / 3600:.2f}" for key in ("p25_s", "p50_s", "p75_s", "p95_s", "largest_s")]
        shares = [
            f"{100 * facts[key]:.1f} %" for key in ("share_of_the_ten_most_common", "share_run_past", "mean_share_used")
        ]
        cells = [f"{name}, {title}", f"{facts['distinct_values']:,}", shares[0], *hours, *shares[1:]]
        print(f"| {' | '.join(cells)} |", flush=True)


def order(name: str, trace: Trace, seeds: int) -> None:
    """Rows of the second table."""
    real = on_pool(trace)
    load, size = offered(real), len(real)
    truth = played(real)
    cuts = [size * place // seeds for place in range(seeds + 1)]
    parts = [played(real.replace(jobs=real.jobs[low:high])) for low, high in pairwise(cuts)]
    drawn = [played(on_pool(generate(load_workload(name), jobs=size, load=load, seed=seed))) for seed in range(seeds)]
    for number, title in NUMBERS.items():
        easy, ratio = np.array([each[number] for each in drawn]).T
        known = verdict(truth[number][1])
        agree = [sum(verdict(each[number][1]) == known for each in those) for those in (drawn, parts)]
        cells = [name, f"{load:.2f}", title, f"{truth[number][0]:,.5g}", f"{truth[number][1]:.3f}", known]
        cells += [f"{np.median(easy):,.5g}", f"{ratio.min():.3f} to {ratio.max():.3f}"]
        print(f"| {' | '.join([*cells, *(f'{count} of {seeds}' for count in agree)])} |", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"logs: {', '.join(LOGS)} (default: all)")
    parser.add_argument("--seeds", type=int, default=10)
    chosen = parser.parse_args()
    folder = Path(os.environ.get("BERTH_TRACES", ""))
    traces = {name: load_trace(folder / "swf" / f"{LOGS[name]}.swf.gz") for name in chosen.names or LOGS}
    print("| estimates | distinct | ten most common | p25 h | p50 h | p75 h | p95 h | largest h | run past | used |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, trace in traces.items():
        estimates(name, trace)
    heads = ["log", "load", "number", "EASY, real", "ratio, real", "better", "EASY, generated", "ratio, generated"]
    heads += ["generated that agree", "parts of the real log that agree"]
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, trace in traces.items():
        order(name, trace, chosen.seeds)


if __name__ == "__main__":
    main()
