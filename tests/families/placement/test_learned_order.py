"""The learned order, an example: its kernel against the plain reference, and the names that it had inside berth."""

from __future__ import annotations

import importlib
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cli import main
from berth.lab.verify.environment import LEARNED, STARTS, WINDOW
from tests.families.placement.test_pool import logs
from tests.harness.examples import examples
from tests.reference import batch

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def example() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples" / "learned-order")
        yield importlib.import_module("berth_learned_order")


@pytest.fixture(scope="module")
def pool(example: Any) -> Any:
    return importlib.import_module("berth_learned_order.pool")


@pytest.mark.parametrize("name", ["sdsc-sp2", "lublin-256"])
def test_its_orders_held_the_windows_of_verify_out(example: Any, name: str) -> None:
    order = example.order_named(name)
    length, judged = order.made["plan"]["window_jobs"], order.made["plan"]["validation_jobs"]
    for starts, size in ((order.made["training_windows"], length), (order.made["validation_windows"], judged)):
        assert starts
        assert all(first + size <= test or first >= test + WINDOW for first in starts for test in STARTS)
    assert (name, tuple(order.weights)) in LEARNED.values()  # `berth verify` plays the same orders


def plain_score(weights: Any, capacity: float) -> batch.Score:
    """The score, written plainly from its definition."""

    def score(wait: float, estimate: float, size: float, submit: float, free: float, left: int, run: float) -> float:
        length = max(run, 1.0)
        known = [max(estimate, 1.0), max(size, 1e-9) / capacity, 1.0 + wait, 1.0 + wait / length, 1.0 + left, length]
        x = [0.1 * math.log(value) for value in known]
        x[4:4] = [float(size <= free + 1e-9), free / capacity]
        # ties of the two sums, which add up in another order, are ties of the rounded score
        return round(float(weights @ x), 9)

    return score


@pytest.mark.parametrize(
    ("backfill", "committed", "singly"),
    list(itertools.product(["none", "easy", "shadow"], [False, True], [False, True])),
)
@examples(40)
@given(log=logs(), seed=st.integers(0, 50), data=st.data())
def test_the_kernel_is_the_reference(
    pool: Any,
    backfill: str,
    committed: bool,
    singly: bool,
    log: tuple[list[batch.Job], float],
    seed: int,
    data: st.DataObject,
) -> None:
    jobs, processors = log
    weights = np.random.default_rng(seed).standard_normal(8)
    owners = data.draw(st.lists(st.integers(-1, 2), min_size=len(jobs), max_size=len(jobs)))
    plain = batch.ranked(jobs, processors, plain_score(weights, processors), backfill, committed, singly, owners)
    submit, size, run, estimate = np.array(jobs, dtype=np.float64).reshape(-1, 4).T.copy()
    owner = np.array(owners, dtype=np.int64)
    mode = pool.MODES[backfill]
    found = pool.play(submit, size, run, estimate, owner, float(processors), weights, mode, committed, singly)
    assert found.tolist() == plain


def test_its_names_inside_berth_tell_where_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    log = str(ROOT / "examples" / "batch.swf")
    policy = "learned-order:backfill=easy"
    for words in (["replay", log, "--policy", policy], ["train-order", log, "--processors", "8"]):
        assert main(words) == 2
        assert "install" in (said := capsys.readouterr().err)
        assert "examples/learned-order" in said
