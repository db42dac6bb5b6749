"""Connections that clients leave open: they end, they are limited, and other clients are served meanwhile."""

from __future__ import annotations

import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from berth.errors import InvalidInput
from berth.live.service.middleware import STREAMS, Clients, RateLimit
from berth.live.service.serving import read_config
from tests.harness.waiting import DEADLINE, eventually
from tests.live.service.live import Live, LiveProcess, serving, serving_process

MANY, FEW = 300, 200
HALF = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
STREAM = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def connected(live: Live, count: int, raw: bytes) -> Iterator[list[socket.socket]]:
    """Connections on which these bytes were sent, and nothing was read."""
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", live.port), timeout=DEADLINE))
            one.sendall(raw)
            made.append(one)
        yield made


def descriptors(live: Live) -> int:
    """Descriptors of the process that serves."""
    pid = live.process.pid if isinstance(live, LiveProcess) else os.getpid()
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def served(live: Live) -> None:
    """Another client is served."""
    assert live.ask("GET", "/healthz")["status"] == "ok"
    assert live.ask("POST", "/v1/jobs", {"resources": {"cpu": 1}, "work": 1})["jobs"]


def answered(connection: socket.socket) -> bytes:
    """What came until the connection was closed."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionError:
        pass
    return found


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with serving(tmp_path_factory.mktemp("connections")) as found:
        yield found


def test_half_a_request_is_not_waited_for_for_ever(live: Live) -> None:
    before = descriptors(live)
    halves = {
        b"": 3,
        b"GET /v1/jobs HT": 3,
        HALF: MANY,
        HALF + b"Content-Length: 100\r\n\r\n{": 3,
        HALF + b"Transfer-Encoding: chunked\r\n\r\n": 3,
    }
    with ExitStack() as stack:  # all at once: each is closed after ten seconds
        made = {raw: stack.enter_context(connected(live, count, raw)) for raw, count in halves.items()}
        (second,) = stack.enter_context(connected(live, 1, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))
        assert second.recv(65536).startswith(b"HTTP/1.1 200")
        second.sendall(b"GET /hea")  # half of a request that follows another
        served(live)
        for raw, connections in made.items():
            for one in connections:
                assert answered(one).split(b" ")[1:2] in ([b"408"], []), raw
        assert answered(second).endswith(b"Retry-After: 5\r\n\r\n")
    eventually(lambda: descriptors(live), lambda found: found <= before + 5, "descriptors stay open")


def test_streams_of_one_client_are_limited(live: Live) -> None:
    before = descriptors(live)
    with connected(live, MANY, STREAM) as made:
        heads = [one.recv(12) for one in made]
        assert heads.count(b"HTTP/1.1 200") == STREAMS
        assert heads.count(b"HTTP/1.1 429") == MANY - STREAMS
        served(live)
    eventually(lambda: descriptors(live), lambda found: found <= before + 5, "descriptors stay open")
    with connected(live, STREAMS, STREAM) as made:  # those that are closed do not count any more
        assert [one.recv(12) for one in made] == [b"HTTP/1.1 200"] * STREAMS


@contextmanager
def limited(folder: Path) -> Iterator[LiveProcess]:
    """A service that may have few descriptors, and logs little."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
        try:
            live = stack.enter_context(serving_process(folder))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        yield live
    assert len("".join(live.lines)) < 100_000


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProcess]:
    with limited(tmp_path_factory.mktemp("poor")) as live:
        yield live


def test_without_any_descriptor_the_service_neither_spins_nor_fills_its_log(tmp_path: Path) -> None:
    with limited(tmp_path) as live:
        _, hard = resource.prlimit(live.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(live.process.pid, resource.RLIMIT_NOFILE, (descriptors(live), hard))
        with connected(live, MANY, HALF) as made:
            for one in made:  # each is taken and closed, so that none is left to wake the service again and again
                assert answered(one) == b""
        resource.prlimit(live.process.pid, resource.RLIMIT_NOFILE, (FEW, hard))
        served(live)


@pytest.mark.parametrize("raw", [HALF, STREAM], ids=["half", "streams"])
def test_with_few_descriptors_others_are_still_served(poor: LiveProcess, raw: bytes) -> None:
    with connected(poor, MANY, raw):
        served(poor)
        assert descriptors(poor) < FEW - 10
    served(poor)


def test_many_connections_at_once_do_not_take_all_descriptors(poor: LiveProcess) -> None:
    poor.process.send_signal(signal.SIGSTOP)  # so that all of them are queued when it resumes
    try:
        with connected(poor, MANY, STREAM):
            poor.process.send_signal(signal.SIGCONT)
            served(poor)
    finally:
        poor.process.send_signal(signal.SIGCONT)
    assert "out of file descriptors" not in "".join(poor.lines)


def test_clients_are_told_apart_by_tokens_that_were_accepted() -> None:
    clients, rate = Clients(), RateLimit(rate=1.0, burst=2, clock=lambda: 0.0)

    def scope(token: str) -> dict[str, Any]:
        return {"client": ("10.0.0.1", 1), "headers": [(b"authorization", f"Bearer {token}".encode())]}

    ann, ben, guess = scope("ann"), scope("ben"), scope("guess")
    assert {clients.name(ann), clients.name(ben), clients.name({"headers": [], "client": ("10.0.0.1", 1)})} == {
        "10.0.0.1"
    }
    for one in (ann, ben):
        clients.note(one, 200)
    clients.note(guess, 401)
    assert len({clients.name(ann), clients.name(ben), clients.name(guess)}) == 3
    assert clients.name(guess) == "10.0.0.1"
    assert [rate.wait(clients.name(ann)) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert rate.wait(clients.name(ben)) == 0.0
    clients.note(ann, 401)  # it was revoked
    assert clients.name(ann) == "10.0.0.1"


def test_only_a_trusted_proxy_tells_the_address_of_a_client(live: Live, tmp_path: Path) -> None:
    def stream(client: str) -> bytes:
        return STREAM[:-2] + f"X-Forwarded-For: {client}\r\n\r\n".encode()

    def first_and_last(service: Live) -> list[bytes]:
        with (
            connected(service, STREAMS, stream("192.0.2.1")) as made,
            connected(service, 1, stream("192.0.2.2")) as last,
        ):
            return [one.recv(12) for one in (*made, *last)][-2:]

    eventually(
        lambda: first_and_last(live),
        lambda found: found == [b"HTTP/1.1 200", b"HTTP/1.1 429"],
        "the header of a stranger counts",
    )
    config = tmp_path / "config.yaml"
    config.write_text("proxies: [127.0.0.0/8]\n")
    with serving(tmp_path, "--config", str(config)) as behind:
        assert first_and_last(behind) == [b"HTTP/1.1 200", b"HTTP/1.1 200"]
    with pytest.raises(InvalidInput, match=r"^proxies\[0\]: got 'nginx', expected an address or network"):
        read_config(None, {"proxies": ["nginx"]})
