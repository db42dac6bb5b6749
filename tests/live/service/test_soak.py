"""The simulated month: every job comes once and ends, also when the run is interrupted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.soak import Month
from berth.live.core.records import ENDED
from berth.live.engines import clock

JOBS, STEP = 300, 43200.0


def test_an_interrupted_month_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(clock), "time", vars(clock)["time"])  # restored afterwards

    async def part(until: int) -> tuple[int, dict[str, float]]:
        month = Month(tmp_path, JOBS, STEP, 7.0)
        first = await month.open()
        try:
            for step in range(first, until):
                await month.go(step)
            assert month.scheduler.clock() == pytest.approx(month.begin + (until - 1) * STEP, abs=60.0)
            records = {record.job.id: record for record in (await month.scheduler.list_jobs(limit=10**4)).records}
            ended = {name: record.ended or 0.0 for name, record in records.items() if record.phase in ENDED}
            row = month.row(until - 1, 0.0)
            assert row["jobs"] == len(records)
            assert row["present"] == len(records) - len(ended)
            return first, ended
        finally:
            await month.scheduler.close()

    first, some = asyncio.run(part(20))
    then, more = asyncio.run(part(60))
    assert (first, then) == (0, 20)
    assert some.items() <= more.items()
    assert len(some) > 0.8 * JOBS * 20 / 60
    assert JOBS * 0.95 < len(more) <= JOBS
