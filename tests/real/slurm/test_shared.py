"""The shared cluster is as new after each test, and is started anew where that fails."""

from __future__ import annotations

import pytest

from berth.live.clusters import ClusterError
from tests.real.slurm.shared import SharedSlurm


def test_nothing_of_a_test_is_left(cluster: SharedSlurm) -> None:
    settings, shown = cluster.conf.read_text(), cluster.show("partitions")
    cluster.configure("KillWait=7")
    cluster.ask("scontrol", "update", "PartitionName=main", "MaxTime=60", "State=DOWN")
    cluster.ask("scontrol", "create", "PartitionName=more")
    words = ["ReservationName=r", "Users=root", "StartTime=now", "Duration=60", "Nodes=n5"]
    cluster.ask("scontrol", "create", "reservation", *words)
    cluster.ask("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=a fan is loud")
    cluster.ask("scontrol", "update", "NodeName=n4", "State=DOWN", "Reason=a fan is silent")
    cluster.ask("sbatch", "-p", "shared", "-o", "/dev/null", "-w", "n6", "--wrap", "sleep 600")
    cluster.ask("sbatch", "-p", "narrow", "-o", "/dev/null", "--hold", "--wrap", "sleep 600")
    cluster.kill("n2")
    cluster.ready()
    assert (cluster.conf.read_text(), cluster.show("partitions")) == (settings, shown)
    assert cluster.ask("squeue", "-h") == ""
    assert "No reservations" in cluster.show("reservations")
    assert cluster.states() == dict.fromkeys((node.name for node in cluster.nodes), "idle")
    assert {"munged", "slurmctld", *(node.name for node in cluster.nodes)} <= cluster.daemons().keys()


def test_a_sick_cluster_is_started_anew(cluster: SharedSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    def sick() -> None:
        raise ClusterError("slurmctld does not answer")

    before = cluster.daemons()
    cluster.ask("sbatch", "-o", "/dev/null", "--wrap", "sleep 600")
    monkeypatch.setattr(cluster, "clean", sick)
    cluster.ready()
    assert not set(before.values()) & set(cluster.daemons().values())
    assert cluster.ask("squeue", "-h", "-t", "all") == ""
    assert set(cluster.states().values()) == {"idle"}
