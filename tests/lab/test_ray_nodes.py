"""Who computes what when nodes hang, come back or die: every cell counts once, played on a cluster of pretence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth import ray_nodes
from berth.errors import BerthError
from berth.lab.run import ray as ray_cells
from berth.lab.run.cells import Cell, CellResult
from berth.lab.run.runner import Failure, Work

PING = 0.1


class Lost(Exception):
    """What Ray raises when a process or node is lost."""


class Other(Exception):
    """Any other error of Ray."""


@dataclass(frozen=True)
class Machine:
    """A node: its processors, when it hangs, until when, and when it dies."""

    processors: int
    hangs: float = math.inf
    back: float = math.inf
    dies: float = math.inf

    def end(self, begin: float, seconds: float) -> float:
        """When something ends that is begun then and takes so long."""
        if self.hangs <= begin < self.back:
            return self.back + seconds
        end = begin + seconds
        return end if end <= self.hangs or begin >= self.back else end + self.back - self.hangs


@dataclass(eq=False)
class Reference:
    """What will come of a task, and when."""

    at: float
    value: Any


@dataclass
class Pretence:
    """As much of Ray as cells on a cluster need, on a clock of its own."""

    machines: Sequence[Machine]
    seconds: Callable[[int], float]
    deadly: frozenset[int] = frozenset()
    now: float = 0.0
    begun: list[int] = field(default_factory=list)
    exceptions: Any = field(
        default_factory=lambda: SimpleNamespace(
            WorkerCrashedError=Lost,
            NodeDiedError=Lost,
            TaskUnschedulableError=Lost,
            ObjectLostError=Lost,
            RayError=(Lost, Other),
        )
    )

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": str(number), "Alive": self.now < machine.dies, "Resources": {"CPU": float(machine.processors)}}
            for number, machine in enumerate(self.machines)
        ]

    def remote(self, **_: Any) -> Callable[[Any], Any]:
        return lambda function: SimpleNamespace(
            options=lambda scheduling_strategy: SimpleNamespace(
                remote=lambda *given: self._begin(int(scheduling_strategy), given)
            )
        )

    def _begin(self, number: int, given: tuple[Any, ...]) -> Reference:
        machine = self.machines[number]
        seed = given[1].seed if given else -1
        if given:
            self.begun.append(seed)
        end = machine.end(self.now, self.seconds(seed) if given else PING)
        if end > machine.dies:
            return Reference(max(machine.dies, self.now), Lost())
        return Reference(end, Lost() if seed in self.deadly else CellResult({"reward": np.array([float(seed)])}))

    def wait(self, references: Sequence[Reference], timeout: float) -> tuple[list[Reference], list[Reference]]:
        first = min(reference.at for reference in references)
        self.now = max(self.now, min(first, self.now + timeout))
        ready = [reference for reference in references if reference.at <= self.now][:1]
        return ready, []

    def get(self, reference: Reference) -> Any:
        assert reference.at <= self.now
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value

    def put(self, value: Any) -> Any:
        return value

    def cancel(self, reference: Reference, force: bool) -> None: ...

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def play(ray: Pretence, cells: int, workers: int | None = None) -> dict[int, list[CellResult | Failure]]:
    """Run so many cells, and say what was counted for each."""
    counted: dict[int, list[CellResult | Failure]] = {seed: [] for seed in range(cells)}
    works = [Work(0, Cell("fairness", seed, "hidden")) for seed in range(cells)]
    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(monotonic=lambda: ray.now, sleep=ray.sleep)
        for module in (ray_cells, ray_nodes):
            patch.setattr(module, "time", clock)
            patch.setattr(module, "on_node", lambda node: node)
        patch.setattr(ray_cells, "_compile", lambda *_: None)
        scenario: Any = object()
        ray_cells._run(ray, [scenario], works, lambda work, result: counted[work.cell.seed].append(result), workers)
    return counted


times = st.floats(0.0, 200.0)
unsure = st.builds(
    lambda processors, hangs, gone, dies: Machine(processors, hangs, hangs + gone, dies),
    st.integers(1, 3),
    times,
    st.one_of(st.just(math.inf), times),
    st.one_of(st.just(math.inf), times),
)


@given(
    others=st.lists(unsure, max_size=3),
    cells=st.integers(1, 25),
    length=st.floats(0.01, 60.0),
    deadly=st.frozensets(st.integers(0, 24), max_size=3),
    workers=st.one_of(st.none(), st.integers(1, 4)),
)
def test_every_cell_counts_once_whatever_other_nodes_do(
    others: list[Machine], cells: int, length: float, deadly: frozenset[int], workers: int | None
) -> None:
    ray = Pretence([Machine(1), *others], lambda seed: length * (1 + seed % 3), deadly)
    counted = play(ray, cells, workers)
    for seed, results in counted.items():
        assert len(results) == 1
        if seed not in deadly and not any(machine.dies < math.inf for machine in others):
            assert isinstance(results[0], CellResult)
            assert results[0].reward.tolist() == [float(seed)]
        if seed in deadly:
            assert isinstance(results[0], Failure)
            assert ray.begun.count(seed) >= ray_cells.TRIES
    # a node that hangs costs its patience, and what it had in hand: nobody waits for it to come back
    slowest = 3 * length
    rounds = 3 * cells * ray_cells.TRIES + 10
    assert ray.now <= rounds * (slowest + ray_nodes.PATIENCE + ray_nodes.EVERY + 2 * ray_cells.LOOK)


def test_cells_of_a_node_that_hangs_for_ever_are_elsewhere_within_its_patience() -> None:
    ray = Pretence([Machine(1), Machine(1, hangs=2.5)], lambda seed: 1.0)
    counted = play(ray, 10)
    assert all(len(results) == 1 and isinstance(results[0], CellResult) for results in counted.values())
    assert ray.now < ray_nodes.PATIENCE + ray_nodes.EVERY + 10


def test_a_cluster_of_which_no_node_answers_is_given_up() -> None:
    with pytest.raises(BerthError, match="no node of the Ray cluster has answered for 300 s; finished cells are kept"):
        play(Pretence([Machine(2, hangs=1.0)], lambda seed: 5.0), 3)
