"""The manifests of `deploy/kubernetes`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[4] / "deploy" / "kubernetes"
COMPONENTS = ("companion", "monitoring", "postgresql")


def documents(file: Path) -> list[dict[str, Any]]:
    """All objects of a file."""
    return [one for one in yaml.safe_load_all(file.read_text(encoding="utf-8")) if one is not None]


def kustomization(folder: Path) -> dict[str, Any]:
    """The kustomization of a folder."""
    (told,) = documents(folder / "kustomization.yaml")
    return told


def resources() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every object that is applied, components included, and its file."""
    for folder in (FOLDER, *(FOLDER / name for name in COMPONENTS)):
        for name in kustomization(folder).get("resources", ()):
            for one in documents(folder / name):
                yield folder / name, one


def the(kind: str, name: str = "berth") -> dict[str, Any]:
    """The object of a kind and a name."""
    (one,) = [one for _, one in resources() if one["kind"] == kind and one["metadata"]["name"] == name]
    return one
