"""Estimates of fitted workloads: round values with their popularity up to a limit, and run times as a part of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.cli import main
from berth.errors import InvalidInput
from berth.random import stream
from berth.traces.fitting.closeness import closeness, estimate_facts, misfits
from berth.traces.fitting.estimates import Estimates, Menu
from berth.traces.fitting.fit import fit
from berth.traces.fitting.generate import generate
from berth.traces.fitting.workload import load_workload
from berth.traces.formats.generic import write_trace
from berth.traces.trace import Trace

ROUND = np.array([300.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 64800.0])
LIMIT = 64800.0


def users_log(size: int = 6000, seed: int = 3) -> Trace:
    """A log whose users choose among eight values, now and then another; one of them asks for 20 years."""
    rng = stream(seed, "users")
    estimate = rng.choice(ROUND, size, p=[0.2, 0.15, 0.1, 0.2, 0.1, 0.05, 0.05, 0.15])
    odd = rng.random(size) < 0.02
    estimate[odd] = 60.0 * rng.integers(5, 1000, int(odd.sum()))
    estimate[17] = 20 * 365 * 86400.0
    killed = rng.random(size) < 0.07
    used = np.where(rng.random(size) < 0.4, 0.02, rng.random(size))
    run = np.where(killed, estimate + rng.integers(1, 60, size), np.ceil(used * estimate))
    run[17] = 100.0
    columns: dict[str, Any] = {
        "job": [str(i) for i in range(size)],
        "submit_s": np.sort(np.floor(rng.random(size) * 30 * 86400)),
        "run_s": run,
        "estimate_s": estimate,
        "pieces": rng.choice([1, 4, 32], size),
        "user": [f"u{i}" for i in rng.zipf(1.7, size).clip(max=30)],
        "cpu": np.ones(size),
    }
    return Trace.of(columns, {"machine": ["node"], "count": [128], "cpu": [1.0]})


LOG = users_log()
FITTED = fit(LOG, "users")


def test_a_fit_keeps_the_values_that_users_choose_and_their_limit() -> None:
    """With the ratio of estimate and run time alone, every job has its own estimate, up to years."""
    made = generate(FITTED, jobs=len(LOG), seed=1)
    real, drawn = estimate_facts(LOG), estimate_facts(made)
    assert real is not None
    assert drawn is not None
    assert drawn["largest_s"] == LIMIT
    assert drawn["distinct_values"] <= 1.5 * real["distinct_values"]
    for name in ("share_of_the_ten_most_common", "share_run_past", "mean_share_used"):
        assert drawn[name] == pytest.approx(real[name], abs=0.02), name
    for name in ("p25_s", "p50_s", "p75_s", "p95_s"):
        assert drawn[name] == real[name], name
    rows = {row.name: row for row in closeness(LOG, made)}
    for name in ("estimate", "estimate over run time", "run time"):
        assert rows[name].ks < 0.04, name


def test_values_of_single_jobs_are_not_in_the_file() -> None:
    estimate = LOG.jobs["estimate_s"].to_numpy()
    values, counts = np.unique(estimate, return_counts=True)
    kept = {v for e in FITTED.classes if e.estimates for g in e.estimates.groups for v in g.estimate_s.values}
    assert kept <= set(values[counts >= 3].tolist())
    assert set(ROUND.tolist()) <= kept


@given(
    st.lists(
        st.tuples(st.sampled_from([60.0, 600.0, 3600.0, 7.5e8]), st.sampled_from([0.001, 0.1, 0.5, 1.0, 1.5, 3.0])),
        min_size=1,
        max_size=400,
    ),
    st.integers(0, 10),
)
def test_estimates_stay_among_those_of_the_sample(jobs: list[tuple[float, float]], seed: int) -> None:
    estimate, part = np.array(jobs).T
    run = np.maximum(estimate * part, 1e-3)
    menu = Menu(estimate)
    found = Estimates.of(estimate, run, 1.0, menu)
    rng = stream(seed, "draws")
    drawn, ran = found.draw(rng.random(2000), rng.random(2000))
    capped = np.minimum(estimate, menu.limit_s)
    tolerance = 1 + 1e-4
    assert drawn.min() >= capped.min() / tolerance - 0.5
    assert drawn.max() <= capped.max() * tolerance + 0.5
    assert (ran > 0).all()
    assert abs(float((ran > drawn).mean()) - float((run > capped).mean())) < 0.06


@pytest.mark.parametrize("name", ["sdsc-sp2", "llnl-atlas", "hpc2n", "metacentrum"])
def test_shipped_logs_have_estimates_of_users(name: str) -> None:
    facts = estimate_facts(generate(load_workload(name), jobs=20_000, seed=1))
    assert facts is not None
    assert facts["distinct_values"] < 500
    assert facts["share_of_the_ten_most_common"] > 0.55
    assert facts["largest_s"] < 100 * 86400
    assert 0.02 < facts["share_run_past"] < 0.15


def test_a_poor_fit_is_called_poor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The ratio of estimate and run time fits well, and the estimates are nonsense."""
    rng = stream(1, "ratio")
    made = generate(FITTED, jobs=len(LOG), seed=1)
    ratio = (LOG.jobs["estimate_s"] / LOG.jobs["run_s"]).to_numpy()
    absurd = made.replace(
        jobs=made.jobs.with_columns(estimate_s=made.jobs["run_s"].to_numpy() * rng.choice(ratio, len(made)))
    )
    rows = closeness(LOG, absurd)
    assert {row.name: row.ks for row in rows}["estimate over run time"] < 0.04
    poor = misfits(rows, [], estimate_facts(LOG), estimate_facts(absurd))
    assert any(text.startswith("distinct values of estimates") for text in poor)
    assert any(text.startswith("share of the ten most common") for text in poor)
    assert any(text.startswith("estimate: KS") for text in poor)
    assert misfits(closeness(LOG, made), [], estimate_facts(LOG), estimate_facts(made)) == []
    assert misfits([], [], estimate_facts(LOG), None) == ["estimates: the fit has none"]

    write_trace(LOG, tmp_path / "log.csv")
    FITTED.save(tmp_path / "fit.json")
    main(["workload", "compare", str(tmp_path / "log.csv"), str(tmp_path / "fit.json")])
    assert "No marginal is far from the trace." in capsys.readouterr().out
    main(["workload", "compare", str(tmp_path / "log.csv"), "hpc2n"])
    assert "Poor fit. " in capsys.readouterr().out


def test_a_file_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    tree = json.loads(FITTED.text())
    tree["classes"][0]["estimate_ratio"] = {"values": [1.0], "shares": [1.0]}
    (tmp_path / "old.json").write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(InvalidInput, match="fit the trace again"):
        load_workload(tmp_path / "old.json")
