"""Metrics for Prometheus, by its naming rules (base units, `_seconds`, `_total`), without labels by job or user."""

from __future__ import annotations

import asyncio
from collections import Counter as Count
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from berth.about import VERSION
from berth.files.quantities import MILLI
from berth.live.core.events import Decided, Event, Failed, Finished, Started, Submitted
from berth.live.core.state import State

__all__ = ["Metrics"]

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5)
STALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
LOOK_SECONDS = 0.05
LONG = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0, 7 * 86400.0)


class _Now(Collector):
    """Metrics of the current state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        state = self._state
        there = GaugeMetricFamily("berth_jobs", "Jobs that have not ended.", labels=["queue", "phase"])
        for (queue, phase), count in sorted(state.phases.items()):
            there.add_metric([queue, phase], count)
        yield there
        servers = GaugeMetricFamily("berth_servers", "Servers by state.", labels=["state"])
        states = Count(record.standing for record in state.servers.values())
        for name in ("up", "closed", "drained", "lost"):
            servers.add_metric([name], states[name])
        yield servers
        usable = [record.index for record in state.servers.values() if not record.lost]
        for name, text, table in (
            ("berth_resource_capacity", "Capacity of the servers that are present.", state.capacity),
            ("berth_resource_used", "Capacity that berth's jobs hold.", state.used - state.taken),
            ("berth_resource_taken", "Capacity that foreign jobs hold.", state.taken),
        ):
            family = GaugeMetricFamily(name, f"{text} In base units: cores, bytes, devices.", labels=["resource"])
            for resource, column in state.resources.items():
                family.add_metric([resource], float(table[usable, column].sum()) / MILLI)
            yield family
        kept = GaugeMetricFamily("berth_servers_kept", "Servers reserved for a job that has waited too long.")
        kept.add_metric([], len(state.reserved))
        yield kept
        wait = GaugeMetricFamily("berth_oldest_wait_seconds", "Wait of the oldest waiting job.")
        wait.add_metric([], max(state.time - state.table.oldest, 0.0))
        yield wait
        channels = GaugeMetricFamily("berth_learned_channels", "Pairs of job type and server with a learned speed.")
        channels.add_metric([], len(state.learned))
        yield channels
        held = GaugeMetricFamily("berth_forecasts_held_ratio", "Share of the latest start forecasts that held.")
        held.add_metric([], state.foresight.at(state.time).held)
        yield held
        info = InfoMetricFamily("berth_build", "Version of berth.")
        info.add_metric([], {"version": VERSION})
        yield info


class Metrics:
    """Counts events as they are written, and reads the state when scraped."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_Now(state))

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, buckets=buckets, registry=self.registry)

        self._submitted = counter("berth_jobs_submitted_total", "Jobs accepted.")
        self._finished = counter("berth_attempts_ended_total", "Attempts that ended, by end.", "end")
        self._decisions = counter("berth_decisions_total", "Decisions, by decider.", "by")
        self._refusals = counter("berth_refusals_total", "Refused decisions of the policy, by reason.", "reason")
        self._starts = counter("berth_starts_total", "Start commands given.")
        self._decide = histogram("berth_decision_seconds", "Time to decide.", FAST)
        self._wait = histogram("berth_wait_seconds", "From submission to start.", LONG)
        self._run = histogram("berth_run_seconds", "How long finished attempts ran.", LONG)
        stall = "By how much the event loop, which answers requests, was late for a task that was due."
        self._stall = histogram("berth_loop_stall_seconds", stall, STALLS)

    async def watch_loop(self) -> None:
        """Measure from inside how long the event loop stalls, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
            self._stall.observe(max(loop.time() - due, 0.0))

    def note(self, event: Event) -> None:
        """Count an event that was handled."""
        match event:
            case Submitted():
                self._submitted.inc()
            case Decided():
                self._decisions.labels(event.by.split(":", 1)[0]).inc()
                self._decide.observe(event.seconds)
                self._starts.inc(len(event.starts))
                if event.refused is not None:
                    self._refusals.labels(event.refused.split(":", 1)[0].split(" ", 1)[0]).inc()
            case Started():
                record = self._state.jobs.get(event.job)
                if record is not None:
                    self._wait.observe(max(event.time - record.submitted, 0.0))
            case Finished():
                self._finished.labels("finished").inc()
                if event.seconds is not None:
                    self._run.observe(event.seconds)
            case Failed():
                self._finished.labels(event.fault).inc()
            case _:
                pass

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics, in the OpenMetrics format if the client accepts it, else in the older text format."""
        if "application/openmetrics-text" in accept:
            return generate_openmetrics(self.registry), CONTENT_TYPE_LATEST
        return generate_latest(self.registry), PLAIN
