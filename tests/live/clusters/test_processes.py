"""Processes of clusters on this machine: found by their marks, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from berth.live.clusters import MARK, NODE, end, marked, stopped
from tests.harness.waiting import eventually


def test_processes_of_a_node_do_not_see_each_other_end(tmp_path: Path) -> None:
    """A shell whose command is killed before it would go on, and write down how the command ended."""
    marks = {MARK: str(tmp_path), NODE: "n1"}
    shells = [
        subprocess.Popen(["sh", "-c", f"sleep 600; echo $? > {tmp_path}/{i}"], env={**os.environ, **marks})
        for i in range(20)
    ]
    eventually(lambda: len(marked(tmp_path, "n1")), lambda many: many == 2 * len(shells), "the shells have no commands")
    for process in sorted(stopped(tmp_path, "n1"), reverse=True):  # the commands first
        end([process], signal.SIGKILL)
    assert {shell.wait() for shell in shells} == {-signal.SIGKILL}
    assert not list(tmp_path.iterdir())
