"""The plain loop: whole logs under the live core start and end as they do in the lab, whose results are frozen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from berth.errors import UnsupportedProblem
from berth.families.placement.cluster_runs import run_cluster
from berth.families.placement.trace_world import batch_jobs
from berth.lab.replay import ReplaySetting, replay, results, run
from berth.lab.replay.live_runs import play_live
from berth.lab.replay.samples import Measurement, samples_of
from berth.live.core.drivers.rules import rule_of
from berth.registry import PolicySpec
from berth.traces.trace import Trace
from tests.families.placement.test_cluster_runs import Log
from tests.families.placement.test_cluster_runs import logs as random_logs
from tests.families.placement.test_queued import fits_alone
from tests.frozen.logs import LOGS
from tests.frozen.policies import QUEUE
from tests.frozen.schedules import SETTINGS
from tests.frozen.tables import Key, Outcome, differences, read_table, row_of
from tests.harness.examples import examples

FAST = ("fcfs:fit=first", "easy:fit=best", "conservative:fit=first", "tetris", "drf-placement", "wfp3:backfill=easy")


def excepted(key: Key) -> str:
    """Why a schedule of the lab is not that of the live core; empty where it is."""
    rule = rule_of(PolicySpec.parse(key.policy))
    if rule is None or rule.backfill == "shadow":
        return "only the lab has the policy"
    if key.log.startswith("pods"):
        return "servers have no devices in the live core"
    if key.setting == "outages":
        return "jobs that lose their servers rest before they start again"
    if key.log.startswith("equal") and "size" in rule.score and not rule.fixed:
        return "on a pool of equal pieces, the lab gives scores the number of pieces as size"
    if key.log.startswith("fractions") and (rule.fit != "first" or "size" in rule.score):
        return "amounts that floats round, in the lab, decide which of two servers or scores is less"
    return ""


def keys() -> list[Key]:
    """All frozen schedules of queue policies that the live core is held to."""
    played = [key for key, row in read_table("schedules").items() if row.rows and key.policy in QUEUE]
    return [key for key in played if not excepted(key)]


def compared(chosen: list[Key]) -> list[str]:
    """What differs from the frozen schedules."""
    found = []
    for key in chosen:
        setting = ReplaySetting(**SETTINGS[key.setting])
        sample = samples_of(LOGS[key.log](), setting, Measurement()).samples[0]
        run = play_live(batch_jobs(sample.played, exact=setting.exact, stopped=setting.stopped), key.policy)
        assert not run.refused
        lines = [f"{s!r} {e!r}" for s, e in zip(run.start.tolist(), run.end.tolist(), strict=True)]
        found.append((key, row_of(Outcome(lines))))
    assert found
    return list(differences(read_table("schedules"), found))


@pytest.mark.parametrize("log", ["pool-short", "speeds-short"])
def test_short_logs_start_and_end_as_in_the_lab(log: str) -> None:
    assert compared([key for key in keys() if key.log == log and key.policy in FAST and not key.setting]) == []


@pytest.mark.slow
@pytest.mark.limit(3600)
@pytest.mark.parametrize("log", sorted({key.log for key in keys()}))
def test_all_logs_start_and_end_as_in_the_lab(log: str) -> None:
    short = log.endswith("short")
    assert compared([key for key in keys() if key.log == log and (short or key.policy in FAST)]) == []


FIRST = ["fcfs", "sjf", "easy", "conservative", "saf:backfill=any", "wfp3:backfill=easy", "f2:pick=committed"]
"""Policies that compare no amounts of servers, so that rounding decides nothing."""


@examples(60)
@given(log=random_logs(), name=st.sampled_from(FIRST))
def test_kernels_of_whole_logs_start_jobs_as_the_live_core_does(log: Log, name: str) -> None:
    assume(fits_alone(log).all())  # the lab keeps jobs that never fit in its queue, the live core does not
    policy = PolicySpec.parse(name).build(log.problem, np.random.default_rng(0))
    kernel = run_cluster(policy, log.tasks, log.runs)
    assert kernel is not None
    run = play_live(log.batch, name)
    assert run.start.tolist() == kernel.start.tolist()
    assert run.end.tolist() == kernel.end.tolist()


@examples(60)
@given(log=random_logs(), name=st.sampled_from(FIRST), none=st.sets(st.integers(0, 11), min_size=1))
def test_jobs_of_zero_run_time_end_as_they_start(log: Log, name: str, none: set[int]) -> None:
    runs = np.where(np.isin(np.arange(len(log.tasks)), list(none)), 0.0, log.runs)
    log = replace(log, problem=log.problem.replace(exact=False), runs=runs)
    assume(fits_alone(log).all())
    kernel = run_cluster(PolicySpec.parse(name).build(log.problem, np.random.default_rng(0)), log.tasks, log.runs)
    assert kernel is not None
    run = play_live(log.batch, name)
    assert run.start.tolist() == kernel.start.tolist()
    assert run.end.tolist() == kernel.end.tolist()


UNEQUAL: dict[str, Any] = {"machine": ["slow", "fast"], "count": [1, 1], "cpu": [2.0, 2.0], "speed": [1.0, 4.0]}
"""Servers of which one is four times as fast."""


def on_unequal(columns: dict[str, Any], policy: str, **setting: Any) -> list[tuple[float, float]]:
    """Start and end of each job of a log."""
    found = replay(Trace.of(columns, UNEQUAL), [policy], ReplaySetting(**setting)).jobs
    return list(zip(found["start_s"].to_list(), found["end_s"].to_list(), strict=True))


def test_completion_waits_for_the_faster_server_and_the_fallback_does_not() -> None:
    columns = {"submit_s": [0.0, 1.0], "run_s": [40.0, 100.0], "estimate_s": [40.0, 100.0], "cpu": [2.0, 2.0]}
    assert on_unequal(columns, "completion") == [(0.0, 10.0), (10.0, 35.0)]
    assert on_unequal(columns, "in-order-best-fit") == [(0.0, 40.0), (1.0, 26.0)]


def test_what_the_live_core_cannot_play_is_refused() -> None:
    columns = {"submit_s": [0.0, 1.0], "run_s": [10.0, 100.0], "cpu": [2.0, 2.0]}
    with pytest.raises(UnsupportedProblem, match="outages"):
        on_unequal(columns, "completion", outages=True)
    with pytest.raises(UnsupportedProblem, match="devices"):
        replay(LOGS["pods-short"](), ["completion"])


@pytest.mark.usefixtures("undrawn")
def test_results_of_the_live_core_are_reused(tmp_path: Path) -> None:
    columns = {"submit_s": [0.0, 1.0], "run_s": [40.0, 100.0], "cpu": [2.0, 2.0]}
    first, again = (
        replay(Trace.of(columns, UNEQUAL), ["easy", "completion"], out=tmp_path, baseline="completion").rows
        for _ in range(2)
    )
    assert [row["policy"] for row in first] == ["easy", "completion"]
    assert again == first


@pytest.mark.parametrize(("amount", "of"), [(0.1, 0.3), (0.4, 1.2), (10.7, 32.1)])
def test_three_thirds_of_a_server_fit_as_they_are_written(amount: float, of: float) -> None:
    columns = {"submit_s": [0.0] * 4, "run_s": [10.0] * 4, "cpu": [*[amount] * 3, amount / 2]}
    servers: dict[str, list[Any]] = {"machine": ["a", "b"], "cpu": [of, amount / 2], "speed": [1.0, 1.5]}
    for policy in ("fcfs", "in-order-best-fit", "completion"):
        found = replay(Trace.of(columns, servers), [policy]).jobs
        assert found["start_s"].to_list() == [0.0] * 4


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("policy", "again"), [("escb-v", True), ("completion", True), ("easy", False)])
def test_results_of_another_live_core_are_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, again: bool
) -> None:
    trace = Trace.of({"submit_s": [0.0, 1.0], "run_s": [40.0, 100.0], "cpu": [2.0, 2.0]}, UNEQUAL)
    played, play = list[str](), run.played

    def counted(spec: PolicySpec, *more: Any, **settings: Any) -> Any:
        played.append(str(spec))
        return play(spec, *more, **settings)

    monkeypatch.setattr(run, "played", counted)
    for version in ("one", "one", "two"):
        monkeypatch.setattr(results, "code_hash", lambda *rooms, live=version: live if "live" in rooms else "lab")
        replay(trace, [policy], out=tmp_path)
    assert played == [policy] * (2 if again else 1)


def test_machines_of_a_log_have_any_names() -> None:
    columns = {"submit_s": [0.0, 1.0], "run_s": [40.0, 100.0], "cpu": [2.0, 2.0]}
    servers = {**UNEQUAL, "machine": ["rack 1/slow", "rack 1/fast"]}
    for policy in ("fcfs", "completion", "escb-v"):
        assert replay(Trace.of(columns, servers), [policy]).rows[0]["never_started"] == 0
