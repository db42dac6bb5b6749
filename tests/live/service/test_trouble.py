"""The service in trouble: a full disk, a store that stops or hangs, slow policies, and clients that try again."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from berth.cli import main
from berth.cli.live.submitting import NotSubmitted, _submit
from berth.errors import UnsupportedProblem
from berth.live.client import Client, Code, ServiceSilent
from berth.live.core.dispatcher import Dispatcher
from berth.live.core.events import ServerJoined, Submitted
from berth.live.core.jobs import Job, Role, Server
from berth.live.service.scheduler import Scheduler
from berth.live.service.settings import ServiceSettings
from berth.live.service.store import Store
from berth.registry import policy_names
from scripts.postgres import binaries, postgres_server
from tests.harness.waiting import DEADLINE, eventually, eventually_async
from tests.live.service.live import Live, command, serving, serving_process

SMALL = {"resources": {"cpu": 1}, "work": "1h"}


def berth(live: Live, *words: str, token: str = "") -> tuple[int, str, str]:
    """Run a command: exit code, output and errors."""
    return command(words, BERTH_URL=live.url, BERTH_TOKEN=token)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands try again sooner."""
    monkeypatch.setattr("berth.live.client.PAUSES", (0.05, 0.1, 0.2))


def post(live: Live, body: Any, key: str | None = None) -> tuple[int, dict[str, Any], Any]:
    """Submit over HTTP: status, answer and headers."""
    headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
    request = Request(f"{live.url}/v1/jobs", json.dumps(body).encode(), headers, method="POST")
    try:
        with urlopen(request, timeout=DEADLINE) as answer:
            return answer.status, json.loads(answer.read()), answer.headers
    except HTTPError as error:
        return error.code, json.loads(error.read()), error.headers


def ready(live: Live) -> bool:
    try:
        return bool(live.ask("GET", "/readyz")["ready"])
    except HTTPError as error:
        error.close()
        return False


def all_jobs(live: Live) -> dict[str, str]:
    """The phase of every job by its id."""
    found = live.ask("GET", "/v1/jobs?limit=1000")["jobs"]
    assert len(found) < 1000
    return {job["id"]: job["phase"] for job in found}


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    disk = folder / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Write until nothing more fits; the file that took it all."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    return ballast


@contextmanager
def full_file_system(folder: Path) -> Iterator[tuple[Live, Callable[[bool], None]]]:
    """A service whose store lies on a small disk, and what fills and frees it."""
    with small_disk(folder) as disk, serving(disk) as live:

        def limit(full: bool) -> None:
            if full:
                fill(disk)
            else:
                (disk / "ballast").unlink()

        yield live, limit


@contextmanager
def largest_file(folder: Path) -> Iterator[tuple[Live, Callable[[bool], None]]]:
    """A service whose files cannot grow while it is limited."""
    with serving_process(folder) as live:
        _, hard = resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE)

        def limit(full: bool) -> None:
            resource.prlimit(live.process.pid, resource.RLIMIT_FSIZE, (1 if full else hard, hard))

        yield live, limit


@pytest.mark.parametrize("site", [full_file_system, pytest.param(largest_file, marks=pytest.mark.slow)])
def test_a_full_disk_is_told_at_once_and_no_job_is_doubled_or_lost(site: Any, tmp_path: Path) -> None:
    with site(tmp_path) as (live, limit):
        before = berth(live, "submit", "-J", "before", "-r", "cpu=1", "--work", "1h")
        assert before[0] == 0
        live.wait_for("/v1/jobs/before", lambda job: job["phase"] == "running")
        limit(True)
        status, found, headers = post(live, {**SMALL, "name": "in-flight"})
        assert (status, found["title"]) == (503, "temporarily unavailable")
        assert headers["Retry-After"] == "5"
        assert "may still be done" in found["detail"]
        keyed = post(live, [SMALL, SMALL], key="k1")
        assert keyed[0] == 503
        assert "nothing was changed" in keyed[1]["detail"]
        assert not ready(live)
        code, out, err = berth(live, "submit", "-r", "cpu=1", "--work", "1h")
        assert (code, out) == (7, "")
        assert "berth serve" not in err
        key = err.split("--key ")[1].strip()
        # reading goes on
        assert "before" in berth(live, "jobs")[1]
        assert berth(live, "servers")[0] == 0
        assert berth(live, "plan", "-r", "cpu=1")[0] == 0
        assert berth(live, "job", "explain", "before")[0] == 0
        assert berth(live, "job", "cancel", "before")[0] == 7
        limit(False)
        eventually(lambda: ready(live), what="the service did not recover")
        # what was refused did not happen after all; what was under way without a key is cancelled
        live.wait_for("/v1/jobs/in-flight", lambda job: job["phase"] == "cancelled")
        assert all_jobs(live).keys() == {"before", "in-flight"}
        first = berth(live, "submit", "-r", "cpu=1", "--work", "1h", "--key", key, "--parsable")
        assert first[0] == 0
        assert berth(live, "submit", "-r", "cpu=1", "--work", "1h", "--key", key, "--parsable") == first
        assert post(live, [SMALL, SMALL], key="k1")[0] == 201
        assert len(all_jobs(live)) == 5
        limit(True)
        code, out, err = berth(live, "submit", "-J", "in-doubt", "-r", "cpu=1", "--work", "1h")
        assert (code, out) == (7, "")
        limit(False)
        eventually(lambda: ready(live), what="the service did not recover")
        assert berth(live, "submit", "-J", "after", "-r", "cpu=1", "--work", "1h")[0] == 0
        assert "it is not known whether this was submitted" in err or "in-doubt" not in all_jobs(live)


class Postgres:
    """A PostgreSQL server that can be stopped, started again, and made to hang."""

    def __init__(self, address: str) -> None:
        self.address, self.folder = address, Path(address.partition("host=")[2])
        account = pwd.getpwnam("postgres") if os.getuid() == 0 else None
        self._as_user: dict[str, Any] = {"user": account.pw_uid, "group": account.pw_gid} if account else {}

    def control(self, *words: str) -> None:
        command = [f"{binaries()}/pg_ctl", "-D", f"{self.folder}/data", "-w", "-l", f"{self.folder}/data/log", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder, **self._as_user)

    def start(self) -> None:
        self.control("start", "-o", f"-c listen_addresses= -c unix_socket_directories={self.folder} -c fsync=off")

    def stop(self) -> None:
        self.control("stop", "-m", "immediate")

    def signal(self, number: int) -> None:
        """Send a signal to the server and all of its processes."""
        first = (self.folder / "data" / "postmaster.pid").read_text().split()[0]
        children = subprocess.run(["pgrep", "-P", first], capture_output=True, text=True).stdout.split()
        for pid in (first, *children):
            os.kill(int(pid), number)


@pytest.fixture
def database() -> Iterator[Postgres]:
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed: python3 scripts/postgres.py install")
    with postgres_server() as address:
        server = Postgres(address)
        yield server
        if (server.folder / "data" / "postmaster.pid").exists():
            server.stop()


def test_a_database_that_stops_or_hangs_is_told_and_no_job_is_doubled_or_lost(
    database: Postgres, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "create", "ann", "--role", "operate", "--store", database.address]) == 0
    token = capsys.readouterr().out.strip()
    quick = ("-r", "cpu=1", "--work", "1h", "--parsable")
    with serving(tmp_path, "--store", database.address) as live:
        assert berth(live, "submit", "-J", "before", *quick, token=token)[0] == 0
        eventually(lambda: berth(live, "job", "show", "before", token=token)[1], lambda said: "running" in said)
        database.stop()
        assert not ready(live)  # though nothing was to be written
        code, out, err = berth(live, "submit", *quick, token=token)
        assert (code, out) == (7, "")
        stopped = err.split("--key ")[1].strip()
        assert not ready(live)
        code, out, _ = berth(live, "servers", token=token)  # reading goes on, with a token that is known
        assert code == 0
        assert "cpu-0" in out
        assert berth(live, "plan", "-r", "cpu=1", token=token)[0] == 0
        assert berth(live, "job", "show", "before", token=token)[0] == 0
        assert "before" in berth(live, "jobs", "--type", "ann.before", token=token)[1]
        assert berth(live, "jobs", "--type", "other", token=token)[1] == "no jobs\n"
        assert berth(live, "jobs", "--all", token=token)[0] == 7
        database.start()
        eventually(lambda: ready(live), what="the service did not recover")
        first = berth(live, "submit", *quick, "--key", stopped, token=token)
        assert first[0] == 0

        database.signal(signal.SIGSTOP)
        try:
            code, out, err = berth(live, "submit", *quick, token=token)
            assert (code, out) == (7, "")
            hung = err.split("--key ")[1].strip()
            assert berth(live, "servers", token=token)[0] == 0
            assert not ready(live)
        finally:
            database.signal(signal.SIGCONT)
        eventually(lambda: ready(live), what="the service did not recover")
        second = berth(live, "submit", *quick, "--key", hung, token=token)
        assert second[0] == 0
        listed = json.loads(berth(live, "jobs", "--all", "-o", "json", token=token)[1])
        assert sorted(job["id"] for job in listed) == sorted(["before", first[1].strip(), second[1].strip()])


@contextmanager
def losing(live: Live, lost: int, silent: bool = False) -> Iterator[str]:
    """A proxy before a service that forwards every request, and loses the first answers or keeps them back."""
    listener = socket.create_server(("127.0.0.1", 0))
    kept: list[socket.socket] = []

    def forward() -> None:
        for number in range(1000):
            try:
                client, _ = listener.accept()
            except OSError:
                return
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += client.recv(65536)
            head, _, body = asked.partition(b"\r\n\r\n")
            told = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            while told and len(body) < int(told[0].split(b":")[1]):
                body += client.recv(65536)
            with socket.create_connection(("127.0.0.1", live.port)) as service:
                service.sendall(head + b"\r\n\r\n" + body)  # urllib asks for the connection to be closed
                answer = b""
                while part := service.recv(65536):
                    answer += part
            if number >= lost:
                client.sendall(answer)
            if silent:
                kept.append(client)
            else:
                client.close()

    thread = threading.Thread(target=forward, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=10)
        for one in kept:
            one.close()


def test_an_answer_that_is_lost_does_not_double_a_job(tmp_path: Path) -> None:
    with serving(tmp_path) as live:
        with losing(live, 2) as url:
            code, out, _ = berth(live, "submit", "-r", "cpu=1", "--parsable", "--url", url)
            assert code == 0
            assert list(all_jobs(live)) == [out.strip()]
        with losing(live, 1000) as url:
            code, out, err = berth(live, "submit", "-r", "cpu=1", "--parsable", "--url", url)
        assert (code, out) == (7, "")
        assert "berth serve" not in err
        key = err.split("--key ")[1].strip()
        code, out, _ = berth(live, "submit", "-r", "cpu=1", "--parsable", "--key", key)
        assert code == 0
        assert out.strip() in all_jobs(live)
        assert len(all_jobs(live)) == 2
        with losing(live, 1000, silent=True) as url:
            with pytest.raises(ServiceSilent, match=r"no answer from http://\S+ within 2 s") as silent:
                Client(url, 2.0).get("/v1/servers")
            assert silent.value.code == Code.not_now
            with pytest.raises(NotSubmitted, match="--key k3"):
                _submit(Client(url, 2.0), [SMALL], "k3")
        assert len(_submit(Client(live.url), [SMALL], "k3")["jobs"]) == 1
        assert len(all_jobs(live)) == 3


@pytest.mark.parametrize("policy", sorted(policy_names()))
def test_every_policy_decides_or_is_refused_when_it_is_chosen(policy: str) -> None:
    dispatcher = Dispatcher(policy)
    for i in range(3):
        dispatcher.handle(ServerJoined(0.0, Server(f"s{i}", {"cpu": 4000})))
    for i in range(9):  # more than fit, in two levels
        job = Job(f"j{i}", f"t{i % 2}", (Role("task", 1 + i % 2, {"cpu": 2000}),), priority=i % 2, work=10.0)
        dispatcher.handle(Submitted(float(i), job))
    try:
        dispatcher.warm()
    except UnsupportedProblem as error:
        reason = str(error).removeprefix(f"the policy {policy} cannot decide on a live cluster: ")
        for now in (100.0, 101.0):  # and for that reason, whenever it is asked
            decided = dispatcher.decide(now)
            assert decided is not None
            assert decided.refused == f"refused: {reason}"
        return
    for now in range(100, 200):  # some begin with nothing, and learn first
        decided = dispatcher.decide(float(now))
        if decided is not None:
            assert (decided.by, decided.refused) == (policy, None)
            assert decided.starts
            return
    pytest.fail("it starts nothing")


def test_a_policy_that_cannot_decide_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path) as live:
        monkeypatch.setenv("BERTH_URL", live.url)
        for words in (["switch", "ogasched-gang"], ["shadow", "lcf"], ["what-if", "hauf"]):
            assert main(["policy", *words]) == 2
            assert "cannot decide on a live cluster: " in capsys.readouterr().err
        assert live.ask("GET", "/v1/policy")["policy"] == "in-order-best-fit"
        assert live.ask("GET", "/v1/shadow")["policy"] is None
    refused = pytest.raises(UnsupportedProblem, match="cannot decide on a live cluster: LCF cannot keep gangs whole")
    with refused, serving(tmp_path, "--policy", "lcf"):
        pass


def test_a_system_clock_that_jumps_ahead_and_back_does_not_stop_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, ahead = time.time, 0.0
    monkeypatch.setattr("time.time", lambda: real() + ahead)

    async def run() -> None:
        nonlocal ahead
        scheduler = await Scheduler.open(ServiceSettings(store=str(tmp_path / "db")))
        submitted = []
        try:
            for number, ahead in enumerate((0.0, 86400.0, 0.0, 0.0, 0.0)):  # noqa: B007
                job = Job(f"j{number}", "t", (Role("task", 1, {"cpu": 1000}),), work=3600.0)
                submitted.append((await scheduler.submit([job]))[0].submitted)
        finally:
            await scheduler.close()
        assert submitted == sorted(set(submitted))
        assert submitted[-1] - submitted[0] < 3600.0

    asyncio.run(run())


def test_a_policy_that_takes_long_to_prepare_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, warm = threading.Event(), Dispatcher.warm

    def slowly(dispatcher: Dispatcher, policy: str | None = None) -> None:
        if policy is not None:
            ready.wait(DEADLINE)
        warm(dispatcher, policy)

    async def run() -> None:
        scheduler = await Scheduler.open(ServiceSettings(store=str(tmp_path / "db")))
        try:
            monkeypatch.setattr(Dispatcher, "warm", slowly)
            changing = asyncio.create_task(scheduler.change_policy("fcfs"))
            await eventually_async(lambda: scheduler.preparing, lambda preparing: preparing == "fcfs")
            job = Job("meanwhile", "t", (Role("task", 1, {"cpu": 1000}),), work=3600.0)
            assert (await scheduler.submit([job]))[0].job.id == "meanwhile"
            assert scheduler.dispatcher.state.policy == "in-order-best-fit"
            ready.set()
            await changing
            done: tuple[str | None, str] = (scheduler.preparing, scheduler.dispatcher.state.policy)
            assert done == (None, "fcfs")
        finally:
            ready.set()
            await scheduler.close()

    asyncio.run(run())


def test_a_store_that_is_slow_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.live.service.journal_loop.GIVE_UP", 0.05)
    write = Store.write

    def slowly(store: Store, batch: Any) -> None:
        time.sleep(0.5)
        write(store, batch)

    async def run() -> None:
        scheduler = await Scheduler.open(ServiceSettings(store=str(tmp_path / "db")))
        try:
            monkeypatch.setattr(Store, "write", slowly)
            job = Job("slow", "t", (Role("task", 1, {"cpu": 1000}),), work=3600.0)
            assert (await scheduler.submit([job]))[0].job.id == "slow"
            assert scheduler.health.ready
        finally:
            await scheduler.close()

    asyncio.run(run())
