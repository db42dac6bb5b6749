"""Solve gangs with whole numbers of tasks: prices for a bound, ruin-and-recreate for a choice.

With a price on every unit of every pool, and the root linearised by √y = min over u of 1/(2u) + u·y/2, each job is an
independent problem with a closed form: fill the best channels, top up to the minimum, start if it pays. The jobs'
values, plus the prices of all pools and 1/(2u), are an upper bound for any prices. Subgradient steps reduce it; the
average of the steps shows where tasks belong, and ruin-and-recreate places jobs by it until value and bound are close.
If that is not enough, the question is split: a job that the prices leave undecided must start in one part and must not
in the other, and each part has its own prices. A small question is searched exhaustively.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from berth.families.selection.kernels.gang_answers import Answer, Gangs
from berth.families.selection.kernels.gang_exact import search_all
from berth.families.selection.kernels.gang_places import Manner, Scratch
from berth.families.selection.kernels.gang_prices import BOUND, BOUND_PULL, STEP, Prices, improve_prices, worths
from berth.families.selection.kernels.gang_ruin import ruin_and_recreate
from berth.families.selection.solvers.question import Choice, GangQuestion
from berth.model import Floats, Ints

__all__ = ["choose_gang", "warm"]

TOLERANCE = 2e-10  # of a pool, below that of `Question.fits`
ROUNDING = 1e-12  # of sums of floats, added to the bound
FIRST_ROUNDS = 4  # before the question is split
PRICE_STEPS = 150  # in each of the first rounds
BRANCH_STEPS = 60  # of prices, for each part of a split
LONGEST, SHORT = 1.0, 0.3  # initial step length of prices, and its minimum at the start of a round
QUICK_SEARCH = 100  # steps of one job's search for places if another attempt follows soon
FILLING = Manner(noise=0.0, extras=False, aimed=True, search=4000)  # how answers are built from the relaxed problem
FILLS = 4  # answers built from the relaxed problem in a first round, each with another rounding
BRANCH_FILLS = 2  # the same, for each part of a split
PLACE_STEPS = 1000  # of ruin-and-recreate in a round
FEW_STEPS = 100  # the same, before a small question is searched exhaustively
HEAT = 0.1  # temporary loss that is accepted, as a share of the distance to the bound
UNDECIDED = 0.03  # a job is split on if it starts, or does not, in at least this share of steps
SMALL = 64  # channels of a question that is searched exhaustively
SMALL_STEPS = 5000  # decisions of that search
LEAN = 0.5  # weight of the relaxed problem relative to the prices


class _Reduced(NamedTuple):
    """Usable part of a question: channels sorted by role, roles by job."""

    kept: Ints  # (n,) channels of the question
    gangs: Gangs
    answer: Answer


def _caps(question: GangQuestion, free: Floats) -> Ints:
    """Number of tasks that each channel (n,) holds if it has its pool to itself."""
    cap = question.most[question.port].astype(np.float64)
    for k in range(free.shape[1]):
        take = question.takes[:, k]
        some = take > 0.0
        cap[some] = np.minimum(cap[some], np.floor(free[question.pool[some], k] / take[some]))
    return np.maximum(cap, 0.0).astype(np.int64)


def _startable(question: GangQuestion, cap: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Arrived jobs (J,) with enough channels for the minimum of every role."""
    held = np.bincount(question.port, weights=cap, minlength=len(question.minimum))
    short = (held < question.minimum) | (question.minimum > question.most)
    startable = np.array(question.arrived, dtype=bool)
    startable[question.job_of_port[short]] = False
    return startable


def _reduced(question: GangQuestion) -> _Reduced | None:
    """The question without unusable parts; None if nothing is usable."""
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
    gangs = Gangs(
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
        free=free,
        toll=np.zeros(size),
        income=np.zeros(size),
        aim=np.zeros(size),
    )
    answer = Answer(
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
    return _Reduced(kept, gangs, answer)


def _first_prices(gangs: Gangs) -> Prices:
    """Prices of 0."""
    jobs, size = len(gangs.job_start) - 1, len(gangs.gain)
    pull = 1.0 / np.sqrt(max(float(gangs.spread @ gangs.cap), 1e-12))
    return Prices(
        now=np.zeros(gangs.free.shape),
        best=np.zeros(gangs.free.shape),
        reals=np.array([pull, np.inf, pull, LONGEST]),
        order=np.arange(size),
        job_worth=np.zeros(jobs),
        mean=np.zeros(size),
        share=np.zeros(jobs),
        fixed=np.zeros(jobs, dtype=np.int64),
    )


def _scratch(gangs: Gangs, seed: int) -> Scratch:
    """Scratch arrays for placing tasks, with the random state."""
    size = len(gangs.gain)
    return Scratch(
        state=np.array([(seed * 0x9E3779B97F4A7C15 + 0x1234567) % 2**64 | 1], dtype=np.uint64),
        order=np.arange(size),
        offers=np.zeros(size, dtype=np.int64),
        key=np.zeros(size),
        roles=np.zeros(len(gangs.low), dtype=np.int64),
        path=np.zeros(size, dtype=np.int64),
        tried=np.zeros(size, dtype=np.int64),
    )


def _proved(prices: Prices) -> float:
    """The bound with a margin for rounding."""
    bound = float(prices.reals[BOUND])
    return bound + ROUNDING * (1.0 + abs(bound))


def _best_worths(gangs: Gangs, prices: Prices) -> Floats:
    """Worth of a task through each channel (n,) at the prices of the bound."""
    worth = np.empty(len(gangs.gain))
    worths(gangs, prices.best, float(prices.reals[BOUND_PULL]), worth)
    return worth


def _guide(gangs: Gangs, prices: Prices) -> Floats:
    """Pass the prices to the placing of tasks; return the score of each job (J,).

    Many channels and jobs are worth about 0 at the best prices; among those the relaxed problem decides.
    """
    pull, worth = float(prices.reals[BOUND_PULL]), _best_worths(gangs, prices)
    per_start = prices.mean / np.maximum(prices.share, 0.05)[gangs.job]
    gangs.income[:] = gangs.gain + 0.5 * pull * gangs.spread
    gangs.toll[:] = gangs.income - worth - LEAN * gangs.income * np.minimum(per_start / gangs.cap, 1.0)
    gangs.aim[:] = np.where(prices.mean < 0.02, 0.0, per_start)
    gross = np.bincount(gangs.job, weights=per_start * gangs.income, minlength=len(prices.share))
    promise: Floats = prices.job_worth + LEAN * gross * (2.0 * prices.share - 1.0)
    return promise


def _split(prices: Prices, job: int, side: int) -> Prices:
    """Copy in which one job must start (side 1) or must not (−1)."""
    pull = prices.reals[BOUND_PULL]
    part = Prices(*(array.copy() for array in prices))
    part.now[:] = prices.best
    part.reals[:] = pull, np.inf, pull, SHORT
    part.fixed[job] = side
    return part


class _Search:
    """Best answer so far, and the open parts of the question, which differ in jobs that must start.

    The part with the largest bound is split next, since only that reduces the bound of the whole.
    """

    def __init__(self, part: _Reduced, gap: float, seed: int) -> None:
        self.gangs, self.answer, self.gap = part.gangs, part.answer, gap
        self.scratch = _scratch(part.gangs, seed)
        self.best, self.value = np.zeros(len(part.kept), dtype=np.int64), 0.0
        self.whole = _first_prices(part.gangs)
        self.bound = np.inf
        self.parts: list[tuple[float, int, Prices]] = []  # −bound, number, prices: a heap
        self.made = 0
        self.rest = -np.inf  # bound of the parts that were set aside

    @property
    def done(self) -> bool:
        """Whether no answer can be better by more than the gap."""
        return self.bound - self.value <= self.gap * self.bound

    def first_round(self, steps: int) -> None:
        """Improve the bound of the whole question, then the answer."""
        self.whole.reals[STEP] = max(self.whole.reals[STEP], SHORT)
        improve_prices(self.gangs, self.whole, PRICE_STEPS, self.value, self.gap)
        self.bound = _proved(self.whole)
        if not self.done:
            self.place(self.whole, self.bound, FILLS, steps)
        self.parts = [(-self.bound, 0, self.whole)]

    def place(self, prices: Prices, bound: float, fills: int, steps: int) -> None:
        """Improve the answer, guided by these prices and their bound."""
        promise = _guide(self.gangs, prices) + (bound - self.value) * prices.fixed
        self.value = ruin_and_recreate(
            self.gangs,
            self.answer,
            promise,
            bound,
            fills,
            FILLING,
            steps,
            self.bound * (1.0 - self.gap),
            HEAT,
            QUICK_SEARCH,
            self.scratch,
            self.best,
            self.value,
        )

    def later_round(self) -> None:
        """Split the part with the largest bound at its least decided job."""
        while self.parts:
            bound, prices = -self.parts[0][0], self.parts[0][2]
            undecided = np.where(prices.fixed == 0, np.minimum(prices.share, 1.0 - prices.share), 0.0)
            job = int(np.argmax(undecided))
            heapq.heappop(self.parts)
            if undecided[job] >= UNDECIDED:
                for side in (1, -1):
                    self._add(_split(prices, job, side), bound)
                break
            self.rest = max(self.rest, bound)
        else:
            self.place(self.whole, self.bound, BRANCH_FILLS, PLACE_STEPS)
        largest = -self.parts[0][0] if self.parts else -np.inf
        self.bound = min(self.bound, max(largest, self.rest, self.value))

    def _add(self, prices: Prices, bound: float) -> None:
        """Bound and place one part; `bound` is that of its parent."""
        improve_prices(self.gangs, prices, BRANCH_STEPS, self.value, self.gap)
        bound = min(bound, _proved(prices))
        if bound - self.value <= self.gap * bound:
            self.rest = max(self.rest, bound)
            return
        self.place(prices, bound, BRANCH_FILLS, PLACE_STEPS // 2)
        self.made += 1
        heapq.heappush(self.parts, (-bound, self.made, prices))

    def to_the_end(self) -> None:
        """Search all answers that could be better, within `SMALL_STEPS`."""
        pull = float(self.whole.reals[BOUND_PULL]) if self.gangs.spread.any() else 0.0
        worth = _best_worths(self.gangs, self.whole)
        self.value, bound = search_all(
            self.gangs,
            self.answer,
            self.whole.best,
            pull,
            self.whole.job_worth,
            worth,
            self.gap,
            SMALL_STEPS,
            self.best,
        )
        self.bound = min(self.bound, bound)


def choose_gang(question: GangQuestion, gap: float = 5e-3, effort: int = 20, seed: int = 0) -> Choice:
    """Find tasks for gangs within `gap` of the best, or as near as `effort` rounds bring them.

    A round is a thousand steps of ruin-and-recreate. The first four also improve the bound; each later one splits the
    question at one job. With gap=0 questions of a dozen channels, and most of up to 64, are solved exactly. Effort is
    not time: the same question and seed give the same answer on any machine.

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
    search = _Search(part, gap, seed)
    small = len(part.kept) <= SMALL
    for turn in range(max(effort, 1)):
        if turn < FIRST_ROUNDS:
            search.first_round(FEW_STEPS if small and turn == 0 else PLACE_STEPS)
        else:
            search.later_round()
        if small and turn == 0 and not search.done:
            search.to_the_end()
        if search.done:
            break
    tasks[part.kept] = search.best
    value = question.value(tasks)
    return Choice(tasks, value, max(search.bound, value))


def warm() -> None:
    """Solve two made-up questions that need every kernel, so that nothing is compiled when a real one is urgent."""
    rng = np.random.default_rng(0)
    for servers, effort in ((6, 1), (40, FIRST_ROUNDS + 2)):  # searched exhaustively, and split
        roles = 4
        size = servers * roles
        question = GangQuestion(
            gain=rng.random(size),
            spread=rng.random(size),
            takes=1.0 + rng.random((size, 2)),
            pool=np.tile(np.arange(servers), roles),
            free=2.0 + 2.0 * rng.random((servers, 2)),
            port=np.repeat(np.arange(roles), servers),
            job_of_port=np.array([0, 0, 1, 2]),
            minimum=np.array([1, 2, 3, 1]),
            most=np.array([2, 4, 6, 8]),
            arrived=np.ones(3, dtype=bool),
        )
        choose_gang(question, gap=0.0, effort=effort)
