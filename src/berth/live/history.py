"""The history of a service as a trace: the jobs that it has finished, and its servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from berth.errors import InvalidInput
from berth.files.quantities import MILLI, amounts
from berth.live.client import Client, path
from berth.model import Resource
from berth.traces.formats.generic import write_trace
from berth.traces.trace import Source, Trace

__all__ = ["service_trace", "write_history"]

LEAST = 50
"""Jobs that a history must have."""
SCENARIO = """\
title: "Jobs of {url}"
description: >-
  Jobs that the service finished, as they came, on its servers. Values and deadlines of jobs are assumed: the value
  grows with the square root of demand and work and falls while the job waits, and the deadline is 2 to 20 times the
  run time.
family: placement
horizon: 50
workload: {{trace: history.csv, servers: {servers}}}
execution_cost: {{factor: 0.001}}
tasks: {{power: 0.5, deadline: {{stretch: [2, 20]}}}}
"""


def service_trace(client: Client) -> Trace:
    """The finished jobs of a service, and its servers. A job of several roles counts as equal tasks of the largest."""
    found = list(_finished(client))
    if len(found) < LEAST:
        raise InvalidInput(f"a service with {LEAST} finished jobs or more", found=f"{len(found)}", file=client.url)
    servers = client.get(path("servers"))
    names = sorted({name for server in servers for name in server["capacity"]})
    first = min(_seconds(job["submitted"]) for job in found)
    jobs: dict[str, list[Any]] = {name: [] for name in ("job", "submit_s", "wait_s", "run_s", "estimate_s", "pieces")}
    jobs |= {name: [] for name in ("user", "kind", *names)}
    for job in found:
        submitted, started, ended = (_seconds(job[name]) for name in ("submitted", "started", "ended"))
        asked = [_units(role["resources"]) for role in job["roles"].values()]
        row = {
            "job": job["id"],
            "submit_s": submitted - first,
            "wait_s": started - submitted,
            "run_s": ended - started,
            "estimate_s": job["estimate"] or job["limit"],
            "pieces": sum(role["count"] for role in job["roles"].values()),
            "user": job["user"],
            "kind": job["type"],
            **{name: max(one.get(name, 0.0) for one in asked) for name in names},
        }
        for name, column in jobs.items():
            column.append(row[name])
    machines: dict[str, list[Any]] = {"machine": [server["name"] for server in servers]}
    machines |= {"count": [1] * len(servers), "speed": [server["speed"] for server in servers]}
    machines |= {name: [_units(server["capacity"]).get(name, 0.0) for server in servers] for name in names}
    resources = [Resource(name, "device" if name == "gpu" else "unit") for name in names]
    return Trace.of(jobs, machines, resources, Source(client.url))


def write_history(url: str, folder: Path) -> Path:
    """Write the history of a service and a scenario of it to a folder, if it has none yet; returns the scenario."""
    scenario = folder / "history.yaml"
    if not scenario.exists():
        folder.mkdir(parents=True, exist_ok=True)
        trace = service_trace(Client(url))
        write_trace(trace, folder / "history.csv", overwrite=True)
        scenario.write_text(SCENARIO.format(url=url, servers=len(trace.machines)), encoding="utf-8")
    return scenario


def _finished(client: Client) -> Iterator[Mapping[str, Any]]:
    after = None
    while True:
        page = client.get(path("jobs"), phase=["finished"], after=after, limit=1000)
        yield from (job for job in page["jobs"] if job["started"] and job["ended"])
        after = page["after"]
        if after is None:
            return


def _units(given: Mapping[str, str]) -> dict[str, float]:
    return {name: amount / MILLI for name, amount in amounts(given).items()}


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
