"""Batch queues: which waiting job starts now?

Axes: W jobs in the window, R servers, K resources, G devices.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from berth.capacity import TOLERANCE
from berth.errors import InvalidInput
from berth.families.placement.kernels.gathering import hold_all
from berth.families.placement.problem import WAIT, PlacementDecision, PlacementProblem, PlacementSlot
from berth.families.placement.trace_world import batch_jobs, batch_world, pooled, squeezed
from berth.families.placement.world import PlacementWorld
from berth.gym.episodes import QuestionEnv
from berth.gym.questions import Asking, Observation, Questions, part
from berth.model import Floats, Ints
from berth.random import stream
from berth.traces.fitting.generate import generate
from berth.traces.fitting.workload import Workload, load_workload, workload_names
from berth.traces.formats import open_trace
from berth.traces.lint import usable
from berth.traces.trace import Trace

__all__ = ["QueueEnv", "QueueQuestions"]

OF_JOB = ("present", "time waited", "estimate", "size", "fits")
THRESHOLD = 10.0
"""Seconds below which a run time does not count for the bounded slowdown."""
WINDOW = 16


class QueueQuestions(Questions):
    """Asks which of the first W waiting jobs starts now: 0 none until something happens, 1 + j the j-th.

    It asks again after each start, as long as one of them fits. A job gets the first servers with room, those that are
    on before others. While nothing runs, one of the jobs that fit must start. Times are relative to the mean estimate
    of the jobs in the window, sizes to the cluster.
    """

    family = "placement"

    def __init__(self, problem: PlacementProblem, window: int = WINDOW) -> None:
        if window < 1:
            raise InvalidInput("a whole number ≥ 1", value=window, key="window")
        self.problem, self.window = problem, window
        self.features = (
            "free share of the cluster",
            "jobs waiting",
            *(f"job {j}: {name}" for j in range(window) for name in OF_JOB),
        )
        self.action_space = spaces.Discrete(1 + window)
        self.observation_space = spaces.Box(0.0, 1.0, (len(self.features),), np.float32)
        self._slack = TOLERANCE * (1.0 + problem.instance.capacity)
        self._whole = np.maximum(problem.instance.capacity.sum(axis=0), 1e-300)

    def ask(self, slot: PlacementSlot) -> Asking:
        """Ask until no job of the window fits, or the agent lets them wait."""
        server, gangs = np.full(len(slot.ids), WAIT, dtype=np.int64), {}
        free = np.where(slot.up[:, None], slot.free, -1.0)
        devices = None if slot.devices is None else slot.devices.copy()
        waiting, idle = list(range(len(slot.ids))), not len(slot.berths.task)
        while waiting:
            window = waiting[: self.window]
            room = [self._room(slot, free, devices, i) for i in window]
            fits = np.array([found.sum() >= slot.tasks.pieces[i] for i, found in zip(window, room, strict=True)])
            if not fits.any():
                break
            mask = np.zeros(1 + self.window, dtype=np.int8)
            mask[0], mask[1 : 1 + len(window)] = not idle, fits
            answer = int((yield self._observation(slot, free, len(waiting), window, fits), mask))
            if not (0 <= answer < len(mask) and mask[answer]):
                answer = int(mask.argmax())
            if answer == 0:
                break
            task, there = window[answer - 1], room[answer - 1]
            pieces = self._seats(slot, there, int(slot.tasks.pieces[task]))
            server[task], idle = pieces[0], False
            if len(pieces) > 1:
                gangs[task] = pieces
            waiting.remove(task)
            np.subtract.at(free, pieces, slot.tasks.demand[task])
            if devices is not None and self.problem.devices is not None:
                share = np.full(len(pieces), slot.tasks.demand[task, self.problem.devices])
                held = np.zeros((len(pieces), devices.shape[1]))
                hold_all(pieces, share, np.ones(len(pieces), dtype=np.int64), devices, held)
        return PlacementDecision(server, None, gangs)

    def _room(self, slot: PlacementSlot, free: Floats, devices: Floats | None, i: int) -> Ints:
        """Pieces of a task that fit on each server, (R,), at most as many as it has."""
        demand, most = slot.tasks.demand[i], int(slot.tasks.pieces[i])
        left = free + self._slack
        able = self.problem.reach[slot.tasks.port[i]] & slot.up & (demand <= left).all(axis=1)
        room = np.where(able, most, 0)
        for k in np.flatnonzero(demand > 0).tolist():
            if k == self.problem.devices and devices is not None:
                room = np.minimum(room, _on_devices(devices, float(demand[k])))
            else:
                room = np.minimum(room, np.floor(np.maximum(left[:, k], 0.0) / demand[k]).astype(np.int64))
        return room

    def _seats(self, slot: PlacementSlot, room: Ints, pieces: int) -> Ints:
        """Server of each piece."""
        off = (self.problem.launch > 0) & ~(slot.time <= slot.on_until)
        order = np.argsort(off, kind="stable")
        return np.repeat(order, room[order])[:pieces]

    def _observation(
        self, slot: PlacementSlot, free: Floats, waiting: int, window: list[int], fits: NDArray[np.bool_]
    ) -> Observation:
        tasks = slot.tasks
        typical = float(tasks.work[window].mean())
        seen = np.zeros(len(self.features), dtype=np.float32)
        seen[:2] = float((np.maximum(free, 0.0).sum(axis=0) / self._whole).min()), part(waiting, self.window)
        for j, i in enumerate(window):
            size = float((tasks.demand[i] * tasks.pieces[i] / self._whole).max())
            waited = part(float(slot.time - tasks.arrival[i]), typical)
            place = 2 + len(OF_JOB) * j
            seen[place : place + len(OF_JOB)] = 1.0, waited, part(float(tasks.work[i]), typical), size, fits[j]
        return np.clip(seen, 0.0, 1.0, out=seen)


def _on_devices(devices: Floats, share: float) -> Ints:
    """Pieces of this share, or this whole number, of devices that fit on each server, (R,)."""
    if share < 1.0 - TOLERANCE:
        shared: Ints = np.floor((devices + TOLERANCE) / share).sum(axis=1).astype(np.int64)
        return shared
    whole: Ints = np.count_nonzero(devices >= 1.0 - TOLERANCE, axis=1) // int(share + 0.5)
    return whole


class QueueEnv(QuestionEnv):
    """Which waiting job starts now, on a batch cluster.

    `source` is a fitted workload (`berth workload list`), whose jobs are drawn anew in each episode, or a trace, of
    which each episode plays `jobs` consecutive ones. `processors` puts the jobs on one pool, and `load` rescales their
    inter-arrival times to an offered load. The agent sees users' estimates, as in `berth replay`.

    The reward of a start is the negative bounded slowdown of the job over the number of jobs, so the rewards of an
    episode add up to the negative mean bounded slowdown.

    >>> env = QueueEnv("lublin-256", jobs=30, window=4)
    >>> observation, info = env.reset(seed=1)
    >>> int(env.action_space.n), observation.shape
    (5, (22,))
    """

    asked = QueueQuestions

    def __init__(
        self,
        source: str | Path = "sdsc-sp2",
        *,
        jobs: int = 200,
        window: int = WINDOW,
        processors: float | None = None,
        load: float | None = None,
    ) -> None:
        if jobs < 1:
            raise InvalidInput("a whole number ≥ 1", value=jobs, key="jobs")
        self.jobs, self.window, self.processors, self.load = jobs, window, processors, load
        self._source: Workload | Trace
        if str(source) in workload_names():
            self._source = load_workload(source)
        else:
            self._source = self._usable(open_trace(source).trace())
        super().__init__()

    def _usable(self, trace: Trace) -> Trace:
        return usable(trace if self.processors is None else pooled(trace, self.processors))[0]

    def world_of(self, seed: int) -> PlacementWorld:
        """The jobs of this seed on their cluster."""
        if isinstance(self._source, Trace):
            spare = max(len(self._source.jobs) - self.jobs, 0)
            first = int(stream(seed, "gym", "queue").integers(spare + 1))
            trace = self._source.replace(jobs=self._source.jobs.slice(first, self.jobs))
        else:
            trace = self._usable(generate(self._source, jobs=self.jobs, seed=seed))
        if self.load is not None:
            trace = squeezed(trace, self.load)
        return batch_world(batch_jobs(trace), trace)

    def questions_of(self, problem: PlacementProblem) -> QueueQuestions:
        """Questions with the window of this environment."""
        return QueueQuestions(problem, self.window)

    def earned(self, slot: PlacementSlot, decision: PlacementDecision, outcome: object) -> float:
        """Negative bounded slowdowns of the jobs that start, over the number of jobs."""
        new = self.world.problem.placed(slot, decision)
        tasks = np.unique(new.task)
        if not len(tasks):
            return 0.0
        speed = np.full(len(tasks), np.inf)
        np.minimum.at(speed, np.searchsorted(tasks, new.task), self.world.problem.speed[new.server])
        run = self.world.runs[tasks] / speed
        wait = slot.time - self.world.tasks.arrival[tasks]
        slowdown = np.maximum((wait + run) / np.maximum(run, THRESHOLD), 1.0)
        return -float(slowdown.sum()) / len(self.world.tasks)
