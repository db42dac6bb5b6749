"""What the package promises: its policy keeps berth's promises, its kernel and its policy agree, and training helps."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from berth_learned_order import LearnedOrder, Order, order_named
from berth_learned_order.pool import MODES, play
from berth_learned_order.training import OrderPlan, QueuedJobs, jobs_of, main, order_cost, train_order, window_starts

from berth import InvalidInput, ReplaySetting, Trace, check_policy, replay

LOG = """job,submit_s,user,run_s,estimate_s,cpu[core]
a,0,ann,10,60,4
b,0,bob,50,60,6
c,1,ann,10,60,8
d,2,bob,50,60,2
e,40,ann,10,60,8
f,41,bob,50,60,8
g,42,ann,10,60,8
h,300,bob,50,60,3
"""


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


def test_keeps_every_promise() -> None:
    check_policy(LearnedOrder)


@pytest.mark.parametrize("backfill", ["none", "easy"])
@pytest.mark.parametrize("pick", ["again", "committed"])
@pytest.mark.parametrize("history", [False, True])
def test_the_kernel_starts_jobs_as_the_policy_does(tmp_path: Path, backfill: str, pick: str, history: bool) -> None:
    order = Order(np.random.default_rng(3).standard_normal(8), {"history": history})
    file = tmp_path / "order.json"
    file.write_text(order.text(), encoding="utf-8")
    policy = f"berth_learned_order:LearnedOrder:file={file},backfill={backfill},pick={pick}"
    asked = replay(trace(), [policy], ReplaySetting(8)).jobs["start_s"].to_list()
    jobs = jobs_of(trace(), 8.0)
    owner = jobs.owner if history else np.full(50, -1)
    played = play(*jobs[:4], owner, 8.0, order.weights, MODES[backfill], pick == "committed", False)
    assert played.tolist() == asked
    assert replay(trace(), [policy]).jobs["start_s"].null_count() == 0  # on machines


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "an order in JSON"),
        ("[]", "an order in JSON"),
        (json.dumps({"format": "1"}), "expected format"),
        (json.dumps({"format": "berth queue order 1", "weights": "x"}), "an order in JSON"),
        (json.dumps({"format": "berth queue order 1", "weights": [1.0] * 9}), "8 finite weights"),
        (json.dumps({"format": "berth queue order 1", "weights": [math.inf] * 8}), "8 finite weights"),
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
    plan = OrderPlan(8.0, ("none", "shadow"), steps=12, windows=2, window_jobs=60, pairs=6, validation=3,
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


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"steps": 0}, "steps: got 0"),
        ({"backfills": ("conservative",)}, "one or more of none, easy, shadow"),
        ({"backfills": ()}, "one or more of none, easy, shadow"),
        ({"window_jobs": 500}, "windows that fit between the parts held out"),
    ],
)
def test_plans_that_cannot_be(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        train_order(crowd(), OrderPlan(8.0, **{"validation_jobs": 100, **change}))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    log.write_text(LOG, encoding="utf-8")
    few = ["--steps", "2", "--windows", "1", "--window-jobs", "4", "--pairs", "2", "--held-out", "6"]
    more = ["--held-out-jobs", "2", "--backfill", "none", "--backfill", "easy", "--out", str(tmp_path)]
    assert main([str(log), "--processors", "8", *few, *more]) == 0
    shown = capsys.readouterr().out
    assert "backfill=easy: mean bounded slowdown" in shown
    assert f"-p learned-order:file={tmp_path / 'order.json'},backfill=none" in shown
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none.csv"), "--processors", "8"])
