"""A tiny fixed problem of each family, for docstrings and first tries."""

from __future__ import annotations

import numpy as np

from berth.families.allocation.problem import AllocationProblem, AllocationSlot, Gang
from berth.families.allocation.utility import Utilities
from berth.families.placement.problem import PlacementProblem
from berth.families.selection.problem import SelectionProblem, SelectionSlot
from berth.model import Cluster, Instance, JobType, Resource

__all__ = ["example_placement", "example_problem", "example_selection", "example_slot"]


def example_problem(arrivals_known: bool = False, *, gang: bool = False) -> AllocationProblem:
    """Two servers, two resources, three ports and five channels; with `gang`, two of the ports are one job.

    >>> problem = example_problem()
    >>> problem.cap.shape, problem.jobs, problem.horizon
    ((5, 2), 3, 200)
    >>> example_problem(gang=True).jobs
    2
    """
    cluster = Cluster((Resource("cpu"), Resource("gpu")), ("big", "small"), np.array([[8.0, 4.0], [4.0, 0.0]]))
    ports = (
        JobType("train", np.array([4.0, 2.0])),
        JobType("infer", np.array([2.0, 1.0])),
        JobType("query", np.array([3.0, 0.0])),
    )
    graph = Instance(cluster, ports, [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1)])
    utilities = Utilities(("log", "linear", "poly"), np.array([[0, 1], [2, 0]]), np.array([[1.5, 1.0], [1.2, 1.0]]))
    gangs = Gang(np.array([0, 0, 1]), np.array([2, 1])) if gang else None
    return AllocationProblem(graph, utilities, np.array([0.3, 0.5]), arrivals_known, 200, gangs)


def example_slot(problem: AllocationProblem, index: int = 0) -> AllocationSlot:
    """A slot with every server free; if arrivals are revealed, two jobs in three have arrived, in turn.

    >>> example_slot(example_problem()).arrivals is None
    True
    >>> example_slot(example_problem(arrivals_known=True), 1).arrivals
    array([1., 1., 0.])
    """
    arrivals = None
    if problem.arrivals_known:
        arrivals = ((np.arange(problem.jobs) + index) % 3 != 0).astype(np.float64)
        arrivals.setflags(write=False)
    return AllocationSlot(index, problem.instance.capacity, arrivals)


def example_selection() -> tuple[SelectionProblem, SelectionSlot]:
    """Two servers, two ports and three channels; in the slot everything is free, and the first port has a job.

    >>> problem, slot = example_selection()
    >>> problem.cost, slot.arrivals
    (array([0.1, 0.2, 0. ]), array([1., 0.]))
    """
    graph = Instance.from_arrays([[2.0], [1.0]], [[1.0], [1.0]], [(0, 0), (1, 0), (1, 1)])
    problem = SelectionProblem(graph, cost=np.array([0.1, 0.2, 0.0]))
    arrivals = np.array([1.0, 0.0])
    arrivals.setflags(write=False)
    return problem, SelectionSlot(0, problem.limits, arrivals)


def example_placement() -> PlacementProblem:
    """Two servers of one resource, the first with twice the speed and twice the launch cost.

    >>> example_placement().speed
    array([2., 1.])
    """
    return PlacementProblem.of_servers([[4.0], [2.0]], speed=[2.0, 1.0], launch=[1.0, 0.5], rate=[0.1, 0.1])
