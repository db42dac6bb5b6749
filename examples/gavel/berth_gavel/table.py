"""Mean completion times of the same jobs under Gavel's policies here and in Gavel's simulator.

`berth-gavel STREAM... --speeds gavel.csv` plays each stream with each policy that Gavel played on it. A job counts if
it is completed on both sides by the time at which Gavel's run ended.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from berth import BerthError
from berth.live.simulation import Dispatcher, Queues, SimulatedCluster, Submitted, play
from berth_gavel.jobs import GavelJob, GavelTruth, read_jobs, read_speeds, servers

__all__ = ["POLICIES", "Comparison", "compared", "completions", "main"]

POLICIES = {
    "fifo_perf": "FIFO",
    "max_min_fairness_perf": "MaxMin",
    "max_min_fairness": "MaxMinBlind",
    "max_sum_throughput_perf": "MaxSum",
}
"""Gavel's names of its policies, and their classes here."""
PATIENCE = 1e12


@dataclass(frozen=True)
class Comparison:
    """A policy on a stream: mean hours here and in Gavel's simulator, and how many jobs were left out where."""

    policy: str
    jobs: int
    ours: float
    theirs: float
    open_here: int
    open_there: int
    interruptions: float

    def __str__(self) -> str:
        return (
            f"{self.policy:<26}{self.jobs:>6}{self.ours:>9.2f}{self.theirs:>9.2f}{self.ours / self.theirs:>8.3f}"
            f"{self.open_here:>7}{self.open_there:>7}{self.interruptions:>8.1f}"
        )


HEAD = f"{'policy':<26}{'jobs':>6}{'berth h':>9}{'Gavel h':>9}{'ratio':>8}{'open':>7}{'open':>7}{'inter-':>8}"
UNDER = f"{'':<26}{'':>6}{'':>9}{'':>9}{'':>8}{'berth':>7}{'Gavel':>7}{'rupted':>8}"


def completions(
    jobs: Sequence[GavelJob], policy: str, speeds: str, restart: float = 0.0, until: float = np.inf, seed: int = 0
) -> dict[int, tuple[float, int]]:
    """Seconds from arrival to end, and how often each job was interrupted, of jobs that end until then."""
    table = read_speeds(speeds)
    truth = GavelTruth(restart=restart, speeds=table, steps={one.name: one.steps for one in jobs})
    dispatcher = Dispatcher(policy, seed=seed, queues=Queues(aging=0.0, fairness=0.0, patience=PATIENCE))
    given = [Submitted(one.arrival, one.job(table)) for one in jobs]
    played = play(dispatcher, SimulatedCluster(servers(), truth), given, until=until)
    if dispatcher.refusals:
        raise BerthError(f"decisions of {policy} were refused: {dict(dispatcher.refusals)}")
    found: dict[int, tuple[float, int]] = {}
    for one in jobs:
        if one.name in played.ended and (ended := played.ended[one.name]).ended is not None:
            found[one.number] = ended.ended - one.arrival, ended.interruptions
    return found


def compared(
    jobs: Sequence[GavelJob], policy: str, speeds: str, restart: float = 0.0, first: int = 0, last: int = 10**9
) -> Comparison:
    """One policy beside Gavel's own run of it; the jobs from `first` to before `last` count."""
    ends = [one.arrival + one.completion[policy] for one in jobs if policy in one.completion]
    name = f"berth_gavel:{POLICIES[policy]}:speeds={speeds}"
    ours = completions(jobs, name, speeds, restart, max(ends))
    some = [one for one in jobs if first <= one.number < last]
    both = [one for one in some if policy in one.completion and one.number in ours]
    return Comparison(
        policy,
        len(both),
        float(np.mean([ours[one.number][0] for one in both])) / 3600.0,
        float(np.mean([one.completion[policy] for one in both])) / 3600.0,
        sum(policy in one.completion and one.number not in ours for one in some),
        sum(policy not in one.completion for one in some),
        float(np.mean([ours[one.number][1] for one in both])),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="berth-gavel", description=__doc__)
    parser.add_argument("streams", nargs="+", type=Path, help="files with the columns of Gavel's streams")
    parser.add_argument("--speeds", required=True, help="the file of measured speeds")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only this policy of Gavel (repeatable)")
    parser.add_argument("--restart", type=float, default=0.0, help="seconds that each continuation of a job costs")
    parser.add_argument("--first", type=int, default=0, help="the first job that counts")
    parser.add_argument("--last", type=int, default=10**9, help="the job before which jobs count")
    given = parser.parse_args(arguments)
    try:
        for path in given.streams:
            jobs = read_jobs(path)
            print(f"{path.name}\n{HEAD}\n{UNDER}")
            for policy in [name for name in POLICIES if any(name in one.completion for one in jobs)]:
                if given.policy is None or policy in given.policy:
                    found = compared(jobs, policy, given.speeds, given.restart, given.first, given.last)
                    print(found, flush=True)
    except BerthError as error:
        sys.exit(f"berth-gavel: {error}")


if __name__ == "__main__":
    main()
