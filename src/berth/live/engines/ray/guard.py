"""Runs one task on a node of a Ray cluster, and ends all of it when it must: a program by itself, for `python -c`.

The first line of its standard input says what to run. After that come times, eight bytes each: until when the keeper of
gangs was heard, by this machine's clock. When none comes for the length of a lease, whatever hangs or is cut off, the
task is killed: by then the keeper has given it up. When the input ends, the task is asked to end, and killed if it does
not. Whatever the task has started ends with it. The last line of the output says how it went.

It imports nothing of berth: a Ray cluster needs nothing but Ray.
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
"""Numbers of `prctl`."""
STUBBORN = 30.0
"""Seconds after which a process that does not die even so is left behind."""


def clock() -> float:
    """Seconds that went by, also those in which the machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def prctl(what: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(what, value, 0, 0, 0)


def die_with_parent() -> None:
    prctl(DIE_WITH_PARENT, signal.SIGKILL)


def arguments(told: dict[str, Any]) -> list[str]:
    """What to execute. A script is run by its `#!` line, or by /bin/sh, from a file that need not be executable."""
    script = told.get("script")
    if script is None:
        return list(told["command"])
    Path(told["script_file"]).write_text(script, encoding="utf-8")
    first = script.split("\n", 1)[0].rstrip("\r")
    interpreter = first[2:].strip().split(None, 1) if first.startswith("#!") else []
    return [*(interpreter or ["/bin/sh"]), told["script_file"]]


def watch(task: subprocess.Popen[bytes], lease: float, heard: float, rest: bytes) -> str:
    """Wait until the task has `ended`, is `told` to end, or the lease has run out in `silence`."""
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
    """The processes that a process has started, and those that they have."""
    mine = []
    with suppress(OSError):
        for file in Path(f"/proc/{parent}/task").glob("*/children"):
            mine += [int(pid) for pid in file.read_text().split()]
    return [*mine, *(one for child in mine for one in descendants(child))]


def end_all(task: subprocess.Popen[bytes], grace: float) -> None:
    """Nothing that the task has started is left; it may end by itself within `grace` seconds."""
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
    """Run a task to its end: its exit code, the seconds that it ran, and how it ended."""
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
        task.wait()  # before anybody else takes its exit code
    end_all(task, told["grace"] if how == "told" else 0.0)
    return {"how": how, "error": None, "code": task.returncode, "seconds": seconds}


def main() -> None:
    """Read what to do, do it, and say how it went."""
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
