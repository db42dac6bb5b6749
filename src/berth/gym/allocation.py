"""Allocation: how much does this job get on this server?

Axes: E channels, R servers, K resources, J jobs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from berth.errors import UnsupportedProblem
from berth.families.allocation.problem import AllocationOutcome, AllocationProblem, AllocationSlot
from berth.gym.episodes import ScenarioEnv
from berth.gym.questions import Asking, Questions, part, signed

__all__ = ["AllocationEnv", "AllocationQuestions"]

FEATURES = (
    "arrival rate of the job",
    "job has arrived",
    "request by capacity",
    "share of the server left",
    "requests of others still to ask by capacity",
    "reward of a first unit",
    "share of the job's channels asked",
    "share of the run",
)


class AllocationQuestions(Questions):
    """Asks about each channel, server by server: the share of its request that the job gets, from 0 to 1.

    The amount of each resource is this share of the request, at most what is left on the server. Jobs that are known
    not to have arrived are not asked about; if arrivals are hidden, "job has arrived" is a half.
    """

    family = "allocation"

    def __init__(self, problem: AllocationProblem) -> None:
        if problem.gang is not None:
            raise UnsupportedProblem("questions about single channels cannot keep gangs whole")
        self.problem = problem
        self.features = FEATURES
        self.action_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.observation_space = spaces.Box(-1.0, 1.0, (len(FEATURES),), np.float32)
        self._came, self._slots = np.zeros(problem.jobs), 0
        capacity = problem.instance.capacity[problem.instance.channel_server]
        shares = np.divide(problem.cap, capacity, out=np.zeros_like(capacity), where=capacity > 0)
        self._wanted = shares.max(axis=1)  # request by the capacity of its server, largest over resources
        first = problem.gradient(np.ones(problem.jobs), np.zeros(problem.cap.shape))
        self._first = np.where(problem.cap > 0, first, 0.0).mean(axis=1)

    def ask(self, slot: AllocationSlot) -> Asking:
        """Ask about the channels of this slot."""
        problem, graph = self.problem, self.problem.instance
        decision, left = np.zeros(problem.cap.shape), slot.free.copy()
        jobs, servers = problem.channel_job, graph.channel_server
        present = np.ones(len(jobs)) if slot.arrivals is None else slot.arrivals[jobs]
        asked = np.flatnonzero((present > 0) & (np.minimum(problem.cap, left[servers]) > 0).any(axis=1))
        others = np.bincount(servers[asked], weights=self._wanted[asked], minlength=len(left))
        channels, done = np.bincount(jobs, minlength=problem.jobs), np.zeros(problem.jobs)
        rate = (self._came + 1.0) / (self._slots + 1.0)
        for e in asked.tolist():
            server, job = servers[e], jobs[e]
            others[server] -= self._wanted[e]
            capacity = graph.capacity[server]
            share = np.divide(left[server], capacity, out=np.ones(len(capacity)), where=capacity > 0)
            seen = np.array(
                [
                    min(float(rate[job]), 1.0),
                    0.5 if slot.arrivals is None else 1.0,
                    part(float(self._wanted[e]), 1.0),
                    float(share[problem.cap[e] > 0].min(initial=1.0)),
                    part(float(others[server]), 1.0),
                    signed(float(self._first[e]), 1.0),
                    float(done[job] / channels[job]),
                    part(float(slot.index), float(problem.horizon or 1000)),
                ],
                dtype=np.float32,
            )
            answer = yield np.clip(seen, -1.0, 1.0), np.ones(1, dtype=np.int8)
            got = np.minimum(_share(answer) * problem.cap[e], np.maximum(left[server], 0.0))
            decision[e] = got
            left[server] -= got
            done[job] += 1
        return decision

    def observe(self, outcome: AllocationOutcome) -> None:
        """Count the arrivals."""
        self._came += outcome.arrivals > 0
        self._slots += 1


def _share(answer: Any) -> float:
    share = float(np.asarray(answer, dtype=np.float64).reshape(-1)[0])
    return min(max(share, 0.0), 1.0) if np.isfinite(share) else 0.0


class AllocationEnv(ScenarioEnv):
    """How much every job gets on every server, one channel after the other, in a scenario without gangs.

    >>> env = AllocationEnv("small", {"horizon": 3})
    >>> observation, info = env.reset(seed=1)
    >>> env.action_space.shape, observation.shape, env.features[3]
    ((1,), (8,), 'share of the server left')
    """

    asked = AllocationQuestions
    default = "small"
