"""Time to the first answer of a fresh installation: `python -m benchmarks.first_use` (`--source DIR` for other code).

Each command runs twice with an empty cache of kernels: the first run compiles them, the second finds them. `--source`
names the `src` folder of another version of berth, to compare with. Processor time of the command and all its
processes.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

__all__ = ["main"]

SWF = "".join(
    f"{i} {10 * i} -1 {60 + 7 * (i % 9)} {1 + i % 4} -1 -1 {1 + i % 4} 600 {2**20 * (1 + i % 3)} 1 1 1 1 1 1 -1 -1\n"
    for i in range(200)
)
MACHINES = (
    "id\tcluster\tnodes\tcpus_per_node\tspeed\tmem_per_node_kib\n0\ta\t2\t4\t1\t8388608\n1\tb\t1\t8\t1\t8388608\n"
)
COMMANDS = {
    "replay on a pool": ("replay", "log.swf", "--processors", "8"),
    "replay on machines": ("replay", "log.swf", "--machines", "machines.tsv"),
    "compare, placement": (
        "compare",
        "drl-default",
        "-p",
        "fcfs",
        "-p",
        "placement-rule",
        "--set",
        "horizon=20",
        "--seeds",
        "2",
    ),
}


def seconds(words: tuple[str, ...], folder: Path, environment: dict[str, str]) -> float:
    """Processor time of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "berth", *words], cwd=folder, env=environment, capture_output=True)
    if done.returncode:
        raise SystemExit(f"berth {' '.join(words)}: {done.stderr.decode()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--source", default="", help="src folder of another version of berth.")
    source = parser.parse_args().source
    table = Table(
        "command", "first run, s", "next run, s", title=f"Time to the first answer, {source or 'this version'}"
    )
    for name, words in COMMANDS.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "log.swf").write_text(SWF)
            (folder / "machines.tsv").write_text(MACHINES)
            environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")}
            if source:
                environment["PYTHONPATH"] = source
            taken = [seconds(words, folder, environment) for _ in range(2)]
        table.add_row(name, *(f"{part:.1f}" for part in taken))
        print(name, *(f"{part:.1f} s" for part in taken), flush=True)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
