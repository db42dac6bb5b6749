"""The file of attempts stays short while the engine runs, and what is remembered survives it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from berth.live.core.events import Finished, Start
from berth.live.core.jobs import Job, Place, Role, Server
from berth.live.engines import EngineError
from berth.live.engines.slurm import spool as spools
from berth.live.engines.slurm.engine import SlurmEngine
from berth.live.engines.slurm.foreign_jobs import asked_for
from berth.live.engines.slurm.settings import SlurmSettings
from berth.live.engines.slurm.spool import Spool

PLACE = (Place("n1", "w", 1),)


def test_the_file_is_written_anew_while_the_engine_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "REMEMBERED", 10)
    spool, path = Spool(tmp_path), tmp_path / "attempts.jsonl"
    early = spool.asked(("early", 1), PLACE, user="ann", secret="0f")
    spool.taken(early, 7)
    for i in range(500):
        record = spool.asked((f"j{i}", 1), PLACE)
        spool.taken(record, 100 + i)
        spool.ended(record, Finished(2.0, f"j{i}", 1, 1.0))
        spool.settled([record.key])
        assert len(path.read_text().splitlines()) <= 2 * (3 * 21 + 10)
    assert path.stat().st_mode & 0o777 == 0o600
    before = dict(spool.records)
    spool.close()
    again = Spool(tmp_path)
    assert set(list(before)[-10:]) <= set(again.records)
    assert [record.key for record in again.open] == [("early", 1)]
    kept = again.records["early", 1]
    assert (kept.slurm, kept.user, kept.secret, kept.places) == (7, "ann", "0f", PLACE)
    assert again.records["j499", 1].end == Finished(2.0, "j499", 1, 1.0)
    again.close()


def test_many_open_attempts_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "REMEMBERED", 5)
    spool = Spool(tmp_path)
    for i in range(100):
        spool.taken(spool.asked((f"j{i}", 1), PLACE), i)
    spool.ended(spool.records["j3", 1], Finished(2.0, "j3", 1, 1.0))
    spool.forgotten(spool.records["j4", 1])
    spool.close()
    again = Spool(tmp_path)
    assert [record.key for record in again.open] == [(f"j{i}", 1) for i in range(100) if i not in (3, 4)]
    assert again.records["j3", 1].end is not None
    again.close()


def test_open_attempts_are_found_by_server(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    job = Job("j", "t", (Role("w", 1, {"cpu": 1000}),))
    for i in range(100):
        spool.asked((f"j{i}", 1), (Place(f"n{i % 50}", "w", 1),), job=job)
    spool.ended(spool.records["j7", 1], Finished(2.0, "j7", 1, 1.0))
    there = spool.open_on(["n7", "n8", "n99"])
    assert sorted(record.key[0] for record in there) == ["j57", "j58", "j8"]
    spool.close()


def test_the_room_of_a_start_is_computed_from_those_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 attempts run on 50 servers: what two of them ask for is computed for a start beside them."""
    settings = SlurmSettings(spool=tmp_path / "spool", output=tmp_path / "output")
    engine = SlurmEngine(settings)
    engine._watch.servers = {f"n{i}": Server(f"n{i}", {"cpu": 8000}) for i in range(50)}
    job, computed = Job("j", "t", (Role("w", 1, {"cpu": 1000}),)), list[object]()

    def counted(*given: object) -> object:
        computed.append(given)
        return asked_for(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("berth.live.engines.slurm.engine.asked_for", counted)
    for i in range(100):
        engine._spool.asked((f"j{i}", 1), (Place(f"n{i % 50}", "w", 1),), job=job)
    free = engine._room(Start("new", 1, (Place("n9", "w", 1), Place("n4", "w", 1))))
    assert list(free.items()) == [("n4", {"cpu": 6000}), ("n9", {"cpu": 6000})]
    assert len(computed) == 4
    engine._spool.close()


@pytest.mark.parametrize("jump", [36000.0, -36000.0])
def test_the_age_of_a_submission_does_not_count_a_step_of_the_system_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """A submission that failed halfway stays unknown for a few seconds, and is then tried again."""
    engine = SlurmEngine(SlurmSettings(spool=tmp_path / "spool", output=tmp_path / "output"))
    monkeypatch.setattr(type(engine._watch), "has_looked", True)

    async def look(everything: bool = False) -> None:
        pass

    monkeypatch.setattr(engine._watch, "look", look)
    engine._spool.asked(("j", 1), PLACE)
    wall, clock = time.time, time.monotonic
    monkeypatch.setattr("time.time", lambda: wall() + jump)
    with pytest.raises(EngineError, match="not known yet"):
        asyncio.run(engine._known(("j", 1)))
    monkeypatch.setattr("time.monotonic", lambda: clock() + 3600.0)
    assert not asyncio.run(engine._known(("j", 1)))
    engine._spool.close()
