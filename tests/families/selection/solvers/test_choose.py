"""The selection solvers against enumeration and HiGHS, and the faults of the printed dynamic programme."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from berth.errors import InvalidInput
from berth.families.selection.solvers import Choice, Question, choose
from berth.families.selection.solvers import dual_core as dual_core_module
from berth.families.selection.solvers.brute import brute
from berth.families.selection.solvers.dual_core import dual_core
from berth.families.selection.solvers.dynamic import dynamic, rounded
from tests.harness.examples import examples
from tests.reference.selection import enumerated, highs, printed_dp, printed_table_bytes

ALL = {"feasible-s", "carry", "true-m", "real-spread"}


def question(gain: Any, spread: Any, takes: Any, free: Any, pool: Any = None) -> Question:
    """One resource when takes is (n,), one pool when none is given."""
    gain = np.array(gain, dtype=np.float64)
    takes = np.array(takes, dtype=np.float64)
    takes = takes[:, None] if takes.ndim == 1 else takes
    free = np.array(free, dtype=np.float64)
    free = free.reshape(1, -1) if pool is None else free.reshape(-1, takes.shape[1])
    members = np.zeros(len(gain), dtype=np.int64) if pool is None else np.array(pool, dtype=np.int64)
    return Question(gain, np.array(spread, dtype=np.float64), takes, members, free)


def drawn(rng: np.random.Generator, most: int = 12, pools: tuple[int, ...] = (1, 1, 2, 3)) -> Question:
    """All sorts: whole and real demands, some zero; negative gains; no spread at all; ties; huge numbers."""
    n, resources, groups = int(rng.integers(0, most + 1)), int(rng.integers(1, 4)), int(rng.choice(pools))
    if rng.random() < 0.5:
        takes = rng.integers(0, 4, (n, resources)).astype(np.float64)
        free = rng.integers(0, 7, (groups, resources)).astype(np.float64)
    else:
        takes = rng.random((n, resources)) * (rng.random((n, resources)) < 0.8)
        free = 2.0 * rng.random((groups, resources))
    gain = rng.normal(0.3, 0.5, n)
    spread = rng.exponential(0.2, n) * (rng.random(n) < 0.7)
    if rng.random() < 0.2:
        gain = np.round(gain, 1)
    if rng.random() < 0.1:
        spread *= 0.0
    if rng.random() < 0.1:
        gain *= 1e8
    if rng.random() < 0.1:
        spread *= 1e8
    return Question(gain, spread, takes, rng.integers(0, groups, n), free)


def check(asked: Question, choice: Choice, best: float, exact: bool) -> None:
    """Feasible, worth what it says, bounded; and the best when that was asked."""
    size = 1e-9 * (1.0 + abs(best))
    assert asked.fits(choice.tasks)
    assert set(choice.tasks.tolist()) <= {0, 1}
    assert choice.value == pytest.approx(asked.value(choice.tasks), rel=1e-12, abs=1e-12)
    assert choice.value <= best + size
    assert choice.bound >= best - size
    assert choice.bound >= choice.value
    if exact:
        assert choice.value == pytest.approx(best, rel=1e-9, abs=1e-9)
        assert choice.bound == pytest.approx(best, rel=1e-9, abs=1e-9)


# ---------------------------------------------------------------------------- against enumeration


@pytest.mark.parametrize("seed", range(10))
def test_equal_to_brute_force(seed: int) -> None:
    """Two thousand questions of up to 12 channels, by every method."""
    rng = np.random.default_rng(seed)
    for _ in range(200):
        asked = drawn(rng)
        best = brute(asked).value
        check(asked, choose(asked, gap=0.0), best, exact=True)
        check(asked, choose(asked, "dual-core", gap=0.0), best, exact=True)
        loose = choose(asked, gap=0.05)
        check(asked, loose, best, exact=False)
        assert loose.gap <= 0.05
        table = dynamic(asked)
        if table is not None:
            check(asked, table, best, exact=True)
            coarse = rounded(asked, 0.3, max(len(asked.gain), 1)) if abs(asked.gain).max(initial=0.0) < 10 else table
            check(asked, coarse, best, exact=False)
            assert coarse.value >= best - 0.3 - 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_search_from_prices_is_exact(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with enumeration of small pools switched off: one pool by prices and two lists, several with a bound."""
    monkeypatch.setattr(dual_core_module, "SMALL", 0)
    rng = np.random.default_rng(100 + seed)
    for _ in range(150):
        asked = drawn(rng, most=14)
        check(asked, dual_core(asked, gap=0.0), brute(asked).value, exact=len(asked.free) == 1)


def test_brute_force_is_plain_enumeration() -> None:
    rng = np.random.default_rng(7)
    for _ in range(60):
        asked = drawn(rng, most=7)
        assert brute(asked).value == pytest.approx(enumerated(asked)[1], rel=1e-12)
    larger = drawn(np.random.default_rng(0), most=12)
    wide = Question(
        np.tile(larger.gain, 2)[:17],
        np.tile(larger.spread, 2)[:17],
        np.tile(larger.takes, (2, 1))[:17],
        np.tile(larger.pool, 2)[:17],
        larger.free,
    )
    check(wide, choose(wide, gap=0.0), brute(wide).value, exact=True)
    with pytest.raises(InvalidInput, match="at most"):
        brute(question(np.ones(30), np.ones(30), np.ones(30), [3.0]))


amounts = st.floats(0.0, 2.0, allow_subnormal=False)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    n, resources, groups = draw(st.integers(0, 7)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    whole = draw(st.booleans())
    amount = st.integers(0, 3).map(float) if whole else amounts
    return Question(
        draw(arrays(np.float64, n, elements=st.floats(-1.0, 1.0, allow_subnormal=False))),
        draw(arrays(np.float64, n, elements=amounts)),
        draw(arrays(np.float64, (n, resources), elements=amount)),
        draw(arrays(np.int64, n, elements=st.integers(0, groups - 1))),
        draw(arrays(np.float64, (groups, resources), elements=amount)),
    )


@examples(150)
@given(questions())
def test_any_question_is_answered_exactly(asked: Question) -> None:
    check(asked, choose(asked, gap=0.0), brute(asked).value, exact=True)


@examples(60)
@given(questions(), st.floats(0.01, 100.0))
def test_scaling_gains_scales_the_value(asked: Question, factor: float) -> None:
    scaled = Question(factor * asked.gain, factor**2 * asked.spread, asked.takes, asked.pool, asked.free)
    assert choose(scaled, gap=0.0).value == pytest.approx(factor * choose(asked, gap=0.0).value, rel=1e-7, abs=1e-9)


@examples(60)
@given(questions())
def test_more_room_is_never_worse(asked: Question) -> None:
    roomy = Question(asked.gain, asked.spread, asked.takes, asked.pool, asked.free + 1.0)
    assert choose(roomy, gap=0.0).value >= choose(asked, gap=0.0).value - 1e-9


# ---------------------------------------------------------------------------- against HiGHS


def machines(n: int, resources: int, seed: int, groups: int = 1) -> Question:
    """Demands like those of machines, capacity 30 % of them."""
    rng = np.random.default_rng(seed)
    cores = rng.choice([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], n)
    columns = [cores, cores * rng.uniform(1.0, 8.0, n), rng.choice([0.0, 1.0, 2.0, 4.0, 8.0], n)]
    columns += [rng.uniform(1.0, 10.0, n) for _ in range(resources - 3)]
    takes = np.column_stack(columns[:resources])
    pool = rng.integers(0, groups, n)
    free = np.zeros((groups, resources))
    np.add.at(free, pool, 0.3 * takes)
    gain = np.clip(0.5 + 0.1 * np.log2(cores / 8.0) + rng.normal(0.0, 0.25, n), 0.02, None)
    return Question(gain, math.log(2001) / (2.0 * np.maximum(rng.exponential(100.0, n), 1.0)), takes, pool, free)


@pytest.mark.parametrize(("n", "resources", "groups"), [(40, 3, 1), (60, 2, 1), (40, 5, 1), (48, 3, 6), (60, 3, 3)])
def test_agrees_with_highs(n: int, resources: int, groups: int) -> None:
    for seed in range(2):
        asked = machines(n, resources, seed, groups)
        referee = highs(asked, gap=1e-6, seconds=20.0)
        choice = choose(asked, gap=1e-6, effort=20_000_000)
        assert choice.value <= referee.bound * (1.0 + 1e-6)
        assert choice.bound >= referee.value * (1.0 - 1e-6)
        assert choice.gap <= (1e-6 if groups in (1, 6) else 0.05)


def test_large_questions_are_answered_closely() -> None:
    for n, resources, close in ((1000, 3, 2e-4), (12_000, 3, 1e-4), (300, 5, 2e-3), (400, 8, 6e-3)):
        asked = machines(n, resources, 1)
        choice = choose(asked)
        assert asked.fits(choice.tasks)
        assert choice.gap <= close
    many = machines(600, 3, 2, groups=10)
    choice = choose(many)
    assert many.fits(choice.tasks)
    assert choice.gap <= 0.01


# ---------------------------------------------------------------------------- edges


def test_nothing_to_choose_from() -> None:
    choice = choose(question([], [], np.zeros((0, 2)), [[1.0, 1.0]]))
    assert choice.tasks.shape == (0,)
    assert (choice.value, choice.bound) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (question([1.0, 2.0], [0.1, 0.1], [1.0, 1.0], [0.0]), [0, 0]),  # no capacity
        (question([1.0, 2.0], [0.1, 0.1], [0.0, 1.0], [0.0]), [1, 0]),  # one asks for nothing
        (question([-1.0, -0.5], [0.0, 0.0], [1.0, 1.0], [5.0]), [0, 0]),  # nothing pays
        (question([-0.1], [0.04], [1.0], [1.0]), [1]),  # pays by its spread
        (question([-0.1, -0.1], [0.04, 0.001], [0.0, 0.0], [1.0]), [1, 0]),  # the second does not
        (question([0.5], [0.0], [1.0], [1.0]), [1]),  # one channel
        (question([0.5], [0.0], [2.0], [1.0]), [0]),  # that does not fit
        (question([0.1, 0.1, 0.1], [0.0] * 3, [0.1, 0.1, 0.1], [0.3]), [1, 1, 1]),  # 0.1 + 0.1 + 0.1 > 0.3 in floats
        (question([1e200, 1.0], [0.0, 1e300], [1.0, 1.0], [2.0]), [1, 1]),
        (question([1.0, 1.0], [0.0, 0.0], [1.0, 1.0], [np.inf]), [1, 1]),
    ],
)
@pytest.mark.parametrize("method", ["auto", "dual-core"])
def test_edges(asked: Question, expected: list[int], method: Any) -> None:
    choice = choose(asked, method, gap=0.0)
    assert choice.tasks.tolist() == expected
    assert choice.bound >= choice.value == pytest.approx(asked.value(np.array(expected)))


def test_equal_channels() -> None:
    """Forty alike: every choice of ten is the best, and none is looked for twice."""
    asked = question(np.full(40, 0.5), np.full(40, 0.01), np.full(40, 0.7), [7.1])
    choice = choose(asked)
    assert choice.tasks.sum() == 10
    assert choice.bound >= choice.value
    assert asked.fits(choice.tasks)


def test_read_only_arrays_and_other_types() -> None:
    asked = question([1, 2], [0, 0], [1, 1], [1])
    for name in ("gain", "spread", "takes", "free"):
        getattr(asked, name).setflags(write=False)
    assert choose(asked).tasks.tolist() == [0, 1]
    single = Question(
        np.asarray(asked.gain, dtype=np.float32),
        asked.spread,
        asked.takes,
        asked.pool,
        asked.free,
    )
    assert choose(single, "dual-core").tasks.tolist() == [0, 1]


def test_memory_does_not_grow_with_capacities() -> None:
    rng = np.random.default_rng(0)
    asked = question(rng.random(40), rng.random(40), rng.integers(1, 10**5, (40, 3)), [10**6] * 3)
    choose(asked)
    tracemalloc.start()
    choice = choose(asked)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    assert choice.gap <= 1e-4


def test_what_is_refused() -> None:
    asked = question([1.0], [0.0], [1.0], [1.0])
    with pytest.raises(InvalidInput, match="one of"):
        choose(asked, "magic")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="gap"):
        choose(asked, gap=-1.0)
    with pytest.raises(InvalidInput, match="whole demands"):
        choose(question([1.0], [0.0], [0.5], [1.0]), "dynamic")
    for gain, spread in ((np.nan, 0.0), (np.inf, 0.0), (1.0, -1.0), (1.0, np.inf)):
        bad = question([gain], [spread], [1.0], [1.0])
        with pytest.raises(InvalidInput, match="finite"):
            choose(bad)
        with pytest.raises(InvalidInput, match="finite"):
            choose(bad, "dual-core")
    with pytest.raises(InvalidInput, match="δ"):
        rounded(asked, 0.0, 1)


# ---------------------------------------------------------------------------- the printed programme


def test_b1_sums_that_no_choice_reaches_win() -> None:
    gain, capacity = (0.9, 0.5, 0.1), (2,)
    printed = printed_dp(gain, [0.0] * 3, [(1,)] * 3, capacity, 0.3, 3, {"carry"}, scale=10)
    assert printed.s == 30
    assert printed.tasks == [0, 0, 0]
    spread = [1e-6] * 3  # all of V is 0 without, and V(i) = V(i + 1) hides the choice
    repaired = printed_dp(gain, spread, [(1,)] * 3, capacity, 0.3, 3, {"carry", "feasible-s", "real-spread"}, scale=10)
    assert repaired.tasks == [1, 1, 0]
    asked = question(gain, spread, [1, 1, 1], capacity)
    assert choose(asked).tasks.tolist() == rounded(asked, 0.3, 2).tasks.tolist() == [1, 1, 0]


def test_b2_what_was_chosen_is_forgotten() -> None:
    gain, spread, takes, capacity = (0.1, 1.0, 1.0), (0.1, 1.0, 1.0), [(2,), (1,), (1,)], (2,)
    printed = printed_dp(gain, spread, takes, capacity, 1.0, 2, {"feasible-s"})
    repaired = printed_dp(gain, spread, takes, capacity, 1.0, 2, {"feasible-s", "carry"})
    assert printed.tasks == [0, 0, 0]
    assert repaired.tasks == [0, 1, 1]
    asked = question(gain, spread, takes, capacity)
    assert choose(asked).tasks.tolist() == rounded(asked, 1.0, 2).tasks.tolist() == [0, 1, 1]


def test_b7_too_small_an_m_cuts_sums_off() -> None:
    """v = (1, 1, 1, 1, 1, .9), c = 4, m = 3: beyond s = 3ξ all sums look alike, and only the spread counts."""
    gain, spread, takes, capacity = (1.0,) * 5 + (0.9,), (0.01,) * 5 + (0.0101,), [(1,)] * 6, (4,)
    asked = question(gain, spread, takes, capacity)
    best = choose(asked)
    repairs = {"feasible-s", "carry", "real-spread"}
    printed = printed_dp(gain, spread, takes, capacity, 0.3, 3, repairs)
    repaired = printed_dp(gain, spread, takes, capacity, 0.3, 3, ALL)
    assert best.value == pytest.approx(4.2)
    assert asked.value(np.array(repaired.tasks)) == pytest.approx(4.2)
    assert asked.value(np.array(printed.tasks)) < 4.11
    assert rounded(asked, 0.3, 4).value == pytest.approx(4.2)


def test_b8_rounded_spreads_are_off_by_more_than_the_step() -> None:
    """Ceilings on Σ² make tiny spreads equal: √m/ξ is lost, though gains are exact multiples of the step."""
    gain, spread, takes, capacity = (0.5, 0.5), (1e-8, 0.009), [(1,), (1,)], (1,)
    printed = printed_dp(gain, spread, takes, capacity, 0.1, 1, {"feasible-s", "carry"})
    repaired = printed_dp(gain, spread, takes, capacity, 0.1, 1, {"feasible-s", "carry", "real-spread"})
    asked = question(gain, spread, takes, capacity)
    assert repaired.tasks == [0, 1]
    assert repaired.score / 10 == pytest.approx(asked.value(np.array([0, 1])))
    assert printed.score / 10 > asked.value(np.array([0, 1])) + 0.005  # no value of any choice
    assert asked.value(np.array(printed.tasks)) <= repaired.score / 10


@pytest.mark.parametrize("seed", range(20))
def test_the_repaired_programme_is_within_its_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    gain, spread, takes = rng.random(n), rng.random(n), rng.integers(1, 3, (n, 2))
    asked = question(gain, spread, takes, (3, 3))
    slow = printed_dp(gain.tolist(), spread.tolist(), takes.tolist(), (3, 3), 0.5, 1, ALL)
    fast = rounded(asked, 0.5, int(choose(question(np.ones(n), np.zeros(n), takes, (3, 3)), gap=0.0).value + 0.5))
    best = brute(asked).value
    assert asked.value(np.array(slow.tasks)) >= best - 0.5
    assert fast.value >= best - 0.5
    assert fast.bound >= best - 1e-9


def test_b13_the_printed_table_is_hopeless() -> None:
    """32 channels, α = .5, three capacities of 128, δ at t = 2000: 222 GB of single precision; here a few megabytes."""
    delta = 1.0 / (math.log(math.log(2001)) + 1.0)
    assert printed_table_bytes(32, (128, 128, 128), delta, 16) / 1e9 == pytest.approx(222, abs=1)
    rng = np.random.default_rng(0)
    asked = question(rng.random(32), 0.05 * rng.random(32), rng.integers(1, 33, (32, 3)), (128, 128, 128))
    assert choose(asked, gap=0.0).gap <= 1e-9
    with pytest.raises(InvalidInput, match="capacities"):
        rounded(asked, delta, 16)
