"""The checks of the runs with kills find what is lost, doubled or in parts; they need no cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from berth.live.core.events import Decided, Event, Failed, Finished, ServerJoined, Start, Started, Submitted
from berth.live.core.jobs import Job, Place, Role, Server
from tests.harness.invariants import InvariantBroken
from tests.real.kills.kill_checks import Journal, check
from tests.real.kills.killing import Task

PLACES = (Place("s1", "w", 2),)
JOB = Job("j", "t", (Role("w", 2, {"cpu": 1000}),))
ONCE: list[Event] = [
    ServerJoined(0.0, Server("s1", {"cpu": 4000})),
    Submitted(1.0, JOB),
    Decided(2.0, "p", (Start("j", 1, PLACES),), 1),
]
AGAIN: list[Event] = [
    *ONCE,
    Started(3.0, "j", 1),
    Failed(5.0, "j", 1, "its server is lost", "server"),
    Decided(6.0, "p", (Start("j", 2, PLACES),), 1),
    Started(7.0, "j", 2),
    Finished(9.0, "j", 2, 2.0),
]
"""Its first attempt was cut off, and the second finished."""


def tasks(attempt: int, began: float, ended: float | None) -> list[Task]:
    return [Task("j", attempt, rank, 2**30, "", began, ended, "") for rank in range(2)]


CUT, WHOLE = tasks(1, 3.0, None), tasks(2, 7.0, 9.0)


def counted(events: Sequence[Event], seen: Sequence[Task], unseen: bool = False) -> dict[str, int]:
    # no process has this birth, as that of one that is gone
    return check(Journal(events), {"j": 2}, [replace(task, birth="gone") for task in seen], lambda *_: unseen)


def test_what_is_as_it_must_be_is_counted() -> None:
    assert counted(AGAIN, [*CUT, *WHOLE]) == {
        "jobs accepted": 1,
        "attempts": 2,
        "attempts begun": 2,
        "cut off": 1,
        "of them in parts": 0,
        "ended unseen": 0,
        "finished": 1,
    }
    assert counted(AGAIN, WHOLE)["attempts begun"] == 1
    assert counted(AGAIN, [*CUT[:1], *WHOLE])["of them in parts"] == 1
    assert counted(AGAIN, [*tasks(1, 3.0, 4.0), *WHOLE], unseen=True)["ended unseen"] == 1


@pytest.mark.parametrize(
    ("events", "seen", "said"),
    [
        (AGAIN[:1], [], "jobs lost or unknown"),
        ([*AGAIN, Submitted(10.0, JOB.replace(id="k"))], WHOLE, "jobs lost or unknown"),
        (AGAIN[:-1], [*CUT, *WHOLE], "did not finish"),
        (AGAIN, [*CUT, *WHOLE, *WHOLE[:1]], "began twice"),
        (AGAIN, [*CUT, *WHOLE, replace(WHOLE[0], rank=2)], "more tasks than were asked for"),
        (AGAIN, [*CUT, replace(WHOLE[0], beside="j~1~0"), WHOLE[1]], "two attempts ran at the same time"),
        (AGAIN, [*CUT, *WHOLE[:1]], "not whole"),
        (AGAIN, [*CUT, WHOLE[0], replace(WHOLE[1], ended=None)], "not whole, or not to its end"),
        (AGAIN, [*tasks(1, 3.0, 4.0), *WHOLE], "was to run again"),
        (AGAIN, [*tasks(1, 8.0, None), *WHOLE], "j: "),
    ],
)
def test_what_is_broken_is_found(events: list[Event], seen: list[Task], said: str) -> None:
    with pytest.raises(InvariantBroken, match=said):
        counted(events, seen)
