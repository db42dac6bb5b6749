"""The one Slurm cluster of a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from berth.live.clusters.slurm import missing_programs
from tests.real.slurm.shared import SharedSlurm, shared_slurm
from tests.real.slurm.site import SlurmSite


@pytest.fixture(scope="package")  # ended with the last test here: an idle cluster still takes time from others
def slurm_cluster() -> Iterator[SharedSlurm]:
    """Eight nodes with four processors each."""
    if missing_programs():
        pytest.skip("Slurm is not installed (python3 scripts/slurm.py install)")
    with shared_slurm() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def cluster(slurm_cluster: SharedSlurm) -> SharedSlurm:
    """The cluster as it was when it was started."""
    slurm_cluster.ready()
    return slurm_cluster


@pytest.fixture
def site(cluster: SharedSlurm, tmp_path: Path) -> SlurmSite:
    """The cluster as an engine's site, with a witness and a spool of its own."""
    return SlurmSite(cluster, tmp_path)
