"""Slurm's engine keeps the promises of an engine, on a real cluster."""

from __future__ import annotations

from pathlib import Path

from berth.live.clusters.slurm import LocalSlurm
from berth.live.engines.slurm import SlurmSettings
from berth.testing import ENGINE_CHECKS, check_engine
from tests.live.engines.slurm_site import SlurmSite, needs_slurm

pytestmark = needs_slurm


def test_every_promise_is_kept_where_slurm_is_polled(cluster: LocalSlurm, tmp_path: Path) -> None:
    assert [str(result) for result in check_engine(SlurmSite(cluster, tmp_path)) if not result.passed] == []


def test_hooks_tell_in_time(cluster: LocalSlurm, tmp_path: Path) -> None:
    """Slurm is looked at once in ten minutes, so that what is told in time was told by hooks."""
    site = SlurmSite(cluster, tmp_path, SlurmSettings(poll=600.0, hooks=cluster.directory / "hooks"))
    wanted = {"starts-what-was-asked", "tells-every-end", "cancelled-behind-our-back"}
    results = check_engine(site, skip=ENGINE_CHECKS.keys() - wanted)
    assert {result.check for result in results} == wanted
