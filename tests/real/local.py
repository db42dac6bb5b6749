"""Start a local cluster for tests, and end it with all that it started."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from berth.live.clusters import marked
from berth.live.clusters.kubernetes import LocalKubernetes
from berth.live.clusters.ray import LocalRay

__all__ = ["up"]

Local = TypeVar("Local", LocalRay, LocalKubernetes)


@contextmanager
def up(cluster: Local) -> Iterator[Local]:
    """Start a cluster; end it afterwards, with all that it started, and remove its files."""
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        assert not marked(cluster.directory)
        shutil.rmtree(cluster.directory, ignore_errors=True)
