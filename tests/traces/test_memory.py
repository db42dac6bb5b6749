"""Files larger than memory can be read: what is held does not grow with the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.traces import make, measure


@pytest.mark.slow
@pytest.mark.parametrize("format", ["google-2011", "google-2019"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, format: str) -> None:
    peaks, sizes = [], (30, 300)
    for size in sizes:
        path = make(tmp_path, format, size)
        peaks.append(measure("berth", path)["peak"])
        path.unlink()
    assert peaks[1] - peaks[0] < 0.25 * (sizes[1] - sizes[0])  # MB; a table of all of it takes more than the file
