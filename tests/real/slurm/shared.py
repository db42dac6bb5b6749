"""The Slurm cluster that all tests of this folder share, with all that berth knows to use of Slurm."""

from __future__ import annotations

import logging
import operator
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from berth.live.clusters import MARK, ClusterError, end, marked
from berth.live.clusters.slurm import LocalSlurm, SlurmNode
from berth.live.engines.slurm.hooks import hold_script, hook_script
from tests.harness.waiting import eventually
from tests.real.local import up

__all__ = ["COMPANION", "NODES", "SharedSlurm", "restd", "shared_slurm"]

GRES = {"gpu": 2, "licence": 3}
NODES = (
    SlurmNode("n1", gres=GRES, features=["fast", "class=big"]),
    SlurmNode("n2", gres=GRES, features=["fast", "class=big"]),
    *(SlurmNode(f"n{i}") for i in range(3, 9)),
)
COMPANION = "shared"
"""The partition whose jobs are held for berth."""
SICK = 90.0
"""Seconds for which a sound cluster may take to end what an earlier test began: Slurm may need 66 for a gang."""
log = logging.getLogger(__name__)


def restd() -> str | None:
    """The program slurmrestd, where it is installed."""
    return shutil.which("slurmrestd", path="/usr/sbin:/usr/bin")


class SharedSlurm(LocalSlurm):
    """Eight nodes with hooks, a companion partition, tokens and devices.

    `ready` makes it as if it had just been started: all daemons run, nodes are idle, and nothing of an earlier test is
    left. If that fails, the cluster is started anew.
    """

    def __init__(self, directory: Path, nodes: Sequence[SlurmNode] = NODES) -> None:
        self.hooks = directory / "hooks"
        self._rest: tuple[subprocess.Popen[bytes], str] | None = None
        hook, key = directory / "hook.sh", directory / "jwt.key"
        super().__init__(
            directory,
            nodes,
            more=[
                f"PrologSlurmctld={hook}",
                f"EpilogSlurmctld={hook}",
                "JobSubmitPlugins=lua",
                "Licenses=matlab:2",
                "MinJobAge=120",
                f"PartitionName={COMPANION} Nodes=ALL State=UP",
                "PartitionName=narrow Nodes=n3,n4 State=UP",
                "AuthAltTypes=auth/jwt",
                f"AuthAltParameters=jwt_key={key}",
            ],
        )
        directory.chmod(0o755)  # other users of this machine run jobs on it
        self.hooks.mkdir()
        hook.write_text(hook_script(self.hooks))
        hook.chmod(0o755)
        (directory / "job_submit.lua").write_text(hold_script(COMPANION))
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(32))

    def start(self) -> None:
        super().start()
        self._settings, self._partitions = self.conf.read_text(), self.show("partitions")

    def stop(self) -> None:
        """End it without waiting for what it would still do."""
        self._rest = None
        end(marked(self.directory), signal.SIGKILL)
        super().stop()

    def show(self, what: str) -> str:
        """What Slurm says of all its partitions, or reservations."""
        return self.ask("scontrol", "-o", "--all", "show", what)

    def ready(self) -> None:
        """Clean it; start it anew if that fails."""
        try:
            self.clean()
        except (ClusterError, AssertionError, subprocess.SubprocessError) as error:
            log.warning("the Slurm cluster was sick and is started anew: %s", error)
            self.stop()
            shutil.rmtree(self.directory / "state")
            self.start()

    def clean(self) -> None:
        """Undo what an earlier test did to it."""
        for name in ("munged", "slurmctld", *(node.name for node in self.nodes)):
            self.begin(name)  # nothing, where it runs
        eventually(self._answers, bool, "slurmctld does not answer", SICK)
        if self.conf.read_text() != self._settings:
            self.configure()
        jobs = set(self.ask("squeue", "-h", "-o", "%A").split())
        if jobs:
            self.ask("scancel", *sorted(jobs))
        reservations = self.show("reservations").splitlines()
        for name in (line.split()[0] for line in reservations if line.startswith("ReservationName=")):
            self.ask("scontrol", "delete", name)
        self._restore_partitions()
        self.resume()
        eventually(lambda: self.ask("squeue", "-h", "-o", "%A %T %R"), operator.not_, "jobs do not end", SICK)
        eventually(self.states, lambda states: set(states.values()) == {"idle"}, "nodes do not become idle", SICK)

    def _restore_partitions(self) -> None:
        """Undo updates of partitions.

        `scontrol reconfigure` would undo them too. But then each slurmd looks at the steps of its node, at some later
        time, and removes the script of a job that is about to begin there: a step whose socket does not listen yet is
        a stray one to it.
        """
        before = {line.split()[0]: line.split() for line in self._partitions.splitlines()}
        now = {line.split()[0]: line.split() for line in self.show("partitions").splitlines()}
        for name in now.keys() - before.keys():
            self.ask("scontrol", "delete", name)
        for name, words in before.items():
            if changed := [word for word in words if word not in now.get(name, ())]:
                self.ask("scontrol", "update", name, *changed)
        assert self.show("partitions") == self._partitions

    def states(self) -> dict[str, str]:
        """The state of each node."""
        lines = self.ask("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T").splitlines()
        return dict(line.split() for line in lines)

    def resume(self) -> None:
        """Resume nodes that somebody, or Slurm itself, has drained or set down."""
        for name, state in self.states().items():
            if state.startswith("drain") or state == "down":
                self.ask("scontrol", "update", f"NodeName={name}", "State=RESUME")

    def configure(self, *lines: str) -> None:
        """Give it other settings than it began with: these lines as well."""
        self.conf.write_text("".join([self._settings, *(f"{line}\n" for line in lines)]), encoding="utf-8")
        self.ask("scontrol", "reconfigure")

    def rest(self) -> str:
        """The address of its slurmrestd, which is started when it is first asked for. It refuses to run as root."""
        if self._rest is None or self._rest[0].poll() is not None:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = int(free.getsockname()[1])
            other = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
            daemon = subprocess.Popen(
                [restd() or "slurmrestd", "-a", "rest_auth/jwt", "-s", "openapi/v0.0.38", f"127.0.0.1:{port}"],
                env={**self.environment, "SLURM_JWT": "daemon", MARK: str(self.directory)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                **other,  # type: ignore[call-overload]
            )
            self._running["slurmrestd"] = daemon
            self._rest = daemon, f"http://127.0.0.1:{port}"
        return self._rest[1]


@contextmanager
def shared_slurm() -> Iterator[SharedSlurm]:
    """A cluster with a short path, since sockets lie in it."""
    with up(SharedSlurm(Path(tempfile.mkdtemp(prefix="slurm-")))) as cluster:
        yield cluster
