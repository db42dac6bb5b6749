"""Small allocation scenarios that several tests write to a file."""

from __future__ import annotations

from pathlib import Path

__all__ = ["DRAWN", "EXPLICIT", "write"]

DRAWN = "cluster: {servers: 4}\nports: {count: 2}\n"
EXPLICIT = """\
cluster:
  resources: [cpu, {name: gpu, unit: 1 device}]
  servers:
    - {name: a, count: 2, capacity: {cpu: 8}}
    - name: b
      capacity: {cpu: 4, gpu: 1}
ports:
  - name: train
    demand: {cpu: 4}
"""


def write(folder: Path, text: str, name: str = "lab.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
