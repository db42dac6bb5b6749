"""Stand-ins for plain schedulers do as their plain twins do."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from berth.live.core.events import Decided, Finished, ServerJoined, Started, Submitted
from berth.live.core.jobs import Job, Role, Server
from berth.live.twin.plain import PLAIN, OneClassDispatcher, PlainDispatcher
from tests.reference.plain import started

Jobs = list[tuple[int, int, set[str]]]
jobs = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 3), st.sets(st.sampled_from("ab"), min_size=1)), min_size=1, max_size=8
)
servers = st.lists(st.tuples(st.integers(0, 6), st.sampled_from("ab")), min_size=1, max_size=6)


@given(rule=st.sampled_from(sorted(PLAIN)), there=servers, given_jobs=jobs, one_class=st.booleans())
def test_places_are_those_of_the_plain_twin(
    rule: str, there: list[tuple[int, str]], given_jobs: Jobs, one_class: bool
) -> None:
    dispatcher = (OneClassDispatcher if one_class else PlainDispatcher)(rule)
    for r, (size, class_) in enumerate(there):
        dispatcher.handle(ServerJoined(0.0, Server(f"s{r}", {"cpu": size}, {"class": class_})))
    possible = []
    for i, (tasks, each, classes) in enumerate(given_jobs):
        needs = {"class": "|".join(sorted(classes))}
        dispatcher.handle(Submitted(0.0, Job(f"j{i}", "t", (Role("task", tasks, {"cpu": each}),), needs=needs)))
        reach = {r for r, (_, class_) in enumerate(there) if class_ in classes}
        possible.append((tasks, each, reach))
    decided = dispatcher.decide(1.0)
    starts = {} if decided is None else {start.job: start.places for start in decided.starts}
    assert not dispatcher.refusals
    assert decided is None or isinstance(decided, Decided)
    group = [ord(class_) if one_class else 0 for _, class_ in there]
    for i, places in enumerate(started(rule, [size for size, _ in there], group, possible)):
        got = {int(place.server[1:]): place.count for place in starts.get(f"j{i}", ())}
        assert got == (places or {})


def started_at(dispatcher: PlainDispatcher, now: float, *jobs: tuple[str, int]) -> set[str]:
    """Submit these jobs, given as name and number of tasks, then decide; returns the names of the jobs that start."""
    for name, tasks in jobs:
        dispatcher.handle(Submitted(now, Job(name, "t", (Role("task", tasks, {"cpu": 1}),))))
    decided = dispatcher.decide(now)
    if decided is not None:
        dispatcher.handle(decided)
    return set() if decided is None else {start.job for start in decided.starts}


def test_ray_tries_each_gang_by_itself() -> None:
    """A wide gang that waits first is passed by a later one that comes when little is free."""
    dispatcher = PlainDispatcher("ray")
    dispatcher.handle(ServerJoined(0.0, Server("s", {"cpu": 4})))
    assert started_at(dispatcher, 0.0, ("runs", 3)) == {"runs"}
    assert started_at(dispatcher, 0.2, ("wide", 4)) == set()
    assert dispatcher.next_look == 1.0
    dispatcher.handle(Started(0.25, "runs", 1))
    dispatcher.handle(Finished(0.25, "runs", 1, 0.0))
    assert started_at(dispatcher, 0.25) == set()  # Ray does not look when a gang ends
    assert started_at(dispatcher, 0.28, ("late", 1)) == {"late"}  # nor is `wide` tried again before 0.3
    assert started_at(dispatcher, 1.0) == set()
    assert dispatcher.next_look == 2.0


def test_ray_gives_up_on_what_can_never_start() -> None:
    dispatcher = PlainDispatcher("ray")
    dispatcher.handle(ServerJoined(0.0, Server("s", {"cpu": 4})))
    assert started_at(dispatcher, 0.0, ("too-wide", 5)) == set()
    assert dispatcher.next_look == inf
