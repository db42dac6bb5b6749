"""Ray's engine keeps the promises of an engine, on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from berth.live.clusters.ray import LocalRay
from berth.testing import ENGINE_CHECKS
from tests.real.contract import checked
from tests.real.ray.site import RaySite

SAME = "leaves-jobs-running"
"""A check of which `goes-on-with-a-new-driver` is the larger half: its gang runs on while the driver is closed."""


def test_every_promise_is_kept_but_that_of_a_restarted_head(heard: None, ray_cluster: LocalRay, tmp_path: Path) -> None:
    results = checked(RaySite(ray_cluster, tmp_path), ENGINE_CHECKS.keys() - {SAME})
    # Ray keeps nothing when its head is restarted, unless it has a Redis
    assert [name for name, result in results.items() if not result.passed] == ["survives-the-other-side"]


@pytest.mark.slow
def test_closing_ends_nothing(heard: None, ray_cluster: LocalRay, tmp_path: Path) -> None:
    results = checked(RaySite(ray_cluster, tmp_path), {SAME})
    assert results[SAME].passed
