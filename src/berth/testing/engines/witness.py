"""Task of `berth.testing.engines.ledger`: `python witness.py '{"folder": …}' [argument …]`. Imports nothing of berth.

It writes a file when it begins, runs for the given time, writes another at its end, and exits with 0, or with 3 if it
is to fail.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
import uuid


def birth(pid: int) -> str:
    """Start time of a process as the kernel gives it; empty if there is none, or only a zombie."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def main() -> None:
    """Begin, run and end."""
    told, environment = json.loads(sys.argv[1]), dict(os.environ)
    seen = {key: environment.get(name, "") for key, name in told["names"].items()}
    folder, name = pathlib.Path(told["folder"]), uuid.uuid4().hex
    line = {
        **seen,
        "pid": os.getpid(),
        "birth": birth(os.getpid()),
        "arguments": sys.argv[2:],
        "environment": {key: environment[key] for key in told["keys"] if key in environment},
    }
    beside = folder / f"{name}.new"
    beside.write_text(json.dumps(line))
    beside.rename(folder / f"{name}.begun")
    fails = told["fails"]
    time.sleep(3600.0 if fails and seen["role"] != fails else told["seconds"])
    (folder / f"{name}.ended").touch()
    sys.exit(3 if fails else 0)


if __name__ == "__main__":
    main()
