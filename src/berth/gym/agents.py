"""Policies that ask a trained agent, for `compare`, `simulate` and `replay`.

Derive a class from the one of your environment, and load the agent in it:

```python
class Mine(berth.gym.QueueAgent):
    files = ("ppo-queue.zip",)

    def load(self):
        return PPO.load("ppo-queue.zip")
```
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from berth.errors import InvalidInput
from berth.gym.allocation import AllocationQuestions
from berth.gym.placement import PlacementEnv, PlacementQuestions
from berth.gym.questions import Mask, Observation, Questions
from berth.gym.queue import QueueQuestions
from berth.gym.selection import SelectionQuestions

__all__ = ["AgentPolicy", "AllocationAgent", "PlacementAgent", "QueueAgent", "SelectionAgent", "answering"]


def answering(agent: Any) -> Callable[[Observation, Mask], Any]:
    """How to ask an agent: a function of an observation and its mask.

    An agent has `predict(observation)`, as in Stable-Baselines3, or `compute_single_action(observation)`, as in RLlib,
    or is a function. Masks are passed to agents that take `action_masks`, as `MaskablePPO` does, and to functions of
    two arguments. Agents that take `deterministic` or `explore` are asked for their best action. If the answer is a
    tuple, its first part is the action.

    >>> answering(lambda observation: 2)(np.zeros(3), np.ones(3))
    2
    """
    for name, options in (("predict", {"deterministic": True}), ("compute_single_action", {"explore": False})):
        method = getattr(agent, name, None)
        if callable(method):
            best = {key: value for key, value in options.items() if _takes(method, key)}
            return partial(_asked, method, best, _takes(method, "action_masks"))
    if not callable(agent):
        expected = "an agent with predict or compute_single_action, or a function of the observation"
        raise InvalidInput(expected, found=type(agent).__name__, key="agent")
    two = _places(agent) > 1
    return lambda observation, mask: _first(agent(observation, mask) if two else agent(observation))


def _asked(method: Any, best: dict[str, bool], masked: bool, observation: Observation, mask: Mask) -> Any:
    return _first(method(observation, **best, **({"action_masks": mask.astype(bool)} if masked else {})))


def _first(answer: Any) -> Any:
    return answer[0] if isinstance(answer, tuple) else answer


def _takes(method: Any, name: str) -> bool:
    try:
        found = inspect.signature(method).parameters
    except (TypeError, ValueError):  # compiled
        return False
    return name in found


def _places(function: Any) -> int:
    """Number of arguments that a function takes by place."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    return sum(
        each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty for each in found
    )


class AgentPolicy(ABC):
    """A policy whose decisions are the answers of an agent to the questions of its environment.

    `load` is called once for each policy, and again after it was unpickled: the agent itself is never pickled. `files`
    are the files that `load` reads: `berth compare --out` repeats a cell when they change.
    """

    family: ClassVar[str]
    asked: ClassVar[type[Questions]]
    files: ClassVar[tuple[str, ...]] = ()
    reference = "none: a trained agent"

    def __init__(self, problem: Any, rng: np.random.Generator) -> None:
        self.problem, self.rng = problem, rng
        self.questions = self.made(problem)
        self._answer: Callable[[Observation, Mask], Any] | None = None

    @abstractmethod
    def load(self) -> Any:
        """The agent: see `answering`."""

    def made(self, problem: Any) -> Questions:
        """The questions about a problem, as in training."""
        return self.asked(problem)

    def decide(self, slot: Any, /) -> Any:
        """Ask the agent all questions of this slot."""
        if self._answer is None:
            self._answer = answering(self.load())
        asking = self.questions.ask(slot)
        try:
            observation, mask = next(asking)
            while True:
                observation, mask = asking.send(self._answer(observation, mask))
        except StopIteration as stop:
            return stop.value

    def observe(self, outcome: Any, /) -> None:
        """Tell the questions, which count arrivals and gains."""
        self.questions.observe(outcome)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_answer": None}


class QueueAgent(AgentPolicy):
    """A policy of an agent trained in `berth/Queue-v0`; `window` is that of its environment."""

    family = "placement"
    asked = QueueQuestions
    window: ClassVar[int] = 16

    def made(self, problem: Any) -> Questions:
        """The questions, with the window of the class."""
        return QueueQuestions(problem, self.window)


class PlacementAgent(AgentPolicy):
    """A policy of an agent trained in `berth/Placement-v0`; `scenario` and `overrides` are those of its environment.

    It serves problems with the same kinds of servers.
    """

    family = "placement"
    asked = PlacementQuestions
    scenario: ClassVar[str] = "drl-default"
    overrides: ClassVar[Mapping[str, Any] | None] = None

    def made(self, problem: Any) -> Questions:
        """The questions, relative to the values and times of the scenario."""
        return PlacementEnv(self.scenario, self.overrides).questions_for(problem)


class SelectionAgent(AgentPolicy):
    """A policy of an agent trained in `berth/Selection-v0`."""

    family = "selection"
    asked = SelectionQuestions


class AllocationAgent(AgentPolicy):
    """A policy of an agent trained in `berth/Allocation-v0`."""

    family = "allocation"
    asked = AllocationQuestions
