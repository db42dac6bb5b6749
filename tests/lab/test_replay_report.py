"""The report of a replay: what it says, its charts, and that they stay small with many jobs."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cli import main
from berth.lab.replay import Measurement, Replay, ReplaySetting, replay
from berth.lab.replay.gantt import COLUMNS, ROWS, SINGLY, blocks, coverage, draw_gantt, draw_queue, raster
from berth.lab.replay.report import replay_command_line, replay_verdict
from berth.lab.show.canvas import to_svg
from berth.model import Floats
from tests.harness.examples import examples
from tests.lab.test_replay_measurement import POOL, log

BATCH = str(Path(__file__).parents[2] / "examples" / "batch.swf")


def schedule(seed: int, count: int, capacity: int) -> tuple[Floats, Floats, Floats]:
    """Starts, ends and sizes of jobs that never hold more than `capacity`: in order, each as soon as it fits."""
    draw = np.random.default_rng(seed)
    size = draw.integers(1, capacity + 1, count).astype(float)
    run = draw.integers(1, 9, count).astype(float)
    start, end, now = np.zeros(count), np.zeros(count), 0.0
    for job in range(count):
        now = max(now, float(draw.integers(0, 20)) * 0.5)
        while size[:job][(start[:job] <= now) & (end[:job] > now)].sum() + size[job] > capacity:
            now = min(end[:job][end[:job] > now])
        start[job], end[job] = now, now + run[job]
    return start, end, size


@given(st.integers(0, 10**6), st.integers(1, 25), st.integers(1, 7))
@examples(60)
def test_blocks_hold_what_jobs_hold_and_never_overlap(seed: int, count: int, capacity: int) -> None:
    start, end, size = schedule(seed, count, capacity)
    found = blocks(start, end, size, float(capacity))
    assert (found.low >= 0).all()
    assert (found.high <= capacity).all()
    assert np.bincount(found.job, weights=found.high - found.low, minlength=count) == pytest.approx(size)
    for one in range(len(found.job)):
        for other in range(one):
            apart = (
                found.end[one] <= found.start[other]
                or found.end[other] <= found.start[one]
                or found.high[one] <= found.low[other]
                or found.high[other] <= found.low[one]
            )
            assert apart


@given(st.lists(st.tuples(st.floats(-2, 9), st.floats(0, 6), st.floats(0, 3)), min_size=1, max_size=9))
def test_coverage_is_the_overlap_with_every_cell(intervals: list[tuple[float, float, float]]) -> None:
    low, length, weight = (np.array(values) for values in zip(*intervals, strict=True))
    high = low + length
    slow = [
        sum(w * max(0.0, min(b, i + 1) - max(a, i)) for a, b, w in zip(low, high, weight, strict=True))
        for i in range(7)
    ]
    assert coverage(low, high, weight, 7) == pytest.approx(slow, abs=1e-9)


def test_the_picture_has_the_area_and_the_mean_of_the_jobs() -> None:
    start, end, size = schedule(3, 40, 6)
    found = blocks(start, end, size, 6.0)
    used, mean = raster(found, np.full(40, 5.0), 0.0, float(end.max()), 6.0)
    assert used.shape == (ROWS, COLUMNS)
    assert used.mean() == pytest.approx((size * (end - start)).sum() / (6 * end.max()), rel=1e-6)
    assert mean[used > 1e-6] == pytest.approx(5.0)


@pytest.fixture(scope="module")
def many() -> Replay:
    return replay(log(12_000), ["fcfs", "easy"], ReplaySetting(processors=8))


def test_charts_of_many_jobs_stay_small(many: Replay) -> None:
    assert many.rows[0]["jobs"] > 4 * SINGLY
    for draw in (draw_gantt, draw_queue):
        figure = draw(many)
        assert figure is not None
        assert len(to_svg(figure, "x")) < 700_000
        assert sum(len(axes.get_images()) + len(axes.collections) > 0 for axes in figure.axes) >= 2
    assert all(axes.get_images() for axes in draw_gantt(many).axes[:2])  # type: ignore[union-attr]


def test_few_jobs_are_drawn_one_by_one() -> None:
    found = replay(BATCH, ["fcfs"])
    figure = draw_gantt(found)
    assert figure is not None
    assert not figure.axes[0].get_images()
    assert len(figure.axes[0].collections[0].get_paths()) >= 8
    assert draw_queue(found) is None


def test_the_page(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["replay", BATCH, "--out", str(out), "-q"]) == 0
    page = (out / "report.html").read_text()
    for words in ("Replay of batch.swf", "Jobs wait least under sjf: 7.3 min on average.", "Utilisation over time"):
        assert words in page
    assert page.count("<figure") == 3
    assert "http" not in page.replace("http://www.w3.org", "")  # needs no network
    assert {path.name for path in (out / "plots").iterdir()} == {
        f"{name}.{kind}" for name in ("waits", "utilisation", "gantt") for kind in ("png", "svg")
    }


def test_differences_in_the_page(tmp_path: Path) -> None:
    found = replay(log(), ["fcfs", "easy"], POOL, Measurement(windows=4, window_jobs=25), out=tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "Differences to fcfs" in page
    assert "after Holm" in page
    assert "The first of 4 samples is drawn." in page
    count = sum(one.significant or False for one in found.differences)
    assert f"{count} of 3 differences to fcfs are significant" in replay_verdict(found)[1]


def test_the_command_repeats_the_replay(capsys: pytest.CaptureFixture[str]) -> None:
    measure = Measurement(since="30s", warm_up="10%", window_jobs=3, window_starts=(0, 3))
    setting = ReplaySetting(processors=16.0, stopped=True, seed=4)
    found = replay(BATCH, ["fcfs", "easy"], setting, measure, baseline="easy")
    words = shlex.split(replay_command_line(found))
    assert words[:2] == ["berth", "replay"]
    assert main([*words[1:], "-q", "-o", "csv"]) == 0
    shown = capsys.readouterr().out.splitlines()
    place = shown[0].split(",").index("mean_wait_seconds")
    assert [float(line.split(",")[place]) for line in shown[1:]] == [row["mean_wait_seconds"] for row in found.rows]
    assert replay_command_line(replay(log(), ["fcfs"], POOL)) == ""
