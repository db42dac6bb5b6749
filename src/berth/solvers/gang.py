"""Gangs with whole numbers of tasks: prices for a bound, ruin-and-recreate for an answer.

With a price on every unit of every pool, and the root turned into a sum by √y = min over u of 1/(2u) + u·y/2, each job
is a problem of its own with a closed form: fill the channels that are worth most, top up to the minimum, start if it
pays. What the jobs then get, with the prices of all pools and 1/(2u), is an upper bound for any prices. Steps on the
prices make it small; the average of the steps shows where tasks belong, and jobs are placed, taken away and placed
again after it until value and bound are close.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from berth.kernels import gang_selection as kernel
from berth.model import Floats, Ints
from berth.solvers.question import Choice, GangQuestion

__all__ = ["choose_gang"]

TOLERANCE = 2e-10  # of a pool, below that of `Question.fits`
ROUNDING = 1e-12  # of sums of floats, added to the bound
PRICE_STEPS = 150  # in each of the first two rounds
LATER_STEPS = 50  # of prices, every `LATER_EVERY` rounds after them
LATER_EVERY = 15
FILLS = 4  # answers made from the relaxed problem, each with other roundings
PLACE_STEPS = 100  # of ruin-and-recreate in a round
# how much worse an answer may get for a while, in parts of the distance to the bound; now and then more, to get away
HEAT = (0.05, 0.05, 0.05, 0.3)
LEAN = 0.5  # how much the relaxed problem counts next to the prices


class _Reduced(NamedTuple):
    """The part of a question that can be used at all: channels sorted by role, roles by job."""

    kept: Ints  # (n,) channels of the question
    job: Ints  # (n,) job of each kept channel
    cap: Ints  # (n,)
    free: Floats  # (G, K)
    gangs: kernel.Gangs
    answer: kernel.Answer


def _caps(question: GangQuestion, free: Floats) -> Ints:
    """How many tasks each channel (n,) holds when it has its pool to itself."""
    cap = question.most[question.port].astype(np.float64)
    for k in range(free.shape[1]):
        take = question.takes[:, k]
        some = take > 0.0
        cap[some] = np.minimum(cap[some], np.floor(free[question.pool[some], k] / take[some]))
    return np.maximum(cap, 0.0).astype(np.int64)


def _startable(question: GangQuestion, cap: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Jobs (J,) that have arrived and have channels enough for the minimum of every role."""
    held = np.bincount(question.port, weights=cap, minlength=len(question.minimum))
    short = (held < question.minimum) | (question.minimum > question.most)
    startable = np.array(question.arrived, dtype=bool)
    startable[question.job_of_port[short]] = False
    return startable


def _reduced(question: GangQuestion) -> _Reduced | None:
    """The question without what cannot be used; None when nothing can."""
    free = np.maximum(np.asarray(question.free, dtype=np.float64), 0.0)
    free = free + TOLERANCE * (1.0 + free)
    cap = _caps(question, free)
    startable = _startable(question, cap)
    job_of_channel = question.job_of_port[question.port]
    kept = np.flatnonzero((cap > 0) & startable[job_of_channel])
    if not kept.size:
        return None
    jobs = np.flatnonzero(startable)
    roles = np.argsort(question.job_of_port, kind="stable")
    roles = roles[startable[question.job_of_port[roles]]]
    rank = np.full(len(question.minimum), -1, dtype=np.int64)
    rank[roles] = np.arange(len(roles))
    kept = kept[np.argsort(rank[question.port[kept]], kind="stable")]
    role = rank[question.port[kept]]
    job = np.searchsorted(jobs, job_of_channel[kept])
    pool = question.pool[kept].astype(np.int64)
    pool_channel = np.argsort(pool, kind="stable")
    size = len(kept)
    gangs = kernel.Gangs(
        gain=np.array(question.gain[kept], dtype=np.float64),
        spread=np.array(question.spread[kept], dtype=np.float64),
        takes=np.array(question.takes[kept], dtype=np.float64, order="C"),
        pool=pool,
        role=role,
        job=job,
        cap=cap[kept],
        role_start=np.searchsorted(role, np.arange(len(roles) + 1)),
        job_start=np.searchsorted(question.job_of_port[roles], np.append(jobs, jobs[-1] + 1)),
        low=question.minimum[roles].astype(np.int64),
        high=question.most[roles].astype(np.int64),
        pool_start=np.searchsorted(pool[pool_channel], np.arange(len(free) + 1)),
        pool_channel=pool_channel,
        toll=np.zeros(size),
        income=np.zeros(size),
        aim=np.zeros(size),
    )
    answer = kernel.Answer(
        count=np.zeros(size, dtype=np.int64),
        left=free.copy(),
        placed=np.zeros(len(roles), dtype=np.int64),
        started=np.zeros(len(jobs), dtype=np.int64),
        sums=np.zeros(2),
        old=np.zeros(size, dtype=np.int64),
        touched=np.zeros(size, dtype=np.int64),
        is_touched=np.zeros(size, dtype=np.int64),
        sizes=np.zeros(1, dtype=np.int64),
    )
    return _Reduced(kept, job, cap[kept], free, gangs, answer)


class _Prices:
    """Prices and the bound they prove."""

    def __init__(self, part: _Reduced) -> None:
        jobs, size = len(part.answer.started), len(part.kept)
        self.part = part
        self.now, self.best = np.zeros(part.free.shape), np.zeros(part.free.shape)
        pull = 1.0 / np.sqrt(max(float(part.gangs.spread @ part.cap), 1e-12))
        self.reals = np.array([pull, np.inf, pull, 1.0])
        self.order = np.arange(size)
        self.job_worth, self.share = np.zeros(jobs), np.zeros(jobs)
        self.worth, self.mean = np.zeros(size), np.zeros(size)

    @property
    def bound(self) -> float:
        bound = float(self.reals[1])
        return bound + ROUNDING * (1.0 + abs(bound))

    def improve(self, steps: int, value: float, gap: float) -> None:
        g = self.part.gangs
        self.reals[3] = max(self.reals[3], 0.3)
        kernel.improve_prices(
            g.gain,
            g.spread,
            g.takes,
            g.pool,
            self.part.free,
            g.role_start,
            g.job_start,
            g.low,
            g.high,
            g.cap,
            steps,
            value,
            gap,
            self.now,
            self.reals,
            self.order,
            self.best,
            self.job_worth,
            self.mean,
            self.share,
        )

    def guide(self) -> Floats:
        """Tell the placing of tasks what the prices say; gives how promising each job (J,) is.

        Many channels and jobs are worth about nothing at the best prices; among those the relaxed problem decides.
        """
        g, job = self.part.gangs, self.part.job
        kernel.worths(g.gain, g.spread, g.takes, g.pool, self.best, float(self.reals[2]), self.worth)
        share = np.maximum(self.share, 0.05)
        per_start = self.mean / share[job]
        g.income[:] = g.gain + 0.5 * self.reals[2] * g.spread
        g.toll[:] = g.income - self.worth - LEAN * g.income * np.minimum(per_start / g.cap, 1.0)
        g.aim[:] = np.where(self.mean < 0.02, 0.0, per_start)
        gross = np.bincount(job, weights=per_start * g.income, minlength=len(share))
        promise: Floats = self.job_worth + LEAN * gross * (2.0 * self.share - 1.0)
        return promise


def choose_gang(question: GangQuestion, gap: float = 5e-3, effort: int = 30, seed: int = 0) -> Choice:
    """Tasks for gangs within `gap` of the best, or as near as `effort` rounds bring them.

    A round is a hundred steps of ruin-and-recreate; the first two and some of the later ones also improve the bound.
    Effort is not time: the same question and seed give the same answer on a slow machine and on a fast one.

    One parameter server and two workers, or nothing; the machine with two slots can hold only one of each:

    >>> def asked(free):
    ...     return GangQuestion(
    ...         gain=np.array([0.2, 1.0]), spread=np.zeros(2), takes=np.ones((2, 1)), pool=np.zeros(2, dtype=int),
    ...         free=np.array([[free]]), port=np.array([0, 1]), job_of_port=np.array([0, 0]),
    ...         minimum=np.array([1, 2]), most=np.array([1, 4]), arrived=np.array([True]))
    >>> choose_gang(asked(2.0)).tasks.tolist(), choose_gang(asked(4.0)).tasks.tolist()
    ([0, 0], [1, 3])
    """
    tasks = np.zeros(len(question.gain), dtype=np.int64)
    part = _reduced(question)
    if part is None:
        return Choice(tasks, 0.0, 0.0)
    prices = _Prices(part)
    state = np.array([(seed * 0x9E3779B97F4A7C15 + 0x1234567) % 2**64 | 1], dtype=np.uint64)
    best, value = np.zeros(len(part.kept), dtype=np.int64), 0.0
    promise = prices.job_worth
    for turn in range(max(effort, 1)):
        if turn < 2 or turn % LATER_EVERY == 0:
            prices.improve(PRICE_STEPS if turn < 2 else LATER_STEPS, value, gap)
            promise = prices.guide()
        away = prices.bound - value
        if away <= gap * prices.bound:
            break
        if turn < 2:
            for _ in range(FILLS):
                filled = kernel.fill(part.gangs, part.answer, promise, False, True, kernel.SEARCH_STEPS, state)
                if filled > value:
                    value = filled
                    best[:] = part.answer.count
        enough, heat = prices.bound * (1.0 - gap), HEAT[turn % len(HEAT)] * away
        value = kernel.ruin_and_recreate(
            part.gangs,
            part.answer,
            promise,
            PLACE_STEPS,
            enough,
            away,
            heat,
            kernel.QUICK_STEPS,
            state,
            best,
            value,
        )
    tasks[part.kept] = best
    value = question.value(tasks)
    return Choice(tasks, value, max(prices.bound, value))
