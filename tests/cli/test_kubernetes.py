"""`berth plan` and `berth explain pod` for a Kubernetes cluster, from a file and from an API server."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from berth.cli import main
from tests.live.engines.kubernetes.api_server import ApiServer, kubeconfig, serving
from tests.live.engines.kubernetes.builders import job, node, pod

NODES = [node("n0", {"cpu": "4", "nvidia.com/gpu": "4", "pods": "10"}), node("n1", {"cpu": "4", "pods": "10"})]
PODS = [pod("old", "n0", {"cpu": "3"}), pod("wide", "", {"cpu": "2"}, namespace="ml"), pod("huge", "", {"cpu": "9"})]


def wanting(cpu: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "items": [*NODES, *PODS]}))
    return str(file)


def written(folder: Path, value: object) -> str:
    file = folder / "job.yaml"
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(file)


def test_a_job_that_would_start(cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--from", cluster, "-f", written(tmp_path, job(2, wanting("2")))]) == 0
    said = capsys.readouterr().out
    assert (
        said
        == "Job default/train would start now\n  2 pods on n1\n  note: 2 other pods wait too; the answer ignores them\n"
    )


def test_a_job_that_would_wait(cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--from", cluster, "-f", written(tmp_path, job(2, wanting("4"))), "-o", "json"]) == 10
    plan = json.loads(capsys.readouterr().out)
    assert (plan["starts"], plan["places"], plan["pods"]) == (False, [], 2)
    assert [change["values"] for change in plan["changes"]] == [
        {"role": "pod", "requests": {"cpu": "2"}},
        {"role": "pod", "count": 1},
        {"pods": ["default/old"]},
    ]


def test_own_jobs_of_options_files_and_scripts(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--from", cluster, "-n", "2", "-r", "cpu=500m,gpu=1"]) == 0
    said = capsys.readouterr().out
    assert "job job-1 would start now\n  2 pods on n0\n  note: gpu means nvidia.com/gpu here" in said
    assert main(["plan", "--from", cluster, "-f", written(tmp_path, "tasks: 9\nresources: {cpu: 1}\n")]) == 10
    script = "#!/bin/sh\n#BERTH --tasks=5 --resources=cpu=1\ntrue\n"
    assert main(["plan", "--from", cluster, "-f", written(tmp_path, script)]) == 0


def test_explain_from_standard_input(
    cluster: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(cluster).read_bytes())))
    assert main(["explain", "pod", "huge", "--from", "-"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Pod default/huge waits (1 pod)\n  there is room for 0 of 1 pod on 2 nodes\n")
    assert "  1 of 2 nodes: 1 of 4 cpu free, 9 asked (n0)\n  1 of 2 nodes: 4 of 4 cpu free, 9 asked (n1)\n" in said
    assert "  it would start if you request 4 cpu instead of 9 for each pod\n" in said


def test_a_live_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = ApiServer(NODES, PODS, token="secret")
    with serving(server):
        config = str(kubeconfig(tmp_path, server.url, user={"token": "secret"}))
        assert main(["explain", "pod", "wide", "-n", "ml", "--kubeconfig", config]) == 0
        assert "Pod ml/wide waits, and would fit now\n  1 pod on n1\n" in capsys.readouterr().out
        work = written(tmp_path, job(1, wanting("1")))
        assert main(["plan", "--kubeconfig", config, "--context", "here", "-f", work]) == 0
        server.forbidden = ("pods",)
        assert main(["plan", "--kubeconfig", config, "-f", work]) == 4
        assert "not allowed to list pods" in capsys.readouterr().err
    assert main(["plan", "--kubeconfig", config, "-f", work]) == 3
    assert all(target.startswith("/api/v1/") for target in server.asked)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["plan", "--from", "{cluster}", "-f", "{job}", "-n", "3"],
            "job.yaml: got --tasks, expected no options of a job",
        ),
        (["plan", "--from", "{cluster}", "--kubeconfig", "k", "-f", "{job}"], "expected --from, or --kubeconfig and"),
        (["plan", "--from", "{cluster}"], "expected a COMMAND, options such as --resources, or a file (-f)"),
        (
            ["plan", "--from", "missing.json", "-f", "{job}"],
            "missing.json: got No such file or directory, expected a file",
        ),
        (["plan", "--from", "-", "-f", "-"], "got both, expected standard input for one of -f and --from"),
        (["explain", "pod", "hug", "--from", "{cluster}"], "cluster.json: pod: got 'hug', expected a pod of namespace"),
        (["explain", "pod", "huge", "--kubeconfig", "missing"], "missing: got Invalid kube-config file"),
    ],
)
def test_mistakes(
    words: list[str],
    said: str,
    cluster: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    names = {"cluster": cluster, "job": written(tmp_path, job(1, wanting("1")))}
    assert main([word.format(**names) for word in words]) == 2
    assert said in capsys.readouterr().err
