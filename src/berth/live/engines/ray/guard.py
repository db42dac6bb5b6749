"""The guard of one task on a node of a Ray cluster: a program of its own, for `python -c`.

The first line of its standard input says what to run. After that come times, eight bytes each: the agent's last
heartbeat that the keeper answered, by this machine's clock. If none comes for the length of a lease, for whatever
reason, the guard kills the task: by then the keeper has given it up. When the input ends, the guard asks the task to
end, and kills it if it does not. All descendants of the task end with it. The last line of the output reports how it
ended.

It imports nothing of berth: nodes need only Ray.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import struct
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

DIE_WITH_PARENT, ADOPT_ORPHANS = 1, 36
"""Options of `prctl`."""
STUBBORN = 30.0
"""Seconds after which a process that survives even SIGKILL is left behind."""


def clock() -> float:
    """Elapsed seconds, including those of a suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def prctl(what: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(what, value, 0, 0, 0)


def die_with_parent() -> None:
    prctl(DIE_WITH_PARENT, signal.SIGKILL)


def arguments(told: dict[str, Any]) -> list[str]:
    """The command to execute. A script runs by its `#!` line or by /bin/sh, from a file that need not be executable."""
    script = told.get("script")
    if script is None:
        return list(told["command"])
    Path(told["script_file"]).write_text(script, encoding="utf-8")
    first = script.split("\n", 1)[0].rstrip("\r")
    interpreter = first[2:].strip().split(None, 1) if first.startswith("#!") else []
    return [*(interpreter or ["/bin/sh"]), told["script_file"]]


def watch(task: subprocess.Popen[bytes], lease: float, heard: float, rest: bytes) -> str:
    """Wait until the task has `ended`, is `told` to end, or the lease has expired in `silence`."""
    ended = os.pidfd_open(task.pid)
    while True:
        left = heard + lease - clock()
        if left <= 0:
            return "silence"
        ready = select.select([0, ended], [], [], left)[0]
        if ended in ready:
            return "ended"
        if 0 in ready:
            found = os.read(0, 4096)
            if not found:
                return "told" if clock() < heard + lease else "silence"
            rest += found
            whole = len(rest) - len(rest) % 8
            heard = max(heard, *(time for (time,) in struct.iter_unpack("d", rest[:whole])))
            rest = rest[whole:]


def descendants(parent: int) -> list[int]:
    """All descendants of a process."""
    mine = []
    with suppress(OSError):
        for file in Path(f"/proc/{parent}/task").glob("*/children"):
            mine += [int(pid) for pid in file.read_text().split()]
    return [*mine, *(one for child in mine for one in descendants(child))]


def end_all(task: subprocess.Popen[bytes], grace: float) -> None:
    """End all descendants of the task; the task may end by itself within `grace` seconds."""
    if grace:
        with suppress(ProcessLookupError):
            os.killpg(task.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            task.wait(grace)
    until = clock() + STUBBORN
    while (left := descendants(os.getpid())) and clock() < until:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        task.poll()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def run(told: dict[str, Any], rest: bytes) -> dict[str, Any]:
    """Run a task to its end; returns its exit code, its run time in seconds, and how it ended."""
    prctl(ADOPT_ORPHANS, 1)
    try:
        with open(told["out"], "ab") as out, open(told["err"], "ab", buffering=0) as err:
            words, where = arguments(told), told["workdir"]
            if where and not os.path.isdir(where):
                raise OSError(f"there is no directory {where} on this node")
            began = clock()
            task = subprocess.Popen(
                words,
                cwd=where,
                env=told["environment"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return {"how": "refused", "error": str(error), "code": None, "seconds": 0.0}
    how = watch(task, told["lease"], told["heard"], rest)
    seconds = clock() - began
    if how == "ended":
        task.wait()  # before another wait takes its exit code
    end_all(task, told["grace"] if how == "told" else 0.0)
    return {"how": how, "error": None, "code": task.returncode, "seconds": seconds}


def main() -> None:
    """Read the order, carry it out, and report how it ended."""
    read = b""
    while b"\n" not in read:
        found = os.read(0, 2**16)
        if not found:
            return
        read += found
    line, _, rest = read.partition(b"\n")
    print(json.dumps(run(json.loads(line), rest)), flush=True)


if __name__ == "__main__":
    main()
