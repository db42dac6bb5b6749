"""What others hold of servers is shown: to whoever lists servers, and in metrics."""

from __future__ import annotations

from dataclasses import replace

from berth.live.core.events import ServerChanged
from berth.live.service.history import History
from berth.live.service.metrics import _Now
from berth.live.service.views import server_view
from tests.live.core.builders import begin, dispatcher, job, server


def test_a_server_says_what_others_have_taken() -> None:
    made = dispatcher(server("a", cpu=4), server("b", cpu=4))
    begin(made, 0.0, job("r", cpu=3))
    made.handle(ServerChanged(1.0, replace(server("a", cpu=4), taken={"cpu": 2000})))
    state = made.state
    shown = server_view(state.servers["a"], state)
    assert (shown.capacity, shown.free, shown.taken) == ({"cpu": "4"}, {"cpu": "0"}, {"cpu": "2"})
    assert server_view(state.servers["b"], state).taken == {}
    found = {family.name: [sample.value for sample in family.samples] for family in _Now(state).collect()}
    assert found["berth_resource_capacity"] == [8.0]
    assert found["berth_resource_used"] == [3.0]  # what our jobs hold
    assert found["berth_resource_taken"] == [2.0]


def test_no_more_of_the_cluster_is_held_than_there_is() -> None:
    made = dispatcher(server("a", cpu=4))
    begin(made, 0.0, job("r", cpu=4))
    made.handle(ServerChanged(1.0, replace(server("a", cpu=4), taken={"cpu": 4000})))
    history = History(made.state)
    history._look(history._to(1.0))
    assert history._share == {"cpu": 1.0}
