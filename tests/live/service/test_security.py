"""Secrets of jobs, files of the service, other users of the machine, and web pages of other origins."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

import berth
from berth.live.core.events import Failed
from berth.live.core.records import JobRecord
from berth.live.service.serving import Address, service
from berth.live.service.settings import ServiceSettings
from berth.live.service.store import Store, Token
from berth.live.service.tokens import digest, new_secret
from tests.harness.waiting import DEADLINE, eventually_async
from tests.live.service.live import Live, serving, serving_process

ROOT = Path(__file__).parents[3]
SECRET = "s3cret"
JOB = {"resources": {"cpu": 1}, "work": 100_000}
FAILED = b'"job":"a","attempt":1,"reason":"it ended'
POD = {"spec": {"containers": [{"name": "main", "env": [{"name": "PASSWORD", "value": SECRET}]}]}}
SHOWN = {"command": ["run", SECRET], "workdir": f"/{SECRET}", "image": f"registry/{SECRET}"}
RUNS = {**SHOWN, "environment": {"PASSWORD": SECRET}, "pod": POD}
PATHS = [
    "/v1/jobs",
    "/v1/jobs/a",
    "/v1/jobs/waits",
    "/v1/jobs/a/explain",
    "/v1/jobs/waits/explain",
    "/v1/jobs/a/logs",
    "/v1/jobs/waits/logs",
    "/v1/queue",
    "/v1/decisions",
    "/v1/holders",
    "/v1/history",
    "/v1/learned",
    "/metrics",
    "/v1/openapi.json",
    "/readyz",
]


def make_tokens(where: Path, **roles: str) -> dict[str, str]:
    """Headers of a token for each user of these roles."""
    store, headers = Store(str(where / "berth.db")), {}
    for user, role in roles.items():
        secret = new_secret()
        store.add_token(Token(user, digest(secret), role, user, time.time()))
        headers[user] = f"Bearer {secret}"
    store.close()
    return headers


# ---------------------------------------------------------------- what others see of a job


async def streamed(app: Any, authorization: str, last: bytes) -> str:
    """The events of the journal up to the one with these words, as this caller gets them."""
    told: list[bytes] = []
    asked = iter([{"type": "http.request", "body": b"", "more_body": False}])
    enough = asyncio.Event()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/v1/events",
        "raw_path": b"/v1/events",
        "root_path": "",
        "query_string": b"after=0",
        "headers": [(b"host", b"127.0.0.1"), (b"authorization", authorization.encode())],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1),
    }

    async def receive() -> dict[str, Any]:
        if (request := next(asked, None)) is not None:
            return request
        await enough.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        told.append(message.get("body", b""))
        if last in told[-1]:
            enough.set()

    serving_it = asyncio.ensure_future(app(scope, receive, send))
    await asyncio.wait_for(enough.wait(), DEADLINE)
    serving_it.cancel()
    await asyncio.gather(serving_it, return_exceptions=True)
    return b"".join(told).decode()


def runs(job: JobRecord | None) -> bool:
    return job is not None and job.phase == "running"


def seen_by(where: Path, users: dict[str, str], **settings: Any) -> dict[str, dict[str, str]]:
    """What each user is told of ann's jobs: one has failed with output, one waits with a script and one a callable."""
    headers = make_tokens(where, **users)
    seen: dict[str, dict[str, str]] = {user: {} for user in users}

    async def play() -> None:
        made = ServiceSettings(store=str(where / "berth.db"), tick=0.05, **settings)
        async with service(made, Address()) as (scheduler, app):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8642") as client:
                huge = {"resources": {"cpu": 1e9}}
                coded = {"callable": "czNjcmV0"}  # s3cret
                specs = [
                    {**JOB, **RUNS, "name": "a"},
                    {**JOB, **huge, "name": "waits", "script": f"#!/bin/sh\necho {SECRET}\n"},
                    {**JOB, **huge, **coded, "name": "coded"},
                ]
                ann = {"Authorization": headers["ann"], "Idempotency-Key": "k"}
                for _ in range(2):  # the second time it is the answer to a repeated key
                    answer = await client.post("/v1/jobs", json=specs, headers=ann)
                    assert answer.status_code == 201
                    assert SECRET in answer.text
                old = {**JOB, "name": "old", "retries": 3}  # earlier versions quoted output in the reason
                await client.post("/v1/jobs", json=old, headers={"Authorization": headers["ann"]})
                await eventually_async(lambda: scheduler.get("old"), runs)
                await scheduler.note(Failed(scheduler.clock(), "old", 1, f"it ended with exit code 3: {SECRET}", "job"))
                await eventually_async(lambda: scheduler.get("a"), runs)
                end = Failed(scheduler.clock(), "a", 1, "it ended with exit code 3", "job", last_output=f"no {SECRET}")
                await scheduler.note(end)
                for user, authorization in headers.items():
                    sent = {"Authorization": authorization}
                    for path in PATHS:
                        seen[user][path] = (await client.get(path, headers=sent)).text
                    for name, answer in {
                        "cancel": await client.delete("/v1/jobs/waits", headers=sent),
                        "name taken": await client.post("/v1/jobs", json={**JOB, "name": "a"}, headers=sent),
                        "plan": await client.post("/v1/plan", json={**JOB, "name": "waits"}, headers=sent),
                    }.items():
                        if user not in ("ann", "ops"):
                            seen[user][name] = answer.text
                    if users[user] != "metrics":
                        seen[user]["/v1/events"] = await streamed(app, authorization, FAILED)

    asyncio.run(play())
    return seen


USERS = {"bob": "submit", "board": "read", "prometheus": "metrics", "ann": "submit", "ops": "operate"}


def test_secrets_of_a_job_are_for_its_owner_and_operators(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen = seen_by(tmp_path, USERS)
    for user in ("bob", "board", "prometheus"):
        for path, text in seen[user].items():
            assert SECRET not in text, (user, path)
            assert "czNjcmV0" not in text, (user, path)
    for user in ("bob", "board"):
        job = json.loads(seen[user]["/v1/jobs/a"])
        assert job["payload"] == {**dict.fromkeys(RUNS), "environment": {"PASSWORD": None}}
        assert "belongs to ann" in seen[user]["/v1/jobs/a/logs"]
        assert (job["reason"], job["last_output"]) == ("attempt 1: it ended with exit code 3", "")
        assert "it ended with exit code 3" in seen[user]["/v1/jobs/a/explain"]
        assert '"environment":{"PASSWORD":null}' in seen[user]["/v1/events"]
        assert '"kind":"failed"' in seen[user]["/v1/events"]
    for user in ("ann", "ops"):
        job = json.loads(seen[user]["/v1/jobs/a"])
        assert job["payload"] == RUNS
        assert job["last_output"] == f"no {SECRET}"
        assert "the details of job a say where its output is" in seen[user]["/v1/jobs/a/logs"]
        assert f"no {SECRET}" in seen[user]["/v1/jobs/a/explain"]
        assert f'"environment":{{"PASSWORD":"{SECRET}"}}' in seen[user]["/v1/events"]
    assert f"no {SECRET}" in seen["ops"]["/v1/events"]
    assert SECRET not in caplog.text


def test_commands_are_shown_to_all_readers_where_the_service_says_so(tmp_path: Path) -> None:
    seen = seen_by(tmp_path, {"board": "read", "ann": "submit"}, show_commands=True)
    job = json.loads(seen["board"]["/v1/jobs/a"])
    assert job["payload"] == {**SHOWN, "environment": {"PASSWORD": None}, "pod": None}
    assert job["last_output"] == ""


def test_a_stream_ends_with_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.live.service.authenticator.FRESH", 0.1)
    headers = make_tokens(tmp_path, board="read", ops="operate")
    with serving(tmp_path) as live:
        connection = HTTPConnection("127.0.0.1", live.port, timeout=120)
        connection.request("GET", "/v1/events?after=0", headers={"Authorization": headers["board"]})
        stream = connection.getresponse()
        assert stream.readline()
        store = Store(str(live.store))
        assert store.revoke_token("board", time.time())
        store.close()
        ops = headers["ops"].removeprefix("Bearer ")
        ended = threading.Event()

        def busy() -> None:
            while not ended.wait(0.1):  # something happens all the time, and none of it is for this reader
                live.ask("POST", "/v1/jobs", {**JOB, "work": 1}, ops)

        working = threading.Thread(target=busy)
        working.start()
        try:
            while stream.readline():  # until the service ends the stream
                pass
        finally:
            ended.set()
            working.join()
            connection.close()


# ---------------------------------------------------------------- files


def test_no_other_user_can_read_what_the_service_keeps(tmp_path: Path) -> None:
    store = tmp_path / "berth.db"
    store.touch(mode=0o644)
    before = os.umask(0o022)
    try:
        with serving(tmp_path) as live:
            live.ask("POST", "/v1/jobs", {**JOB, **RUNS, "name": "a"})
            live.wait_for("/v1/jobs/a", lambda job: job["phase"] == "running")
            kept = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert {"berth.db", "berth.db-wal", "berth.db-shm", "berth.db.lock", "berth.db.engine"} <= set(kept)
    assert set(kept.values()) == {0o600}


# ---------------------------------------------------------------- other users of the machine


class Person:
    """A user of this machine, with a home of their own."""

    def __init__(self, name: str, home: Path) -> None:
        self.name, self.home = name, home
        ids = pwd.getpwnam(name)
        self.ids: dict[str, Any] = {"user": ids.pw_uid, "group": ids.pw_gid, "extra_groups": []}
        self.environment = {
            "HOME": str(home),
            "USER": name,
            "LOGNAME": name,
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join([str(Path(berth.__file__).parents[1]), str(ROOT)]),
        }

        self.settings = {"env": self.environment, "cwd": home, **self.ids}
        """What makes a process one of this user."""

    def runs(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python as this user."""
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, **self.settings)

    def start(self) -> None:
        """Start a process of this user, which runs commands and serves."""
        command, pipe = [sys.executable, "-m", "tests.live.service.person"], subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **self.settings)

    def end(self) -> None:
        """End that process."""
        self.process.communicate(timeout=DEADLINE)

    def _ask(self, **what: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, self.process.communicate()[1]
        return json.loads(answer)

    def berth(self, *words: str, **environment: str) -> tuple[int, str, str]:
        """Run a command as this user: exit code, output and errors."""
        code, out, err = self._ask(run=words, environment=environment)
        return code, out, err

    @contextmanager
    def serving(self, *words: str) -> Iterator[str]:
        """Serve as this user; where."""
        yield self._ask(serve=words)
        self._ask(stop=True)


@pytest.fixture(scope="module")
def two_users() -> Iterator[tuple[Person, Person]]:
    """Two users, made for these tests."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("only root can make users, with useradd")
    names = [f"bt{uuid.uuid4().hex[:10]}" for _ in range(2)]
    homes = [Path(tempfile.mkdtemp(prefix="berth-home-")) for _ in names]
    with ExitStack() as stack:
        for name, home in zip(names, homes, strict=True):
            stack.callback(shutil.rmtree, home, ignore_errors=True)
            subprocess.run(["useradd", "--no-create-home", "--home-dir", str(home), name], check=True)
            stack.callback(subprocess.run, ["userdel", name], check=False, capture_output=True)
            os.chown(home, pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid)
        first, second = (Person(name, home) for name, home in zip(names, homes, strict=True))
        probe = first.runs("-c", "import berth, tests.live.service.person")
        if probe.returncode:
            pytest.skip(f"other users cannot run this Python or berth: {probe.stderr[-200:]}")
        for person in (first, second):
            person.start()
            stack.callback(person.end)
        yield first, second


@pytest.fixture
def people(two_users: tuple[Person, Person]) -> tuple[Person, Person]:
    """These users, who have no tokens and no store."""
    for person in two_users:
        for left in person.home.iterdir():
            if left.name != ".cache":  # of compiled kernels
                shutil.rmtree(left) if left.is_dir() else left.unlink()
    return two_users


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


REAL = f"ray:127.0.0.1:{closed_port()}"
"""A real engine; that its cluster is away changes nothing about who is served."""


def test_another_user_of_the_machine_is_not_the_operator(people: tuple[Person, Person]) -> None:
    owner, other = people
    with serving_process(owner.home, "--engine", REAL, **owner.settings) as live:
        url = live.url
        assert owner.berth("submit", "-J", "mine", "-r", "cpu=1", "--url", url, "--", "true")[0] == 0
        shown = json.loads(owner.berth("job", "show", "mine", "-o", "json", "--url", url)[1])
        assert (shown["user"], shown["payload"]["command"]) == (owner.name, ["true"])
        localhost = url.replace("127.0.0.1", "localhost")
        assert owner.berth("jobs", "--url", localhost)[0] == 0
        (file,) = (owner.home / ".local/state/berth/tokens").iterdir()
        assert str(file) in live.said
        secret = file.read_text().strip()
        assert secret not in live.said
        assert (stat.S_IMODE(file.stat().st_mode), file.owner()) == (0o600, owner.name)
        for words in (["jobs"], ["submit", "-r", "cpu=1", "--", "true"], ["job", "cancel", "mine"], ["policy"]):
            refused = other.berth(*words, BERTH_URL=url)
            assert refused[:2] == (4, "")
            assert "no token" in refused[2]
        assert other.berth("jobs", "--url", url, BERTH_TOKEN_FILE=str(file))[0] == 2
        assert owner.berth("jobs", "--url", url, BERTH_TOKEN="berth_other")[0] == 4
        port = str(live.port)
    with owner.serving("--engine", REAL, "--port", port):  # the token outlives the service
        assert file.read_text().strip() == secret
        assert owner.berth("jobs", "--url", url)[0] == 0
    file.unlink()
    with owner.serving("--engine", REAL, "--port", port):  # one that was lost is made again
        assert file.read_text().strip() != secret
        assert owner.berth("jobs", "--url", url)[0] == 0


def test_open_to_all_users_where_that_is_asked_for(people: tuple[Person, Person]) -> None:
    owner, other = people
    with owner.serving("--engine", REAL, "--open") as url:
        assert other.berth("jobs", "--url", url)[0] == 0
    refused = owner.berth("serve", "--engine", REAL, "--open", "--host", "0.0.0.0", "--port", "0")
    assert refused[0] == 2
    assert "berth token create" in refused[2]


def test_no_token_is_made_beside_those_of_an_operator(people: tuple[Person, Person]) -> None:
    owner, _ = people
    secret = owner.berth("token", "create", "ops", "--role", "operate")[1].strip()
    with owner.serving("--engine", REAL) as url:
        assert owner.berth("jobs", "--url", url)[0] == 4
        assert owner.berth("jobs", "--url", url, BERTH_TOKEN=secret)[0] == 0
        assert not (owner.home / ".local/state/berth/tokens").exists()


LISTENER = """
import http.server
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.headers.get("Authorization"), flush=True)
        self.send_error(404)
server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
print(server.server_address[1], flush=True)
server.handle_request()
"""


def test_the_token_is_not_sent_to_another_user_who_listens_there(people: tuple[Person, Person]) -> None:
    owner, other = people
    impostor = subprocess.Popen(
        [sys.executable, "-c", LISTENER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        **other.ids,
    )
    assert impostor.stdout is not None
    try:
        port = impostor.stdout.readline().strip()
        folder = owner.home / ".local/state/berth/tokens"
        folder.mkdir(parents=True)
        (folder / f"localhost-{port}").write_text("berth_secret\n")
        for made in (folder / f"localhost-{port}", folder, *list(folder.parents)[:3]):
            os.chown(made, owner.ids["user"], owner.ids["group"])
        owner.berth("jobs", "--url", f"http://127.0.0.1:{port}")
        assert impostor.stdout.readline().strip() == "None"
    finally:
        impostor.kill()
        impostor.wait()
        impostor.stdout.close()


# ---------------------------------------------------------------- web pages

ATTACK = """<!doctype html><title>loading</title><iframe name="out"></iframe>
<form id="form" method="post" enctype="text/plain" target="out" action="{url}/v1/servers/cpu-0/drain">
<input name='{{"x": "' value='"}}'></form>
<script>
const drain = (name, options) => fetch("{url}/v1/servers/" + name + "/drain", {{ method: "POST", ...options }});
const json = {{ "Content-Type": "application/json" }};
const tries = [
  () => drain("cpu-1", {{ mode: "no-cors" }}),
  () => drain("cpu-1", {{ mode: "no-cors", body: "{{}}" }}),
  () => drain("cpu-2", {{ headers: json, body: "{{}}" }}),
  () => drain("cpu-2", {{ mode: "no-cors", headers: json, body: "{{}}" }}),
  () => fetch("{url}/v1/jobs", {{ method: "POST", mode: "no-cors", body: '{{"name": "evil", "command": ["true"]}}' }}),
  () => fetch("{url}/v1/policy", {{ method: "PUT", headers: json, body: '{{"policy": "fcfs"}}' }}),
  () => fetch("{url}/v1/shadow", {{ method: "DELETE" }}),
];
(async () => {{
  const read = await fetch("{url}/v1/servers").then((answer) => answer.text(), () => "blocked");
  for (const one of tries) await one().catch(() => null);
  navigator.sendBeacon("{url}/v1/servers/cpu-3/drain", "{{}}");
  const sent = new Promise((done) => document.querySelector("iframe").addEventListener("load", done));
  document.getElementById("form").submit();
  await sent;
  document.title = read === "blocked" ? "done" : "it could read";
}})();
</script>"""


@contextmanager
def page_at(host: str, text: str) -> Iterator[str]:
    """Serve a page on a port of this machine; its address by this name of the machine."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    from scripts.chromium import QUIET, browser

    where = browser()
    if where is None:
        pytest.skip("Chromium is not installed: python3 scripts/chromium.py install")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=where, args=list(QUIET))
        yield running
        running.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service without tokens, with a candidate that a foreign page could end."""
    with serving(tmp_path_factory.mktemp("origins")) as found:
        found.ask("PUT", "/v1/shadow", {"policy": "first-fit"})
        yield found


@pytest.mark.parametrize("page_host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("service_host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_changes_nothing(chromium: Any, live: Live, page_host: str, service_host: str) -> None:
    before = live.ask("GET", "/v1/policy")["policy"]
    with page_at(page_host, ATTACK.format(url=f"http://{service_host}:{live.port}")) as address:
        page = chromium.new_page()
        page.goto(address)
        page.wait_for_function("document.title !== 'loading'", timeout=240_000)
        assert page.title() == "done"
        page.close()
    assert {server["state"] for server in live.ask("GET", "/v1/servers")} == {"up"}
    assert live.ask("GET", "/v1/jobs")["jobs"] == []
    assert live.ask("GET", "/v1/policy")["policy"] == before
    assert live.ask("GET", "/v1/shadow")["policy"] == "first-fit"


def test_pages_of_the_service_itself_may_change_things(chromium: Any, live: Live) -> None:
    page = chromium.new_page()
    page.goto(f"{live.url}/")
    page.wait_for_selector('body[data-page="cluster"] h1')
    for action, state in (("drain", "drained"), ("resume", "up")):
        options = '{ method: "POST", headers: { "Content-Type": "application/json" } }'
        fetched = f'fetch("/v1/servers/cpu-0/{action}", {options}).then((answer) => answer.json())'
        assert page.evaluate(f"{fetched}.then((found) => found.state)") == state
    page.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json"}, 200),
        ({"Content-Type": "application/json; charset=utf-8", "Origin": "http://OWN"}, 200),
        ({}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "application/json", "Origin": "null"}, 403),
        ({"Content-Type": "application/json", "Origin": "http://evil.example"}, 403),
        ({"Content-Type": "application/json", "Origin": "http://["}, 403),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Content-Type": "application/json", "Host": "evil.example"}, 400),
    ],
)
def test_which_requests_may_change_something(live: Live, headers: dict[str, str], status: int) -> None:
    own = f"127.0.0.1:{live.port}"
    sent = {name: value.replace("OWN", own) for name, value in headers.items()}
    connection = HTTPConnection("127.0.0.1", live.port, timeout=240)
    connection.request("POST", "/v1/servers/cpu-0/resume", headers=sent)
    assert connection.getresponse().status == status
    connection.close()


def test_the_page_of_the_api_takes_nothing_from_elsewhere(live: Live) -> None:
    """Its origin is that of the dashboard, which holds the operator's token."""
    answer = httpx.get(f"{live.url}/v1/docs", timeout=240.0)
    page = answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
    assert "<script" not in page
    assert "//" not in page.replace("<!doctype html>", "")
    paths = live.ask("GET", "/v1/openapi.json")["paths"]
    assert all(path in page for path in paths)


def test_the_dashboard_shows_a_wall_board_no_commands(chromium: Any, tmp_path: Path) -> None:
    headers = make_tokens(tmp_path, ann="submit", board="read")
    with serving(tmp_path) as live:
        spec = {**JOB, **RUNS, "name": "a"}
        live.ask("POST", "/v1/jobs", spec, headers["ann"].removeprefix("Bearer "))
        for user, sees in (("board", False), ("ann", True)):
            page = chromium.new_context().new_page()
            page.goto(f"{live.url}/#/job/a")
            page.fill("input[name=token]", headers[user].removeprefix("Bearer "))
            page.click("text=Enter")
            page.wait_for_selector("text=What it runs")
            assert (SECRET in page.content()) is sees
            assert "PASSWORD" in page.inner_text("main")
            assert ("hidden" in page.inner_text("main")) is not sees
            page.context.close()


def test_the_dashboard_says_that_a_token_has_expired(chromium: Any, tmp_path: Path) -> None:
    secret, store = new_secret(), Store(str(tmp_path / "berth.db"))
    store.add_token(Token("ann", digest(secret), "read", "ann", 1.0, expires=2.0))
    store.close()
    with serving(tmp_path) as live:
        page = chromium.new_page()
        page.goto(f"{live.url}/")
        page.fill("input[name=token]", secret)
        page.click("text=Enter")
        shown = page.wait_for_selector("text=token ann expired on 1970-01-01T00:00:02.000Z")
        assert "berth token rotate ann" in shown.inner_text()
        page.close()
