"""The manifests of `deploy/kubernetes` are complete, valid and safe."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from berth.about import HOME, VERSION
from berth.live.engines.kubernetes.lease import NAME
from berth.live.engines.kubernetes.settings import read_settings
from berth.live.service.serving import read_config
from tests.live.engines.kubernetes.installation import COMPONENTS, FOLDER, documents, kustomization, resources, the

VERSIONS = tuple(f"1.{minor}" for minor in range(30, 38))
FOREIGN = {"ServiceMonitor"}
"""Kinds of other projects, which Kubernetes has no schemas of."""


def named(folder: Path) -> set[str]:
    told = kustomization(folder)
    files = {*told.get("resources", ()), *(one["path"] for one in told.get("patches", ()))}
    return files.union(*(one["files"] for one in told.get("configMapGenerator", ())))


@pytest.mark.parametrize("folder", [FOLDER, *(FOLDER / name for name in COMPONENTS)], ids=lambda folder: folder.name)
def test_a_kustomization_names_every_file_of_its_folder(folder: Path) -> None:
    there = {file.name for file in folder.iterdir() if file.is_file()}
    assert named(folder) | {"kustomization.yaml"} == there


def test_every_folder_is_a_component() -> None:
    assert {file.name for file in FOLDER.iterdir() if file.is_dir()} == set(COMPONENTS)
    assert {kustomization(FOLDER / name)["kind"] for name in COMPONENTS} == {"Component"}
    assert kustomization(FOLDER)["components"] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid_in_this_version_of_kubernetes(version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    kinds = set()
    for _, one in resources():
        if one["kind"] not in FOREIGN:
            validator.validate(one, version, strict=True)
            kinds.add(one["kind"])
    assert {"Deployment", "MutatingWebhookConfiguration", "PersistentVolumeClaim", "Role", "Service"} <= kinds


def test_a_mistake_is_found() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    wrong = the("Deployment")
    wrong["spec"]["replica"] = 2
    with pytest.raises(validator.ValidationError):
        validator.validate(wrong, VERSIONS[-1], strict=True)


def test_the_settings_are_valid() -> None:
    config = read_config(FOLDER / "berth.yaml")
    assert config.engine == f"kubernetes:{FOLDER / 'kubernetes.yaml'}"
    settings = read_settings(FOLDER / "kubernetes.yaml")
    assert settings.namespace == the("Role")["metadata"]["namespace"]
    assert {one["metadata"]["name"] for _, one in resources() if one["kind"] == "Namespace"} == {
        settings.namespace,
        the("Deployment")["metadata"]["namespace"],
    }


def container() -> dict[str, Any]:
    (one,) = the("Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(one, dict)
    return one


def test_the_container_has_no_privileges() -> None:
    pod = the("Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    uid = re.search(r"--uid (\d+)", (FOLDER.parents[1] / "Containerfile").read_text(encoding="utf-8"))
    assert uid is not None
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == int(uid[1])


def test_the_probes_ask_paths_that_the_service_has() -> None:
    tree = ast.parse((HOME / "live" / "service" / "app.py").read_text(encoding="utf-8"))
    paths = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    asked = {container()[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    (endpoint,) = the("ServiceMonitor")["spec"]["endpoints"]
    assert asked | {endpoint["path"]} <= paths


def test_names_agree() -> None:
    deployment, service = the("Deployment"), the("Service")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == labels
    assert the("ServiceMonitor")["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    (image,) = kustomization(FOLDER)["images"]
    assert (image["name"], image["newTag"]) == (container()["image"], VERSION)
    (leases,) = [rule for rule in the("Role")["rules"] if rule.get("resourceNames")]
    assert leases["resourceNames"] == [NAME]


def test_an_image_names_no_registry() -> None:
    for file in FOLDER.rglob("*.yaml"):
        assert not re.search(r"(image|newName): *\S+[./]\S+/", file.read_text(encoding="utf-8")), file


def test_no_role_has_wildcards_or_rights_on_secrets() -> None:
    for _, one in resources():
        for rule in one.get("rules", ()):
            assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]
            assert "secrets" not in rule["resources"]


def test_a_webhook_that_does_not_answer_stops_no_pod() -> None:
    (hook,) = the("MutatingWebhookConfiguration")["webhooks"]
    assert (hook["failurePolicy"], hook["timeoutSeconds"]) == ("Ignore", 2)
    assert hook["namespaceSelector"] == {"matchLabels": {"berth.io/companion": "enabled"}}
    assert hook["clientConfig"]["service"]["path"] == "/kubernetes/mutate"


def test_the_store_in_postgresql_replaces_the_volume() -> None:
    (patch,) = documents(FOLDER / "postgresql" / "deployment.yaml")
    (volume,) = patch["spec"]["template"]["spec"]["volumes"]
    (env,) = patch["spec"]["template"]["spec"]["containers"][0]["env"]
    assert volume["name"] in {one["name"] for one in container()["volumeMounts"]}
    assert env["name"] == "BERTH_STORE"
    (removed,) = documents(FOLDER / "postgresql" / "no-storage.yaml")
    assert removed["metadata"] == the("PersistentVolumeClaim")["metadata"]
