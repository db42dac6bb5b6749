"""A replay begins with a snapshot: what was before it need not be in the journal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from berth.errors import InvalidInput
from berth.live.core.dispatcher import Dispatcher, Dumped
from berth.live.core.events import ClockStepped, Event, ServerLost
from berth.live.engines.simulated.cluster import SimulatedCluster
from berth.live.service import insight
from berth.live.service.insight import play_again
from berth.live.service.store import Batch, Store, packed
from berth.live.simulation import play
from berth.live.whatif import what_if
from tests.live.core.test_shadow import SERVERS, Halves
from tests.live.test_whatif import submissions


@cache
def history() -> list[Event]:
    """A history in which a server is lost early."""
    given = [*submissions(), ServerLost(300.0, "n3")]
    return play(Dispatcher(), SimulatedCluster(SERVERS, Halves(noise=0.1)), given).events


def snapshot_after(seq: int) -> Dumped:
    dispatcher = Dispatcher()
    dispatcher.replay(history()[:seq])
    return dispatcher.dump()


MIDDLE = 600


def since() -> float:
    """The moment from which histories are compared."""
    return history()[MIDDLE + 100].time


def test_a_replay_from_a_snapshot_is_that_of_the_whole_history() -> None:
    begin = snapshot_after(MIDDLE)
    assert {record.phase for record in begin.state.jobs} >= {"running"}
    late = history()[MIDDLE:]
    same = what_if(late, "in-order-best-fit", since=since(), begin=begin)
    assert (same.wait.mean, same.turnaround.mean, same.since) == (0.0, 0.0, None)
    whole = what_if(history(), "in-order-best-fit", since=since())
    assert (same.jobs, same.left_out) == (whole.jobs, 0)
    assert same.actual.turnaround == pytest.approx(whole.actual.turnaround, rel=1e-9)
    learned = what_if(late, "cucb", since=since(), begin=begin)
    assert learned.turnaround.high is not None
    assert learned.turnaround.high < 0.0


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Store]:
    """A store with the whole history, and snapshots after every 200 events."""
    store = Store(f"sqlite:///{tmp_path / 'berth.db'}")
    for first in range(0, len(history()), 200):
        batch = Batch(first + 1, history()[first : first + 200])
        store.write(batch)
        body = snapshot_after(batch.last)
        store.write_snapshot(batch.last, body.state.time, packed(body))
    yield store
    store.close()


def test_a_long_journal_is_read_from_the_newest_snapshot_before_the_hours(
    journal: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest events alone do not reach the hours that were asked for."""
    most = len(history()) - MIDDLE + 200
    monkeypatch.setattr(insight, "MOST", most)
    assert most < len(history()) - 100
    text, report = play_again(journal.where, "cucb", since(), 0)
    whole = what_if(history(), "cucb", since=since())
    assert report["jobs"] == whole.jobs
    assert report["since"] is None
    assert "keeps no older" not in text
    monkeypatch.setattr(insight, "MOST", 50)
    with pytest.raises(InvalidInput, match=r"hours: got more, after event .*at most 50 events"):
        play_again(journal.where, "cucb", since(), 0)


def test_a_journal_with_retention_is_read_from_its_first_snapshot(journal: Store) -> None:
    last, now = len(history()), history()[-1].time
    body = snapshot_after(last)
    journal.write_snapshot(last, body.state.time, packed(body), retention=now - since())
    first = next(seq for seq, _ in journal.events())
    assert first > MIDDLE
    text, report = play_again(journal.where, "cucb", 0.0, 0)
    begin = journal.begin_of(0.0)
    assert begin[0] >= first - 1
    assert begin[1] is not None
    assert report["since"] == begin[1].state.time
    assert 0 < report["jobs"] < 150
    assert "the store keeps no older history" in text


def test_a_clock_that_was_set_in_between_changes_nothing() -> None:
    at = MIDDLE + 50
    later = [replace(event, time=event.time + 36000.0) for event in history()[at:]]
    events = [*history()[MIDDLE:at], ClockStepped(history()[at - 1].time, 36000.0), *later]
    found = what_if(events, "in-order-best-fit", since=since() + 36000.0, begin=snapshot_after(MIDDLE))
    plain = what_if(history()[MIDDLE:], "in-order-best-fit", since=since(), begin=snapshot_after(MIDDLE))
    assert (found.jobs, found.wait.mean) == (plain.jobs, 0.0)
    assert found.actual.turnaround == pytest.approx(plain.actual.turnaround)
