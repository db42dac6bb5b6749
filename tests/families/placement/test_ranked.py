"""Priority rules: the kernel against the plain reference, policies on a pool and on machines, and scores."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from berth.cli import main
from berth.errors import InvalidInput
from berth.families import PRIORITIES
from berth.families.placement.policies.priority import score_function
from berth.families.placement.pool_runs import run_pool
from berth.lab.replay import ReplaySetting, replay
from berth.traces.trace import Trace
from tests.families.placement.test_pool import logs
from tests.harness.examples import examples
from tests.reference import batch

SCORES = {
    "wait": "-wait * size",  # changes while jobs wait
    "wfp3": "-((wait / estimate) ** 3) * size",
    "area": "estimate * size",
}
EXAMPLE = Path(__file__).parents[3] / "examples" / "batch.swf"


def overtaker(wait: float, estimate: float, size: float, submit: float) -> float:
    """A rule as a user writes it: jobs that have waited for more than five seconds come first."""
    return estimate if wait < 5.0 else -1.0


@pytest.mark.parametrize(
    ("backfill", "committed", "singly"),
    list(itertools.product(["none", "any", "easy", "shadow"], [False, True], [False, True])),
)
@pytest.mark.parametrize("score", SCORES)
@examples(20)
@given(log=logs())
def test_the_kernel_is_the_reference(
    score: str, backfill: str, committed: bool, singly: bool, log: tuple[list[batch.Job], float]
) -> None:
    jobs, processors = log
    rule = score_function(SCORES[score])
    plain = batch.ranked(jobs, processors, rule, backfill, committed, singly)
    submit, size, run, estimate = np.array(jobs, dtype=np.float64).reshape(-1, 4).T
    found = run_pool(
        submit, size, run, estimate, processors, backfill=backfill, score=rule, committed=committed, singly=singly
    )
    assert found.tolist() == plain


@pytest.mark.parametrize("backfill", ["none", "any", "easy"])
@examples(20)
@given(log=logs())
def test_a_score_that_does_not_change_is_a_key(backfill: str, log: tuple[list[batch.Job], float]) -> None:
    jobs, processors = log
    submit, size, run, estimate = np.array(jobs, dtype=np.float64).reshape(-1, 4).T
    scored = run_pool(submit, size, run, estimate, processors, backfill=backfill, score=score_function("estimate"))
    keyed = run_pool(submit, size, run, estimate, processors, backfill=backfill, key=estimate)
    assert scored.tolist() == keyed.tolist()


@pytest.mark.parametrize("backfill", ["none", "any", "easy", "shadow"])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0])
@examples(20)
@given(log=logs())
def test_ties_are_by_the_key(backfill: str, committed: bool, sign: float, log: tuple[list[batch.Job], float]) -> None:
    """Sizes as scores: whole numbers, of which many are equal."""
    jobs, processors = log
    rule = score_function("size")
    submit, size, run, estimate = np.array(jobs, dtype=np.float64).reshape(-1, 4).T
    key = sign * estimate
    plain = batch.ranked(jobs, processors, rule, backfill, committed, False, ties=key.tolist())
    found = run_pool(
        submit, size, run, estimate, processors, backfill=backfill, score=rule, key=key, committed=committed
    )
    assert found.tolist() == plain


TIES: dict[str, Callable[[batch.Job, int], float]] = {
    "arrival": lambda job, i: 0.0,
    "latest": lambda job, i: -i,
    "shortest": lambda job, i: job[3],
    "longest": lambda job, i: -job[3],
    "smallest": lambda job, i: job[1],
    "largest": lambda job, i: -job[1],
}


@pytest.mark.parametrize("words", ["", ",pick=committed", ",backfill=easy", ",backfill=any,pick=committed"])
@pytest.mark.parametrize("ties", TIES)
def test_a_policy_breaks_ties_as_it_is_told(ties: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a pool, on machines, and asked at every moment: as the reference, on which the score is always equal."""
    spec = f"priority:score=0*submit,ties={ties}{words}"
    jobs = trace().jobs
    listed = list(zip(*(jobs[name].to_list() for name in ("submit_s", "pieces", "run_s", "run_s")), strict=True))
    tied = [TIES[ties](job, i) for i, job in enumerate(listed)]
    backfill = "easy" if "easy" in words else "any" if "any" in words else "none"
    plain = batch.ranked(listed, 8.0, lambda *_: 0.0, backfill, "committed" in words, False, ties=tied)
    assert replay(trace(), [spec], ReplaySetting(processors=8)).jobs["start_s"].to_list() == plain
    monkeypatch.setattr("berth.lab.replay.run.as_pool", lambda batch: None)
    assert replay(trace(), [spec], ReplaySetting(processors=8)).jobs["start_s"].to_list() == plain
    monkeypatch.setattr("berth.lab.replay.run.run_cluster", lambda *_, **__: None)
    assert replay(trace(), [spec], ReplaySetting(processors=8)).jobs["start_s"].to_list() == plain


def test_another_tie_rule_is_refused() -> None:
    with pytest.raises(InvalidInput, match="ties: got 'random', expected one of arrival, latest"):
        replay(trace(), ["sjf", "saf:ties=random"], ReplaySetting(processors=8))


def trace() -> Trace:
    rng = np.random.default_rng(5)
    jobs = {
        "submit_s": np.sort(rng.integers(0, 400, 60)).astype(float).tolist(),
        "run_s": rng.integers(1, 90, 60).astype(float).tolist(),
        "pieces": rng.integers(1, 5, 60).tolist(),
        "cpu": [1.0] * 60,
    }
    return Trace.of(jobs, {"machine": ["node"], "count": [4], "cpu": [2.0]})


@pytest.mark.parametrize("policy", [name.lower() for name in PRIORITIES])
@pytest.mark.parametrize("words", ["backfill=none", "backfill=any", "backfill=easy", "pick=committed"])
def test_every_rule_gives_the_same_on_a_pool_and_asked_at_every_moment(
    policy: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = f"{policy}:{words}"
    pool = replay(trace(), [spec], ReplaySetting(processors=8)).jobs["start_s"]
    monkeypatch.setattr("berth.lab.replay.run.as_pool", lambda batch: None)
    assert replay(trace(), [spec], ReplaySetting(processors=8)).jobs["start_s"].equals(pool)


def test_rules_order_jobs_as_they_say() -> None:
    def first(policy: str) -> int:
        jobs: dict[str, list[Any]] = {
            "submit_s": [0.0, 1.0, 2.0, 3.0],
            "run_s": [10.0, 100.0, 30.0, 20.0],
            "pieces": [4, 1, 2, 4],
            "cpu": [1.0] * 4,
        }
        start = replay(Trace.of(jobs), [policy], ReplaySetting(processors=4)).jobs["start_s"].to_list()
        return start.index(10.0)  # the first of those that wait for the first job

    found = {policy: first(policy) for policy in ("fcfs", "sjf", "ljf", "saf", "wfp3")}
    assert found == {"fcfs": 1, "sjf": 3, "ljf": 1, "saf": 2, "wfp3": 3}


def test_a_rule_of_ones_own_is_an_expression_or_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    own = f"priority:score={__name__}.overtaker"
    words = ["replay", str(EXAMPLE), "--processors", "8", "-q", "-o", "csv"]
    assert main([*words, "-p", "priority:score=estimate", "-p", "sjf", "-p", own]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[1].split(",")[1:8] == lines[2].split(",")[1:8]  # but for the time that it took


@pytest.mark.parametrize(
    ("score", "said"),
    [
        ("wait.real", "expected module.function"),
        ("wait + length", "an expression of wait, estimate, size and submit"),
        ("__import__('os')", "an expression of"),
        ("wait +", "an expression of"),
        ("length", "an expression of"),
        ("'text'", "an expression of"),
        ("nowhere.rule", "expected module.function"),
        ("math.pi", "a function of wait, estimate, size and submit"),
    ],
)
def test_other_scores_are_refused(score: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        score_function(score)


def test_what_cannot_be_compiled_is_told() -> None:
    def strange(wait: float, estimate: float, size: float, submit: float) -> Any:
        return {"no": "number"}

    with pytest.raises(InvalidInput, match="a score that numba can compile"):
        run_pool([0.0], [1.0], [1.0], [1.0], 1.0, score=strange)
    with pytest.raises(InvalidInput, match="none, easy, any or shadow"):
        run_pool([0.0], [1.0], [1.0], [1.0], 1.0, score=score_function("wait"), backfill="conservative")
    with pytest.raises(InvalidInput, match="shadow with a score"):
        run_pool([0.0], [1.0], [1.0], [1.0], 1.0, backfill="shadow")
