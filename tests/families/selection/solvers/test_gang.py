"""Gangs: always feasible, value ≤ optimum ≤ bound, near the optimum, repeatable."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.gang import gang_question
from berth.families.selection.solvers import GangQuestion, choose_gang
from berth.families.selection.solvers import gang as gang_module
from tests.harness.examples import examples
from tests.reference.gang import (
    PrintedJob,
    best_by_enumeration,
    best_by_programme,
    caps,
    every_answer,
    is_gang,
    printed_answers,
)


def ask(**changes: Any) -> GangQuestion:
    """Two jobs on two servers of one resource: 1 parameter server and 2–3 workers; 1–4 tasks."""
    fields: dict[str, Any] = {
        "gain": np.array([0.1, 0.2, 1.0, 0.9, 0.5, 0.6]),
        "spread": np.zeros(6),
        "takes": np.ones((6, 1)),
        "pool": np.array([0, 1, 0, 1, 0, 1]),
        "free": np.array([[3.0], [2.0]]),
        "port": np.array([0, 0, 1, 1, 2, 2]),
        "job_of_port": np.array([0, 0, 1]),
        "minimum": np.array([1, 2, 1]),
        "most": np.array([1, 3, 4]),
        "arrived": np.array([True, True]),
    }
    return GangQuestion(**(fields | changes))


def tiny(rng: np.random.Generator) -> GangQuestion:
    """A question of at most some thousand answers, with every oddity that may occur."""
    while True:
        jobs, pools, resources = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 3))
        job_of_port = np.sort(np.append(np.arange(jobs), rng.integers(0, jobs, rng.integers(0, 3))))
        rng.shuffle(job_of_port)
        roles = len(job_of_port)
        port, pool = np.nonzero(rng.random((roles, pools)) < 0.7)
        n = len(port)
        most = rng.integers(1, 4, roles)
        kind = rng.integers(0, 4)
        takes = rng.integers(0, 3, (n, resources)) if kind else rng.choice([0.0, 0.1, 0.3, 0.7], (n, resources))
        shuffle = rng.permutation(n)
        question = GangQuestion(
            gain=(rng.uniform(-0.5, 1.0, n) if kind != 1 else rng.uniform(0.0, 1.0, n))[shuffle],
            spread=(rng.exponential(0.2, n) if kind != 2 else np.zeros(n)),
            takes=takes.astype(np.float64)[shuffle],
            pool=pool[shuffle],
            free=np.array(rng.integers(0, 6, (pools, resources)) * (1.0 if kind else 0.3), dtype=np.float64),
            port=port[shuffle],
            job_of_port=job_of_port,
            minimum=np.minimum(rng.integers(0, 4, roles), most),
            most=most,
            arrived=rng.random(jobs) < 0.85,
        )
        if np.prod(caps(question).astype(float) + 1.0) <= 800:
            return question


# ---------------------------------------------------------------------------- against referees


def check_exact(question: GangQuestion, seed: int) -> None:
    """The best answer, known to be the best."""
    best = best_by_enumeration(question)
    choice = choose_gang(question, gap=0.0, effort=1, seed=seed)
    assert is_gang(question, choice.tasks)
    assert choice.value == question.value(choice.tasks)
    assert choice.value == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert choice.bound == pytest.approx(best, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("block", range(4))
def test_tiny_questions_are_solved_exactly(block: int) -> None:
    rng = np.random.default_rng(block)
    for _ in range(250):
        check_exact(tiny(rng), seed=block)


@st.composite
def tiny_questions(draw: st.DrawFn) -> GangQuestion:
    """At most five channels; small whole numbers make ties and tasks that fit exactly."""
    n, jobs, roles, pools = (draw(st.integers(1, most)) for most in (5, 3, 4, 3))
    few = st.integers(0, 3)

    def drawn(size: int | tuple[int, int], element: st.SearchStrategy[int]) -> Any:
        return draw(arrays(np.int64, size, elements=element))

    unit = draw(st.sampled_from([1.0, 0.1, 1000.0]))
    most = drawn(roles, few)
    return GangQuestion(
        gain=drawn(n, st.integers(-4, 8)) / 8.0,
        spread=drawn(n, few) / draw(st.sampled_from([1.0, 8.0, 1e6])),
        takes=drawn((n, 2), few) * unit,
        pool=drawn(n, st.integers(0, pools - 1)),
        free=drawn((pools, 2), st.integers(0, 6)) * unit,
        port=drawn(n, st.integers(0, roles - 1)),
        job_of_port=drawn(roles, st.integers(0, jobs - 1)),
        minimum=np.minimum(drawn(roles, few), most),
        most=most,
        arrived=drawn(jobs, st.integers(0, 3)) > 0,
    )


@examples(100)
@given(question=tiny_questions(), seed=st.integers(0, 2**32))
def test_any_tiny_question_is_solved_exactly(question: GangQuestion, seed: int) -> None:
    check_exact(question, seed)


def test_a_search_that_ends_early_leaves_a_valid_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_module, "SMALL_STEPS", 20)
    for seed in range(10):
        question = gang_question(10, 10, seed)
        choice = choose_gang(question, gap=0.0, effort=3)
        assert is_gang(question, choice.tasks)
        assert choice.value <= choice.bound


def test_bounds_of_split_questions_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_module, "SMALL", 0)
    rng = np.random.default_rng(5)
    closer = 0
    for _ in range(100):
        question = tiny(rng)
        best = best_by_enumeration(question)
        whole, split = (choose_gang(question, gap=0.0, effort=effort) for effort in (gang_module.FIRST_ROUNDS, 12))
        assert is_gang(question, split.tasks)
        assert split.value <= best + 1e-9
        assert best - 1e-9 <= split.bound <= whole.bound
        closer += split.bound < whole.bound - 1e-3
    assert closer >= 5


def test_an_exact_answer_of_a_small_cluster() -> None:
    question = gang_question(8, 8, seed=3, gpus=(1, 2))
    choice = choose_gang(question, gap=0.0)
    assert choice.gap <= 1e-9
    assert choice.value == pytest.approx(best_by_programme(question).value, rel=1e-5)


def test_small_questions_against_an_integer_programme() -> None:
    shares = []
    for seed in range(10):
        question = gang_question(8, 8, seed, gpus=(1, 2))
        best = best_by_programme(question)
        choice = choose_gang(question, gap=0.0, effort=20)
        assert is_gang(question, choice.tasks)
        assert choice.value <= best.bound + 1e-6
        assert choice.bound >= best.value - 1e-6
        shares.append(choice.value / best.value)
    assert np.mean(shares) >= 0.99
    assert min(shares) >= 0.96


def test_referees_agree() -> None:
    rng = np.random.default_rng(99)
    for _ in range(25):
        question = tiny(rng)
        assert best_by_programme(question).value == pytest.approx(best_by_enumeration(question), abs=1e-5)


@pytest.mark.parametrize(("jobs", "gap"), [(30, 0.006), (100, 0.012)])
def test_certified_gap_of_a_cluster(jobs: int, gap: float) -> None:
    question = gang_question(jobs, 40, seed=1)
    choice = choose_gang(question, gap=0.005)
    assert is_gang(question, choice.tasks)
    assert 0.0 <= choice.gap <= gap


# ---------------------------------------------------------------------------- edges


def test_nothing_arrived() -> None:
    choice = choose_gang(ask(arrived=np.array([False, False])))
    assert not choice.tasks.any()
    assert (choice.value, choice.bound, choice.gap) == (0.0, 0.0, 0.0)


def test_absent_jobs_get_nothing() -> None:
    choice = choose_gang(ask(arrived=np.array([False, True])), gap=0.0)
    assert choice.tasks.tolist() == [0, 0, 0, 0, 2, 2]


def test_no_capacity() -> None:
    choice = choose_gang(ask(free=np.zeros((2, 1))))
    assert not choice.tasks.any()
    assert choice.bound == 0.0


def test_no_channels() -> None:
    empty = np.zeros(0, dtype=np.int64)
    question = ask(gain=np.zeros(0), spread=np.zeros(0), takes=np.zeros((0, 1)), pool=empty, port=empty)
    assert choose_gang(question).tasks.shape == (0,)


def test_tasks_that_take_nothing_are_limited_by_most() -> None:
    choice = choose_gang(ask(takes=np.zeros((6, 1))), gap=0.0)
    assert choice.tasks.tolist() == [0, 1, 3, 0, 0, 4]
    assert choice.gap <= 1e-9


def test_losses_are_not_taken() -> None:
    choice = choose_gang(ask(gain=np.full(6, -0.1)))
    assert not choice.tasks.any()
    assert choice.bound == pytest.approx(0.0, abs=1e-9)


def test_a_loss_is_taken_where_the_gang_pays() -> None:
    gain = np.array([-0.5, -0.4, 1.0, 0.9, -1.0, -1.0])
    choice = choose_gang(ask(gain=gain), gap=0.0)
    assert choice.value == pytest.approx(best_by_enumeration(ask(gain=gain)))
    assert choice.tasks[:2].sum() == 1


def test_a_loss_is_taken_for_its_spread() -> None:
    question = ask(
        gain=np.full(6, -0.1), spread=np.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0]), arrived=np.array([False, True])
    )
    assert choose_gang(question, gap=0.0).value == pytest.approx(best_by_enumeration(question))


def test_a_role_without_channels_stops_its_job_only_if_it_has_a_minimum() -> None:
    kept = np.array([2, 3, 4, 5])  # no channel for the parameter server
    question = ask(**{name: getattr(ask(), name)[kept] for name in ("gain", "spread", "takes", "pool", "port")})
    assert choose_gang(question).tasks[:2].sum() == 0
    optional = dataclasses.replace(question, minimum=np.array([0, 2, 1]))
    assert choose_gang(optional).tasks[:2].sum() == 3


def test_a_gang_that_fits_is_found_though_the_obvious_places_do_not() -> None:
    # the parameter server is worth most where the only workers' place is
    question = GangQuestion(
        gain=np.array([5.0, 0.1, 1.0]),
        spread=np.zeros(3),
        takes=np.ones((3, 1)),
        pool=np.array([0, 1, 0]),
        free=np.array([[2.0], [1.0]]),
        port=np.array([0, 0, 1]),
        job_of_port=np.array([0, 0]),
        minimum=np.array([1, 2]),
        most=np.array([1, 2]),
        arrived=np.array([True]),
    )
    assert choose_gang(question).tasks.tolist() == [0, 1, 2]


def test_the_same_seed_gives_the_same_answer() -> None:
    question = gang_question(20, 15, seed=3)
    first, again = (choose_gang(question, gap=0.0, effort=5, seed=4) for _ in range(2))
    assert (first.tasks == again.tasks).all()
    assert (first.value, first.bound) == (again.value, again.bound)


def test_more_effort_is_never_worse() -> None:
    question = gang_question(30, 20, seed=2)
    choices = [choose_gang(question, gap=0.0, effort=effort) for effort in (1, 4, 12)]
    assert [c.value for c in choices] == sorted(c.value for c in choices)
    assert [c.bound for c in choices] == sorted((c.bound for c in choices), reverse=True)


def test_the_question_is_left_alone() -> None:
    question = gang_question(10, 10, seed=0)
    before = {field.name: getattr(question, field.name).copy() for field in dataclasses.fields(question)}
    choose_gang(question, effort=3)
    for name, array in before.items():
        assert (getattr(question, name) == array).all()


# ---------------------------------------------------------------------------- the extension as printed


def test_printed_extension_forces_absent_jobs() -> None:
    # its constraint Σ x ≥ m holds for every l and t: without room for all jobs there is no answer, whoever came
    one_fits = [PrintedJob((1.0,), 1), PrintedJob((1.0,), 1)]
    assert printed_answers(one_fits, (1.0,)) == []
    choice = choose_gang(ask(arrived=np.array([False, True]), free=np.array([[1.0], [0.0]])), gap=0.0)
    assert choice.tasks.tolist() == [0, 0, 0, 0, 1, 0]


def test_printed_extension_places_one_task_twice() -> None:
    # nothing bounds Σ_r x of one task: the same task on both servers counts as two and the gang "starts"
    answers = printed_answers([PrintedJob((1.0, 9.0), 2)], (1.0, 1.0))
    assert [part.tolist() for part in answers[0]] == [[[1, 1], [0, 0]]]
    question = ask(free=np.array([[1.0], [1.0]]), arrived=np.array([True, False]))
    assert not choose_gang(question).tasks.any()


def test_printed_extension_cannot_ask_for_every_role() -> None:
    # task 0 is the parameter server, 1 to 3 are workers: m = 3 is also met by three workers without it
    answers = printed_answers([PrintedJob((1.0, 1.0, 1.0, 1.0), 3)], (3.0,))
    assert any(parts[0][0].sum() == 0 for parts in answers)
    question = ask(arrived=np.array([True, False]))
    started = [tasks for tasks in every_answer(question) if tasks.any()]
    assert started
    assert all(tasks[:2].sum() == 1 and tasks[2:4].sum() >= 2 for tasks in started)
    assert choose_gang(question, gap=0.0).tasks[:2].sum() == 1
