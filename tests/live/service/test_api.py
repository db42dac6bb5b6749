"""The API on a real scheduler: what it accepts, refuses and tells."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from berth.errors import InvalidInput
from berth.files.quantities import parse_duration
from berth.live.core import order, specs
from berth.live.core.events import Decided
from berth.live.core.view import Placing, placed_in_order
from berth.live.service.middleware import RateLimit
from berth.live.service.serving import Address, service
from berth.live.service.settings import ServiceSettings
from berth.live.service.store import Batch, Store, Token
from berth.live.service.tokens import ANYBODY, Visibility, digest, new_secret
from berth.live.service.views import QueueView
from tests.harness.waiting import DEADLINE, eventually_async
from tests.live.service.live import serving, serving_process

Use = Callable[[httpx.AsyncClient], Awaitable[Any]]
JSON = {"Content-Type": "application/json"}
JOB = {"tasks": 2, "resources": {"cpu": "1"}, "work": 1000}


def with_service(where: Path, use: Use, **settings: Any) -> Any:
    """Open a service, use it, close it."""

    async def run() -> Any:
        made = ServiceSettings(store=str(where / "berth.db"), tick=0.05, **settings)
        async with service(made, Address()) as (_, app):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as client:
                return await use(client)

    return asyncio.run(run())


async def until(client: httpx.AsyncClient, job: str, phases: set[str]) -> dict[str, Any]:
    async def look() -> dict[str, Any]:
        return (await client.get(f"/v1/jobs/{job}")).json()  # type: ignore[no-any-return]

    return await eventually_async(look, lambda found: found["phase"] in phases, job)


def test_a_job_is_submitted_runs_and_is_remembered(tmp_path: Path) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/jobs", json={**JOB, "name": "a"})
        assert answer.status_code == 201
        assert answer.json()["jobs"][0]["id"] == "a"
        found = await until(client, "a", {"finished"})
        assert sum(place["tasks"] for place in found["places"]) == 2
        assert (await client.get("/v1/learned")).json()[0]["runs"] == 1
        decided = (await client.get("/v1/decisions")).json()
        assert any(start["job"] == "a" for decision in decided for start in decision["starts"])

    with_service(tmp_path, use, faster=1000.0)

    async def again(client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/jobs/a")).json()["phase"] == "finished"
        assert (await client.get("/v1/learned")).json()[0]["runs"] == 1

    with_service(tmp_path, again, faster=1000.0)


def test_a_start_is_shown_once_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writing, release, write = threading.Event(), threading.Event(), Store.write

    def slowly(store: Store, batch: Batch) -> None:
        if any(isinstance(event, Decided) for event in batch.events):
            writing.set()
            release.wait(DEADLINE)
        write(store, batch)

    monkeypatch.setattr(Store, "write", slowly)

    async def use(client: httpx.AsyncClient) -> None:
        async def read(path: str) -> str:
            answer = await client.get(path)
            assert release.is_set(), answer.text
            return answer.text

        await client.post("/v1/jobs", json={**JOB, "name": "a"})
        await asyncio.to_thread(writing.wait, DEADLINE)
        asyncio.get_running_loop().call_later(0.5, release.set)
        paths = "/v1/jobs/a", "/v1/queue", "/v1/servers", "/v1/holders", "/metrics"
        job, queue, *_ = await asyncio.gather(*map(read, paths))
        assert json.loads(job)["attempt"] == 1
        assert json.loads(queue)["waiting"] == 0

    with_service(tmp_path, use)


def test_many_are_accepted_all_or_none(tmp_path: Path) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/jobs", json=[{**JOB, "name": "a"}, {**JOB, "name": "a"}])
        assert answer.status_code in (409, 422)
        assert (await client.get("/v1/jobs")).json()["jobs"] == []
        answer = await client.post("/v1/jobs", json=[JOB] * 25)
        ids = [job["id"] for job in answer.json()["jobs"]]
        assert len(set(ids)) == 25
        seen: list[str] = []
        after = None
        while True:
            query = {"limit": 10, **({"after": after} if after is not None else {})}
            page = (await client.get("/v1/jobs", params=query)).json()
            seen += [job["id"] for job in page["jobs"]]
            after = page["after"]
            if after is None:
                break
        assert seen == ids[::-1]

    with_service(tmp_path, use)


def test_many_jobs_are_checked_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked_in = set[int]()

    def noted(value: object, key: str) -> float:
        checked_in.add(threading.get_ident())
        return parse_duration(value, key)

    monkeypatch.setattr(specs, "parse_duration", noted)

    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/jobs", json=[{**JOB, "limit": "5m"}] * 100)
        assert len(answer.json()["jobs"]) == 100

    with_service(tmp_path, use)
    assert checked_in
    assert threading.get_ident() not in checked_in


def test_the_queue_is_written_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written_in, real = set[int](), QueueView.model_dump_json

    def noted(self: QueueView) -> str:
        written_in.add(threading.get_ident())
        return real(self)

    monkeypatch.setattr(QueueView, "model_dump_json", noted)

    async def use(client: httpx.AsyncClient) -> None:
        await client.put("/v1/queues", json={"queues": {"default": {"starts": False}}})
        await client.post("/v1/jobs", json=[JOB] * 3)
        answer = await client.get("/v1/queue?limit=2")
        assert answer.headers["content-type"] == "application/json"
        page = answer.json()
        assert page["waiting"] == 3
        assert [one["why"] for one in page["jobs"]] == ["queue default is paused"] * 2
        assert page == QueueView(**page).model_dump(mode="json")

    with_service(tmp_path, use)
    assert written_in
    assert threading.get_ident() not in written_in


def test_new_shapes_are_compared_with_servers_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared_in = set[int]()

    def noted(*given: Any) -> Placing:
        compared_in.add(threading.get_ident())
        return placed_in_order(*given)

    monkeypatch.setattr(order, "placed_in_order", noted)

    async def use(client: httpx.AsyncClient) -> None:
        await client.put("/v1/queues", json={"queues": {"default": {"starts": False}}})
        for _ in range(2):
            answer = (await client.post("/v1/jobs", json={**JOB, "tasks": 10_000})).json()
            assert "would not fit even if nothing ran" in answer["warnings"][0]

    with_service(tmp_path, use)
    assert len(compared_in) == 1
    assert threading.get_ident() not in compared_in


def test_the_same_key_is_accepted_once(tmp_path: Path) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        headers = {"Idempotency-Key": "k"}
        first = await client.post("/v1/jobs", json=[JOB, JOB], headers=headers)
        second = await client.post("/v1/jobs", json=[JOB, JOB], headers=headers)
        assert [job["id"] for job in first.json()["jobs"]] == [job["id"] for job in second.json()["jobs"]]
        other = await client.post("/v1/jobs", json=[JOB], headers=headers)
        assert other.status_code == 409
        assert other.headers["content-type"] == "application/problem+json"
        assert len((await client.get("/v1/jobs")).json()["jobs"]) == 2

    with_service(tmp_path, use)


def test_cancel_drain_queues_and_policy(tmp_path: Path) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        servers = (await client.get("/v1/servers")).json()
        for server in servers:
            drained = await client.post(f"/v1/servers/{server['name']}/drain", headers=JSON)
            assert drained.json()["state"] == "drained"
        await client.post("/v1/jobs", json={**JOB, "name": "a"})
        assert (await client.get("/v1/jobs/a")).json()["phase"] == "waiting"
        assert (await client.delete("/v1/jobs/a")).json()["phase"] == "cancelled"
        resumed = await client.post(f"/v1/servers/{servers[0]['name']}/resume", headers=JSON)
        assert resumed.json()["state"] == "up"
        queues = (await client.get("/v1/queues")).json()
        queues["queues"]["night"] = {"priority": -5}
        queues["quotas"] = {"team:a": {"gpu": 2, "memory": "64Gi"}}
        changed = await client.put("/v1/queues", json=queues)
        assert changed.json()["quotas"] == {"team:a": {"gpu": "2", "memory": "64Gi"}}
        answer = await client.put("/v1/policy", json={"policy": "best-fit", "reason": "a try"})
        assert answer.json()["policy"] == "best-fit"
        refused = await client.put("/v1/policy", json={"policy": "best-fitt"})
        assert refused.status_code == 404
        assert "best-fit" in refused.json()["detail"]

    with_service(tmp_path, use)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tasks": 0}, "tasks"),
        ({"tasks": "many"}, "tasks"),
        ({"resources": {"cpu": "-1"}}, "resources"),
        ({"resources": {"cpu": "1e400"}}, "resources"),
        ({"estimate": "soon"}, "estimate"),
        ({"name": "../../etc/passwd"}, "name"),
        ({"colour": "red"}, "colour"),
        ({"queue": "nowhere"}, "queue"),
        ({"tasks": 2, "minimum": 3}, "minimum"),
        ([], "at least one entry"),
    ],
)
def test_bad_jobs_are_refused_with_the_field(tmp_path: Path, body: Any, field: str) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/jobs", json=body)
        assert answer.status_code == 422
        assert answer.headers["content-type"] == "application/problem+json"
        assert field in answer.text
        assert (await client.get("/v1/jobs")).json()["jobs"] == []

    with_service(tmp_path, use)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b'{"tasks": 1e999}', b"[" * 20000, b'{"value": NaN}', b'{"name": "\\ud800"}']
)
def test_hostile_bodies_are_refused(tmp_path: Path, content: bytes) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
        assert 400 <= answer.status_code < 500
        assert answer.headers["content-type"] == "application/problem+json"

    with_service(tmp_path, use)


def test_too_large_and_unknown(tmp_path: Path) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        large = b'{"script": "' + b"x" * (9 * 2**20) + b'"}'
        kind = {"Content-Type": "application/json"}
        assert (await client.post("/v1/jobs", content=large, headers=kind)).status_code == 413

        async def chunks() -> Any:
            for _ in range(10):
                yield b"x" * 2**20

        assert (await client.post("/v1/jobs", content=chunks(), headers=kind)).status_code == 413
        for path in ("/v1/jobs/nobody", "/v1/nothing"):
            answer = await client.get(path)
            assert answer.status_code == 404
            assert answer.headers["content-type"] == "application/problem+json"
        assert (await client.post("/v1/servers/nobody/drain", headers=JSON)).status_code == 404
        other = await client.get("/v1/jobs", headers={"Host": "evil.example"})
        assert other.status_code == 400

    with_service(tmp_path, use)


def test_tokens_roles_and_ownership(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "berth.db"))
    secrets = {}
    for name, role in (("eve", "read"), ("ann", "submit"), ("bob", "submit"), ("ops", "operate")):
        secrets[name] = new_secret()
        store.add_token(Token(name, digest(secrets[name]), role, name, 0.0))

    def sent(name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {secrets[name]}"}

    async def use(client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/jobs")).status_code == 401
        assert (await client.get("/metrics")).status_code == 401
        wrong = {"Authorization": "Bearer berth_wrong"}
        assert (await client.get("/v1/jobs", headers=wrong)).status_code == 401
        assert (await client.get("/v1/jobs", headers=sent("eve"))).status_code == 200
        assert (await client.post("/v1/jobs", json=JOB, headers=sent("eve"))).status_code == 403
        made = await client.post("/v1/jobs", json={**JOB, "name": "a"}, headers=sent("ann"))
        assert made.json()["jobs"][0]["user"] == "ann"
        assert (await client.delete("/v1/jobs/a", headers=sent("bob"))).status_code == 403
        assert (await client.put("/v1/policy", json={"policy": "fcfs"}, headers=sent("ann"))).status_code == 403
        assert (await client.delete("/v1/jobs/a", headers=sent("ops"))).status_code == 200
        assert (await client.get("/healthz")).status_code == 200

    with_service(tmp_path, use)
    kept = (tmp_path / "berth.db").read_bytes()
    assert not any(secret.encode() in kept for secret in secrets.values())
    store.close()


def test_off_loopback_needs_a_token(tmp_path: Path) -> None:
    async def run() -> None:
        async with service(ServiceSettings(store=str(tmp_path / "berth.db")), Address(host="0.0.0.0")):
            pass

    with pytest.raises(InvalidInput, match="berth token create"):
        asyncio.run(run())


def test_metrics_are_openmetrics(tmp_path: Path) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        await client.post("/v1/jobs", json={**JOB, "name": "a"})
        await until(client, "a", {"finished"})

        async def told() -> dict[str, Any]:
            answer = await client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
            return {family.name: family for family in text_string_to_metric_families(answer.text)}

        families = await eventually_async(told, lambda found: found["berth_attempts_ended"].samples)
        assert families["berth_jobs_submitted"].samples[0].value == 1
        assert families["berth_attempts_ended"].samples[0].labels == {"end": "finished"}
        assert "berth_decision_seconds" in families
        plain = await client.get("/metrics")
        assert plain.headers["content-type"].startswith("text/plain")
        ready = await client.get("/readyz")
        assert ready.json()["ready"] is True

    with_service(tmp_path, use, faster=1000.0)


def test_events_are_streamed_and_resumed(tmp_path: Path) -> None:
    from berth.live.service.app import _stream

    async def all_of_it() -> Visibility:
        return Visibility(ANYBODY)

    async def run() -> None:
        made = ServiceSettings(store=str(tmp_path / "berth.db"), tick=0.05, faster=1000.0)
        async with service(made, Address()) as (scheduler, app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as client:
                await client.post("/v1/jobs", json={**JOB, "name": "a"})
                await until(client, "a", {"finished"})
            seen = []
            stream = _stream(scheduler, 0, all_of_it)
            async for text in stream:
                fields = dict(line.split(": ", 1) for line in text.strip().splitlines() if not line.startswith(":"))
                seen.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
                if fields["event"] == "finished":
                    break
            await stream.aclose()  # type: ignore[attr-defined]
            numbers = [number for number, _, _ in seen]
            assert numbers == list(range(1, len(numbers) + 1))
            kinds = [kind for _, kind, _ in seen]
            assert kinds.index("submitted") < kinds.index("decided") < kinds.index("started")
            later = _stream(scheduler, numbers[-2], all_of_it)
            assert (await anext(later)).startswith(f"id: {numbers[-1]}\n")
            await later.aclose()  # type: ignore[attr-defined]

    asyncio.run(run())


def test_a_client_that_asks_too_much_is_told_when_to_come_back() -> None:
    now = [0.0]
    limit = RateLimit(rate=2.0, burst=3, clock=lambda: now[0])
    assert [limit.wait("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert limit.wait("b") == 0.0
    now[0] += 0.5
    assert limit.wait("a") == 0.0


def test_explained_planned_tried_and_played_again(tmp_path: Path) -> None:
    async def use(client: httpx.AsyncClient) -> None:
        await client.post("/v1/jobs", json=[{**JOB, "name": f"a{i}", "work": 60} for i in range(20)])
        for i in range(20):
            await until(client, f"a{i}", {"finished"})
        await client.post("/v1/jobs", json={"name": "big", "tasks": 1000, "resources": {"cpu": 4}})
        why = (await client.get("/v1/jobs/big/explain")).json()
        assert why["phase"] == "waiting"
        assert "would not fit" in why["text"]
        done = (await client.get("/v1/jobs/a0/explain")).json()
        assert done["text"] == "job a0 is finished"
        small = (await client.post("/v1/plan", json=JOB)).json()
        assert small["starts"] is True
        assert sum(place["tasks"] for place in small["places"]) == 2
        large = (await client.post("/v1/plan", json={"tasks": 1000, "resources": {"cpu": 4}})).json()
        assert large["starts"] is False
        assert large["waits"]["blocks"]
        assert (await client.get("/v1/shadow")).json()["policy"] is None
        assert (await client.put("/v1/shadow", json={"policy": "nobody"})).status_code == 404
        tried = await client.put("/v1/shadow", json={"policy": "best-fit"})
        assert tried.json()["policy"] == "best-fit"
        answer = await client.post("/v1/what-if", json={"policy": "best-fit", "hours": 1000})
        assert answer.status_code == 200, answer.text
        assert answer.json()["report"]["jobs"] == 20
        assert (await client.delete("/v1/shadow")).json()["policy"] == "best-fit"
        assert (await client.get("/v1/shadow")).json()["policy"] is None
        assert sum(step["finished"] for step in (await client.get("/v1/history?steps=1440")).json()) == 20

    with_service(tmp_path, use, faster=300.0)  # 1440 minutes last for almost five minutes, the limit of a test


def test_a_candidate_and_its_figures_outlive_a_restart(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    async def use(client: httpx.AsyncClient) -> None:
        assert (await client.put("/v1/policy", json={"policy": "best-fit"})).status_code == 200
        assert (await client.put("/v1/shadow", json={"policy": "first-fit"})).status_code == 200
        for name in ("a", "b", "c"):
            await client.post("/v1/jobs", json={**JOB, "name": name})
            await until(client, name, {"finished"})
        seen.update((await client.get("/v1/shadow")).json())
        assert seen["report"]["decisions"] >= 3
        assert seen["fallback"]["report"]["decisions"] >= 3

    async def again(client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/shadow")).json() == seen
        assert (await client.delete("/v1/shadow")).json() == seen

    async def gone(client: httpx.AsyncClient) -> None:
        found = (await client.get("/v1/shadow")).json()
        assert (found["policy"], found["fallback"]) == (None, seen["fallback"])

    for part in (use, again, gone):
        with_service(tmp_path, part, faster=1000.0)


def test_a_candidate_is_tried_on_after_a_crash(tmp_path: Path) -> None:
    """Without a snapshot the journal says who is tried; what it had seen begins anew."""
    with serving_process(tmp_path) as live:
        live.ask("PUT", "/v1/shadow", {"policy": "first-fit"})
        live.process.kill()
        live.process.wait()
    with serving(tmp_path) as again:
        assert again.ask("GET", "/v1/shadow")["policy"] == "first-fit"
