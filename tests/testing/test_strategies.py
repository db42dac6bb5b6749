"""What the hypothesis strategies promise about what they draw."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import find, given
from hypothesis import strategies as st

from berth.families.allocation.checks import ShrinkingWorld
from berth.families.placement.world import PlacementWorld
from berth.families.selection.checks import ShrinkingSelection
from berth.testing import example_problem, example_slot
from berth.testing.strategies import (
    ProjectionCase,
    allocation_problems,
    allocation_worlds,
    decisions,
    placement_decisions,
    placement_problems,
    placement_worlds,
    projection_cases,
    selection_decisions,
    selection_problems,
    selection_worlds,
)
from tests.testing.harness import draws


@given(allocation_worlds(gangs=None), st.data())
def test_decisions_are_feasible_when_asked_to_be(world: ShrinkingWorld, data: st.DataObject) -> None:
    for slot in world:
        decision = data.draw(decisions(world.problem, free=slot.free))
        assert world.problem.violations(slot, decision) == []


@given(projection_cases())
def test_projections_are_well_posed(case: ProjectionCase) -> None:
    assert case.target.shape == case.cap.shape
    assert np.isfinite(case.target).all()
    assert (case.cap >= 0).all()
    assert case.capacity >= 0


def test_the_corners_are_drawn() -> None:
    assert draws(allocation_problems(), lambda p: len(p.instance.ports) > 1 and p.cap.shape[0] == 0)
    assert draws(allocation_problems(), lambda p: not p.instance.capacity.any())
    assert draws(allocation_problems(gangs=None), lambda p: p.gang is not None and p.gang.share == 0)
    assert draws(allocation_worlds(), lambda w: not w.all_free[-1].any() and bool(w.problem.instance.capacity.any()))
    assert draws(projection_cases(), lambda c: c.capacity == 0 and bool((c.target > 0).any()))
    assert draws(projection_cases(), lambda c: c.capacity > 0 and c.capacity == float(c.cap.sum()))


def test_problems_reveal_arrivals_as_asked() -> None:
    for known in (False, True):
        assert find(allocation_problems(arrivals_known=known), lambda p: True).arrivals_known is known
        problem = example_problem(arrivals_known=known)
        assert (example_slot(problem, 3).arrivals is not None) is known


def test_checks_and_examples_need_no_hypothesis() -> None:
    code = "import sys; sys.modules['hypothesis'] = None; from berth.testing import check_policy, example_problem"
    subprocess.run([sys.executable, "-c", code], check=True)


@given(selection_worlds(gangs=None), st.data())
def test_selections_are_feasible_when_asked_to_be(world: ShrinkingSelection, data: st.DataObject) -> None:
    for slot in world:
        decision = data.draw(selection_decisions(world.problem, slot))
        assert world.problem.violations(slot, decision) == []
        wild = data.draw(selection_decisions(world.problem, slot, feasible=False))
        assert world.problem.violations(slot, world.problem.repaired(slot, wild)) == []


@given(placement_worlds(), st.data())
def test_placements_are_feasible_when_asked_to_be(world: PlacementWorld, data: st.DataObject) -> None:
    for slot in world:
        decision = data.draw(placement_decisions(world.problem, slot))
        assert world.problem.violations(slot, decision) == []
        wild = data.draw(placement_decisions(world.problem, slot, feasible=False))
        assert world.problem.violations(slot, world.problem.repaired(slot, wild)) == []
        world.step(decision)


def test_the_corners_of_selection_are_drawn() -> None:
    assert draws(selection_problems(), lambda p: len(p.instance.ports) > 1 and len(p.cost) == 0)
    assert draws(selection_problems(), lambda p: p.pool is not None and not p.pool.any())
    assert draws(
        selection_problems(gangs=None),
        lambda p: p.roles is not None and bool((p.roles.minimum == 0).any()),
    )
    assert draws(selection_worlds(), lambda w: not w.all_free[-1].any() and bool(w.problem.limits.any()))


def test_the_corners_of_placement_are_drawn() -> None:
    assert draws(placement_problems(), lambda p: not p.instance.capacity.any())
    assert draws(placement_problems(), lambda p: bool(np.isinf(p.idle)) and len(p.speed) > 1)
    assert draws(placement_worlds(), lambda w: len(w.tasks) == 0)
    assert draws(placement_worlds(), lambda w: any(np.isinf(f.until) for f in w.failures))
    assert draws(placement_worlds(failures=False), lambda w: len(w.tasks) > 3 and not w.failures)
