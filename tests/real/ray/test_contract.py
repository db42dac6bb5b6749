"""Ray's engine keeps the promises of an engine, on a real cluster."""

from __future__ import annotations

from pathlib import Path

from berth.live.clusters.ray import LocalRay
from tests.real.contract import checked
from tests.real.ray.site import RaySite


def test_every_promise_is_kept_but_that_of_a_restarted_head(ray_cluster: LocalRay, tmp_path: Path) -> None:
    results = checked(RaySite(ray_cluster, tmp_path))
    # Ray keeps nothing when its head is restarted, unless it has a Redis
    assert [name for name, result in results.items() if not result.passed] == ["survives-the-other-side"]
