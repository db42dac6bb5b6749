"""Running jobs that take longer than expected tell that their servers are slow for them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.live.core.attempts import Attempts
from berth.live.core.cells import Runs
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import Finished, ServerJoined
from berth.live.core.jobs import UNTYPED
from berth.live.core.overdue import STEP, overdue_runs
from tests.harness.examples import examples
from tests.live.core.builders import begin, dispatcher, job, places, server


def two_classes(policy: str = "completion") -> Dispatcher:
    """Two servers of each of two classes, of which nothing is known."""
    made = dispatcher(policy=policy)
    for name in ("a1", "a2", "b1", "b2"):
        made.handle(ServerJoined(0.0, server(name, cpu=1, kind=name[0])))
    return made


def overdue(made: Dispatcher, time: float, attempts: Attempts | None = None) -> tuple[bytes, Runs | None]:
    """The runs that count at this time, judged anew unless judgements are given."""
    table, learned, attempts = made.state.table, made.state.learned, attempts or Attempts()
    attempts.look(table, learned, table.running)
    return overdue_runs(table, learned, table.running, time, attempts)


@given(st.floats(1.0, 20.0))
def test_the_speed_is_what_is_expected_of_one_that_is_still_running(times: float) -> None:
    made = two_classes()
    begin(made, 0.0, job("x", work=10.0))
    record, learned = made.state.jobs["x"], made.state.learned
    key, told = overdue(made, 10.0 * times * 1.0001)
    spread = learned.speed("t", "a1").spread
    below = -math.log(max(STEP ** int(math.log(times * 1.0001, STEP)), 1.0))
    grid = np.linspace(below - 12.0 * spread, below, 200_001)
    density = np.exp(-0.5 * (grid / spread) ** 2 + 0.5 * (below / spread) ** 2)
    assert told is not None
    assert (told.types, told.type.tolist()) == (["t"], [0])
    assert told.server.tolist() == [made.state.servers[record.places[0].server].index]
    assert told.speed[0] == pytest.approx((grid * density).sum() / density.sum(), rel=1e-3)
    assert key


@pytest.mark.parametrize("policy", ["completion", "best-fit"])
def test_a_class_is_avoided_before_the_first_run_there_has_ended(policy: str) -> None:
    made = two_classes(policy)
    begin(made, 0.0, job("first", work=10.0), job("second", work=10.0), job("third", work=10.0))
    where = {name: next(iter(places(made, name))) for name in ("first", "second", "third")}
    alone = next(name for name, at in where.items() if sum(other[0] == at[0] for other in where.values()) == 1)
    for name in where.keys() - {alone}:
        made.handle(Finished(10.0, name, 1))
    before = made.state.learned.dump()
    begin(made, 60.0, job("next", work=10.0), job("last", work=10.0))
    assert {next(iter(places(made, name)))[0] for name in ("next", "last")} == {"b" if where[alone][0] == "a" else "a"}
    assert made.state.learned.dump() == before  # nothing of this is kept


def test_jobs_that_wait_for_their_engine_or_do_not_tell_their_work_say_nothing() -> None:
    made = two_classes()
    begin(made, 0.0, job("stated", work=10.0), job("unstated"), job("untyped", type=UNTYPED, work=10.0))
    table, learned = made.state.table, made.state.learned
    _, told = overdue(made, 50.0)
    assert told is not None
    assert [told.types[kind] for kind in told.type] == ["t"]
    starting, attempts = replace(table.running, started=np.zeros(3, dtype=bool)), Attempts()
    attempts.look(table, learned, starting)
    assert overdue_runs(table, learned, starting, 50.0, attempts) == (b"", None)


def test_what_is_known_well_is_not_doubted() -> None:
    made = two_classes()
    for i in range(40):
        begin(made, 100.0 * i, *(job(f"{i}-{n}", work=10.0) for n in range(4)))
        for name in list(made.state.jobs):
            made.handle(Finished(100.0 * i + 10.0, name, 1))
    begin(made, 5000.0, *(job(f"x{n}", work=10.0) for n in range(4)))
    assert overdue(made, 5011.5) == (b"", None)


@examples(30)
@given(st.integers(0, 10_000))
def test_judgements_that_are_kept_are_those_that_are_made_anew(seed: int) -> None:
    rng, made, kept, time = np.random.default_rng(seed), two_classes(), Attempts(), 0.0
    for i in range(30):
        time += float(rng.exponential(4.0))
        work = float(rng.choice([5.0, 10.0, 20.0]))
        begin(made, time, job(f"{i}", work=work, type=str(rng.choice(["t", "u"])), count=int(rng.integers(1, 3))))
        for record in list(made.state.jobs.values()):
            if record.started is not None and rng.random() < 0.2:
                made.handle(Finished(time, record.job.id, record.attempt))
        (key, told), (expected_key, expected) = overdue(made, time, kept), overdue(made, time)
        assert key == expected_key
        assert (told is None) == (expected is None)
        for column, other in zip(told or (), expected or (), strict=True):
            assert list(column) == list(other)
