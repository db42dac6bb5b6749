"""Placement: which kind of server does this task start on now?

Axes: R servers, K resources, Q kinds of servers.
"""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from berth.capacity import TOLERANCE
from berth.errors import UnsupportedProblem
from berth.families.placement.problem import (
    WAIT,
    PlacementDecision,
    PlacementOutcome,
    PlacementProblem,
    PlacementSlot,
)
from berth.gym.episodes import ScenarioEnv
from berth.gym.questions import Asking, Observation, Questions, part
from berth.model import Floats, Ints

__all__ = ["PlacementEnv", "PlacementQuestions"]


class PlacementQuestions(Questions):
    """Asks about each pending task that fits some server, in order of arrival, at every arrival, end and failure.

    Action 0 lets the task wait until the next such moment. Action 1 + q starts it on a server of kind q: the fullest
    launched one with room, else the first that is off. An impossible action counts as waiting. Values are relative to
    `value`, times waited to `period`, the share of the run to `batches`.
    """

    family = "placement"

    def __init__(self, problem: PlacementProblem, value: float = 1.0, period: float = 1.0, batches: int = 1) -> None:
        problem.require_single("an agent that chooses among kinds of servers")
        self.problem, self._value, self._period, self._batches = problem, value, period, batches
        # kinds in the order of the file, named after their first server
        first = np.unique(problem.kind, return_index=True)[1]
        names = problem.instance.cluster.servers
        self._members = [np.flatnonzero(problem.kind == problem.kind[r]) for r in np.sort(first)]
        self.kinds = tuple(
            names[mine[0]].removesuffix("-0") if len(mine) > 1 else names[mine[0]] for mine in self._members
        )
        resources = [resource.name for resource in problem.instance.cluster.resources]
        self.features = (
            *(f"demand of {name}" for name in resources),
            *("value", "sensitivity", "time left", "time waited", "tasks to ask", "tasks pending", "share of the run"),
            *(
                f"{kind}: {feature}"
                for kind in self.kinds
                for feature in (*(f"free {name}" for name in resources), "up", "launched", "room", "launch", "gain")
            ),
        )
        self.action_space = spaces.Discrete(1 + len(self.kinds))
        self.observation_space = spaces.Box(-1.0, 1.0, (len(self.features),), np.float32)
        self._slack = TOLERANCE * (1.0 + problem.instance.capacity)
        self._most = np.maximum(problem.instance.capacity.max(axis=0), 1e-300)
        self._total_of = [np.maximum(problem.instance.capacity[mine].sum(axis=0), 1e-300) for mine in self._members]
        self.brought = 0.0
        """Gains of the tasks placed in the latest slot."""

    def ask(self, slot: PlacementSlot) -> Asking:
        """Ask about the tasks of this slot."""
        self.brought = 0.0
        server = np.full(len(slot.ids), WAIT, dtype=np.int64)
        self._free, self._on_until = slot.free.copy(), slot.on_until.copy()
        # a task without room now has none later in the slot: most of a long queue is not looked at again
        room = np.repeat(slot.up[None], len(slot.ids), axis=0)
        for k, limit in enumerate((slot.free + self._slack).T):
            room &= slot.tasks.demand[:, k, None] <= limit
        hopeful = np.flatnonzero(room.any(axis=1)).tolist()
        for asked, task in enumerate(hopeful, start=1):
            choice = self._choices(slot, task)
            if choice.max() < 0:
                continue
            mask = np.concatenate([[True], choice >= 0]).astype(np.int8)
            action = int((yield self._observation(slot, task, choice, len(hopeful) - asked), mask))
            if 0 < action < len(mask) and mask[action]:
                chosen = int(choice[action - 1])
                gain = self._gain(slot, task, chosen)
                self.brought += gain
                self.credited += gain
                server[task] = chosen
                self._free[chosen] -= slot.tasks.demand[task]
                self._on_until[chosen] = np.inf
        return PlacementDecision(server)

    def _choices(self, slot: PlacementSlot, task: int) -> Ints:
        """Server of each kind that the task would get, (Q,); -1 if none has room."""
        room = slot.up & (slot.tasks.demand[task] <= self._free + self._slack).all(axis=1)
        launched = slot.time <= self._on_until
        found = np.full(len(self._members), -1)
        for q, members in enumerate(self._members):
            mine = members[room[members]]
            warm = mine[launched[mine]]
            if len(warm):
                left = np.floor(self._free[warm, 0] + self._slack[warm, 0])
                found[q] = warm[left.argmin()]
            elif len(mine):
                found[q] = mine[0]
        return found

    def _gain(self, slot: PlacementSlot, task: int, server: int) -> float:
        """Gain of the task if it starts now on this server."""
        problem, tasks = self.problem, slot.tasks
        time = tasks.work[task] / problem.speed[server]
        end = slot.time + time
        late = end > tasks.deadline[task]
        worth = 0.0 if late else max(tasks.value[task] - tasks.decay[task] * (end - tasks.arrival[task]), 0.0)
        launch = 0.0 if slot.time <= self._on_until[server] else problem.launch[server]
        return float(worth - problem.rate[server] * (problem.weight @ tasks.demand[task]) * time - launch)

    def _observation(self, slot: PlacementSlot, task: int, choice: Ints, left_to_ask: int) -> Observation:
        tasks, problem = slot.tasks, self.problem
        value, left = tasks.value[task], tasks.deadline[task] - slot.time
        quickest = tasks.work[task] / problem.speed.max()
        seen = [
            *(tasks.demand[task] / self._most),
            part(value, self._value),
            part(tasks.decay[task] * quickest, value),
            part(left, quickest),
            part(slot.time - tasks.arrival[task], self._period),
            part(left_to_ask, 10.0),
            part(len(slot.ids), 10.0),
            slot.index / self._batches,
        ]
        for q in range(len(self._members)):
            seen += self._kind(slot, task, q, int(choice[q]))
        return np.clip(np.array(seen, dtype=np.float32), -1.0, 1.0)

    def _kind(self, slot: PlacementSlot, task: int, q: int, server: int) -> list[float]:
        """Observations of one kind of servers."""
        members = self._members[q]
        free = self._free[members].sum(axis=0) / self._total_of[q]
        up = slot.up[members]
        launched = np.count_nonzero((slot.time <= self._on_until[members]) & up)
        room = server >= 0
        launch = room and not slot.time <= self._on_until[server]
        gain = self._gain(slot, task, server) / max(float(slot.tasks.value[task]), 1e-300) if room else 0.0
        return [*free, np.count_nonzero(up) / len(members), launched / len(members), room, launch, gain]

    def same_kinds(self, problem: PlacementProblem) -> bool:
        """Whether another problem has the same resources and the same kinds of servers, in the same order."""

        def kinds(of: PlacementProblem) -> list[Floats]:
            first = np.sort(np.unique(of.kind, return_index=True)[1])
            return [of.instance.capacity[first], of.speed[first], of.launch[first], of.rate[first]]

        pairs = zip(kinds(self.problem), kinds(problem), strict=True)
        return all(ours.shape == theirs.shape and np.allclose(ours, theirs) for ours, theirs in pairs)


class PlacementEnv(ScenarioEnv):
    """Where each task of a placement scenario goes now: `PlacementQuestions`.

    The reward of a step is the gain of the task: its value when done, less the cost of running it and of a launch. The
    loss from a failure is subtracted after the last step of that moment. So the rewards of an episode add up to the
    gain of the run.

    Observations are of the task, of the pending tasks, and of each kind. Their number does not depend on servers or
    tasks, so a policy trained on few servers also runs on many, if the kinds are the same.

    >>> env = PlacementEnv("drl-small")
    >>> env.action_space.n, env.kinds
    (np.int64(4), ('fast', 'middle', 'slow'))
    >>> env.features[:4]
    ('demand of cores', 'demand of memory', 'value', 'sensitivity')
    """

    asked = PlacementQuestions
    default = "drl-default"
    questions: PlacementQuestions

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the kinds of servers."""
        return self.questions.kinds

    def questions_of(self, problem: PlacementProblem) -> PlacementQuestions:
        """Questions whose values and times are relative to those of the scenario's first world."""
        if not hasattr(self, "_scales"):
            tasks = self.world.tasks
            self._scales = float(tasks.value.mean()) if len(tasks) else 1.0, self.world.period, len(self.world)
        return PlacementQuestions(problem, *self._scales)

    def questions_for(self, problem: PlacementProblem) -> PlacementQuestions:
        """The questions about another problem of the same kinds of servers; refuses others."""
        if not self.questions.same_kinds(problem):
            raise UnsupportedProblem(f"an agent trained on {self.scenario.name} knows other kinds of servers")
        return self.questions_of(problem)

    def earned(self, slot: PlacementSlot, decision: PlacementDecision, outcome: PlacementOutcome) -> float:
        """What was not credited with each task: the losses from failures."""
        return outcome.reward - self.questions.brought
