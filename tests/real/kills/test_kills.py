"""Kills at random moments under load: no accepted job is lost, none runs twice, and gangs are whole or not at all.

On Slurm, slurmctld and nodes with all that they run are killed; on Ray, raylets; on Kubernetes, the API server, etcd,
the scheduler, the kubelet and nodes with all that they run; on all of them, the service itself.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest

from berth.live.clusters import ClusterError
from berth.live.clusters.kubernetes import LocalKubernetes
from berth.live.clusters.ray import LocalRay
from tests.real.kills.kill_checks import Journal, checked
from tests.real.kills.killing import Fault, Service, Trial, run
from tests.real.slurm.shared import SharedSlurm

pytestmark = [pytest.mark.slow, pytest.mark.limit(3600)]
Key = tuple[str, int]


def report(capsys: pytest.CaptureFixture[str], engine: str, found: dict[str, object]) -> None:
    """Shown however the tests are run."""
    with capsys.disabled():
        print(f"\nkills, {engine}: {json.dumps(found)}")


def on_slurm(cluster: SharedSlurm, folder: Path, kills: int, seed: int) -> dict[str, object]:
    settings = {
        "conf": str(cluster.conf),
        "spool": str(folder / "spool"),
        "hooks": str(cluster.hooks),
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
        "slurmd": Fault(kill, cluster.begin, [node.name for node in cluster.nodes], (0.0, 9.0)),
    }

    def unseen(journal: Journal, key: Key) -> bool:
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

    def unseen(journal: Journal, key: Key) -> bool:
        """The raylet of one of its nodes was killed."""
        return killed_meanwhile(trial, journal, key, "raylet")

    return checked(trial, unseen)


def killed_meanwhile(trial: Trial, journal: Journal, key: Key, kind: str) -> bool:
    """Whether a server of an attempt was killed after its first task began, and before the next attempt was decided."""
    began = min(task.began for task in trial.tasks if (task.job, task.attempt) == key)
    return trial.killed(kind, journal.servers[key], began, journal.decided[key[0], key[1] + 1])


DAEMONS = ("kube-apiserver", "etcd", "kube-scheduler", "kubelet")


def on_kubernetes(cluster: LocalKubernetes, folder: Path, kills: int, seed: int) -> dict[str, object]:
    settings = {"kubeconfig": str(cluster.kubeconfig), "image": "none", "lost_seconds": 15}
    (folder / "kubernetes.yaml").write_text(json.dumps(settings))
    service = Service(folder, "--engine", f"kubernetes:{folder / 'kubernetes.yaml'}", "--policy", "escb-v")
    faults = {name: Fault(cluster.kill, cluster.start_daemon, (name,), (0.0, 3.0)) for name in DAEMONS}
    faults["node"] = Fault(cluster.lose, cluster.restore, [node.name for node in cluster.nodes], (0.0, 30.0))
    trial = run(folder, service, faults, kills, seed)

    def unseen(journal: Journal, key: Key) -> bool:
        """One of its nodes was lost before the kubelet had reported the end, perhaps while the API server was down."""
        return killed_meanwhile(trial, journal, key, "node")

    return checked(trial, unseen)


def test_on_slurm(slurm_cluster: SharedSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = on_slurm(slurm_cluster, tmp_path, kills=25, seed=25)
    report(capsys, "slurm", found)
    assert found["kills"] == {"slurmctld": 25, "slurmd": 25, "service": 25}


def test_on_ray(ray_cluster: LocalRay, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = on_ray(ray_cluster, tmp_path, kills=25, seed=25)
    report(capsys, "ray", found)
    assert found["kills"] == {"raylet": 25, "service": 25}


def test_on_kubernetes(kubernetes_cluster: LocalKubernetes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = on_kubernetes(kubernetes_cluster, tmp_path, kills=13, seed=13)
    report(capsys, "kubernetes", found)
    assert found["kills"] == dict.fromkeys((*DAEMONS, "node", "service"), 13)
