"""Settings of berth for a Kubernetes cluster: a YAML file, validated when it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from berth.files.wording import Route, Spec, Switch, at_least, checked, said
from berth.files.yaml_tree import read_file
from berth.live.engines.kubernetes.objects import Toleration

__all__ = ["KubernetesSettings", "read_settings"]

LABEL = r"^$|^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


Namespace = Annotated[str, Field(pattern=LABEL), said("the name of a namespace")]


class KubernetesSettings(Spec):
    """All settings; each has a default.

    * `kubeconfig`, `context`: the cluster; by default that of kubectl, or the one that berth runs in
    * `namespace`: where the pods of jobs are created; by default that of the context, or of berth's own pod
    * `image`: the image of jobs that name none
    * `resources`: names of resources in jobs, and what Kubernetes calls them
    * `tolerations`: taints that the pods of jobs tolerate; other tainted nodes are closed
    * `bind_seconds`: how long the pods of a gang may wait for their nodes
    * `start_seconds`: how long they may take to run from then on, for example to pull images
    * `lost_seconds`: how long a node may be not ready until its jobs are started elsewhere
    * `retention`: how long records and pods are kept after the end of an attempt
    * `templates`: whether jobs may bring a pod template of their own
    * `companion`: `scheduler` places pods with `schedulerName: berth`, `gates` pods with the gate `berth.io/place`,
      `off` none
    * `settle`: how long no pod may join a group until it counts as complete, if nothing says how many it has
    * `namespaces`: namespaces whose pods berth may place as a companion; by default all that it may watch
    """

    kubeconfig: Route | None = None
    context: Annotated[str, Field(min_length=1)] | None = None
    namespace: Namespace = ""
    image: str = ""
    resources: dict[str, str] = Field(default_factory=lambda: {"gpu": "nvidia.com/gpu"})
    tolerations: tuple[Toleration, ...] = ()
    bind_seconds: Annotated[float, at_least(1.0)] = 30.0
    start_seconds: Annotated[float, at_least(1.0)] = 600.0
    lost_seconds: Annotated[float, at_least(0.0)] = 60.0
    retention: Annotated[float, at_least(60.0)] = 3600.0
    templates: Switch = True
    companion: Literal["off", "scheduler", "gates"] = "off"
    settle: Annotated[float, at_least(0.1)] = 2.0
    namespaces: tuple[Namespace, ...] = ()

    def kubernetes_name(self, resource: str) -> str:
        """What Kubernetes calls a resource of a job."""
        return self.resources.get(resource, resource)

    def names(self) -> dict[str, str]:
        """What jobs call a resource of Kubernetes."""
        return {theirs: ours for ours, theirs in self.resources.items()}


def read_settings(path: Path) -> KubernetesSettings:
    """Read settings from a file."""
    return checked(read_file(path, "settings", may_be_empty=True), KubernetesSettings)


def as_given(toleration: Toleration) -> dict[str, Any]:
    """A toleration as the API takes it."""
    return toleration.model_dump(exclude_unset=True, by_alias=True)
