"""Gavel's mechanism: rounds in which the jobs run that are furthest behind their allocation.

An allocation says for which share of the time each job is to run on each model of GPU. It is computed anew at most
every `RENEWED` seconds, after jobs came or ended. In each round, the jobs of each model are taken in the order of their
share, divided by the time that they had there. A job that goes on where it is keeps running; others are interrupted.
Written after Narayanan et al., OSDI 2020, and the behaviour of their simulator.

Axes: n jobs in order of arrival, m models of GPU.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from berth import InvalidInput
from berth.live.policies import Allowed, JobRecord, Outcome, Placing, View, may_be_interrupted, placed_in_order
from berth.model import Floats, Ints
from berth_gavel.jobs import MODEL, MODELS, read_speeds

__all__ = ["Rounds"]

RENEWED = 1920.0
"""Seconds between two allocations, at least."""
GPU, MILLI = "gpu", 1000
"""The resource, and how many whole numbers are one GPU."""
EQUAL = np.ones(len(MODELS))
"""The speeds of a job that the file does not have."""


class Rounds:
    """Plays the allocation of a subclass. `speeds` is a file of measured speeds, `round` the length of a round."""

    family = "live"
    reference = "Narayanan et al., Gavel, OSDI 2020"
    interrupts = True
    strict: ClassVar[bool] = False
    """Whether jobs without a share stay out of the GPUs that are left."""
    informed: ClassVar[bool] = True
    """Whether the policy knows speeds: if not, models are filled in random order, so that none is preferred."""

    def __init__(self, rng: np.random.Generator | None = None, *, speeds: str = "", round: float = 360.0) -> None:
        if not speeds:
            raise InvalidInput("the file of measured speeds", value=speeds, key="speeds")
        self._speeds, self._round = read_speeds(speeds), round
        self._rng = np.random.default_rng(0) if rng is None else rng
        self._begin, self.next_look = -math.inf, -math.inf
        self._target: dict[str, int] = {}
        """The model of each job that is to run in this round."""
        self._names: list[str] = []
        """The jobs that the columns below are of."""
        self._speed = np.zeros((0, len(MODELS)))
        self._gpus = np.zeros(0, dtype=np.int64)
        self._share, self._had, self._behind = (np.zeros((0, len(MODELS))) for _ in range(3))
        self._known = np.zeros(0, dtype=bool)
        """Which jobs the allocation is of."""
        self._renewed, self._changed = 0.0, False

    def allocation(self, speed: Floats, gpus: Ints, there: Ints) -> Floats:
        """The share of the time (n, m) that each job is to run on each model."""
        raise NotImplementedError

    def decide(self, view: View, /) -> Placing:
        """At the end of a round, interrupt the jobs that do not go on; else start those of the round that wait."""
        if view.time >= self.next_look:
            self._next_round(view)
            if len(stop := self._stopped(view)):
                return Placing(*(stop[:0],) * 4, stop)
        return self._started(view)

    def observe(self, outcome: Outcome, /) -> None:
        """Nothing to learn: the speeds are told."""

    # ------------------------------------------------------------------ a round

    def _next_round(self, view: View) -> None:
        gpus, models = _gpus(view), _models(view)
        there = np.array([gpus[models == model].sum() for model in range(len(MODELS))])
        self._account(view.time)
        self._follow(view)
        since = view.time - self._renewed
        if self._changed and (since >= RENEWED or self._renewed == 0.0):
            self._renew(view.time, there)
        self._target = self._chosen(there) if self._names else {}
        self._begin = view.time
        self.next_look = view.time + self._round if self._names else -math.inf

    def _account(self, time: float) -> None:
        """Add the last round to what its jobs have had."""
        place = {name: i for i, name in enumerate(self._names)}
        for name, model in self._target.items():
            self._had[place[name], model] += time - self._begin

    def _follow(self, view: View) -> None:
        """Drop the columns of jobs that have ended, and add those of jobs that came."""
        jobs: Mapping[str, JobRecord] = view.state.jobs
        stay = np.array([name in jobs for name in self._names], dtype=bool)
        self._names = [name for name in self._names if name in jobs]
        known = set(self._names)
        new = sorted((one for name, one in jobs.items() if name not in known), key=lambda one: one.number)
        self._changed |= bool(new) or not stay.all()
        self._names += [one.job.id for one in new]
        gpus = [one.job.total.get(GPU, 0) // MILLI for one in new]
        rows = [self._speeds.get((one.job.type, many), EQUAL) for one, many in zip(new, gpus, strict=True)]
        half = np.full((len(new), len(MODELS)), self._round / 2.0)
        self._speed = np.vstack([self._speed[stay], *rows])
        self._gpus = np.append(self._gpus[stay], gpus).astype(np.int64)
        self._had = np.vstack([self._had[stay], half])
        self._share, self._behind = (np.vstack([one[stay], 0.0 * half]) for one in (self._share, self._behind))
        self._known = np.append(self._known[stay], np.zeros(len(new), dtype=bool))

    def _renew(self, time: float, there: Ints) -> None:
        """Compute the allocation anew; what jobs had too little of the last one orders equals."""
        self._behind += self._share * (time - self._renewed) - (self._had - self._round / 2.0)
        self._had[:] = self._round / 2.0
        if self._names:
            self._share = np.clip(self.allocation(self._speed, self._gpus, there), 0.0, 1.0)
        self._known[:] = True
        self._renewed, self._changed = time, False

    def _chosen(self, there: Ints) -> dict[str, int]:
        """The jobs that run in this round, each with its model."""
        first = np.where((self._speed > 0) & self._known[:, None], self._share / self._had, 0.0)
        models = range(len(MODELS)) if self.informed else self._rng.permutation(len(MODELS)).tolist()
        out, chosen = np.ones(len(self._names), dtype=bool), {}
        for model in models:
            left = int(there[model])
            order = np.lexsort((-self._share[:, model], -self._behind[:, model], -first[:, model]))
            for job in order.tolist():
                may = out[job] and self._speed[job, model] > 0 and not (self.strict and first[job, model] <= 0)
                if may and self._gpus[job] <= left:
                    out[job], left = False, left - int(self._gpus[job])
                    if self._known[job]:  # as in Gavel's simulator, a job without allocation takes room and waits
                        chosen[self._names[job]] = model
        return chosen

    # ------------------------------------------------------------------ places

    def _stopped(self, view: View) -> Ints:
        """The running jobs (rows of the table) that do not go on where they are."""
        running, models, records = view.running, _models(view), view.state.table.by_row
        first = models[running.server[running.start[:-1]]]
        stop = [
            row
            for row, model in zip(running.rows.tolist(), first.tolist(), strict=True)
            if self._target.get(records[row].job.id) != model and may_be_interrupted(records[row], view.time)
        ]
        return np.array(stop, dtype=np.int64)

    def _started(self, view: View) -> Placing:
        """Jobs of the round that wait start on their models, the widest first."""
        wanted = [i for i, record in enumerate(view.records) if record.job.id in self._target]
        if not wanted:
            return Placing.nothing()
        wanted.sort(key=lambda i: -view.records[i].job.total.get(GPU, 0))
        model = np.array([self._target[view.records[i].job.id] for i in wanted])
        sets = _models(view)[None, :] == np.arange(len(MODELS))[:, None]
        return view.whole(wanted, placed_in_order(view.only(wanted).allowing(Allowed(model, sets))))


def _gpus(view: View) -> Ints:
    """How many GPUs each server (R,) has that may be used."""
    if GPU not in view.resources:
        return np.zeros(len(view.servers), dtype=np.int64)
    there: Ints = np.where(view.usable, view.capacity[:, view.resources.index(GPU)] // MILLI, 0)
    return there


def _models(view: View) -> Ints:
    """The model of each server (R,), -1 where it has none."""
    values, numbers = view.state.label(MODEL)
    models = np.full(len(values) + 1, -1)  # the last: servers without the label, -1
    for name, number in values.items():
        models[number] = MODELS.index(name) if name in MODELS else -1
    found: Ints = models[numbers]
    return found
