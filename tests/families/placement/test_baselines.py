"""The baselines of placement do what their names say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.errors import InvalidInput
from berth.families.placement.policies.baselines import HMAO, OSSA, OptRA
from berth.families.placement.policies.first_fit import FirstFit
from berth.families.placement.policies.random import RandomPlacement
from berth.families.placement.problem import PlacementProblem, Tasks
from berth.families.placement.rule_runs import audit
from berth.families.placement.world import Failure, PlacementWorld
from berth.simulation import simulate
from tests.families.placement.test_event_engine import Noted, servers, tasks_for
from tests.reference.placement import tasks_of

CASES: list[tuple[Any, dict[str, Any]]] = [
    (FirstFit, {}),
    (FirstFit, {"waiting": "drop", "paying": True}),
    (OptRA, {}),
    (OSSA, {}),
    (OSSA, {"waiting": "queue"}),
    (HMAO, {"generations": 5}),
    (RandomPlacement, {}),
]


@pytest.mark.parametrize(("policy", "settings"), CASES)
@given(seed=st.integers(0, 2**32 - 1), whole=st.booleans(), idle=st.sampled_from([0.0, 1.0, np.inf]))
def test_every_baseline_is_feasible(policy: Any, settings: dict[str, Any], seed: int, whole: bool, idle: float) -> None:
    rng = np.random.default_rng(seed)
    problem = servers(rng, 3, 3, 2, whole).replace(idle=idle)
    tasks = tasks_for(rng, 30, 2, whole, 6.0)
    horizon = int(tasks.arrival.max()) + 1
    noted = Noted(len(tasks))
    result = simulate(
        PlacementWorld(problem, tasks, horizon), policy(problem, rng, **settings), observers=[noted], infeasible="raise"
    )
    found = audit(problem, tasks, noted.server, noted.start)
    assert found.broken == ()
    assert result.total == pytest.approx(found.gain, rel=1e-9, abs=1e-9)
    failing = PlacementWorld(problem, tasks, horizon, failures=[Failure(1.5, 0, 3.0)])
    simulate(failing, policy(problem, rng, **settings), infeasible="raise")


def play(problem: PlacementProblem, tasks: Tasks, policy: Any) -> Noted:
    noted = Noted(len(tasks))
    horizon = int(tasks.arrival.max()) + 1
    simulate(PlacementWorld(problem, tasks, horizon), policy, observers=[noted], infeasible="raise")
    return noted


def three() -> PlacementProblem:
    return PlacementProblem.of_servers([[2.0]] * 3, [1.0, 3.0, 2.0], [1.0] * 3, [0.0] * 3)


def test_first_fit_fills_the_earliest_opened_server_first() -> None:
    # the third comes when the first server has room again, the second was opened later
    tasks = tasks_of([0, 0, 2, 2], [[2], [1], [1], [2]], [9, 30, 1, 1], [99] * 4, [0] * 4, [99] * 4)
    policy = FirstFit(three(), np.random.default_rng(1))
    opens = np.argsort(policy._list)
    noted = play(three(), tasks, policy)
    assert noted.server[0] == opens[0]  # the next new one of its list
    assert noted.server[1] == opens[1]
    assert noted.server[2] == opens[1]  # beside the second: no need for a new one
    assert noted.server[3] == opens[2]


def test_first_fit_does_not_look_at_gains_unless_it_should_pay() -> None:
    tasks = tasks_of([0], [[1]], [9], [1], [1], [99])
    assert play(three(), tasks, FirstFit(three(), np.random.default_rng(0))).server[0] >= 0
    dear = three().replace(rate=np.full(3, 5.0))
    assert play(dear, tasks, FirstFit(dear, np.random.default_rng(0), paying=True)).server[0] == -1


def test_optra_takes_the_shortest_first_and_the_fastest_server_that_is_on() -> None:
    tasks = tasks_of([0, 0, 0], [[2], [2], [2]], [9, 3, 6], [99] * 3, [0] * 3, [99] * 3)
    assert play(three(), tasks, OptRA(three(), np.random.default_rng(0))).server.tolist() == [0, 1, 2]
    tasks = tasks_of([0, 1, 1], [[1], [1], [1]], [6, 3, 30], [99] * 3, [0] * 3, [99] * 3)
    assert play(three(), tasks, OptRA(three(), np.random.default_rng(0))).server.tolist() == [1, 1, 2]


def test_optra_serves_earlier_batches_first_unless_across() -> None:
    problem = PlacementProblem.of_servers([[2.0]], [1.0], [1.0], [0.0])
    tasks = tasks_of([0, 0, 1], [[2], [2], [2]], [2, 3, 1], [99] * 3, [0] * 3, [99] * 3)
    assert play(problem, tasks, OptRA(problem, np.random.default_rng(0))).start.tolist() == [0.0, 2.0, 5.0]
    assert play(problem, tasks, OptRA(problem, np.random.default_rng(0), across=True)).start.tolist() == [0.0, 3.0, 2.0]


def test_ossa_does_not_look_at_the_cost_of_running() -> None:
    problem = PlacementProblem.of_servers([[2.0]], [1.0], [1.0], [5.0])
    tasks = tasks_of([0, 0], [[1], [1]], [1, 1], [2, 0.5], [0, 0], [9, 9])
    assert play(problem, tasks, OSSA(problem, np.random.default_rng(0))).server.tolist() == [0, 0]
    few = tasks_of([0], [[1]], [1], [0.5], [0], [9])
    assert play(problem, few, OSSA(problem, np.random.default_rng(0))).server.tolist() == [-1]


def test_hmao_finds_the_best_of_few_assignments() -> None:
    problem = PlacementProblem.of_servers([[1.0]] * 2, [1.0, 1.0], [0.1, 0.2], [0.0, 3.0])
    tasks = tasks_of([0, 0], [[1], [1]], [1, 1], [5, 9], [0, 0], [1, 1])
    assert play(problem, tasks, HMAO(problem, np.random.default_rng(0))).server.tolist() in ([0, 1], [1, 0])


def test_settings_are_checked() -> None:
    with pytest.raises(InvalidInput, match="waiting"):
        FirstFit(three(), np.random.default_rng(0), waiting="commit")
    with pytest.raises(InvalidInput, match="generations"):
        HMAO(three(), np.random.default_rng(0), generations=0)
