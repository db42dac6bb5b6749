"""The first page of the queue, and a decision, look at few jobs, however many wait."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.live.core.events import Cancelled, Finished, QueuesChanged, Submitted
from berth.live.core.order import first_in_order, ordered
from berth.live.core.queues import Queue, Queues
from berth.live.core.reasons import _rooms, waiting_in_order
from berth.live.core.table import JobTable
from berth.live.core.view import view_of
from berth.model import Ints
from tests.live.core.builders import begin, dispatcher, job, server

LIMITED = Queues({"default": Queue(), "slow": Queue(starts=False)}, quotas={"team:a": {"cpu": 1000}}, patience=1e6)


@pytest.mark.parametrize("queues", [Queues(), LIMITED])
def test_records_behind_the_page_are_not_looked_at(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    made = dispatcher(server("n1"))
    made.handle(QueuesChanged(0.0, queues))
    for i in range(1000):
        made.handle(Submitted(1.0, job(f"j{i}", priority=-i, team="ab"[i % 2])))
    looked, real = [], JobTable.records

    def counted(self: JobTable, rows: Ints) -> object:
        looked.append(len(rows))
        return real(self, rows)

    monkeypatch.setattr(JobTable, "records", counted)
    count, first = waiting_in_order(made.state, 2.0, 10)
    assert (count, [one.record.job.id for one in first]) == (1000, [f"j{i}" for i in range(10)])
    assert sum(looked) <= 10


class Looked(list[Any]):
    """Records that count how often one of them is looked up."""

    def __init__(self, records: list[Any]) -> None:
        super().__init__(records)
        self.times = 0

    def __getitem__(self, row: Any) -> Any:
        self.times += 1
        return super().__getitem__(row)


def test_a_decision_looks_up_the_jobs_that_it_starts() -> None:
    made = dispatcher(server("n1"))
    for i in range(1000):
        made.handle(Submitted(1.0, job(f"j{i}")))
    looked = made.state.table._records = Looked(made.state.table._records)
    decided = made.decide(2.0)
    assert decided is not None
    assert 0 < len(decided.starts) < 20
    assert looked.times <= 3 * len(decided.starts)


def test_jobs_of_paused_queues_come_last_and_are_counted() -> None:
    made = dispatcher(server("n1"))
    made.handle(QueuesChanged(0.0, LIMITED))
    for i in range(6):
        made.handle(Submitted(1.0, job(f"j{i}", queue="slow" if i % 2 else "default")))
    for limit, names in ((2, "02"), (4, "0241"), (10, "024135")):
        count, first = waiting_in_order(made.state, 2.0, limit)
        assert (count, [one.record.job.id for one in first]) == (6, [f"j{name}" for name in names])
    assert {one.why for one in waiting_in_order(made.state, 2.0)[1][3:]} == {"queue slow is paused"}


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(1, 9), st.booleans()), min_size=1, max_size=5),
)
def test_room_is_that_of_each_server_added_up(
    free: list[tuple[int, int]], asked: list[tuple[int, int, int, bool]]
) -> None:
    made = dispatcher(*(server(f"n{i}", cpu, gpu, zone="ab"[i % 2]) for i, (cpu, gpu) in enumerate(free)))
    for i, (cpu, gpu, count, picky) in enumerate(asked):
        made.handle(Submitted(1.0, job(f"j{i}", cpu, count, gpu=gpu, needs={"zone": "a"} if picky else {})))
    view = view_of(made.state, 2.0, list(made.state.jobs.values()))
    kept = [asked[int(record.job.id[1:])] for record in view.records]
    expected = []
    for cpu, gpu, count, picky in kept:
        there = [one for i, one in enumerate(free) if not picky or i % 2 == 0]
        rooms = [
            min([have // need for have, need in zip(one, (cpu, gpu), strict=True) if need] + [count]) for one in there
        ]
        expected.append(min(sum(rooms), count))
    assert _rooms(view).tolist() == expected


NAMED = {"default": Queue(), "urgent": Queue(priority=2), "slow": Queue(starts=False)}
ASKED = st.tuples(st.integers(0, 3), st.sampled_from(sorted(NAMED)), st.sampled_from("ab"))


@given(st.lists(ASKED, max_size=30), st.integers(0, 40), st.sampled_from((0.0, 0.7, 5.0)), st.booleans())
def test_the_first_are_those_that_come_first_of_all(
    asked: list[tuple[int, str, str]], most: int, aging: float, fair: bool
) -> None:
    made = dispatcher(server("n1"))
    made.handle(QueuesChanged(0.0, Queues(NAMED, fairness=3.0 if fair else 0.0, aging=aging)))
    begin(made, 0.0, job("ran", team="a"))
    made.handle(Finished(500.0, "ran", 1))
    for i, (priority, queue, team) in enumerate(asked):
        made.handle(Submitted(1000.0 * (i + 1), job(f"j{i}", priority=priority, queue=queue, team=team)))
    for i in range(0, len(asked), 3):
        made.handle(Cancelled(40_000.0, f"j{i}"))
    order = ordered(made.state, 40_000.0)
    _, shown, _, levels = first_in_order(made.state, 40_000.0, most)
    starting = [record for record in shown if record.job.queue != "slow"]
    assert [(levels[record.job.id], record) for record in starting] == order[:most]
    assert len(shown) == min(most, made.state.table.waiting)
