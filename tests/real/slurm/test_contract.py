"""Slurm's engine keeps the promises of an engine, on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from berth.live.engines.slurm import SlurmSettings
from berth.testing import ENGINE_CHECKS
from tests.real.slurm.shared import SharedSlurm
from tests.real.slurm.site import SlurmSite, kept

SAME = "leaves-jobs-running"
"""A check of which `goes-on-with-a-new-driver` is the larger half: its gang runs on while the driver is closed."""


def test_promises_are_kept_where_slurm_is_polled(cluster: SharedSlurm, tmp_path: Path) -> None:
    names = ENGINE_CHECKS.keys() - {SAME}
    site = SlurmSite(cluster, tmp_path, SlurmSettings(poll=0.2, patience=10.0))
    site.short = 0.5
    assert kept(site, names) == names


@pytest.mark.slow
def test_every_promise_is_kept_with_the_default_settings(cluster: SharedSlurm, tmp_path: Path) -> None:
    assert kept(SlurmSite(cluster, tmp_path, SlurmSettings()), tuple(ENGINE_CHECKS)) == set(ENGINE_CHECKS)


def test_hooks_tell_in_time(cluster: SharedSlurm, tmp_path: Path) -> None:
    """Slurm is looked at once in ten minutes, so that what is told in time was told by hooks."""
    site = SlurmSite(cluster, tmp_path, SlurmSettings(poll=600.0, hooks=cluster.hooks))
    wanted = {"starts-what-was-asked", "tells-every-end", "cancelled-behind-our-back"}
    assert kept(site, wanted) == wanted
