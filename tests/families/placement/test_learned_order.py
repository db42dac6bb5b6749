"""Learned order of a queue: the kernel against the plain reference, the policy, its file, and its training."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cli import main
from berth.errors import InvalidInput
from berth.families.placement.kernels.order_network import FEATURES
from berth.families.placement.policies.order import SHIPPED, Order, order_named
from berth.families.placement.pool_runs import run_pool
from berth.families.placement.training.orders import OrderPlan, QueuedJobs, order_cost, train_order, window_starts
from berth.lab.replay import ReplaySetting, replay
from berth.lab.verify.batch import STARTS, WINDOW
from berth.traces.trace import Trace
from tests.families.placement.test_pool import logs
from tests.harness.examples import examples
from tests.reference import batch

EXAMPLE = Path(__file__).parents[3] / "examples" / "batch.swf"


def plain_score(weights: Any, capacity: float) -> batch.Score:
    """The network, written plainly from its definition."""
    hidden = (len(weights) - FEATURES) // (FEATURES + 2)
    units, offset, out, direct = np.split(weights, np.cumsum([hidden * FEATURES, hidden, hidden]))

    def score(wait: float, estimate: float, size: float, submit: float, free: float, left: int, run: float) -> float:
        length = max(run, 1.0)
        logs = [max(estimate, 1.0), max(size, 1e-9) / capacity, 1.0 + wait, 1.0 + wait / length, 1.0 + left, length]
        x = [0.1 * math.log(value) for value in logs]
        x[4:4] = [float(size <= free + 1e-9), free / capacity]
        value = units.reshape(hidden, FEATURES) @ x + offset
        # ties of the two sums, which add up in another order, are ties of the rounded score
        return round(float(direct @ x + out @ (value / (1.0 + np.abs(value)))), 9)

    return score


def drawn(seed: int, hidden: int) -> Order:
    rng = np.random.default_rng(seed)
    return Order(rng.standard_normal(hidden * (FEATURES + 2) + FEATURES))


@pytest.mark.parametrize(
    ("backfill", "committed", "singly"),
    list(itertools.product(["none", "any", "easy", "shadow"], [False, True], [False, True])),
)
@examples(40)
@given(log=logs(), seed=st.integers(0, 50), hidden=st.integers(0, 3), data=st.data())
def test_the_kernel_is_the_reference(
    backfill: str,
    committed: bool,
    singly: bool,
    log: tuple[list[batch.Job], float],
    seed: int,
    hidden: int,
    data: st.DataObject,
) -> None:
    jobs, processors = log
    order = drawn(seed, hidden)
    rule = plain_score(order.weights, processors)
    owners = data.draw(st.lists(st.integers(-1, 2), min_size=len(jobs), max_size=len(jobs)))
    plain = batch.ranked(jobs, processors, rule, backfill, committed, singly, owners)
    submit, size, run, estimate = np.array(jobs, dtype=np.float64).reshape(-1, 4).T
    how: dict[str, Any] = {"backfill": backfill, "committed": committed, "singly": singly}
    found = run_pool(submit, size, run, estimate, processors, weights=order.weights, owner=owners, **how)
    assert found.tolist() == plain


def trace() -> Trace:
    rng = np.random.default_rng(5)
    jobs = {
        "submit_s": np.sort(rng.integers(0, 200, 50)).astype(float).tolist(),  # some job waits at every end
        "user": [f"u{i % 3}" for i in range(50)],
        "run_s": rng.integers(1, 60, 50).astype(float).tolist(),
        "estimate_s": rng.integers(30, 90, 50).astype(float).tolist(),
        "pieces": [1] * 50,
        "cpu": rng.integers(1, 8, 50).astype(float).tolist(),
    }
    return Trace.of(jobs, {"machine": ["m"], "count": [2], "cpu": [8.0]})


@pytest.mark.parametrize("backfill", ["none", "any", "easy"])
@pytest.mark.parametrize("pick", ["again", "committed"])
@pytest.mark.parametrize("history", [False, True])
def test_kernel_and_engine_agree(tmp_path: Path, backfill: str, pick: str, history: bool) -> None:
    Order(drawn(3, 2).weights, {"history": history}).save(tmp_path / "order.json")
    policy = f"learned-order:file={tmp_path / 'order.json'},backfill={backfill},pick={pick}"
    at_once = replay(trace(), [policy], ReplaySetting(8)).jobs["start_s"].to_list()
    one_by_one = replay(trace(), [policy], ReplaySetting(8, outages=True)).jobs["start_s"].to_list()
    assert at_once == one_by_one
    assert replay(trace(), [policy]).jobs["start_s"].null_count() == 0  # on machines


def test_shadow_backfilling_is_for_a_pool(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(EXAMPLE), "--processors", "8", "-p", "learned-order:backfill=shadow", "-q"]) == 0
    with pytest.raises(Exception, match="backfill=shadow is a rule for one pool"):
        replay(trace(), ["learned-order:backfill=shadow"])


@pytest.mark.parametrize("name", SHIPPED)
def test_orders_that_come_with_berth_held_the_test_windows_out(name: str) -> None:
    made = order_named(name).made
    length, judged = made["plan"]["window_jobs"], made["plan"]["validation_jobs"]
    for starts, size in ((made["training_windows"], length), (made["validation_windows"], judged)):
        assert starts
        assert all(first + size <= test or first >= test + WINDOW for first in starts for test in STARTS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "expected an order in JSON"),
        ("[]", "expected format"),
        (json.dumps({"format": "berth queue order 1", "weights": "x"}), "expected a list of numbers"),
        (json.dumps({"format": "berth queue order 1", "weights": [1.0] * 9}), "10 for each hidden unit"),
        (json.dumps({"format": "berth queue order 1", "weights": [math.inf] * 8}), "8 finite weights"),
        (json.dumps({"format": "berth queue order 1", "made": 1, "weights": [1.0] * 8}), "expected a mapping"),
    ],
)
def test_files_that_are_no_orders(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "order.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=said):
        order_named(str(file))
    with pytest.raises(InvalidInput, match="a readable file"):
        order_named(str(tmp_path / "none.json"))


def crowd(count: int = 400) -> QueuedJobs:
    """Long and short jobs of all sizes, more than the pool can run at once."""
    rng = np.random.default_rng(2)
    run = np.where(rng.random(count) < 0.3, 5000.0, 20.0)
    submit, size = np.sort(rng.random(count) * 60 * count), rng.integers(1, 9, count).astype(float)
    return QueuedJobs(submit, size, run, run * 1.5, np.where(run > 20.0, 1, 0))


def test_training_improves_on_the_shortest_job_first() -> None:
    plan = OrderPlan(8.0, ("none", "shadow"), steps=12, windows=2, window_jobs=60, pairs=6, hidden=2, validation=3,
                     validation_jobs=80, every=4)  # fmt: skip
    told: list[int] = []
    found = train_order(crowd(), plan, [slice(200, 300)], lambda step, best: told.append(step))
    assert told == list(range(13))
    assert found.relative < 1.0
    assert [step for step, _ in found.history] == [0, 4, 8, 12]
    made = found.order.made
    assert set(made["training_windows"]) <= set(window_starts(400, 60, [slice(200, 300)]).tolist())
    windows = [crowd().part(start, 80) for start in made["validation_windows"]]
    again = np.mean([order_cost(one, plan, "none", found.order) for one in windows])
    assert again == pytest.approx(made["validation_slowdown"]["none"])
    assert train_order(crowd(), plan, [slice(200, 300)]).order.weights.tolist() == found.order.weights.tolist()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": 0}, "steps: got 0"),
        ({"backfills": ("conservative",)}, "none, easy, any or shadow"),
        ({"backfills": ()}, "at least one way"),
        ({"window_jobs": 500}, "windows that fit between the parts held out"),
    ],
)
def test_plans_that_cannot_be(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        train_order(crowd(), OrderPlan(8.0, **{"validation_jobs": 100, **change}))


@given(st.integers(0, 40), st.integers(1, 10), st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=3))
def test_windows_overlap_nothing_held_out(count: int, length: int, parts: list[tuple[int, int]]) -> None:
    held = [slice(first, first + size) for first, size in parts]
    taken = {job for part in held for job in range(part.start, part.stop)}
    expected = [s for s in range(count - length + 1) if not taken & set(range(s, s + length))]
    assert window_starts(count, length, held).tolist() == expected


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--steps", "2", "--windows", "1", "--window-jobs", "4", "--pairs", "2", "--held-out", "6"]
    more = ["--held-out-jobs", "2", "--backfill", "none", "--backfill", "easy", "--out", str(tmp_path)]
    assert main(["train-order", str(EXAMPLE), "--processors", "8", *few, *more, "-q"]) == 0
    shown = capsys.readouterr().out
    assert "backfill=easy: mean bounded slowdown" in shown
    policy = f"learned-order:file={tmp_path / 'order.json'},backfill=none,pick=committed"
    assert f"-p {policy}" in shown
    assert replay(EXAMPLE, [policy], ReplaySetting(8)).rows[0]["never_started"] == 0
    assert main(["train-order", str(EXAMPLE), "--processors", "8", "--pick", "once", "-q"]) == 2
    assert "expected one of again, committed" in capsys.readouterr().err
