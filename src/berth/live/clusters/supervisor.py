"""The supervisor of a local cluster: a process that starts the daemons as its children, and ends them when told to.

`up` starts a supervisor in the background; `down` ends it, with everything that its cluster has started, even if the
supervisor was killed. A cluster that is up has a file `cluster.json` in its directory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from berth.errors import BerthError
from berth.live.clusters import MARK, ClusterError, LocalCluster, alive, end, marked

__all__ = ["Kind", "Standing", "cluster_directory", "down", "standing", "up"]

Kind = Literal["slurm", "ray", "kubernetes"]
FILE, OURS = "cluster.json", "berth-cluster"
"""The file of a cluster that is up, and the file that marks a directory as a cluster's."""
START_SECONDS = 300.0
STOP_SECONDS = 60.0
_STARTED: list[subprocess.Popen[bytes]] = []
"""Supervisors that this process has started; they outlive it."""


@dataclass(frozen=True)
class Standing:
    """A cluster that is up, or was when its supervisor was killed: the process of each daemon and whether it runs."""

    kind: str
    directory: Path
    supervised: bool
    daemons: Mapping[str, int]
    running: frozenset[str]
    use: tuple[str, ...]


def cluster_directory(kind: Kind) -> Path:
    """The default directory of a user's cluster: a short path, because it has sockets."""
    return Path(tempfile.gettempdir(), f"berth-{os.getuid()}", kind)


def _made(directory: Path) -> Path:
    """Create the directory, which must be ours, and empty or left by a cluster: it is removed with the cluster."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        if directory.stat().st_uid != os.getuid():
            raise ClusterError(f"{directory} belongs to another user; choose another with --directory")
        if any(directory.iterdir()) and not (directory / OURS).exists():
            raise ClusterError(f"{directory} has other files in it; choose an empty directory")
        (directory / OURS).touch()
    except OSError as error:
        raise ClusterError(f"{directory} cannot be used: {error.strerror}") from None
    return directory.resolve()


def make_cluster(kind: str, directory: Path, settings: Mapping[str, Any]) -> LocalCluster:
    """Make a cluster of a kind; half of its nodes have the class fast, the others slow."""
    many, cpus, gpus = settings["nodes"], settings.get("cpus", 4), settings.get("gpus", 0)
    classes = {f"n{i + 1}": "fast" if 2 * i < many else "slow" for i in range(many)}
    if kind == "slurm":
        from berth.live.clusters.slurm import LocalSlurm, SlurmNode

        gres = {"gpu": gpus} if gpus else {}
        made = [SlurmNode(name, cpus, gres=gres, features=(f"class={one}",)) for name, one in classes.items()]
        return LocalSlurm(directory, made)
    if kind == "kubernetes":
        from berth.live.clusters.kubernetes import KubernetesNode, LocalKubernetes

        return LocalKubernetes(
            directory, [KubernetesNode(name, cpus, gpus=gpus, labels={"class": one}) for name, one in classes.items()]
        )
    from berth.live.clusters.ray import LocalRay, RayNode

    return LocalRay(directory, [RayNode(name, cpus, gpus, labels={"class": one}) for name, one in classes.items()])


def up(kind: Kind, directory: Path, settings: Mapping[str, Any]) -> Standing:
    """Start a cluster, and wait until it is ready."""
    folder = _made(directory)
    if (found := standing(folder)) is not None:
        if found.supervised:
            raise ClusterError(
                f"a {found.kind} cluster is up in {folder}; berth cluster down {found.kind} ends it "
                f"(with --directory {folder}, if that was chosen)"
            )
        down(folder)
        folder = _made(directory)
    make_cluster(kind, folder, settings)  # reports wrong settings here
    log = folder / "supervisor.log"
    command = [sys.executable, "-m", "berth.live.clusters.supervisor", kind, str(folder), json.dumps(dict(settings))]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, MARK: str(folder)},
        )
    _STARTED.append(process)
    try:
        end_by = time.monotonic() + START_SECONDS
        while not (folder / FILE).exists():
            if process.poll() is not None or time.monotonic() > end_by:
                said = log.read_text(errors="replace").strip().splitlines() or ["it did not start in time"]
                raise ClusterError(f"no {kind} cluster: {said[-1]} (all of it: {log})")
            time.sleep(0.05)
    except BaseException:
        end(marked(folder))
        raise
    started = standing(folder)
    if started is None:
        raise ClusterError(f"the {kind} cluster ended as soon as it was up (see {log})")
    return started


def standing(directory: Path) -> Standing | None:
    """The state of the cluster in a directory; None if there is none."""
    file = directory / FILE
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        daemons = {str(name): int(process) for name, process in found["daemons"].items()}
        kind, supervisor, use = str(found["kind"]), int(found["supervisor"]), tuple(map(str, found["use"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ClusterError(f"{file} cannot be read; is {directory} the directory of a cluster?") from None
    ours = marked(directory.resolve())
    running = frozenset(name for name, process in daemons.items() if process in ours and alive(process))
    return Standing(kind, directory, supervisor in ours and alive(supervisor), daemons, running, use)


def down(directory: Path, keep: bool = False) -> bool:
    """End the cluster in a directory, and remove its files unless `keep`; whether there was one."""
    found = standing(directory)
    if found is None:
        return False
    folder = directory.resolve()
    supervisor = int(json.loads((folder / FILE).read_text(encoding="utf-8"))["supervisor"])
    if found.supervised:
        os.kill(supervisor, signal.SIGTERM)
        end_by = time.monotonic() + STOP_SECONDS
        while alive(supervisor) and time.monotonic() < end_by:
            time.sleep(0.05)
    end(marked(folder))
    for process in _STARTED:
        process.poll()
    (folder / FILE).unlink(missing_ok=True)
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    return True


def main() -> None:
    """Hold a cluster until told to end it."""
    kind, folder, settings = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    cluster = make_cluster(kind, folder, settings)
    try:
        cluster.start()
        told = {"kind": kind, "supervisor": os.getpid(), "daemons": cluster.daemons(), "use": cluster.how_to_use()}
        beside = folder / f"{FILE}.new"
        beside.write_text(json.dumps(told), encoding="utf-8")
        beside.replace(folder / FILE)
        stopped.wait()
    except BerthError as error:
        sys.exit(str(error))
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
