"""Start a local cluster for tests, and leave nothing of it behind."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from berth.live.clusters import marked
from berth.live.clusters.kubernetes import LocalKubernetes
from berth.live.clusters.ray import LocalRay
from berth.live.clusters.slurm import LocalSlurm

__all__ = ["up"]

Local = TypeVar("Local", bound=LocalRay | LocalSlurm | LocalKubernetes)


@contextmanager
def up(cluster: Local) -> Iterator[Local]:
    """Start a local cluster; end it afterwards, with all that it started, and remove its files."""
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        assert not marked(cluster.directory)
        shutil.rmtree(cluster.directory, ignore_errors=True)
