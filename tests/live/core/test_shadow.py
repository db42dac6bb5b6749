"""A candidate that watches: what it would gain is found, with an interval that holds its promise."""

from __future__ import annotations

import json

import numpy as np
import pytest

from berth.live.core.dispatcher import FALLBACK, Dispatcher, read_dump, write_dump
from berth.live.core.events import Event, PolicyChanged, ShadowChanged, Submitted
from berth.live.core.jobs import Server
from berth.live.core.shadow import Baseline, Batches, Shadow
from berth.live.engines.simulated.cluster import SimulatedCluster, Truth
from berth.live.simulation import Played, play
from tests.live.core.builders import begin, job, server, snapshot


class Halves(Truth):
    """Servers of an even number are four times as fast as the others, and nobody is told."""

    def speed(self, type_: str, server: Server) -> float:
        return 2.0 if int(server.name[1:]) % 2 == 0 else 0.5


SERVERS = [server(f"n{i}") for i in range(1, 5)]


def played(live: str, shadow: Shadow | None, jobs: int = 250) -> tuple[Dispatcher, Played]:
    rng = np.random.default_rng(3)
    at = np.cumsum(rng.exponential(40.0, jobs)).tolist()
    given: list[Event] = [Submitted(time, job(f"j{i}", cpu=4, work=30.0)) for i, time in enumerate(at)]
    made = Dispatcher(live)
    made.watchers = () if shadow is None else (shadow,)
    return made, play(made, SimulatedCluster(SERVERS, Halves(noise=0.1)), given)


def test_a_learner_in_the_shadow_of_first_fit_would_gain() -> None:
    shadow = Shadow("cucb")
    played("first-fit", shadow)
    report = shadow.report()
    assert report.decisions > 200
    assert not report.refused
    assert report.saved is not None
    assert report.saved.low is not None
    assert report.saved.low > 0
    assert "task-seconds saved" in str(report)
    json.dumps(report.as_dict(), allow_nan=False)


def test_in_its_own_shadow_nobody_gains() -> None:
    shadow = Shadow("first-fit")
    played("first-fit", shadow)
    report = shadow.report()
    assert report.alike == report.decisions > 0
    assert report.saved is not None
    assert (report.saved.mean, report.saved.low, report.saved.high) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("candidate", [FALLBACK, "cucb", "tests.testing.broken.placement:DecidesArrays"])
def test_who_watches_changes_nothing(candidate: str) -> None:
    plain, first = played("best-fit", None, 60)
    watched, second = played("best-fit", Shadow(candidate), 60)
    assert first.events == second.events
    assert snapshot(plain.state) == snapshot(watched.state)


def test_broken_candidates_are_counted() -> None:
    for candidate, kind in (("DecidesArrays", "raised"), ("Overcommits", "infeasible")):
        shadow = Shadow(f"tests.testing.broken.placement:{candidate}")
        made = Dispatcher("best-fit")
        made.watchers = (shadow,)
        given: list[Event] = [Submitted(1.0, job(f"j{i}", cpu=4)) for i in range(9)]
        play(made, SimulatedCluster(SERVERS), given)
        report = shadow.report()
        assert set(report.refused) == {kind}
        assert report.refused[kind] > 0


def test_the_fallback_is_compared_since_another_policy_decides() -> None:
    rng = np.random.default_rng(3)
    at = np.cumsum(rng.exponential(40.0, 300)).tolist()
    given: list[Event] = [Submitted(time, job(f"j{i}", cpu=4, work=30.0)) for i, time in enumerate(at)]
    for changes in ([], [PolicyChanged(at[29], "cucb")]):
        made, baseline = Dispatcher(), Baseline()
        made.watchers = (baseline,)
        play(made, SimulatedCluster(SERVERS, Halves(noise=0.1)), [*given, *changes])
        if not changes:
            assert baseline.report() is None
    report = baseline.report()
    assert report is not None
    assert (report.policy, report.refused) == (FALLBACK, {})
    assert 200 < report.decisions < 300
    assert report.saved is not None
    assert report.saved.high is not None
    assert report.saved.high < 0


def test_figures_go_on_after_a_dump_and_those_of_another_candidate_do_not() -> None:
    shadow, baseline = Shadow("cucb"), Baseline()
    made, _ = played("first-fit", shadow, 120)
    made.watchers = (shadow, baseline)
    begin(made, 1e6, *(job(f"k{i}", cpu=4) for i in range(3)))
    made.handle(ShadowChanged(1e6, "cucb"))
    loaded = Dispatcher().load(read_dump(write_dump(made.dump())))
    assert loaded.state.shadow == "cucb"
    assert Shadow("cucb").go_on(loaded.watched["shadow"]).report() == shadow.report()
    assert Baseline().go_on(loaded.watched["fallback"]).report() == baseline.report() is not None
    assert Shadow("lcf").go_on(loaded.watched["shadow"]).report().decisions == 0
    assert loaded.dump() == made.dump()
    loaded.note(ShadowChanged(2e6, None))
    assert loaded.state.shadow is None
    assert set(loaded.dump().watched or {}) == {"fallback"}


def test_nothing_seen_nothing_said() -> None:
    report = Shadow("best-fit").report()
    assert (report.saved, report.decisions) == (None, 0)
    assert str(report) == "best-fit has not been asked yet"


def test_batches_keep_their_promise_where_moments_depend_on_each_other() -> None:
    rng = np.random.default_rng(0)
    held = naive = 0
    for _ in range(200):
        batches, value, values = Batches(), 0.0, []
        for noise in rng.standard_normal(3000):
            value = 0.8 * value + noise
            batches.add(value)
            values.append(value)
        found = batches.estimate()
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.0 <= found.high
        naive += abs(np.mean(values)) <= 1.96 * np.std(values) / np.sqrt(len(values))
    assert len(batches.sums) < 64
    assert held >= 176  # 95 % promised; 88 % is five deviations below
    assert naive < 160
