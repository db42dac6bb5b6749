"""Comparisons on a GPU: the numbers of the CPU, cells kept apart, policies without kernels beside."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from berth.errors import BerthError
from berth.families.allocation.cuda import runs
from berth.lab.compare import Comparison, compare
from berth.lab.run.device import CHANNELS
from tests.reference.cuda_on_cpu import EmulatedDevice

POLICIES = ["ogasched", "fairness", "binpacking"]
SMALL = {"horizon": 12, "cluster.servers": 10}


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "emulated":
        monkeypatch.setattr(runs, "open_device", lambda name: EmulatedDevice())


def run(device: str, out: Path | None = None, **more: Any) -> Comparison:
    return compare(
        "ogasched-default",
        policies=POLICIES,
        seeds=3,
        arrivals="hidden",
        oracles=[],
        overrides=SMALL,
        workers=1,
        device=device,
        out=out,
        **more,
    )


@pytest.mark.usefixtures("gpu")
def test_rewards_are_those_of_the_cpu() -> None:
    here, there = run("cpu"), run("cuda")
    assert not there.failed
    for mine, theirs in zip(here.rows, there.rows, strict=True):
        assert mine.policy == theirs.policy
        assert mine.reward is not None
        assert theirs.reward is not None
        assert theirs.reward.mean == pytest.approx(mine.reward.mean, rel=1e-10)
    assert "--device cuda --precision float64" in there.command
    assert shlex.split(there.command)[:3] == ["berth", "compare", "ogasched-default"]


@pytest.mark.usefixtures("gpu", "undrawn")
def test_finished_cells_are_kept_apart_by_device(tmp_path: Path) -> None:
    first = run("cpu", tmp_path / "out")
    second = run("cuda", tmp_path / "out")
    again = run("cuda", tmp_path / "out")
    assert (first.reused, second.reused, again.reused) == (0, 0, 9)


@pytest.mark.usefixtures("gpu")
def test_seeds_that_do_not_fit_side_by_side_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run("cuda")
    monkeypatch.setattr("berth.lab.run.device.CHANNELS", 40)
    assert CHANNELS > 40
    apart = run("cuda")
    for one, other in zip(whole.rows, apart.rows, strict=True):
        assert one.reward is not None
        assert other.reward is not None
        assert one.reward.mean == pytest.approx(other.reward.mean, rel=1e-10)


def test_a_wrong_device_ends_the_comparison() -> None:
    with pytest.raises(BerthError, match="device: got 'tpu', expected 'cpu', 'cuda' or 'cuda:N'"):
        run("tpu")
