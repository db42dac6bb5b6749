"""Alibaba cluster-trace-gpu-v2023, v2025 and v2026 and Microsoft ITP, on hand-made samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from berth.traces.formats import load_trace

Sample = Callable[[str], Path]
COLUMNS = ("job", "submit_s", "wait_s", "run_s", "pieces", "kind", "needs", "status", "cpu", "memory", "gpu")


def test_pods(sample: Sample) -> None:
    trace = load_trace(sample("openb/openb_pod_list_default.csv"))
    assert trace.source.format == "openb"
    assert trace.jobs.select(COLUMNS).rows() == [
        ("openb-pod-0000", 0.0, 0.0, 12537.0, 1, "LS", None, None, 12.0, 16.0, 1.0),
        ("openb-pod-0001", 100.0, 30.0, 270.0, 1, "LS", None, "done", 6.0, 12.0, 0.46),
        ("openb-pod-0002", 200.0, 60.0, 640.0, 1, "BE", "G2|T4", "failed", 8.0, 30.0, 4.0),
        ("openb-pod-0003", 300.0, None, None, 1, "Burstable", "T4", "cancelled", 3.152, 5.46875, 0.81),
        ("openb-pod-0004", 350.0, 10.0, None, 1, "Guaranteed", None, None, 32.0, 48.0, 0.0),
    ]
    assert trace.machines.rows() == [
        ("openb-node-0000", 1, None, None, 1.0, 32.0, 256.0, 0.0),
        ("openb-node-0001", 1, "G2", None, 1.0, 96.0, 384.0, 8.0),
        ("openb-node-0002", 1, "T4", None, 1.0, 104.0, 512.0, 2.0),
    ]


def test_pods_without_times(sample: Sample) -> None:
    trace = load_trace(sample("openb/openb_pod_list_multigpu20.csv"))
    assert trace.jobs.select("submit_s", "run_s", "status", "gpu").rows() == [(None, None, None, 8.0)]


def test_nodes_alone_and_pods_without_nodes(sample: Sample, tmp_path: Path) -> None:
    nodes = load_trace(sample("openb/openb_node_list_all_node.csv"))
    assert (len(nodes), len(nodes.machines)) == (0, 3)
    lonely = tmp_path / "pods.csv"
    lonely.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1000,1024,0,0\n")
    assert len(load_trace(lonely).machines) == 0
    named = load_trace(lonely, machines=sample("openb/openb_node_list_all_node.csv"))
    assert len(named.machines) == 3


def test_services_with_five_resources(sample: Sample) -> None:
    trace = load_trace(sample("alibaba-gpu-2025/disaggregated_DLRM_trace.csv"))
    assert [resource.name for resource in trace.resources] == ["cpu", "memory", "gpu", "rdma", "disk"]
    resources = ("cpu", "memory", "gpu", "rdma", "disk")
    assert trace.jobs.select("job", "submit_s", "wait_s", "run_s", "group", "kind", "status", *resources).rows() == [
        ("instance_0", None, None, None, "app_0", "HN", "running", 12.0, 120.0, 1.0, 25.0, 640.0),
        ("instance_1", 1000.0, 10.0, 4000.0, "app_0", "CN", None, 64.0, 320.0, 0.0, 1.0, 340.0),
        ("instance_2", None, None, None, "app_1", "CN", None, 64.0, 320.0, 0.0, 1.0, 340.0),
    ]


def test_nodes_of_2026(sample: Sample) -> None:
    trace = load_trace(sample("alibaba-spot-2026/node_info_df.csv"))
    assert len(trace) == 0
    assert trace.machines.select("machine", "label", "cpu", "gpu").rows() == [
        ("0", "A10", 128.0, 1.0),
        ("1", "H800", 192.0, 8.0),
    ]


def test_itp(sample: Sample) -> None:
    trace = load_trace(sample("itp/cluster01.csv"))
    assert trace.source.format == "itp"
    assert trace.jobs.select("job", "submit_s", "run_s", "pieces", "gpu").rows() == [
        ("0", 1932025.0, 2429.0, 64, 1.0),
        ("1", 2000581.0, 1532.0, 1, 1.0),
    ]
