"""Pools solved one by one: against enumeration, bounded, and the same whatever the number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import pytest

from benchmarks.solvers import machines
from berth.families.selection.kernels.knapsack_each import _branch, _search, solve_each
from berth.families.selection.solvers import Question, choose
from berth.families.selection.solvers.brute import brute
from berth.kernels.threads import each_part


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


def knapsack(seed: int, most: int = 12) -> tuple[Any, Any]:
    """Worths, some negative or equal, and demands, some zero or above the capacity 1."""
    rng = np.random.default_rng(seed)
    n, resources = int(rng.integers(1, most + 1)), int(rng.integers(1, 4))
    takes = rng.random((n, resources)) * rng.choice([0.3, 1.1]) * (rng.random((n, resources)) < 0.8)
    worth = rng.normal(0.5, 0.5, n)
    if rng.random() < 0.3:
        worth, takes = np.round(worth, 1), np.round(8.0 * takes) / 8.0  # sums are not rounded
    return worth, takes


def best_of(worth: Any, takes: Any) -> float:
    free = np.full((1, takes.shape[1]), 1.0 - 1e-9)  # enumeration allows a little more than what is free
    return brute(Question(worth, np.zeros(len(worth)), takes, np.zeros(len(worth), dtype=np.int64), free)).value


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_one_knapsack_is_that_of_enumeration(first: int) -> None:
    for seed in range(first, first + 50):
        check(*knapsack(seed))


def check(worth: Any, takes: Any) -> None:
    best = best_of(worth, takes)
    for small in (True, False):
        chosen = np.full(len(worth), 7)
        bound = _branch(worth, takes, chosen) if small else _search(worth, takes, 0.0, 1 << 40, chosen)
        assert (takes[chosen > 0].sum(axis=0) <= 1.0 + 1e-12).all()
        assert set(chosen.tolist()) <= {0, 1}
        assert worth @ chosen == pytest.approx(best, abs=1e-9)
        assert bound == pytest.approx(best, abs=1e-9)


def test_a_search_that_is_cut_short_keeps_a_bound() -> None:
    asked = machines(40, 3, 0)
    worth, takes = asked.gain, asked.takes / asked.free
    chosen, exact = np.zeros(40, dtype=np.int64), np.zeros(40, dtype=np.int64)
    best = _search(worth, takes, 0.0, 1 << 40, exact)
    bound = _search(worth, takes, 0.0, 10, chosen)
    assert best == pytest.approx(worth @ exact, rel=1e-9)
    assert worth @ chosen <= best <= bound


def pools(count: int, n: int, seed: int) -> Question:
    """Pools of random sizes, each with 40 % of its demands."""
    asked = machines(n, 3, seed)
    pool = np.random.default_rng(seed).integers(0, count, n)
    free = np.zeros((count, 3))
    np.add.at(free, pool, 0.4 * asked.takes)
    return Question(asked.gain, asked.spread, asked.takes, pool, np.maximum(free, [64.0, 256.0, 8.0]))


@pytest.mark.parametrize(("count", "n", "close"), [(2000, 20_000, 1e-6), (60, 3000, 1e-2)])
def test_threads_change_nothing_and_gaps_are_small(count: int, n: int, close: float) -> None:
    asked, found = pools(count, n, 3), []
    for threads in (1, 2):
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        found.append(choose(asked, gap=1e-6))
    one, two = found
    assert (one.tasks.tolist(), one.value, one.bound) == (two.tasks.tolist(), two.value, two.bound)
    assert asked.fits(one.tasks)
    assert one.gap <= close


def test_without_spread_many_pools_are_exact() -> None:
    """No pool depends on another: the whole is the sum of its pools."""
    asked = pools(300, 3000, 4)
    flat = Question(asked.gain, 0.0 * asked.spread, asked.takes, asked.pool, asked.free)
    choice = choose(flat, gap=1e-9)
    each = 0.0
    for pool in range(300):
        mine = asked.pool == pool
        if mine.sum() <= 14:
            gain, spread, takes = flat.gain[mine], flat.spread[mine], flat.takes[mine]
            here = Question(gain, spread, takes, flat.pool[mine], flat.free)
            best = brute(here).value
            assert flat.gain[mine] @ choice.tasks[mine] == pytest.approx(best, abs=1e-8)
            each += best
    assert each > 0.5 * choice.value
    assert choice.gap <= 1e-9


def test_parts_come_back_in_order_and_errors_are_raised() -> None:
    numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))
    assert list(each_part(lambda part: part, 20)) == list(range(20))
    with pytest.raises(ZeroDivisionError):
        list(each_part(lambda part: 1 // (part - 3), 5))


def test_no_pool_is_left_as_it_is() -> None:
    empty, bound = np.zeros(0, dtype=np.int64), np.full(2, 5.0)
    solve_each(np.zeros(0), np.zeros((0, 1)), np.zeros(3, dtype=np.int64), 0, 2, 0.0, 10, empty, bound)
    assert bound.tolist() == [0.0, 0.0]
