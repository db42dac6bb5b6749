"""Kills at random moments under load: no accepted job is lost, none runs twice, and gangs are whole or not at all.

On Slurm, slurmctld and nodes with all that they run are killed; on Ray, raylets; on Kubernetes, the API server, etcd,
the scheduler, the kubelet and nodes with all that they run; on all of them, the service itself.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from berth.live.clusters import ClusterError
from berth.live.clusters.kubernetes import LocalKubernetes
from berth.live.clusters.ray import LocalRay
from berth.live.clusters.slurm import LocalSlurm, SlurmNode
from tests.live.engines.kill_checks import Paper, checked
from tests.live.engines.killing import Fault, Service, run
from tests.live.engines.slurm_site import needs_slurm, slurm, up
from tests.real.kubernetes.site import needs_kubernetes

NODES = [SlurmNode(f"n{i}", features=["class=fast" if i <= 4 else "class=slow"]) for i in range(1, 9)]


def report(capsys: pytest.CaptureFixture[str], engine: str, found: dict[str, object]) -> None:
    """Shown however the tests are run."""
    with capsys.disabled():
        print(f"\nkills, {engine}: {json.dumps(found)}")


def on_slurm(cluster: LocalSlurm, folder: Path, kills: int, seed: int) -> dict[str, object]:
    settings = {
        "conf": str(cluster.conf),
        "spool": str(folder / "spool"),
        "hooks": str(cluster.directory / "hooks"),
        "poll": 0.5,
        "command_seconds": 5,
    }
    (folder / "slurm.yaml").write_text(json.dumps(settings))
    service = Service(folder, "--engine", f"slurm:{folder / 'slurm.yaml'}", "--policy", "escb-v")

    def kill(name: str) -> None:
        """Before, do as operators must: Slurm drains nodes where it wanted to run a job again after an earlier kill."""
        with suppress(ClusterError):
            for line in cluster.ask("sinfo", "-h", "-N", "-o", "%N %E").splitlines():
                if line.endswith("Duplicate jobid"):
                    cluster.ask("scontrol", "update", f"NodeName={line.split()[0]}", "State=RESUME")
        cluster.kill(name)

    faults = {
        "slurmctld": Fault(kill, cluster.begin, ("slurmctld",), (0.0, 3.0)),
        "slurmd": Fault(kill, cluster.begin, [node.name for node in NODES], (0.0, 9.0)),
    }

    def unseen(paper: Paper, key: tuple[str, int], ended: float) -> bool:
        """Its batch script did not come to its end: a node was killed, or Slurm killed what slurmctld had forgotten."""
        mark = next((folder / "spool" / "output").glob(f"{key[0]}.{key[1]}.*.mark"))
        return "ended" not in mark.read_text()

    found = checked(run(folder, service, faults, kills, seed), unseen)
    drained = (cluster.directory / "slurmctld.log").read_text(errors="replace").count("Duplicate jobid on nodes")
    return {**found, "drained by Slurm": drained}


def on_ray(cluster: LocalRay, folder: Path, kills: int, seed: int) -> dict[str, object]:
    service = Service(folder, "--engine", f"ray:{cluster.address}", "--policy", "escb-v")
    names = [name for name in cluster.daemons() if not name.startswith("head-")]
    faults = {"raylet": Fault(cluster.kill, cluster.start_node, names, (0.0, 4.0))}
    trial = run(folder, service, faults, kills, seed)

    def unseen(paper: Paper, key: tuple[str, int], ended: float) -> bool:
        """The raylet of one of its nodes was killed at about the same time."""
        return any(kill.target in paper.servers[key] and abs(kill.time - ended) < 1.0 for kill in trial.kills)

    return checked(trial, unseen)


DAEMONS = ("kube-apiserver", "etcd", "kube-scheduler", "kubelet")


def on_kubernetes(cluster: LocalKubernetes, folder: Path, kills: int, seed: int) -> dict[str, object]:
    settings = {"kubeconfig": str(cluster.kubeconfig), "image": "none", "lost_seconds": 15}
    (folder / "kubernetes.yaml").write_text(json.dumps(settings))
    service = Service(folder, "--engine", f"kubernetes:{folder / 'kubernetes.yaml'}", "--policy", "escb-v")
    faults = {name: Fault(cluster.kill, cluster.start_daemon, (name,), (0.0, 3.0)) for name in DAEMONS}
    faults["node"] = Fault(cluster.lose, cluster.restore, [node.name for node in cluster.nodes], (0.0, 30.0))
    trial = run(folder, service, faults, kills, seed)

    def unseen(paper: Paper, key: tuple[str, int], ended: float) -> bool:
        """One of its nodes was lost before the kubelet had reported the end, perhaps while the API server was down."""
        lost = [kill for kill in trial.kills if kill.kind == "node" and kill.target in paper.servers[key]]
        return any(-10.0 < kill.time - ended < 60.0 for kill in lost)

    return checked(trial, unseen)


@needs_slurm
@pytest.mark.parametrize("kills", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_on_slurm(kills: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with slurm(nodes=NODES) as cluster:
        found = on_slurm(cluster, tmp_path, kills, seed=kills)
    report(capsys, "slurm", found)
    assert found["kills"] == {"slurmctld": kills, "slurmd": kills, "service": kills}


@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.slow)])
def test_on_ray(kills: int, ray_cluster: LocalRay, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = on_ray(ray_cluster, tmp_path, kills, seed=kills)
    report(capsys, "ray", found)
    assert found["kills"] == {"raylet": kills, "service": kills}


@needs_kubernetes
@pytest.mark.parametrize("kills", [1, pytest.param(13, marks=pytest.mark.slow)])
def test_on_kubernetes(kills: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with up(LocalKubernetes(Path(tempfile.mkdtemp(prefix="k8s-")), 6)) as cluster:
        found = on_kubernetes(cluster, tmp_path, kills, seed=kills)
    report(capsys, "kubernetes", found)
    assert found["kills"] == dict.fromkeys((*DAEMONS, "node", "service"), kills)
