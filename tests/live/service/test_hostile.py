"""Requests that nobody sends by accident: each is refused in words, and the service goes on."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import pytest

from tests.live.service.live import Live, serving

SMALL = {"resources": {"cpu": 1}, "work": 1}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service on either kind of store."""
    with ExitStack() as stack:
        where = []
        if request.param == "postgresql":
            where = ["--store", stack.enter_context(request.getfixturevalue("postgres")())]
        yield stack.enter_context(serving(tmp_path_factory.mktemp("hostile"), *where))


def exchange(live: Live, raw: bytes) -> tuple[int, bytes, bytes]:
    """Send these bytes as they are; status, headers and body of the answer."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=240) as connection:
        connection.sendall(raw)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head, body


def get(live: Live, target: str) -> tuple[int, bytes, bytes]:
    return exchange(live, f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())


def send(live: Live, method: str, target: str, body: bytes, more: str = "") -> tuple[int, dict[str, Any]]:
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}"
    head += "Content-Type: application/json\r\n"
    status, _, found = exchange(live, head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return status, json.loads(found)


def submit(live: Live, **spec: Any) -> tuple[int, dict[str, Any]]:
    return send(live, "POST", "/v1/jobs", json.dumps({**SMALL, **spec}).encode())


@pytest.fixture(autouse=True)
def goes_on(live: Live) -> Iterator[None]:
    """After each of these, a job is still accepted, and everything there can be listed."""
    yield
    status, found = submit(live)
    assert status == 201
    listed = live.ask("GET", "/v1/jobs?limit=1000")["jobs"]
    assert found["jobs"][0]["id"] in {job["id"] for job in listed}
    assert live.ask("GET", "/readyz")["ready"] is True


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"tasks": ' + b"9" * 5000 + b"}",
        b'{"priority": ' + b"9" * 400 + b"}",
        b'{"work": 1e999}',
        b'{"work": NaN}',
        b'{"value": -Infinity}',
        b'{"resources": {"cpu": ' + b"9" * 400 + b"}}",
        b'{"resources": {"cpu": 1e308}}',
        b"\xff\xfe{}",
        b'{"name": "\xc3\x28"}',
        b"",
        b"null",
        b'"text"',
        b'{"name": "a\\n"}',
        b'{"name": "../x"}',
        b'{"type": "<b>"}',
        b'{"resources": {"\\u0000": 1}}',
        b'{"command": ["\\u0000"]}',
    ],
)
def test_bodies_that_are_no_job(live: Live, body: bytes) -> None:
    for method, target in (("POST", "/v1/jobs"), ("POST", "/v1/plan"), ("PUT", "/v1/queues"), ("PUT", "/v1/policy")):
        status, found = send(live, method, target, body)
        assert status in (400, 422), (target, found)
        assert found["title"]
        assert "[" not in "".join(error["field"] for error in found.get("errors", []))


ODD = ["\ud800", "\udfff x", "\0", "‮", "\x1b[31m", "\x7f", "�", "😀" * 50, "</script>", "'; DROP TABLE jobs; --"]


@pytest.mark.parametrize("text", ODD)
def test_text_that_is_odd_is_kept_as_it_is_or_refused(live: Live, text: str) -> None:
    for spec in (
        {"command": [text]},
        {"script": text},
        {"workdir": text},
        {"image": text},
        {"pod": {"spec": {text: [text]}}},
        {"environment": {"A": text}},
        {"environment": {text: "A"}},
        {"needs": {"zone": text}},
        {"needs": {text: "zone"}},
    ):
        status, found = submit(live, **spec)
        assert status in (201, 422), found
        if status == 201:
            job = live.ask("GET", f"/v1/jobs/{found['jobs'][0]['id']}")
            given = spec.get("needs")
            assert job["needs"] == given if given else job["payload"] == spec
            assert live.ask("GET", f"/v1/jobs/{job['id']}/explain")["job"] == job["id"]
            live.ask("DELETE", f"/v1/jobs/{job['id']}")
    change = {"policy": "in-order-best-fit", "reason": text}
    assert send(live, "PUT", "/v1/policy", json.dumps(change).encode())[0] in (200, 422)
    queues = {"queues": {"default": {}}, "quotas": {f"user:{text}": {"cpu": 1}}}
    assert send(live, "PUT", "/v1/queues", json.dumps(queues).encode())[0] in (200, 422)
    assert send(live, "PUT", "/v1/queues", b'{"queues": {"default": {}}}')[0] == 200


def test_the_field_that_is_wrong_is_named(live: Live) -> None:
    for body, field in (
        (b'{"tasks": 0}', "body.tasks"),
        (b'[{"tasks": 1}, {"needs": {"a": 1}}]', "body.1.needs.a"),
        (b'[%s, {"needs": {"a": 1}}]' % b", ".join([b'{"tasks": 1}'] * 60), "body.60.needs.a"),
        (b'{"resources": {"cpu": "many"}}', "body.resources.cpu"),
        (b"[]", "body"),
    ):
        status, found = send(live, "POST", "/v1/jobs", body)
        assert status == 422
        assert [error["field"] for error in found["errors"]] == [field]


def test_of_a_key_given_twice_the_last_counts_everywhere(live: Live) -> None:
    status, found = send(live, "POST", "/v1/jobs", b'{"name": "twice-1", "name": "twice-2", "resources": {"cpu": 1}}')
    assert status == 201
    assert found["jobs"][0]["id"] == "twice-2"
    assert get(live, "/v1/jobs/twice-1")[0] == 404


@pytest.mark.parametrize("text", ["\0", "a\r\nX-Evil: 1", "../../etc/passwd", "é" * 300, "%", "a" * 5000, "'"])
def test_names_in_addresses(live: Live, text: str) -> None:
    name = quote(text, safe="")
    for target in (
        f"/v1/jobs/{name}",
        f"/v1/jobs/{name}/explain",
        f"/v1/jobs/{name}/logs",
        f"/v1/jobs?user={name}",
        f"/v1/jobs?team={name}",
        f"/v1/jobs?queue={name}",
        f"/v1/jobs?type={name}",
        f"/v1/learned?type={name}",
        f"/v1/jobs?after={name}",
        f"/{name}",
        f"/dashboard/{name}",
    ):
        status, head, body = get(live, target)
        assert status in (200, 404, 422), (target, status)
        assert b"x-evil" not in head.lower()
        assert b"root:" not in body
        assert b"the store" not in body


@pytest.mark.parametrize(
    "target",
    [
        "/../app.py",
        "/..%2fapp.py",
        "/%2e%2e/app.py",
        "/%2e%2e%2f%2e%2e%2fapp.py",
        "/style.css/../../app.py",
        "/....//app.py",
        "/..\\app.py",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/style.css%00.py",
        "/" + "a/" * 2000,
    ],
)
def test_no_file_but_those_of_the_pages(live: Live, target: str) -> None:
    status, _, body = get(live, target)
    assert status in (400, 404)
    assert b"FastAPI" not in body
    assert b"root:" not in body


def test_headers_that_want_more_than_they_may(live: Live) -> None:
    key = "k" * 300
    assert send(live, "POST", "/v1/jobs", b'{"resources": {"cpu": 1}}', f"Idempotency-Key: {key}\r\n")[0] == 422
    odd = send(live, "POST", "/v1/jobs", b"{}", "Idempotency-Key: é ü\r\n")
    assert odd[0] == 422
    host = b"GET /v1/jobs HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert exchange(live, host)[0] == 400
    smuggled = (
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: application/json\r\n"
        b"Connection: close\r\n\r\n0\r\n\r\nGET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    assert exchange(live, smuggled)[0] in (400, 422)
    for method in ("TRACE", "PATCH", "PUT"):
        assert send(live, method, "/v1/jobs", b"{}")[0] == 405
    assert get(live, "/v1/events?after=-1")[0] == 422
    assert get(live, "/v1/jobs?limit=1e9")[0] == 422
