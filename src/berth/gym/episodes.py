"""An environment that plays a world slot by slot and passes its questions to the agent."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from berth.errors import InvalidInput
from berth.gym.questions import Asking, Mask, Observation, Questions
from berth.scenario import load_scenario

__all__ = ["QuestionEnv", "ScenarioEnv"]


class QuestionEnv(gymnasium.Env[Observation, Any]):
    """One episode is one run, one step answers one question.

    `info["action_mask"]` is 1 for each possible action. The rewards of an episode add up to the reward of the run. The
    reward of a slot comes with the step after which it is decided, unless it is known before.

    `reset(seed=…)` makes a sequence of episodes repeatable; each further `reset()` draws another world.
    `reset(options={"world": n})` plays the world of seed n, as `berth compare` does.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 -- as Gymnasium declares it
    asked: ClassVar[type[Questions]]
    _due: float
    _seen: Observation
    _mask: Mask

    def __init__(self) -> None:
        self._begin(0)
        self.features = self.questions.features
        self.action_space = self.questions.action_space
        self.observation_space = self.questions.observation_space  # type: ignore[assignment]
        self._over = True

    @abstractmethod
    def world_of(self, seed: int) -> Any:
        """The world of this seed."""

    def questions_of(self, problem: Any) -> Questions:
        """The questions about a problem."""
        return self.asked(problem)

    def earned(self, slot: Any, decision: Any, outcome: Any) -> float:
        """Reward of a slot."""
        return float(outcome.reward)

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
        self._begin(world)
        self._over = False
        self._next()
        return self._seen, {"action_mask": self._mask}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Answer the question and go on to the next; the third result says whether the run is over."""
        if self._over:
            raise InvalidInput("an episode: reset before the first step and after the last", key="step")
        self._check(action)
        before = self.questions.credited
        if self._asking is not None:
            self._next(action)
        self._over = self._asking is None
        earned = self._due + self.questions.credited - before
        self._due = 0.0
        return self._seen, earned, self._over, False, {"action_mask": self._mask}

    def _check(self, action: Any) -> None:
        """Refuse what is no action; agents may return Python numbers."""
        space = self.action_space
        if isinstance(space, gymnasium.spaces.Discrete):
            if not space.contains(np.int64(action)):
                raise InvalidInput(f"an action from 0 to {space.n - 1}", value=int(action), key="action")
        elif not space.contains(np.asarray(action, dtype=np.float32)):
            raise InvalidInput(f"an action of {space}", value=action, key="action")

    def action_masks(self) -> NDArray[np.bool_]:
        """Possible actions: same as `info["action_mask"]`, under the name that sb3-contrib expects."""
        return self._mask.astype(np.bool_)

    def _begin(self, seed: int) -> None:
        self.world = self.world_of(seed)
        self.questions = self.questions_of(self.world.problem)
        self._slots: Iterator[Any] = iter(self.world)
        self._slot: Any = None
        self._asking: Asking | None = None
        self._due = 0.0

    def _next(self, action: Any = None) -> None:
        """Go to the next question, in this slot or a later one; None if the run is over."""
        while True:
            try:
                if self._asking is None:
                    self._slot = next(self._slots)
                    self._asking = self.questions.ask(self._slot)
                    self._seen, self._mask = next(self._asking)
                else:
                    self._seen, self._mask = self._asking.send(action)
                return
            except StopIteration as stop:
                if self._asking is None:  # no slot is left
                    self._seen = np.zeros(self.questions.observation_space.shape, dtype=np.float32)
                    self._mask = np.zeros(int(getattr(self.questions.action_space, "n", 1)), dtype=np.int8)
                    self._mask[0] = 1
                    return
                self._asking = None
                outcome = self.world.step(stop.value)
                self._due += self.earned(self._slot, stop.value, outcome)
                for told in self.world.feedback(outcome):
                    self.questions.observe(told)


class ScenarioEnv(QuestionEnv):
    """An environment whose worlds are those of a scenario."""

    default: ClassVar[str]

    def __init__(
        self,
        scenario: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        given = self.default if scenario is None else scenario
        self.scenario = load_scenario(given if isinstance(given, Mapping) else os.fspath(given), overrides)
        family = self.asked.family
        if self.scenario.family != family:
            raise InvalidInput(f"a scenario of the {family} family", value=self.scenario.family, key="family")
        self.arrivals_known = self.scenario.arrivals_known != "hidden"
        super().__init__()

    def world_of(self, seed: int) -> Any:
        """The world of this seed, with arrivals revealed unless the scenario only hides them."""
        return self.scenario.build(seed, self.arrivals_known)
