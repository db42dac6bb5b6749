"""Record what a real Slurm answers, for tests without one: `python -m tests.real.slurm.record FOLDER`.

The folder gets the answers to the commands that the engine runs, of the Slurm in the PATH. Each job of the recording is
known by its name; the comments of some say that they are attempts of the instance `0a1b2c3d`.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import sys
import tempfile
from pathlib import Path

from berth.live.clusters import ClusterError
from berth.live.clusters.slurm import LocalSlurm
from tests.harness.waiting import eventually
from tests.real.local import up
from tests.real.slurm.shared import NODES

ANSWERS = {
    "config": ["scontrol", "show", "config"],
    "nodes": ["scontrol", "-o", "show", "nodes"],
    "partitions": ["scontrol", "-o", "--all", "show", "partitions"],
    "reservation": ["scontrol", "-o", "show", "reservation"],
    "squeue": ["squeue", "--json", "--states=all"],
}
OURS = "--comment=berth:0a1b2c3d:"
RUN = {
    "gang": [f"{OURS}train-7:2", "-N2", "-wn1,n2", "--ntasks-per-node=2", "--mem=100", "--gres=gpu:1", "-t90"],
    "small": [f"{OURS}small:1", "-N1", "-n2", "-wn3"],  # asks for no memory, and is charged some for each CPU
    "uneven": [f"{OURS}uneven:1", "-N2", "-n3", "-wn3,n4"],
    "foreign": ["-N1", "-n1", "-wn1", "--gres=gpu:1,licence:2", "--mem=500"],
    "components": [f"{OURS}components:1", "-n1", "-wn2", ":", f"{OURS}components:1", "-n2", "-wn4"],
}
"""Jobs that run."""
WAIT = {
    "held": [
        *("-pshared", "--hold", "-N2", "--ntasks-per-node=2", "--mem-per-cpu=50", "--gres=gpu:1", "-Cfast", "-t30"),
        "--comment=berth:type=resnet,work=1h",
    ],
    "busy": ["-wn3", "--exclusive"],
}
"""Jobs that wait."""
END = {"bad": "exit 3", "good": "exit 0", "late": "sleep 600", "cancelled": "sleep 600"}
"""Jobs that end, the last two by what is done to them."""


def record(cluster: LocalSlurm) -> dict[str, str]:
    """The answers, once all jobs are in their states."""

    def states(*names: str) -> set[str]:
        lines = cluster.ask("squeue", "-h", "-t", "all", "-o", "%j %T").splitlines()
        return {state for name, state in (line.split() for line in lines) if name in names}

    def submit(name: str, words: list[str], command: str) -> str:
        words = [part for word in words for part in ([":", f"-J{name}"] if word == ":" else [word])]
        return cluster.ask("sbatch", "--parsable", "-o/dev/null", f"-J{name}", *words, "--wrap", command).strip()

    user = pwd.getpwuid(os.getuid()).pw_name
    for name, command in END.items():
        number = submit(name, ["-n1", "-wn8"], command)
        if command.startswith("sleep"):
            eventually(lambda one=name: states(one), {"RUNNING"}.__eq__, f"{name} does not run")  # type: ignore[misc]
        if name == "late":
            cluster.ask("scontrol", "update", f"JobId={number}", "TimeLimit=1", "EndTime=now+1")
        elif name == "cancelled":
            cluster.ask("scancel", number)
    for name, words in RUN.items():
        submit(name, words, "sleep 600")
    eventually(lambda: states(*RUN), {"RUNNING"}.__eq__, "not all jobs run")
    for name, words in WAIT.items():
        submit(name, words, "sleep 600")
    try:
        submit("refused", ["-n1", "-wn5", "--mem=1000000"], "true")
    except ClusterError as error:
        print(error)
    eventually(lambda: states(*END), {"FAILED", "COMPLETED", "TIMEOUT", "CANCELLED"}.__eq__, "not all jobs end")
    cluster.ask("scontrol", "update", "NodeName=n7", "State=DRAIN", "Reason=a fan is loud")
    cluster.ask("scontrol", "update", "PartitionName=main", "DefaultTime=30", "MaxTime=60")
    for name, *words in (
        ("later", "StartTime=now+60minutes", "Nodes=n3,n4", "Flags=MAINT,IGNORE_JOBS"),
        ("today", "StartTime=now", "Nodes=n5"),
        ("cores", "StartTime=now", "Nodes=n6", "CoreCnt=2"),
        ("moving", "StartTime=now+60minutes", "Nodes=n8", "Flags=TIME_FLOAT"),
    ):
        said = f"ReservationName={name}", f"Users={user}", "Duration=30"
        cluster.ask("scontrol", "create", "reservation", *said, *words)
    answers = {name: cluster.ask(*command) for name, command in ANSWERS.items()}
    answers["squeue"] = json.dumps(json.loads(answers["squeue"]), separators=(",", ":"))
    host = rf"\b{re.escape(socket.gethostname().partition('.')[0])}\b"
    return {
        name: re.sub(host, "host", text.replace(str(cluster.directory), "/cluster")) for name, text in answers.items()
    }


def main() -> None:
    """Record the Slurm in the PATH."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    more = ["PartitionName=shared Nodes=ALL State=UP", "Licenses=matlab:2"]
    with up(LocalSlurm(Path(tempfile.mkdtemp(prefix="slurm-")), NODES, more)) as cluster:
        for name, text in record(cluster).items():
            (folder / f"{name}.{'json' if name == 'squeue' else 'txt'}").write_text(f"{text.rstrip()}\n")


if __name__ == "__main__":
    main()
