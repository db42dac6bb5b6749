"""RLScheduler's networks: the environment against berth's kernel, the checkpoint, and what is said without a clone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cli import main
from berth.errors import InvalidInput
from berth.families.placement.pool_runs import run_pool
from berth.lab.verify import CHECKS
from berth.lab.verify.environment import played
from berth.lab.verify.networks import LAYERS, NUMBERS, VISIBLE, _seen, read_network

PAGE = Path(__file__).parents[2] / "docs" / "verified.md"
CAPACITY = 8


@st.composite
def logs(draw: st.DrawFn) -> tuple[np.ndarray, ...]:
    """Submission, size, run time and estimate of jobs of which no two end at the same time."""
    count = draw(st.integers(1, 25))
    lists = st.lists
    gaps = draw(lists(st.integers(0, 4), min_size=count, max_size=count))
    size = draw(lists(st.integers(1, CAPACITY), min_size=count, max_size=count))
    run = np.array(draw(lists(st.integers(1, 20), min_size=count, max_size=count)), dtype=float)
    longer = draw(lists(st.integers(-3, 10), min_size=count, max_size=count))
    run += 2.0 ** -np.arange(1, count + 1)  # sums of different subsets differ
    estimate = np.maximum(np.floor(run) + longer, 1.0)
    return np.cumsum(gaps).astype(float), np.array(size, dtype=float), run, estimate


@given(log=logs(), backfill=st.booleans())
def test_the_environment_with_a_rule_is_the_kernel(log: tuple[np.ndarray, ...], backfill: bool) -> None:
    estimate = log[3].tolist()
    began = played(
        log, CAPACITY, backfill, lambda queue, now, free, ended: min(queue, key=lambda job: (estimate[job], job))
    )
    mode = "shadow" if backfill else "none"
    submit, size, run, known = log
    kernel = run_pool(
        submit,
        size,
        run,
        known,
        CAPACITY,
        backfill=mode,
        score=lambda wait, length, size, submit: length,
        committed=True,
        singly=True,
    )
    assert began.tolist() == kernel.tolist()


def test_of_many_jobs_the_shortest_and_the_smallest_are_seen() -> None:
    queue = list(range(300))
    size, estimate = [float(i) for i in queue], [float(-i) for i in queue]
    assert _seen(queue[:VISIBLE], size, estimate) == queue[:VISIBLE]
    seen = _seen(queue, size, estimate)
    assert sorted(seen) == [*range(64), *range(300 - 64, 300)]
    assert seen[:4] == [299, 0, 298, 1]


def test_a_checkpoint_is_read_in_the_order_of_its_variables(tmp_path: Path) -> None:
    path = tmp_path / "variables.data-00000-of-00001"
    np.arange(NUMBERS, dtype="<f4").tofile(path)
    at = 4
    for (inputs, units), (kernel, bias) in zip(LAYERS, read_network(path), strict=True):
        assert bias.tolist() == list(range(at, at + units))
        at += 3 * units
        assert kernel.tolist() == np.arange(at, at + inputs * units).reshape(inputs, units).tolist()
        at += 3 * inputs * units
    np.arange(NUMBERS - 1, dtype="<f4").tofile(path)
    with pytest.raises(InvalidInput, match=f"{NUMBERS} numbers of a checkpoint of RLScheduler"):
        read_network(path)


def test_without_a_clone_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in CHECKS["rlscheduler"].files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    assert main(["verify", "rlscheduler-networks", "--traces", str(tmp_path)]) == 2
    assert "deep-batch-scheduler/data/lublin_256_new2" in capsys.readouterr().err


def test_the_page_says_that_the_networks_are_published() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "`trained_models/bsld`" in text
    assert "is not published" not in text
    section = text.partition("`berth verify rlscheduler-networks`")[2].partition("\n## ")[0]
    assert sum("| RLScheduler's network |" in row and "mean of 10 draws" in row for row in section.splitlines()) == 6
    assert sum("| equal |" in row for row in section.splitlines()) == 10
    assert "HPC2N" in section
