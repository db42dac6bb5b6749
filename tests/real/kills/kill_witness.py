"""A task that leaves files behind: `python kill_witness.py FOLDER SECONDS`. The names of the files say everything.

`JOB~ATTEMPT~RANK~PID~BIRTH` with `.begun` is there when it begins, with `.ended` when it comes to its end. Before it
goes on it looks whether a task of another attempt of its job is alive; with `.beside` it says which. Whichever of two
such tasks begins later finds the other, whatever the clocks say. It imports nothing of berth.
"""

from __future__ import annotations

import os
import sys
import time


def birth(pid: str) -> str:
    """When a process began, in the kernel's words; nothing where there is none, or only what is left of it."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def beside(folder: str, job: str, attempt: str) -> list[str]:
    """Tasks of other attempts that are alive and have not come to their end."""
    found = []
    for name in os.listdir(folder):
        parts = name.removesuffix(".begun").split("~")
        if not name.endswith(".begun") or parts[0] != job or parts[1] == attempt:
            continue
        # looked for after the process, which may have ended in between
        if birth(parts[3]) == parts[4] and not os.path.exists(f"{folder}/{'~'.join(parts)}.ended"):
            found.append("~".join(parts))
    return found


def main() -> None:
    """Begin, look, run and end."""
    folder, seconds = sys.argv[1:]
    job, attempt, rank = (os.environ[f"BERTH_{name}"] for name in ("JOB", "ATTEMPT", "RANK"))
    pid = str(os.getpid())
    name = f"{folder}/{job}~{attempt}~{rank}~{pid}~{birth(pid)}"
    open(f"{name}.begun", "x").close()
    if others := beside(folder, job, attempt):
        with open(f"{name}.beside", "x") as file:
            file.write("\n".join(others))
    time.sleep(float(seconds))
    open(f"{name}.ended", "x").close()


if __name__ == "__main__":
    main()
