"""Roles, ceilings and tokens: each role may do what docs/security.md says, and nothing else."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from berth.cli import main
from berth.live.service.authenticator import Authenticator
from berth.live.service.problems import Refused
from berth.live.service.store import Store, Token
from berth.live.service.tokens import ROLES, digest, new_secret
from tests.harness.waiting import eventually
from tests.live.service.live import Live, serving

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
ROLE_USERS = {"metrics": "prometheus", "read": "board", "submit": "ann", "operate": "ops"}
JOB = {"resources": {"cpu": 1}, "work": 100_000}
BODIES: dict[str, Any] = {
    "POST /v1/jobs": JOB,
    "POST /v1/plan": JOB,
    "PUT /v1/queues": {"queues": {"default": {}}},
    "PUT /v1/policy": {"policy": "in-order-best-fit"},
    "PUT /v1/shadow": {"policy": "first-fit"},
    "POST /v1/what-if": {"policy": "in-order-best-fit", "hours": 1},
}
LOGS = "GET /v1/jobs/{job}/logs"
"""A simulated cluster has none, and says so to all who may ask."""
Run = Callable[..., tuple[int, str, str]]


class Guarded:
    """A service with a token for each role, and for a second user of role submit."""

    def __init__(self, live: Live, secrets: dict[str, str]) -> None:
        self.live, self.secrets = live, secrets

    def send(
        self, who: str | None, method: str, path: str, body: Any = None, key: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        """One request; its status, and the answer where it is JSON. Of a stream only the status is read."""
        connection = HTTPConnection("127.0.0.1", self.live.port, timeout=120)
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        if who is not None:
            headers["Authorization"] = f"Bearer {self.secrets[who]}"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        kind = answer.getheader("content-type", "")
        found = json.loads(answer.read()) if "json" in kind else {}
        connection.close()
        return answer.status, found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("roles")
    store, secrets = Store(str(folder / "berth.db")), {}
    for who, role in [*((user, role) for role, user in ROLE_USERS.items()), ("bob", "submit")]:
        secrets[who] = new_secret()
        store.add_token(Token(who, digest(secrets[who]), role, who, time.time()))
    store.close()
    with serving(folder) as live:
        yield Guarded(live, secrets)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; exit code, output and errors."""
    monkeypatch.delenv("BERTH_TOKEN", raising=False)
    monkeypatch.delenv("BERTH_TOKEN_FILE", raising=False)

    def ran(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return ran


def table() -> dict[str, dict[str, str]]:
    """The table of docs/security.md: for each request the cell of each role."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| `([A-Z]+ /\S*)` \|(.+)\|$", line):
            cells = [cell.strip() for cell in match[2].split("|")]
            found[match[1]] = dict(zip(("", *ROLES), cells, strict=True))
    return found


def test_every_request_is_in_the_table(guarded: Guarded) -> None:
    described = guarded.live.ask("GET", "/v1/openapi.json")["paths"]
    assert {f"{method.upper()} {path}" for path, methods in described.items() for method in methods} == set(table())


@pytest.mark.parametrize("request_", table())
def test_each_role_may_do_what_the_table_says(guarded: Guarded, request_: str) -> None:
    method, path = request_.split()
    for role, cell in table()[request_].items():
        who = ROLE_USERS.get(role)
        for owner in ("ann", "bob"):
            _, made = guarded.send(owner, "POST", "/v1/jobs", JOB)
            target = path.replace("{job}", made["jobs"][0]["id"]).replace("{server}", "cpu-0")
            status, said = guarded.send(who, method, target, BODIES.get(request_))
            allowed = cell == "yes" or (cell == "own" and owner == who)
            done = (404,) if request_ == LOGS else (200, 201)
            expected = {True: done, False: (403,) if who else (401,)}[allowed]
            assert status in expected, (request_, role, owner, said)
            if "{job}" not in path:
                break


def test_a_wall_board_may_plan_but_nobody_plans_above_a_ceiling(guarded: Guarded) -> None:
    assert guarded.send("board", "POST", "/v1/plan", JOB)[0] == 200
    status, said = guarded.send("ann", "POST", "/v1/plan", {**JOB, "priority": 5})
    assert (status, said["errors"][0]["field"]) == (403, "priority")


CEILINGS = {
    "queues": {
        "default": {},
        "night": {"max_priority": 3},
        "urgent": {"users": ["bob"], "teams": ["oncall"], "max_priority": 1000},
    },
    "members": {"oncall": ["ann"], "vision": ["bob"]},
}


@pytest.mark.parametrize(
    ("who", "spec", "field", "said"),
    [
        ("ann", {"priority": 1_000_000}, "priority", "queue default allows priority up to 0"),
        ("ann", {"priority": 4, "queue": "night"}, "priority", "queue night allows priority up to 3"),
        ("ann", {"team": "vision"}, "team", "ann is not a member of team vision"),
        ("ann", {"team": "nobodys"}, "team", "teams of this user: default, oncall"),
        ("ann", {"queue": "urgent"}, "queue", "queue urgent is for users bob and teams oncall"),
        ("ann", {"priority": -5}, None, ""),
        ("ann", {"priority": 3, "queue": "night"}, None, ""),
        ("ann", {"team": "oncall", "queue": "urgent", "priority": 1000}, None, ""),
        ("bob", {"queue": "urgent"}, None, ""),
        ("ops", {"team": "vision", "queue": "urgent", "priority": 1_000_000}, None, ""),
    ],
)
def test_ceilings(guarded: Guarded, who: str, spec: dict[str, Any], field: str | None, said: str) -> None:
    try:
        status, found = guarded.send("ops", "PUT", "/v1/queues", CEILINGS)
        assert (status, found["members"]) == (200, CEILINGS["members"])
        assert found["queues"]["urgent"]["teams"] == ["oncall"]
        status, found = guarded.send(who, "POST", "/v1/jobs", [JOB, {**JOB, **spec}])
        if field is None:
            assert status == 201, found
        else:
            assert (status, found["errors"][0]["field"]) == (403, field)
            assert said in found["detail"]
    finally:
        guarded.send("ops", "PUT", "/v1/queues", {"queues": {"default": {}}})


def test_a_retry_is_answered_as_before_whatever_the_ceiling_is_now(guarded: Guarded) -> None:
    try:
        guarded.send("ops", "PUT", "/v1/queues", {"queues": {"default": {"max_priority": 5}}})
        first = guarded.send("ann", "POST", "/v1/jobs", {**JOB, "priority": 5}, key="once")
        assert first[0] == 201
    finally:
        guarded.send("ops", "PUT", "/v1/queues", {"queues": {"default": {}}})
    status, again = guarded.send("ann", "POST", "/v1/jobs", {**JOB, "priority": 5}, key="once")
    assert (status, again["jobs"][0]["id"]) == (201, first[1]["jobs"][0]["id"])
    assert guarded.send("ann", "POST", "/v1/jobs", {**JOB, "priority": 5}, key="another")[0] == 403


def test_a_queue_for_a_team_that_nobody_is_in_is_refused(guarded: Guarded) -> None:
    status, found = guarded.send("ops", "PUT", "/v1/queues", {"queues": {"default": {"teams": ["oncall"]}}})
    assert status == 422
    assert "queues.default.teams" in found["detail"]


def test_the_command_line_names_the_ceiling(guarded: Guarded, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERTH_URL", guarded.live.url)
    monkeypatch.setenv("BERTH_TOKEN", guarded.secrets["ann"])
    code, _, err = run("submit", "-r", "cpu=1", "--priority", "1000000")
    assert code == 4
    assert "queue default allows priority up to 0 (max_priority), and the job asks for 1000000" in err


@pytest.mark.parametrize("seconds", [-0.001, 0.0])
def test_a_token_is_good_until_it_expires(seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, secret = Store(str(tmp_path / "berth.db")), new_secret()
    store.add_token(Token("ann", digest(secret), "submit", "ann", 1.0, expires=1000.0))
    monkeypatch.setattr("berth.live.service.authenticator.time.time", lambda: 1000.0 + seconds)
    asking = Authenticator(store, open_=False).caller(f"Bearer {secret}")
    if seconds < 0:
        assert asyncio.run(asking).user == "ann"
    else:
        with pytest.raises(Refused) as refused:
            asyncio.run(asking)
        assert (refused.value.status, refused.value.title) == (401, "expired token")
    store.close()


def until_code(run: Run, code: int, *words: str) -> str:
    """Run a command again and again until it has this exit code; what it says then."""
    return eventually(lambda: run(*words), lambda found: found[0] == code, " ".join(words))[2]


def test_tokens_expire_and_are_rotated(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = "--store", str(tmp_path / "berth.db")
    monkeypatch.setattr("berth.live.service.authenticator.FRESH", 0.1)
    secret = run("token", "create", "ann", "--expires", "90d", *where)[1].strip()
    assert run("token", "create", "bad", "--expires", "soon", *where)[0] == 2
    with serving(tmp_path) as live:
        monkeypatch.setenv("BERTH_URL", live.url)
        monkeypatch.setenv("BERTH_TOKEN", secret)
        assert run("jobs")[0] == 0
        code, out, _ = run("token", "rotate", "ann", "--grace", "1h", *where)
        assert code == 0
        second = out.strip()
        monkeypatch.setenv("BERTH_TOKEN", second)
        until_code(run, 0, "policy")
        monkeypatch.setenv("BERTH_TOKEN", secret)
        assert run("policy")[0] == 0, "the old secret is valid for another hour"

        third = run("token", "rotate", "ann", *where)[1].strip()
        monkeypatch.setenv("BERTH_TOKEN", third)
        until_code(run, 0, "policy")
        monkeypatch.setenv("BERTH_TOKEN", second)
        code, _, err = run("policy")
        assert code == 4
        assert "token ann was rotated on" in err

        store = Store(where[1])
        (token,) = store.tokens()
        lifetime = token.lifetime
        assert lifetime is not None
        assert round(lifetime) == 90 * 86400
        store.close()
        code, out, _ = run("token", "list", *where)
        assert out.split("\n")[0].split() == ["NAME", "ROLE", "USER", "CREATED", "EXPIRES", "ROTATED", "REVOKED"]
        assert out.count(time.strftime("%Y-", time.gmtime())) >= 2
        assert not any(one in out for one in (secret, second, third, digest(third)))

        fourth = run("token", "rotate", "ann", "--expires", "0s", *where)[1].strip()
        monkeypatch.setenv("BERTH_TOKEN", fourth)
        # until the service has read the new secret
        code, _, err = eventually(lambda: run("policy"), lambda found: "token ann expired on" in found[2])
        assert code == 4
        assert "berth token rotate ann" in err
        assert run("token", "revoke", "ann", *where)[0] == 0
    assert run("token", "rotate", "ann", *where)[0] == 2


def test_a_service_whose_tokens_have_all_expired_stays_closed(run: Run, tmp_path: Path) -> None:
    assert run("token", "create", "ops", "--role", "operate", "--expires", "0s", "--store", str(tmp_path / "berth.db"))
    with serving(tmp_path) as live:
        assert run("jobs", "--url", live.url)[0] == 4
