"""Placement as a Gymnasium environment, for reinforcement learning.

Importing this module registers `berth/Placement-v0`. It needs `pip install 'berth[gym]'`.

>>> import gymnasium
>>> import berth.gym
>>> env = gymnasium.make("berth/Placement-v0", scenario="drl-small")
>>> observation, info = env.reset(seed=1)
>>> total, over = 0.0, False
>>> while not over:
...     legal = info["action_mask"].nonzero()[0]
...     observation, reward, over, _, info = env.step(legal[-1])  # the last kind of server that has room
...     total += reward
>>> total > 0
True

Axes: R servers, K resources, Q kinds of servers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from berth.capacity import TOLERANCE
from berth.errors import InvalidInput, MissingExtra
from berth.families.placement.problem import WAIT, PlacementDecision, PlacementSlot
from berth.families.placement.scenario.settings import PlacementSettings
from berth.families.placement.world import PlacementWorld
from berth.model import Ints
from berth.scenario import load_scenario

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError as missing:
    raise MissingExtra("berth.gym", "gym") from missing

__all__ = ["ID", "PlacementEnv"]

ID = "berth/Placement-v0"

Observation = NDArray[np.float32]


class PlacementEnv(gymnasium.Env[Observation, np.int64]):
    """One episode is one run of a placement scenario; one step decides where one task goes now.

    At every arrival, end and failure the environment asks about each pending task that fits some server, in order of
    arrival. Action 0 lets the task wait until the next such moment. Action 1 + q starts it on a server of kind q: the
    fullest launched one with room, else the first that is off. `info["action_mask"]` (1 + Q,) is 1 for each possible
    action; an impossible action counts as waiting.

    The reward of a step is the gain of the task: its value when done, less the cost of running it and of a launch. The
    loss from a failure is subtracted after the last step of that moment. So the rewards of an episode add up to the
    gain of the run.

    Observations are numbers from −1 to 1, named in `features`: of the task, of the pending tasks, and of each kind.
    Their number does not depend on servers or tasks, so a policy trained on few servers also runs on many, if the kinds
    are the same.

    `reset(seed=…)` makes a sequence of episodes repeatable; each further `reset()` draws another world.
    `reset(options={"world": n})` plays the world of seed n, as `berth compare` does.

    >>> env = PlacementEnv("drl-small")
    >>> env.action_space.n, env.kinds
    (np.int64(4), ('fast', 'middle', 'slow'))
    >>> env.features[:4]
    ('demand of cores', 'demand of memory', 'value', 'sensitivity')
    """

    metadata = {"render_modes": []}  # noqa: RUF012 -- as Gymnasium declares it

    def __init__(
        self,
        scenario: str | os.PathLike[str] | Mapping[str, Any] = "drl-default",
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        self.scenario = load_scenario(scenario if isinstance(scenario, Mapping) else os.fspath(scenario), overrides)
        if not isinstance(self.scenario.settings, PlacementSettings):
            raise InvalidInput("a scenario of the placement family", value=self.scenario.family, key="family")
        world: PlacementWorld = self.scenario.build(0)
        self.problem = problem = world.problem
        self._scale = float(world.tasks.value.mean()) if len(world.tasks) else 1.0
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
        self._over = True
        self._start(world)

    # ------------------------------------------------------------------------ Gymnasium's side

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a new run; with `options={"world": n}` the run of seed n."""
        super().reset(seed=seed)
        world = int(self.np_random.integers(2**31))
        given = (options or {}).get("world")
        if given is not None:
            if not isinstance(given, int) or given < 0:
                raise InvalidInput("a whole number ≥ 0", value=given, key="options.world")
            world = given
        self._start(self.scenario.build(world))
        self._over = False
        self._seek()
        return self._observation(), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Apply the action to the current task and go to the next; the third result says whether the run is over."""
        if self._over:
            raise InvalidInput("an episode: reset before the first step and after the last", key="step")
        if not self.action_space.contains(np.int64(action)):
            raise InvalidInput(f"an action from 0 to {len(self.kinds)}", value=int(action), key="action")
        before = self._total
        if self._slot is None:
            self._over = True  # a run without a decision still has one step
        else:
            if action > 0 and self._choice[action - 1] >= 0:
                self._place(int(self._choice[action - 1]))
            self._seek()
            self._over = self._slot is None
        reward = self._total - before
        return self._observation(), reward, self._over, False, self._info()

    # ------------------------------------------------------------------------ the run

    def _start(self, world: PlacementWorld) -> None:
        self.world = world
        self._slots: Iterator[PlacementSlot] = iter(world)
        self._slot: PlacementSlot | None = None
        self._total = 0.0  # reported to the agent, or due at the next step
        self._open(next(self._slots, None))

    def _open(self, slot: PlacementSlot | None) -> None:
        """Begin the decisions of a slot."""
        self._slot, self._task, self._brought = slot, 0, 0.0
        self._choice: Ints = np.full(len(self._members), -1)
        if slot is not None:
            self._server = np.full(len(slot.ids), WAIT, dtype=np.int64)
            self._free, self._on_until = slot.free.copy(), slot.on_until.copy()
            # a task without room now has none later in the slot: most of a long queue is not looked at again
            room = np.repeat(slot.up[None], len(slot.ids), axis=0)
            for k, limit in enumerate((slot.free + self._slack).T):
                room &= slot.tasks.demand[:, k, None] <= limit
            self._hopeful: list[int] = np.flatnonzero(room.any(axis=1)).tolist()

    def _seek(self) -> None:
        """Go to the next task that has a choice, in this slot or a later one."""
        while self._slot is not None:
            while self._hopeful:
                self._task = self._hopeful.pop(0)
                self._choice = self._choices(self._slot)
                if self._choice.max() >= 0:
                    return
            outcome = self.world.step(PlacementDecision(self._server))
            self._total += outcome.reward - self._brought  # failures: rewards reported before were lost
            self._open(next(self._slots, None))

    def _choices(self, slot: PlacementSlot) -> Ints:
        """Server of each kind that the current task would get, (Q,); -1 if none has room."""
        room = slot.up & (slot.tasks.demand[self._task] <= self._free + self._slack).all(axis=1)
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

    def _gain(self, slot: PlacementSlot, server: int) -> float:
        """Gain of the current task if it starts now on this server."""
        problem, i = self.problem, self._task
        tasks = slot.tasks
        time = tasks.work[i] / problem.speed[server]
        end = slot.time + time
        late = end > tasks.deadline[i]
        worth = 0.0 if late else max(tasks.value[i] - tasks.decay[i] * (end - tasks.arrival[i]), 0.0)
        launch = 0.0 if slot.time <= self._on_until[server] else problem.launch[server]
        return float(worth - problem.rate[server] * (problem.weight @ tasks.demand[i]) * time - launch)

    def _place(self, server: int) -> None:
        slot = self._slot
        if slot is None:
            return
        gain = self._gain(slot, server)
        self._total += gain
        self._brought += gain
        self._server[self._task] = server
        self._free[server] -= slot.tasks.demand[self._task]
        self._on_until[server] = np.inf

    # ------------------------------------------------------------------------ what the agent sees

    def action_masks(self) -> NDArray[np.bool_]:
        """Possible actions, (1 + Q,): same as `info["action_mask"]`, under the name that sb3-contrib expects."""
        return np.concatenate([[True], self._choice >= 0])

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.action_masks().astype(np.int8)}

    def _observation(self) -> Observation:
        seen = np.zeros(len(self.features), dtype=np.float32)
        slot = self._slot
        if slot is None:
            return seen
        problem, tasks, i = self.problem, slot.tasks, self._task
        value, left = tasks.value[i], tasks.deadline[i] - slot.time
        quickest = tasks.work[i] / problem.speed.max()
        waited = slot.time - tasks.arrival[i]
        own = [
            *(tasks.demand[i] / self._most),
            _part(value, self._scale),
            _part(tasks.decay[i] * quickest, value),
            _part(left, quickest),
            _part(waited, self.world.period),
            _part(len(self._hopeful), 10.0),
            _part(len(slot.ids), 10.0),
            slot.index / len(self.world),
        ]
        for q in range(len(self._members)):
            own += self._kind(slot, q)
        seen[:] = own
        return np.clip(seen, -1.0, 1.0, out=seen)

    def _kind(self, slot: PlacementSlot, q: int) -> list[float]:
        """Observations of one kind of servers."""
        members, server = self._members[q], int(self._choice[q])
        free = self._free[members].sum(axis=0) / self._total_of[q]
        up = slot.up[members]
        launched = np.count_nonzero((slot.time <= self._on_until[members]) & up)
        room = server >= 0
        launch = room and not slot.time <= self._on_until[server]
        gain = self._gain(slot, server) / max(float(slot.tasks.value[self._task]), 1e-300) if room else 0.0
        return [*free, np.count_nonzero(up) / len(members), launched / len(members), room, launch, gain]


def _part(amount: float, typical: float) -> float:
    """Map a number ≥ 0 to [0, 1); the typical value maps to a half."""
    return amount / (amount + typical) if amount > 0 else 0.0


if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point="berth.gym:PlacementEnv")
