"""A real Slurm cluster on this machine: munged, slurmctld and a slurmd for each node, all on 127.0.0.1.

Its nodes may claim more processors than the machine has, so it is for jobs that mostly wait. It needs the programs of
Slurm and munge, but not their services; jobs run as the user who started it.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from berth.errors import InvalidInput
from berth.live.clusters import MARK, NODE, ClusterError, end, free_ports, marked, stopped

__all__ = ["LocalSlurm", "SlurmNode", "missing_programs"]

PROGRAMS = ("munged", "slurmctld", "slurmd", "sinfo", "sbatch")
START_SECONDS = 180.0
TRIES, ANSWER_SECONDS = 3, 20.0
"""How often slurmctld is restarted, and how long it has to answer: sometimes it ends or hangs at its start."""
SETTINGS = """\
ClusterName=berth
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskProlog={folder}/mark.sh
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2
PriorityType=priority/basic
ReturnToService=2
MpiDefault=none
SlurmdTimeout=5
MessageTimeout=4
TCPTimeout=1
KillWait=2
DefMemPerCPU=64
"""


MARKS = f"#!/bin/sh\necho export {MARK}={{folder}}\necho export {NODE}=$SLURMD_NODENAME\n"
"""Marks each task: Slurm loses a process that a task starts just as it is ended, or whose parent is gone."""


@dataclass(frozen=True)
class SlurmNode:
    """The configuration of a node."""

    name: str
    cpus: int = 4
    memory_mib: int = 4096
    gres: Mapping[str, int] = field(default_factory=dict)
    features: Sequence[str] = ()


def missing_programs() -> list[str]:
    """Programs of Slurm and munge that are not installed here."""
    return [name for name in PROGRAMS if _program(name) is None]


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")


class LocalSlurm:
    """A cluster in a directory, with these nodes, or this many equal ones. `more` are final lines of slurm.conf."""

    def __init__(self, directory: Path, nodes: Sequence[SlurmNode] | int = 8, more: Sequence[str] = ()) -> None:
        many = isinstance(nodes, int)
        self.nodes = [SlurmNode(f"n{i + 1}") for i in range(nodes)] if isinstance(nodes, int) else list(nodes)
        if not 1 <= len(self.nodes) <= 512:
            raise InvalidInput("1 to 512 nodes", value=nodes if many else len(self.nodes), key="nodes")
        self.directory = directory.resolve()
        self.conf = self.directory / "slurm.conf"
        self._more = list(more)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """The environment for Slurm's commands."""
        return {**os.environ, "SLURM_CONF": str(self.conf)}

    def start(self) -> None:
        """Start munged, slurmctld and all nodes, and wait until the nodes are idle."""
        if missing := missing_programs():
            raise ClusterError(
                f"{', '.join(missing)} not found: install Slurm and munge "
                "(Debian, Ubuntu: apt-get install slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins)"
            )
        self._write()
        try:
            for name in ("munged", "slurmctld", *(node.name for node in self.nodes)):
                self.begin(name)
            self.wait_until_idle()
        except BaseException:
            self.stop()
            raise

    def _write(self) -> None:
        """Write all files; existing state stays, so a cluster may be stopped and started again."""
        folder, user = self.directory, pwd.getpwuid(os.getuid()).pw_name
        for part in (folder, folder / "state"):
            part.mkdir(parents=True, exist_ok=True, mode=0o755)
        key = folder / "munge.key"
        if not key.exists():
            key.touch(mode=0o600)
            key.write_bytes(secrets.token_bytes(128))
        host = socket.gethostname().partition(".")[0]
        ports = free_ports(1 + len(self.nodes))
        gres = sorted({name for node in self.nodes for name in node.gres})
        lines, have = [SETTINGS.format(host=host, user=user, folder=folder, port=ports[0])], []
        if gres:
            lines.append(f"GresTypes={','.join(gres)}\n")
        for node, port in zip(self.nodes, ports[1:], strict=True):
            parts = [f"NodeName={node.name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"]
            parts.append(f"CPUs={node.cpus} RealMemory={node.memory_mib}")
            if node.gres:
                parts.append("Gres=" + ",".join(f"{name}:{count}" for name, count in node.gres.items()))
            if node.features:
                parts.append("Feature=" + ",".join(node.features))
            lines.append(" ".join(parts) + "\n")
            for name, count in node.gres.items():
                files = [folder / f"{node.name}-{name}{i}" for i in range(count)]
                for file in files:  # Slurm counts GPUs by their device files
                    file.touch()
                have += [f"NodeName={node.name} Name={name} File={file}\n" for file in files]
        lines.append(f"PartitionName=main Nodes={','.join(node.name for node in self.nodes)} Default=YES State=UP\n")
        self.conf.write_text("".join([*lines, *(f"{line}\n" for line in self._more)]), encoding="utf-8")
        (folder / "gres.conf").write_text("".join(have), encoding="utf-8")
        (folder / "mark.sh").write_text(MARKS.format(folder=folder), encoding="utf-8")
        (folder / "mark.sh").chmod(0o755)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="utf-8")

    def begin(self, name: str) -> None:
        """Start one daemon: `munged`, `slurmctld`, or that of a node."""
        folder = self.directory
        own = {**self.environment, MARK: str(folder)}
        if name == "munged":
            files = [f"--{what}={folder}/munge.{what.partition('-')[0]}" for what in ("socket", "pid-file", "log-file")]
            files += [f"--key-file={folder}/munge.key", f"--seed-file={folder}/munge.seed"]
            command = ["munged", "--force", "--foreground", *files]
        elif name == "slurmctld":
            command = ["slurmctld", "-D"]
        elif any(node.name == name for node in self.nodes):
            command, own[NODE] = ["slurmd", "-D", "-N", name], name
        else:
            raise InvalidInput("munged, slurmctld or a node", value=name, key="daemon")
        before = self._running.get(name)
        if before is not None and before.poll() is None:
            return
        program = _program(command[0]) or command[0]
        with (folder / f"{name}.out").open("ab") as output:
            self._running[name] = subprocess.Popen(
                [program, *command[1:]], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=own, cwd=folder
            )
        if name == "munged":
            self._wait(lambda: (folder / "munge.socket").exists(), "munged does not listen")

    def kill(self, name: str) -> None:
        """Kill one daemon; with a node, all of its tasks die."""
        daemon = self._running.get(name)
        processes = stopped(self.directory, name) if any(one.name == name for one in self.nodes) else set()
        end(processes | ({daemon.pid} if daemon is not None and daemon.poll() is None else set()), signal.SIGKILL)
        if daemon is not None:
            daemon.wait()

    def ask(self, *command: str) -> str:
        """Run one of Slurm's commands; returns its output."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=START_SECONDS)
        if done.returncode:
            raise ClusterError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def wait_until_idle(self) -> None:
        """Wait until every node is up and idle."""

        def idle() -> bool:
            try:
                found = dict(line.split() for line in self.ask("sinfo", "-h", "-N", "-o", "%N %t").splitlines())
            except ClusterError:
                return False
            return all(found.get(node.name) == "idle" for node in self.nodes)

        self._wait(idle, "the nodes do not become idle")

    def restart_controller(self) -> None:
        """Stop slurmctld as an operator does, so that it saves its state, and start it until it answers."""
        daemon = self._running["slurmctld"]
        daemon.terminate()
        daemon.wait()
        for _ in range(TRIES):
            self.begin("slurmctld")
            end_by = time.monotonic() + ANSWER_SECONDS
            while "slurmctld" in self.daemons() and time.monotonic() < end_by:
                if self._answers():
                    return
                time.sleep(0.05)
            self.kill("slurmctld")
        said = (self.directory / "slurmctld.log").read_text(errors="replace")[-500:]
        raise ClusterError(f"slurmctld does not answer after {TRIES} starts: {said.strip()}")

    def _answers(self) -> bool:
        try:
            return "is UP" in self.ask("scontrol", "ping")
        except ClusterError:
            return False

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        end_by = time.monotonic() + START_SECONDS
        while not ready():
            dead = [name for name, daemon in self._running.items() if daemon.poll() is not None]
            if dead or time.monotonic() > end_by:
                said = (self.directory / f"{dead[0]}.out").read_text(errors="replace")[-500:] if dead else ""
                raise ClusterError(f"{dead[0]} ended: {said.strip()}" if dead else f"{what} ({self.directory})")
            time.sleep(0.05)

    def daemons(self) -> dict[str, int]:
        """The process of each running daemon."""
        return {name: daemon.pid for name, daemon in self._running.items() if daemon.poll() is None}

    def how_to_use(self) -> list[str]:
        """Commands to use it."""
        return [f"export SLURM_CONF={self.conf}", "sinfo", "berth serve --engine slurm"]

    def stop(self) -> None:
        """End all daemons, and everything that runs on the nodes."""
        end(marked(self.directory))
        for daemon in self._running.values():
            daemon.wait()
        self._running.clear()
        (self.directory / "munge.socket").unlink(missing_ok=True)
