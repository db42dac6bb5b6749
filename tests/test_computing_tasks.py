"""Tasks of `benchmarks.real_clusters` that compute: their quotas, and the program that keeps to one."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys

from benchmarks import computing_task
from benchmarks.real_clusters import COMPUTED, CPUS, SLEEPING, task_of
from berth.live.twin.streams import ClassStream


def test_quotas_of_a_full_cluster_add_up_to_what_tasks_may_use() -> None:
    gangs = ClassStream(jobs=200).gangs(3)
    given = argparse.Namespace(compute=20_000.0, nodes=8)
    (line,) = [line for line in task_of(gangs, given).splitlines() if line.startswith("used=")]
    rate, share = shlex.split(line.removeprefix("used=$(").removesuffix(")"))[4:6]
    assert float(rate) == given.compute
    quotas = [float(share) * gang.work / seconds for gang in gangs for seconds in gang.seconds.values()]
    assert 0.99 * COMPUTED < max(quotas) * given.nodes * CPUS < 1.001 * COMPUTED
    assert task_of(gangs, argparse.Namespace(compute=0.0, nodes=8)) == SLEEPING
    assert 'used=$(sleep "$seconds")' in SLEEPING


def test_the_program_computes_and_says_how_long() -> None:
    command = [sys.executable, "-I", "-S", computing_task.__file__, "1000", "0.5", "0.1", "0.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0.0
